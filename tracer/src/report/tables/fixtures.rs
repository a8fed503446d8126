//! Small timelines for tests; times in milliseconds from the start of the recording.

use super::{Opens, PathTables, Roles, Tables};
use crate::events::*;
use crate::gpu::GpuActivity;
use crate::host::BlockDevice;
use crate::report::{Competitor, DeviceReport, HistogramSummary, HotImage, ThreadReport};
use crate::timeline::{Timeline, TimelineBuilder};
use crate::units::{DevId, MonoNs, Nanos, Pid, Tid};

/// Start of every test's recording.
pub(super) const START: MonoNs = MonoNs(5_000_000_000);
/// Its length, milliseconds.
pub(super) const LENGTH: u64 = 1_000;
/// The process.
pub(super) const TARGET: Pid = Pid(1);

pub(super) fn at(ms: u64) -> MonoNs {
    START + Nanos::from_millis(ms)
}

/// A recording of one second.
pub(super) fn timeline(events: impl IntoIterator<Item = Event>) -> Timeline {
    let mut builder = TimelineBuilder::new(TARGET, START);
    for event in events {
        builder.push(event);
    }
    builder.finish(Some(at(LENGTH)))
}

/// Off the CPU from `off` to `on`, woken at `wake` by an interrupt.
pub(super) fn blocked(tid: u32, off: u64, wake: u64, on: u64, syscall: i16, state: SleepState) -> OffCpu {
    OffCpu {
        tid: Tid(tid),
        pid: TARGET,
        cpu: 0,
        off: at(off),
        wakeup: Some(Wakeup { at: at(wake), by: Waker::Interrupt }),
        on: at(on),
        state,
        iowait: false,
        syscall: Syscall(syscall),
        arg0: 3,
        file: None,
        next_tid: Tid(0),
        prev_tid: Tid(0),
        seeded: false,
        pending: false,
    }
}

/// Preempted by `next`.
pub(super) fn preempted(tid: u32, off: u64, on: u64, next: u32) -> OffCpu {
    OffCpu {
        wakeup: None,
        next_tid: Tid(next),
        prev_tid: Tid(next + 1_000),
        ..blocked(tid, off, off, on, -1, SleepState::Preempted)
    }
}

/// A read that waits for the disk, on inode `ino`.
pub(super) fn disk_read(tid: u32, off: u64, wake: u64, on: u64, ino: u64) -> OffCpu {
    OffCpu {
        iowait: true,
        file: Some(file_ref(ino, 0o100_644)),
        ..blocked(tid, off, wake, on, 0, SleepState::Uninterruptible)
    }
}

pub(super) fn file_ref(ino: u64, mode: u16) -> FileRef {
    let dev = DevId { major: 254, minor: 1 };
    FileRef { ino, dev, rdev: DevId::default(), magic: 0xef53, mode }
}

pub(super) fn named(ino: u64, path: &str) -> Event {
    Event::NamedFile(NamedFile { file: file_ref(ino, 0o100_644), path: path.into() })
}

/// An open that took `ms`.
pub(super) fn open(path: &str, ms: u64) -> Event {
    Event::Open(FileOpen {
        time: at(1),
        tid: Tid(1),
        pid: TARGET,
        syscall: Syscall(257),
        path: path.into(),
        outcome: Some(OpenOutcome { latency: Nanos::from_millis(ms), result: 3, flags: 0 }),
    })
}

/// A read request of 4 KiB on device 254:0 by thread `tid` of the target.
pub(super) fn request(start: u64, issue: u64, complete: u64, tid: u32) -> BlockRequest {
    BlockRequest {
        dev: DevId { major: 254, minor: 0 },
        op: BlockOp::Read,
        bytes: 4_096,
        sector: 0,
        start: Some(at(start)),
        issue: at(issue),
        complete: at(complete),
        submitter: Submitter::Target { tid: Tid(tid), pid: TARGET },
    }
}

pub(super) fn sample(tid: u32, ms: u64, syscall: i16, image: u32) -> Event {
    Event::CpuSample(CpuSample {
        time: at(ms),
        tid: Tid(tid),
        pid: TARGET,
        cpu: 0,
        syscall: Syscall(syscall),
        user_ip: 0,
        image: ImageId(image),
        file: None,
    })
}

/// Tables of a whole timeline.
pub(super) fn filled(tl: &Timeline, roles: &Roles<'_>) -> Tables {
    let mut tables = Tables::new(Opens::of(tl));
    tables.add(tl, roles);
    tables
}

pub(super) fn threads(tl: &Timeline, roles: &Roles<'_>) -> Vec<ThreadReport> {
    filled(tl, roles).threads(tl)
}

pub(super) fn paths(tl: &Timeline) -> PathTables {
    filled(tl, &|_| "").paths(tl)
}

pub(super) fn histograms(
    tl: &Timeline,
    roles: &Roles<'_>,
    disks: &[BlockDevice],
    gpus: &[GpuActivity],
) -> Vec<HistogramSummary> {
    filled(tl, roles).histograms(disks, &gpus.iter().collect::<Vec<_>>())
}

pub(super) fn devices(tl: &Timeline, disks: &[BlockDevice]) -> Vec<DeviceReport> {
    filled(tl, &|_| "").devices(tl, disks)
}

pub(super) fn competitors(tl: &Timeline) -> Vec<Competitor> {
    filled(tl, &|_| "").competitors(tl)
}

pub(super) fn hot_images(tl: &Timeline, roles: &Roles<'_>) -> Vec<HotImage> {
    filled(tl, roles).hot_images(tl)
}
