//! The PyTorch job's own account holds: what it logs can be scored, and its modes do what their names say.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails like the test")]

use gpustall_tests::truth::{Score, score_files};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Debian's interpreter, which has `python3-torch`.
const PYTHON: &str = "/usr/bin/python3";
const FILES: usize = 64;
const FILE_KB: usize = 128;

/// Ends the job whatever happens to the test.
struct Job(Child);

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Bytes that a process had fetched from a disk.
fn read_bytes(pid: u32) -> usize {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    io.lines().find_map(|line| line.strip_prefix("read_bytes: ")).unwrap().parse().unwrap()
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Runs the job; also gives what its workers had fetched from the disk before the steady phase.
fn run(extra: &[&str]) -> (Score, usize) {
    static ONE: Mutex<()> = Mutex::new(());
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/dataloader.py");
    let data = tempfile::tempdir_in("/var/tmp").unwrap();
    let (busy, truth) = (data.path().join("busy"), data.path().join("truth"));
    let mut job = Command::new(PYTHON);
    job.arg(script).args(["--seconds", "2", "--wait-go", "--data"]).arg(data.path());
    job.args(["--files", &FILES.to_string(), "--file-kb", &FILE_KB.to_string()]);
    job.arg("--busy-file").arg(&busy).arg("--truth").arg(&truth).args(extra);
    let mut job = Job(job.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(job.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "the job did not start; is python3-torch installed for {PYTHON}?");
    let fetched = children(job.0.id()).into_iter().map(read_bytes).sum();
    job.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(job.0.wait().unwrap().success());
    let score = score_files(&busy, &truth).unwrap();
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
