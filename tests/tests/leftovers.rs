//! What holds a job up is removed also if the process that laid it was killed: the next one finds and removes it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper of a test fails like the test")]

use gpustall_tests::leftovers;
use gpustall_tests::process::ChildGuard;
use gpustall_tests::slowloop::SlowDisk;
use gpustall_tests::swap::Swap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

/// Not a promise of its own: the process that is killed.
#[test]
#[ignore = "run by the test below, in a process of its own"]
fn the_process_that_is_killed() {
    let disk = SlowDisk::new(16 << 20).unwrap();
    let _swap = Swap::new(16 << 20).unwrap();
    fs::write(disk.path().join("file"), "data").unwrap();
    println!("laid\n");
    // Until it is killed, or its parent is gone.
    let _ = std::io::stdin().read(&mut [0]);
}

/// Mounts, loop devices, swap and folders in whose name the pid of a process stands.
fn left_by(pid: u32) -> Vec<String> {
    let name = format!("/var/tmp/gpustall-scratch-{pid}-");
    let mut found = Vec::new();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    found.extend(mounts.lines().filter(|line| line.contains(&name)).map(str::to_owned));
    let swaps = fs::read_to_string("/proc/swaps").unwrap();
    for block in fs::read_dir("/sys/block").unwrap().map(Result::unwrap) {
        let backing = fs::read_to_string(block.path().join("loop/backing_file")).unwrap_or_default();
        if backing.starts_with(&name) {
            let device = format!("/dev/{}", block.file_name().to_string_lossy());
            found.extend(swaps.lines().filter(|line| line.starts_with(&device)).map(str::to_owned));
            found.push(format!("{device} on {backing}"));
        }
    }
    let folders = fs::read_dir("/var/tmp").unwrap().map(|entry| entry.unwrap().path().display().to_string());
    found.extend(folders.filter(|path| path.starts_with(&name)));
    found
}

#[test]
fn a_killed_process_leaves_nothing_for_long() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "--nocapture", "the_process_that_is_killed"]);
    let mut child = ChildGuard::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
    let pid = child.pid().0;
    let stdout = BufReader::new(child.0.stdout.take().unwrap());
    assert!(stdout.lines().map_while(Result::ok).any(|line| line.ends_with("laid")), "nothing was laid");
    let laid = left_by(pid);
    assert!(laid.iter().any(|l| l.contains(" fuse ")), "{laid:?}");
    assert!(laid.iter().any(|l| l.contains(" ext4 ")), "{laid:?}");
    assert!(laid.iter().any(|l| l.contains("partition")), "no swap: {laid:?}");
    leftovers::clear();
    assert_eq!(left_by(pid), laid, "what belongs to a living process stays");
    drop(child);
    leftovers::clear();
    assert_eq!(left_by(pid), Vec::<String>::new());
}
