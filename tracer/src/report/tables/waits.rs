//! What a blocked thread waited for, told from its system call, its sleep state and the file behind its descriptor.

use crate::attribution::calls::{self, CallKind};
use crate::events::{BlockRequest, FileType, SleepState};
use crate::timeline::{Interval, Timeline};
use crate::units::MonoNs;

/// What a blocked time was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// Storage, inside a call that reads file data.
    Read,
    /// Storage, in a page fault: memory-mapped files.
    PageFault,
    /// Storage, in anything else: writes, opens, directory listings, metadata.
    OtherStorage,
    /// Not storage.
    Elsewhere,
}

impl WaitKind {
    /// Whether it was storage.
    pub fn is_storage(self) -> bool {
        self != WaitKind::Elsewhere
    }
}

/// When block requests of the recording were under way.
pub struct BlockActivity<'a> {
    /// By completion.
    blocks: &'a [BlockRequest],
}

impl<'a> BlockActivity<'a> {
    /// The requests of a timeline, which are sorted by completion.
    pub fn new(timeline: &'a Timeline) -> BlockActivity<'a> {
        BlockActivity { blocks: &timeline.blocks }
    }

    /// Whether some request was under way at some time in `[from, to]`.
    fn any_in(&self, from: MonoNs, to: MonoNs) -> bool {
        let first = self.blocks.partition_point(|b| b.complete < from);
        // Requests complete roughly in the order in which they start, so the answer is in the first few.
        self.blocks[first..].iter().take(64).any(|b| b.start.unwrap_or(b.issue) <= to)
    }
}

/// What the blocked part of an interval was spent on.
///
/// The kernel's iowait mark settles it. Without the mark, D state in a call on files is storage too (`fsync` waits for the
/// journal that way), and so is any sleep in a data call on a regular file, since a user-space file system answers reads
/// in S state. D state elsewhere is a lock inside the kernel (page faults and `mmap` take one) or a driver.
pub fn wait_kind(timeline: &Timeline, blocks: &BlockActivity<'_>, interval: &Interval) -> WaitKind {
    if interval.wake <= interval.off || matches!(interval.state, SleepState::Preempted | SleepState::New) {
        return WaitKind::Elsewhere;
    }
    let call = calls::kind(interval.syscall);
    let kind = match call {
        CallKind::Read | CallKind::AsyncIo => WaitKind::Read,
        CallKind::PageFault => WaitKind::PageFault,
        _ => WaitKind::OtherStorage,
    };
    if interval.iowait {
        return kind;
    }
    let uninterruptible = interval.state == SleepState::Uninterruptible;
    let storage = match call {
        CallKind::Read | CallKind::Write | CallKind::Sync | CallKind::Path => {
            match timeline.file(interval.file).map(|f| f.file_type()) {
                Some(of) => matches!(of, FileType::Regular | FileType::Directory | FileType::BlockDevice),
                None => uninterruptible,
            }
        }
        CallKind::AsyncIo => uninterruptible || blocks.any_in(interval.off, interval.wake),
        _ => false,
    };
    if storage { kind } else { WaitKind::Elsewhere }
}

/// A thread that yields its CPU over and over spins: the time is neither blocked nor starved.
pub(super) fn is_yield(interval: &Interval) -> bool {
    interval.state == SleepState::Preempted && calls::kind(interval.syscall) == CallKind::Yield
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::*;
    use super::*;
    use crate::events::Event;

    /// Kind of one wait of 10 ms in `syscall` on `file`.
    fn kind(syscall: i16, state: SleepState, iowait: bool, file: Option<u16>) -> WaitKind {
        let mut off = blocked(1, 0, 10, 10, syscall, state);
        off.iowait = iowait;
        off.file = file.map(|mode| file_ref(7, mode));
        let timeline = timeline([Event::OffCpu(off)]);
        wait_kind(&timeline, &BlockActivity::new(&timeline), &timeline.threads[0].intervals[0])
    }

    const S: SleepState = SleepState::Interruptible;
    const D: SleepState = SleepState::Uninterruptible;
    const REGULAR: Option<u16> = Some(0o100_644);
    const PIPE: Option<u16> = Some(0o010_600);
    const CHAR: Option<u16> = Some(0o020_666);

    #[test]
    fn iowait_is_storage_whatever_the_call() {
        assert_eq!(kind(0, D, true, REGULAR), WaitKind::Read);
        assert_eq!(kind(-1, D, true, None), WaitKind::PageFault);
        assert_eq!(kind(74, D, true, REGULAR), WaitKind::OtherStorage);
        assert_eq!(kind(202, D, true, None), WaitKind::OtherStorage);
    }

    #[test]
    fn without_iowait_call_and_file_decide() {
        // A user-space file system answers in S state.
        assert_eq!(kind(0, S, false, REGULAR), WaitKind::Read);
        assert_eq!(kind(0, S, false, PIPE), WaitKind::Elsewhere);
        assert_eq!(kind(16, D, false, CHAR), WaitKind::Elsewhere);
        assert_eq!(kind(74, D, false, REGULAR), WaitKind::OtherStorage);
        assert_eq!(kind(257, D, false, None), WaitKind::OtherStorage);
        assert_eq!(kind(257, S, false, None), WaitKind::Elsewhere);
        // The lock on the address space.
        assert_eq!(kind(-1, D, false, None), WaitKind::Elsewhere);
        assert_eq!(kind(9, D, false, None), WaitKind::Elsewhere);
        assert_eq!(kind(202, S, false, None), WaitKind::Elsewhere);
    }

    #[test]
    fn asynchronous_reads_wait_for_storage_while_requests_are_under_way() {
        let during = |from, to| {
            let wait = blocked(1, 20, 30, 30, 208, S);
            let timeline = timeline([Event::OffCpu(wait), Event::Block(request(from, from, to, 1))]);
            wait_kind(&timeline, &BlockActivity::new(&timeline), &timeline.threads[0].intervals[0])
        };
        assert_eq!(during(15, 25), WaitKind::Read);
        assert_eq!(during(5, 15), WaitKind::Elsewhere);
        assert_eq!(during(35, 45), WaitKind::Elsewhere);
    }
}
