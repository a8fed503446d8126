//! A report of a part of a recording tells that part's causes: a disk that held the job up in its first epoch only.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails like the test")]

use gpustall_tests::lab::account::Account;
use gpustall_tests::lab::score::score;
use gpustall_tests::lab::table::UNLOGGED;
use gpustall_tests::lab::{run, scenarios};
use gpustall_tests::recording::report;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// When the last thing was done for batches below `batch`, by the job's own account.
fn done(folder: &Path, batch: u64) -> u64 {
    let text = fs::read_to_string(folder.join("truth")).unwrap();
    let entries = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let reads = entries.filter(|e| e["doing"] == "read");
    let below = reads.filter(|e| e["item"].as_str().unwrap().parse::<u64>().unwrap() < batch);
    below.filter_map(|e| e["end_ns"].as_u64()).max().unwrap()
}

/// Seconds of idle time in all, and for a cause.
fn idle(report: &Value, cause: &str) -> (f64, f64) {
    let causes = report["causes"].as_array().unwrap();
    let of = causes.iter().filter(|c| c["cause"] == cause).map(|c| c["seconds"].as_f64().unwrap()).sum();
    (report["gpus"][0]["idle_s"].as_f64().unwrap(), of)
}

#[test]
fn a_cold_first_epoch_is_told_from_the_warm_ones_after_it() {
    let scenario = scenarios::all().into_iter().find(|s| s.name == "disk-cold-then-warm").unwrap();
    if let Some(why) = (scenario.missing)() {
        panic!("{why}");
    }
    let folder = tempfile::tempdir().unwrap();
    run::run(&scenario, 6.0, Some(folder.path())).unwrap();
    let (recording, busy) = (folder.path().join("job.gpustall"), folder.path().join("busy"));
    let part = |args: &[&str]| {
        let trace = ["--gpu-trace", busy.to_str().unwrap()];
        report(&recording, &[trace.as_slice(), args].concat()).unwrap()
    };
    let whole = part(&[]);
    // 320 files in batches of 4.
    let cold_until = done(folder.path(), 320 / 4);
    let start = whole["recording"]["started_mono_ns"].as_u64().unwrap();
    let at = format!("{:.6}s", (cold_until - start) as f64 / 1e9);
    let (cold, warm) = (part(&["--to", &at]), part(&["--from", &at]));
    // What a machine that gives page cache away had to read again after that: programs and libraries, too, which is `unlogged`.
    let account = Account::read(&busy, &folder.path().join("truth")).unwrap();
    let gaps = score(&account, scenario.rows).unwrap().gaps;
    let later = gaps.iter().filter(|gap| gap.span.start >= cold_until).flat_map(|gap| &gap.causes);
    let read_again =
        later.filter(|(cause, _)| ["disk", UNLOGGED].contains(*cause)).map(|(_, ns)| ns / 1e9).sum::<f64>();
    let told = format!(
        "until {at}: {}\nfrom then on: {}, of {}; {read_again} s by the job's account\nwhole: {}",
        cold["causes"], warm["causes"], warm["files"], whole["causes"]
    );
    let ((cold_idle, cold_disk), (_, warm_disk), (_, disk)) =
        (idle(&cold, "disk"), idle(&warm, "disk"), idle(&whole, "disk"));
    assert!(cold_disk > 0.5 * cold_idle, "{told}");
    assert_eq!(cold["verdict"]["bottleneck"], "storage_io", "{told}");
    assert!(warm_disk < read_again + 0.02 * disk, "{told}");
    assert!(read_again > 0.02 * disk || warm["verdict"]["bottleneck"] != "storage_io", "{told}");
    assert!((cold_disk + warm_disk - disk).abs() < 0.02 * disk, "the parts make up the whole: {told}");
}
