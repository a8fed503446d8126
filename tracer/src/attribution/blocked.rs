//! The cause of a blocked time that no thread of the target ended.

use super::calls::{self, CallKind};
use super::{Cause, Surroundings};
use crate::events::{FileRef, FileType, SleepState};
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
    // Whatever a checkpoint is written to, it is the checkpoint that holds up the training.
    if checkpoint && matches!(call, CallKind::Write | CallKind::Sync) && is_storage_wait(tl, i) {
        return Cause::Checkpoint;
    }
    let file = tl.file(i.file);
    match file.map(FileRef::file_type) {
        Some(FileType::CharDevice) if file.is_some_and(|f| is_gpu(tl, f)) => return Cause::GpuDriver,
        Some(FileType::Regular | FileType::Directory | FileType::BlockDevice) => return storage(tl, around, line, i),
        // Whatever ended it, short of a time-out, came over the socket.
        Some(FileType::Socket) => return if i.timed_out() == Some(true) { Cause::Sleep } else { Cause::Network },
        _ => {}
    }
    match call {
        CallKind::PageFault | CallKind::MemoryMap if i.is_uninterruptible() => fault(around, i),
        // The server of a user-space file system is waited for like any other process.
        CallKind::PageFault if i.wake_kind == WakeKind::Thread && around.has_user_space() => Cause::NetworkStorage,
        // Without a thread that is known to hold it up, such a call waits for the file system under its path.
        CallKind::Path | CallKind::AsyncIo => storage(tl, around, line, i),
        _ if i.iowait => storage(tl, around, line, i),
        CallKind::Read | CallKind::Write | CallKind::Sync if i.is_uninterruptible() => storage(tl, around, line, i),
        CallKind::Sleep => Cause::Sleep,
        CallKind::Socket => Cause::Network,
        CallKind::Poll => polled(i),
        _ if i.wake_kind == WakeKind::Thread => Cause::OtherProcess,
        // A time-out: it waited for nothing that came.
        CallKind::Futex if i.wake_kind == WakeKind::Interrupt => Cause::Sleep,
        // A kernel lock or service; what it has to do with the training cannot be told.
        _ => Cause::Unknown,
    }
}

/// A wait for one of several descriptors, no file known.
fn polled(i: &Interval) -> Cause {
    // connect, sendto, sendmsg, sendmmsg: the waker sent something over a socket.
    const SENDS: [i16; 4] = [42, 44, 46, 307];
    match (i.wake_kind, i.timed_out()) {
        (WakeKind::Thread, _) if SENDS.contains(&i.waker_syscall.0) => Cause::Network,
        (WakeKind::Thread, _) => Cause::OtherProcess,
        (WakeKind::Interrupt, Some(true) | None) => Cause::Sleep,
        // A packet, handled in an interrupt or by ksoftirqd; other devices that are polled are rare in a training.
        (WakeKind::Interrupt | WakeKind::KernelThread, _) => Cause::Network,
        (WakeKind::None, _) => Cause::Unknown,
    }
}

/// A wait for a page.
fn fault(around: &Surroundings, i: &Interval) -> Cause {
    if around.swapping(i.off, i.on) || !i.iowait {
        return Cause::Memory;
    }
    // A mapped file that is not in the page cache: an interrupt or a kernel thread ends a wait for a disk, but the server
    // of a user-space file system answers by writing to /dev/fuse.
    let served = i.wake_kind == WakeKind::Thread && calls::kind(i.waker_syscall) == CallKind::Write;
    if served && around.has_user_space() { Cause::NetworkStorage } else { Cause::Disk }
}

/// A wait for a file system, by what kind of file system it is.
fn storage(tl: &Timeline, around: &Surroundings, line: &ThreadLine, i: &Interval) -> Cause {
    let kind = match tl.file(i.file) {
        Some(f) => Some(around.kind_of(f)),
        None => tl.blocked_path(line, i).map(|p| around.kind_of_path(p)),
    };
    match kind {
        Some(FsKind::Network | FsKind::UserSpace) => Cause::NetworkStorage,
        // Only swap makes such a file wait.
        Some(FsKind::Memory) => Cause::Memory,
        Some(FsKind::Local | FsKind::Pseudo) | None => Cause::Disk,
    }
}

