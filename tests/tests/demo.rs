//! `gpustall demo` names what holds its own workload up, every time, with both kinds of GPU evidence.
//!
//! Each scenario runs once, or as often as the environment variable `GPUSTALL_DEMO_RUNS` says.

use anyhow::{Context, ensure};
use gpustall_tests::binary::gpustall;
use gpustall_tests::truth::{Score, score_files};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// One demo after the other: they compete for CPUs.
static ONE: Mutex<()> = Mutex::new(());

fn runs() -> usize {
    std::env::var("GPUSTALL_DEMO_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// Runs a scenario and gives its report and what the workload itself measured.
fn demo(scenario: &str, more: &[&str]) -> anyhow::Result<(Value, Score)> {
    let folder = tempfile::tempdir()?;
    let (truth, busy) = (folder.path().join("truth"), folder.path().join("busy"));
    let out = Command::new(gpustall()?)
        .args(["demo", scenario, "--json", "--duration", "4s"])
        .args(more)
        .arg("--keep-truth")
        .arg(&truth)
        .arg("--keep-busy")
        .arg(&busy)
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(out.status.success(), "the demo failed: {}", out.status);
    let report = serde_json::from_slice(&out.stdout).context("standard output is not one JSON object")?;
    Ok((report, score_files(&busy, &truth)?))
}

fn share(report: &Value, cause: &str) -> f64 {
    let causes = report["causes"].as_array().unwrap();
    causes.iter().filter(|c| c["cause"] == cause).map(|c| c["share"].as_f64().unwrap()).sum()
}

/// Verdict and shares, for every run and both kinds of evidence.
fn check(scenario: &str, bottleneck: &str, cause: Option<&str>) {
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Without the stand-in beside the executable there is nothing to ask.
    let standin = gpustall_tests::standin_nvml();
    let standin = standin.to_str().unwrap();
    for run in 0..runs() {
        for nvml in [false, true] {
            let more: &[&str] = if nvml { &["--nvml", "--nvml-lib", standin] } else { &[] };
            let (report, score) = demo(scenario, more).unwrap();
            let told = format!(
                "{scenario}, run {run}, nvml {nvml}: {}\nreport: {}\nworkload: {}",
                report["verdict"]["summary"],
                report["causes"],
                score.idle.summary()
            );
            println!("{told}");
            assert_eq!(report["verdict"]["bottleneck"], bottleneck, "{told}");
            assert_eq!(report["verdict"]["cause"].as_str(), cause, "{told}");
            assert_eq!(report["gpus"][0]["source"], if nvml { "nvml" } else { "simulated" });
            assert_eq!(report["recording"]["lost_events"], 0, "{told}");
            if cause.is_none() {
                continue;
            }
            for (cause, seconds) in [
                ("disk", score.idle.disk),
                ("preprocessing", score.idle.preprocessing),
                ("cpu_starved", score.idle.cpu_starved),
            ] {
                let (truth, told_share) = (score.idle.share(seconds), share(&report, cause));
                assert!((truth - told_share).abs() <= 0.10, "{cause}: {truth:.3} true, {told_share:.3} told\n{told}");
            }
            assert!(share(&report, "unknown") < 0.03, "{told}");
            let sum: f64 = report["causes"].as_array().unwrap().iter().map(|c| c["share"].as_f64().unwrap()).sum();
            assert!((sum - 1.0).abs() < 1e-6, "{told}");
        }
    }
}

#[test]
fn disk() {
    check("disk", "storage_io", Some("disk"));
}

#[test]
fn cpu_starved() {
    check("cpu-starved", "cpu_starvation", Some("cpu_starved"));
}

#[test]
fn preprocessing() {
    check("preprocessing", "data_loading", Some("preprocessing"));
}

#[test]
fn compute() {
    check("compute", "compute", None);
}

#[test]
fn the_text_report_answers_first_and_leaves_nothing_behind() {
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let out = Command::new(gpustall().unwrap()).args(["demo", "disk", "--duration", "2s"]).output().unwrap();
    let (text, words) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
    assert!(out.status.success(), "{words}");
    let first = text.lines().next().unwrap();
    assert!(first.starts_with("GPU 0 was idle ") && first.contains("waited for disk"), "{text}");
    assert!(words.contains("scenario disk"), "{words}");
    for folder in ["/var/tmp", "/tmp", "/dev/shm", "/sys/fs/cgroup/blkio"] {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        let left: Vec<_> = entries.flatten().filter(|e| e.file_name().to_string_lossy().starts_with("gpustall-demo")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn nonsense_is_a_usage_error() {
    for args in [&["demo", "fire"][..], &["demo", "disk", "--duration", "0s"], &["demo", "disk", "--duration", "soon"]] {
        let out = Command::new(gpustall().unwrap()).args(args).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(out.stdout.is_empty());
    }
}
