//! NVML's windows as evidence: late ones are moved to where they belong, and a driver that tells nothing is no idle GPU. Needs
//! root, to record.
#![allow(clippy::unwrap_used, reason = "a helper of a test fails like the test")]

use gpustall::demo::{Options, Scenario, start};
use gpustall_tests::recording::{Recording, command, report, stderr};
use gpustall_tests::standin_nvml;
use serde_json::{Value, json};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One workload at a time: together they would starve each other.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Builds the library that a simulated job waits in, beside the workload.
fn build_cuda() {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_demo-workload"));
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "standin-cuda"]);
    if program.parent().and_then(|p| p.file_name()).is_some_and(|n| n == "release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success());
}

fn notes(report: &Value) -> Vec<&str> {
    report["notes"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect()
}

/// Report of a run limited by its disk, whose driver is so late.
fn late(lag_ms: u64) -> Value {
    let mut c = command(["demo", "disk", "--json", "--duration", "10s", "--nvml", "--nvml-lib"]).unwrap();
    let output = c.arg(standin_nvml()).env("GPUSTALL_STANDIN_LAG_MS", lag_ms.to_string()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn late_windows_are_moved_back_and_the_report_says_so() {
    let _alone = alone();
    build_cuda();
    let told = late(200);
    let notes = notes(&told);
    let note = notes.iter().find_map(|n| n.strip_prefix("The utilization of GPU 0 lagged ")).expect("no lag was found");
    let lag: f64 = note.split(" ms behind its feeder").next().unwrap().parse().unwrap();
    assert!((lag - 200.0).abs() <= 30.0, "{note}");
    assert_eq!(told["verdict"]["bottleneck"], "storage_io", "{}", told["verdict"]);
    let disk = told["causes"].as_array().unwrap().iter().find(|c| c["cause"] == "disk").unwrap();
    assert!(disk["share"].as_f64().unwrap() > 0.7, "{}", told["causes"]);
    let gpu = &told["gpus"][0];
    assert_eq!((&gpu["evidence"], &gpu["source"]), (&json!("windows"), &json!("nvml")));
    assert!((0.5..=1.0).contains(&gpu["certain_share"].as_f64().unwrap()), "{gpu:#}");
}

#[test]
fn windows_in_time_stay_where_they_are() {
    let _alone = alone();
    build_cuda();
    let told = late(0);
    assert!(!notes(&told).iter().any(|n| n.contains("lagged")), "{:#}", told["notes"]);
}

/// The same run judged by its windows, late or not, and by its exact busy times.
fn assert_kinds_agree(scenario: &str, lag_ms: u64) {
    let folder = tempfile::tempdir().unwrap();
    let (file, busy) = (folder.path().join("run.gpustall"), folder.path().join("run.busy"));
    let mut c = command(["demo", scenario, "--json", "--duration", "10s", "--nvml", "--nvml-lib"]).unwrap();
    c.arg(standin_nvml()).arg("-o").arg(&file).arg("--keep-busy").arg(&busy);
    let output = c.env("GPUSTALL_STANDIN_LAG_MS", lag_ms.to_string()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let by_windows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let exact = report(&file, &["--gpu-trace", busy.to_str().unwrap()]).unwrap();
    let told = format!("windows: {:#}\nexact: {:#}", by_windows["causes"], exact["causes"]);
    println!("{scenario}, {lag_ms} ms late: {told}");
    assert_eq!(by_windows["verdict"]["bottleneck"], exact["verdict"]["bottleneck"], "{told}");
    let share = |v: &Value, cause: &Value| {
        let all = v["causes"].as_array().unwrap();
        all.iter().filter(|c| c["cause"] == *cause).map(|c| c["share"].as_f64().unwrap()).sum::<f64>()
    };
    for c in by_windows["causes"].as_array().unwrap().iter().chain(exact["causes"].as_array().unwrap()) {
        let (a, b) = (share(&by_windows, &c["cause"]), share(&exact, &c["cause"]));
        assert!((a - b).abs() <= 0.10, "{}: {a:.3} by windows, {b:.3} exactly\n{told}", c["cause"]);
    }
    assert_eq!(exact["gpus"][0]["certain_share"], 1.0);
}

#[test]
fn both_kinds_of_evidence_agree_on_one_run() {
    let _alone = alone();
    build_cuda();
    assert_kinds_agree("disk", 0);
    assert_kinds_agree("disk", 150);
    assert_kinds_agree("preprocessing", 0);
}

#[test]
fn a_driver_that_tells_nothing_is_no_idle_gpu() {
    let _alone = alone();
    build_cuda();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("silent.gpustall");
    let program = Some(env!("CARGO_BIN_EXE_demo-workload").into());
    let options = Options { nvml: true, program, ..Options::new(Scenario::Compute, Duration::from_secs(6)) };
    let mut running = start(&options).unwrap();
    let pid = running.pid().0.to_string();
    // The stand-in is given no busy times: always 0 %, while the job keeps its context.
    let mut c = command(["record", "--duration", "5s", "--pid", &pid, "--nvml-lib"]).unwrap();
    c.arg(standin_nvml()).env_remove("GPUSTALL_STANDIN_BUSY").env("GPUSTALL_STANDIN_PIDS", &pid).arg("-o").arg(&file);
    let mut recording = Recording::start(&mut c).unwrap();
    running.go().unwrap();
    let (status, said) = recording.wait().unwrap();
    assert!(status.success(), "{said}");
    running.wait().unwrap();
    let told = report(&file, &[]).unwrap();
    assert_eq!((&told["gpus"], &told["causes"]), (&json!([]), &json!([])), "{:#}", told["notes"]);
    let notes = notes(&told);
    let note =
        notes.iter().find(|n| n.starts_with("GPU 0 was told to be 0 % busy at all times")).expect("it is not told");
    assert!(note.contains("seems not to tell utilization") && note.contains("--gpu-trace"), "{note}");
}