/// The wait is one for a file system, as far as can be told.
fn is_storage_wait(tl: &Timeline, i: &Interval) -> bool {
    match tl.file(i.file).map(FileRef::file_type) {
        Some(FileType::Regular | FileType::Directory | FileType::BlockDevice) => true,
        Some(_) => false,
        None => i.is_uninterruptible(),
    }
}

fn is_gpu(tl: &Timeline, f: &FileRef) -> bool {
    f.rdev.major == NVIDIA_MAJOR || tl.path_of(f).is_some_and(|p| p.contains("/nvidia"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Syscall;
    use crate::host::Mount;
    use crate::timeline::TimelineBuilder;
    use crate::units::{DevId, MonoNs, Pid, Tid};

    const FUSE: DevId = DevId { major: 0, minor: 70 };

    fn interval(call: i16, state: SleepState, iowait: bool, by: WakeKind) -> Interval {
        Interval {
            off: MonoNs(0),
            wake: MonoNs(30_000_000),
            on: MonoNs(30_000_000),
            arg0: 3,
            waker: Tid(9),
            waker_pid: Pid(9),
            next: Tid(0),
            prev: Tid(0),
            file: crate::timeline::FileIx(0),
            syscall: Syscall(call),
            waker_syscall: Syscall(1),
            wake_kind: by,
            state,
            iowait,
            seeded: false,
            pending: false,
        }
    }

    /// The cause of an interval without a file, on a machine that has a user-space file system mounted.
    fn said(i: &Interval) -> Cause {
        let mount = |point: &str, fs: &str, dev| Mount {
            dev,
            root: "/".into(),
            point: point.into(),
            fs_type: fs.into(),
            source: "x".into(),
        };
        let tl = TimelineBuilder::new(Pid(1), MonoNs(0)).finish(None);
        let around = Surroundings::new(&tl, &[mount("/mnt", "fuse.sshfs", FUSE)]);
        let line = ThreadLine {
            tid: Tid(1),
            pid: Pid(1),
            comm: String::new(),
            born: MonoNs(0),
            died: MonoNs(1),
            forked: false,
            execed: false,
            parent: None,
            intervals: vec![],
            samples: vec![],
        };
        cause(&tl, &around, &line, i, false)
    }

    #[test]
    fn a_poll_that_ends_before_its_time_is_up_waited_for_something() {
        let poll = |ms: i64, by| Interval { arg0: ms as u64, ..interval(7, SleepState::Interruptible, false, by) };
        assert_eq!(said(&poll(25, WakeKind::Interrupt)), Cause::Sleep);
        assert_eq!(said(&poll(5000, WakeKind::Interrupt)), Cause::Network);
        assert_eq!(said(&poll(-1, WakeKind::Interrupt)), Cause::Network);
        assert_eq!(said(&poll(-1, WakeKind::KernelThread)), Cause::Network);
        assert_eq!(said(&poll(-1, WakeKind::Thread)), Cause::OtherProcess);
        let sent = Interval { waker_syscall: Syscall(44), ..poll(-1, WakeKind::Thread) };
        assert_eq!(said(&sent), Cause::Network);
        let old = Interval { arg0: 0x7ffd_1234_5678, ..poll(0, WakeKind::Interrupt) };
        assert_eq!(said(&old), Cause::Sleep, "recordings that hold an address tell no time-out");
    }

    #[test]
    fn page_faults_wait_for_a_disk_or_for_the_server_of_a_file_system() {
        let fault = |state, iowait, by| said(&interval(-1, state, iowait, by));
        assert_eq!(fault(SleepState::Uninterruptible, true, WakeKind::Interrupt), Cause::Disk);
        assert_eq!(fault(SleepState::Uninterruptible, true, WakeKind::Thread), Cause::NetworkStorage);
        assert_eq!(fault(SleepState::Interruptible, false, WakeKind::Thread), Cause::NetworkStorage);
        assert_eq!(fault(SleepState::Uninterruptible, false, WakeKind::KernelThread), Cause::Memory);
    }

    #[test]
    fn a_kernel_lock_is_no_disk() {
        let clone = interval(56, SleepState::Uninterruptible, false, WakeKind::KernelThread);
        assert_eq!(said(&clone), Cause::Unknown);
        let read = interval(0, SleepState::Uninterruptible, false, WakeKind::KernelThread);
        assert_eq!(said(&read), Cause::Disk);
    }
}
