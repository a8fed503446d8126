//! The PyTorch job's own account holds: what it logs can be scored, and its modes do what their names say.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails like the test")]

use gpustall::units::Pid;
use gpustall_tests::dataloader::DataLoaderJob;
use gpustall_tests::truth::Score;
use std::fs;
use std::sync::{Mutex, PoisonError};

const FILES: usize = 64;
const FILE_KB: usize = 128;

/// Bytes that a process had fetched from a disk.
fn read_bytes(pid: Pid) -> usize {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    io.lines().find_map(|line| line.strip_prefix("read_bytes: ")).unwrap().parse().unwrap()
}

/// Runs the job; also gives what its workers had fetched from the disk before the steady phase.
fn run(extra: &[&str]) -> (Score, usize) {
    static ONE: Mutex<()> = Mutex::new(());
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (files, kb) = (FILES.to_string(), FILE_KB.to_string());
    let args: Vec<&str> =
        ["--seconds", "2", "--files", &files, "--file-kb", &kb].into_iter().chain(extra.iter().copied()).collect();
    let mut job = DataLoaderJob::start(&args).unwrap();
    let fetched = job.children().unwrap().into_iter().map(read_bytes).sum();
    job.go().unwrap();
    let score = job.score().unwrap();
    println!("{extra:?}: GPU busy {:.1} %, {} gaps, {}", 100.0 * score.busy_share(), score.gaps, score.idle.summary());
    assert_eq!(score.unmatched, 0);
    assert!(score.gaps > 3);
    (score, fetched)
}

#[test]
fn preprocessing_is_cpu_work_whatever_starts_the_workers() {
    for method in ["fork", "spawn"] {
        let (score, _) = run(&["--mode", "preprocess", "--workers", "1", "--start-method", method]);
        // Work is fixed: what a busy machine takes from it appears as starvation, never as disk.
        let on_cpu = score.idle.preprocessing + score.idle.cpu_starved;
        assert!(score.idle.share(on_cpu) > 0.6, "{score:?}");
        assert!(score.idle.share(score.idle.disk) < 0.1, "{score:?}");
        assert!(score.busy_share() < 0.6, "{score:?}");
    }
}

#[test]
fn disk_mode_reads_from_the_disk_again_and_again() {
    // 20 warm-up batches are 80 reads, more than there are files: without eviction 64 would be fetched at most.
    let (_, fetched) = run(&["--mode", "disk", "--workers", "1", "--warm-up", "20", "--compute-ms", "2"]);
    assert!(fetched >= (80 * FILE_KB) << 10, "{fetched} bytes");
}

#[test]
fn main_can_load_by_itself() {
    let (score, _) = run(&["--mode", "preprocess", "--workers", "0"]);
    let on_cpu = score.idle.preprocessing + score.idle.cpu_starved;
    assert!(score.idle.share(on_cpu) > 0.9, "{score:?}");
}
