//! Judging hand-written facts about a target.

use super::*;
use crate::doctor::Level;
use crate::host::Mount;
use crate::units::{DevId, Nanos};

fn target(state: State) -> Target {
    Target {
        pid: Pid(42),
        command: "python3 train.py".into(),
        state,
        processes: 5,
        online_cpus: 8,
        limits: ProcessLimits { allowed_cpus: (0..8).collect(), ..ProcessLimits::default() },
        groups: vec![],
        swapped: 0,
        storage: vec![],
    }
}

#[test]
fn an_unlimited_process_is_all_right() {
    let checks = judge(&target(State::Alive));
    assert!(checks.iter().all(|c| c.level == Level::Ok), "{checks:?}");
    assert_eq!(checks[0].finding, "42: python3 train.py; 5 processes with its descendants");
}

#[test]
fn a_process_that_cannot_train_is_a_failure() {
    assert_eq!(judge_target(&target(State::Zombie)).level, Level::Failure);
    assert_eq!(judge_target(&target(State::KernelThread)).level, Level::Failure);
    let check = judge_target(&target(State::ThreadOf(Pid(40))));
    assert_eq!((check.level, check.advice.as_deref()), (Level::Failure, Some("give the pid of the process: --pid 40")));
}

#[test]
fn fewer_cpus_than_there_are() {
    let check = judge_cpus(&[0, 1, 2, 6], 8);
    assert_eq!(check.level, Level::Warning);
    assert_eq!(check.finding, "may run on 4 of 8 CPUs (0-2,6)");
    assert_eq!(judge_cpus(&[0, 1], 2).level, Level::Ok);
}

#[test]
fn a_quota_with_what_it_did() {
    let group = |path: &str, periods, ms| CgroupCpu {
        path: path.into(),
        quota_cpus: Some(0.5),
        throttled_periods: periods,
        throttled: Nanos::from_millis(ms),
    };
    let check = judge_quota(Some(0.5), &[group("/a", 0, 0), group("/b", 30, 1500)]);
    assert_eq!(check.level, Level::Warning);
    assert_eq!(check.finding, "its control groups give it 0.50 CPUs; /b throttled in 30 periods so far, for 1.5 s");
    assert!(judge_quota(Some(2.0), &[]).finding.ends_with("not throttled so far"));
    assert_eq!(judge_quota(None, &[]).level, Level::Ok);
}

#[test]
fn io_limits_are_spelled_out() {
    let limit = IoLimit {
        dev: DevId { major: 8, minor: 16 },
        group: "/sys/fs/cgroup/job".into(),
        read_bps: Some(20 << 20),
        read_iops: Some(100),
        write_bps: None,
        write_iops: None,
    };
    let check = judge_io(&[limit]);
    assert_eq!(check.level, Level::Warning);
    assert_eq!(check.finding, "device 8:16: reads 20 MiB/s, 100 reads/s (set in /sys/fs/cgroup/job)");
    assert_eq!(judge_io(&[]).level, Level::Ok);
}

#[test]
fn memory_and_nice() {
    assert_eq!(judge_memory(None, 1 << 20).level, Level::Ok);
    assert_eq!(judge_memory(Some(1 << 30), 0).level, Level::Ok);
    assert_eq!(judge_memory(Some(1 << 30), 1 << 30).level, Level::Warning);
    assert_eq!(judge_nice(10).level, Level::Warning);
    assert_eq!(judge_nice(-5).level, Level::Ok);
}

#[test]
fn files_on_slow_kinds_of_storage() {
    let storage = |fs_type: &str, kind, disks: &[&str]| StorageUse {
        mount: Mount {
            dev: DevId::default(),
            root: "/".into(),
            point: "/data".into(),
            fs_type: fs_type.into(),
            source: "srv:/x".into(),
        },
        kind: Some(kind),
        files: 3,
        example: "/data/a".into(),
        disks: disks.iter().map(|d| d.to_string()).collect(),
    };
    let checks = judge_files(&[
        storage("nfs4", FsKind::Network, &[]),
        storage("fuse.sshfs", FsKind::UserSpace, &[]),
        storage("ext4", FsKind::Local, &["sda", "sdb"]),
        storage("proc", FsKind::Pseudo, &[]),
    ]);
    let levels: Vec<Level> = checks.iter().map(|c| c.level).collect();
    assert_eq!(levels, [Level::Warning, Level::Warning, Level::Ok]);
    assert_eq!(checks[0].finding, "3 files on nfs4 at /data (such as /data/a): from srv:/x over the network");
    assert_eq!(checks[2].finding, "3 files on ext4 at /data (such as /data/a): disk sda, sdb");
    assert_eq!(judge_files(&[]).len(), 1);
}
