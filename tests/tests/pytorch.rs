//! The main job: attach to a real PyTorch DataLoader training, and the report agrees with what the training measured
//! itself.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails like the test")]

use anyhow::{Context, ensure};
use gpustall_tests::binary::gpustall;
use gpustall_tests::cgroup::BlkioGroup;
use gpustall_tests::dataloader::DataLoaderJob;
use gpustall_tests::disks::whole_disk;
use gpustall_tests::lost::dropped;
use gpustall_tests::truth::Score;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};

/// Records the job from its start to its end and gives the report by exact busy times, and what the job measured.
fn traced(args: &[&str], throttle: Option<u64>) -> anyhow::Result<(Value, Score)> {
    let mut job = DataLoaderJob::start(args)?;
    let group = match throttle {
        Some(iops) => {
            let group = BlkioGroup::with_read_limit(whole_disk(Path::new("/var/tmp"))?, None, Some(iops))?;
            for pid in job.children()? {
                group.add(pid)?;
            }
            Some(group)
        }
        None => None,
    };
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("job.gpustall");
    let mut recorder = Command::new(gpustall()?)
        .args(["record", "--no-gpu", "--pid", &job.pid().to_string(), "-o"])
        .arg(&file)
        .stderr(Stdio::piped())
        .spawn()?;
    wait_for_attach(&mut recorder)?;
    job.go()?;
    let score = job.score()?;
    let recorded = recorder.wait()?;
    ensure!(recorded.success(), "recording failed: {recorded}");
    drop(group);
    let out = Command::new(gpustall()?)
        .args(["report", "--json", "--gpu-trace"])
        .arg(job.busy_file())
        .arg(&file)
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(out.status.success(), "report failed");
    let report = serde_json::from_slice(&out.stdout).context("the report is no JSON")?;
    Ok((report, score))
}

/// Waits until the recorder says that it records.
fn wait_for_attach(recorder: &mut std::process::Child) -> anyhow::Result<()> {
    use std::io::BufRead;
    let stderr = recorder.stderr.take().context("no standard error")?;
    let mut lines = std::io::BufReader::new(stderr).lines();
    for line in &mut lines {
        let line = line?;
        eprintln!("{line}");
        if line.contains("recording process") {
            std::thread::spawn(move || lines.map_while(Result::ok).for_each(|l| eprintln!("{l}")));
            return Ok(());
        }
    }
    anyhow::bail!("the recorder ended before it attached")
}

/// Share of idle time that the report gives a cause.
fn share(report: &Value, cause: &str) -> f64 {
    let causes = report["causes"].as_array().unwrap();
    causes.iter().filter(|c| c["cause"] == cause).map(|c| c["share"].as_f64().unwrap()).sum()
}

fn explain(report: &Value, score: &Score) -> String {
    format!("report: {}\nverdict: {}\njob: {}", report["causes"], report["verdict"]["summary"], score.idle.summary())
}

/// The causes are those of the job's own account, and all of the idle time is explained.
fn agrees(report: &Value, score: &Score) {
    let told = explain(report, score);
    println!("{told}");
    for (cause, seconds) in [("disk", score.idle.disk), ("preprocessing", score.idle.preprocessing)] {
        let (true_share, reported) = (score.idle.share(seconds), share(report, cause));
        assert!((true_share - reported).abs() <= 0.10, "{cause}: {true_share:.3} true, {reported:.3} reported\n{told}");
    }
    // The job's account sees starvation of workers while they prepare; that of its main thread and of the threads that
    // carry batches is among "other".
    let (starved, other) = (score.idle.share(score.idle.cpu_starved), score.idle.share(score.idle.other));
    let reported = share(report, "cpu_starved");
    assert!(reported >= starved - 0.10 && reported <= starved + other + 0.10, "{told}");
    assert!(share(report, "unknown") < 0.03, "{told}");
    let sum: f64 = report["causes"].as_array().unwrap().iter().map(|c| c["share"].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-6, "{told}");
    let idle = report["gpus"][0]["idle_s"].as_f64().unwrap();
    assert!((idle - score.idle.total).abs() <= 0.02 * score.idle.total + 0.01, "{idle} s idle\n{told}");
    assert_eq!(dropped(report), 0, "{told}");
    assert_eq!(report["recording"]["complete"], true, "{told}");
}

#[test]
fn a_throttled_disk_is_named_with_the_share_that_the_job_measured() {
    let args = ["--mode", "disk", "--seconds", "6", "--workers", "2", "--files", "256", "--compute-ms", "10"];
    let (report, score) = traced(&args, Some(100)).unwrap();
    assert_eq!(report["verdict"]["bottleneck"], "storage_io", "{}", explain(&report, &score));
    assert_eq!(report["verdict"]["cause"], "disk");
    agrees(&report, &score);
    let workers = report["threads"].as_array().unwrap().iter().filter(|t| t["role"] == "worker").count();
    assert!(workers >= 2, "{}", report["threads"]);
}

#[test]
fn a_transform_that_burns_cpu_is_named_preprocessing() {
    let args = ["--mode", "preprocess", "--seconds", "6", "--workers", "1", "--compute-ms", "10"];
    let (report, score) = traced(&args, None).unwrap();
    assert_eq!(report["verdict"]["bottleneck"], "data_loading", "{}", explain(&report, &score));
    assert_eq!(report["verdict"]["cause"], "preprocessing");
    agrees(&report, &score);
}

#[test]
fn without_workers_the_main_thread_itself_prepares_the_data() {
    let args = ["--mode", "preprocess", "--seconds", "4", "--workers", "0", "--compute-ms", "10"];
    let (report, score) = traced(&args, None).unwrap();
    assert_eq!(report["verdict"]["bottleneck"], "data_loading", "{}", explain(&report, &score));
    agrees(&report, &score);
    let advice = report["verdict"]["advice"].to_string();
    assert!(advice.contains("workers"), "{advice}");
}
