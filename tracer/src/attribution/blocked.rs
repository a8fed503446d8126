//! The cause of a blocked time that no thread of the target ended.

use super::calls::{self, CallKind};
use super::{Cause, Surroundings};
use crate::events::{FileType, SleepState};
use crate::host::FsKind;
use crate::timeline::{Interval, ThreadLine, Timeline, WakeKind};

/// Major numbers of the NVIDIA driver's device nodes: /dev/nvidia* (`Documentation/admin-guide/devices.txt`). The others
/// (uvm, caps) have dynamic numbers and are known by their path.
const NVIDIA_MAJOR: u32 = 195;

/// Whether a blocked interval waits for storage or something else that no thread's wake-up explains better.
pub fn has_no_edge(i: &Interval, same_process: bool) -> bool {
    // Waits for disk end with an interrupt or a kernel thread, or with whoever happened to complete them. An
    // uninterruptible wait that is no I/O is a kernel lock; its holder explains it if it is of the same process.
    i.iowait || (i.state == SleepState::Uninterruptible && !same_process)
}

/// Cause of the blocked part of `i` on `line`. `checkpoint`: the thread works on a
/// checkpoint of the process that feeds the GPU.
pub fn cause(tl: &Timeline, around: &Surroundings, line: &ThreadLine, i: &Interval, checkpoint: bool) -> Cause {
    let call = calls::kind(i.syscall);
    let file = tl.file(i.file);
    let storage = |regular: Cause| match file {
        Some(f) => match around.kind_of(f) {
            FsKind::Network | FsKind::UserSpace => Cause::NetworkStorage,
            FsKind::Memory => Cause::Memory,
            FsKind::Local | FsKind::Pseudo => regular,
        },
        None => match tl.blocked_path(line, i).map(|p| around.kind_of_path(p)) {
            Some(FsKind::Network | FsKind::UserSpace) => Cause::NetworkStorage,
            _ => regular,
        },
    };
    if let Some(f) = file {
        match f.file_type() {
            FileType::CharDevice => {
                let nvidia = f.rdev.major == NVIDIA_MAJOR || tl.path_of(f).is_some_and(|p| p.contains("/nvidia"));
                if nvidia {
                    return Cause::GpuDriver;
                }
            }
            FileType::Regular | FileType::Directory | FileType::BlockDevice => {
                let writes = matches!(call, CallKind::Write | CallKind::Sync);
                return storage(if writes && checkpoint { Cause::Checkpoint } else { Cause::Disk });
            }
            FileType::Socket if i.wake_kind != WakeKind::Thread => return Cause::Network,
            _ => {}
        }
    }
    let uninterruptible = i.is_uninterruptible();
    match call {
        CallKind::PageFault | CallKind::MemoryMap if uninterruptible => {
            if around.swapping(i.off, i.on) {
                Cause::Memory
            } else if i.iowait {
                // A fault on a mapped file that is not in the page cache.
                Cause::Disk
            } else {
                Cause::Memory
            }
        }
        CallKind::Path if uninterruptible => storage(Cause::Disk),
        CallKind::Sync if checkpoint => storage(Cause::Checkpoint),
        CallKind::AsyncIo => Cause::Disk,
        _ if i.iowait => storage(if call == CallKind::Write && checkpoint { Cause::Checkpoint } else { Cause::Disk }),
        _ if i.wake_kind == WakeKind::Thread => Cause::OtherProcess,
        CallKind::Sleep => Cause::Sleep,
        // A time-out: it waited for nothing that came.
        CallKind::Poll | CallKind::Futex if i.wake_kind == WakeKind::Interrupt => Cause::Sleep,
        CallKind::Socket => Cause::Network,
        _ if uninterruptible => storage(Cause::Disk),
        _ => Cause::Unknown,
    }
}
