//! The pieces that an explanation is made of.

use super::Cause;
use crate::events::Syscall;
use crate::timeline::{FileIx, Interval, ThreadIx, WakeKind};
use crate::units::{MonoNs, Nanos, Tid};

/// What a thread was doing in a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It ran.
    Ran,
    /// It could run but had no CPU; the thread that had it, where known (0 is the idle task).
    WaitedForCpu {
        /// The competitor.
        by: Tid,
    },
    /// It was blocked.
    Blocked(Wait),
    /// Nothing is known about it.
    NoRecord(NoRecord),
}

/// A wait of a thread, with all that is told of it: the interval itself may be gone by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The thread left the CPU.
    pub off: MonoNs,
    /// System call that it was in.
    pub syscall: Syscall,
    /// File that it waited on.
    pub file: FileIx,
    /// Thread that ended it; 0 for an interrupt or a kernel thread.
    pub waker: Tid,
    /// D state, or counted as waiting for block I/O.
    pub uninterruptible: bool,
}

impl Wait {
    /// The blocked part of an interval.
    pub fn of(i: &Interval) -> Wait {
        let waker = if i.wake_kind == WakeKind::Thread { i.waker } else { Tid(0) };
        Wait { off: i.off, syscall: i.syscall, file: i.file, waker, uninterruptible: i.is_uninterruptible() }
    }
}

/// Why nothing is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoRecord {
    /// The thread did not exist.
    NotAlive,
    /// The chain of wakers is longer than is followed.
    TooDeep,
    /// The evidence about the GPU does not place the idle time.
    NotPlaced,
    /// The kernel did not trace that the thread left its CPU: it was not seen running, either.
    Untraced,
    /// There is no thread to begin with.
    NoFeeder,
    /// The process that gives the GPU its work was not recorded.
    OtherJob,
}

/// A stretch of one thread's time with one cause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// Start.
    pub start: MonoNs,
    /// End.
    pub end: MonoNs,
    /// Idle time that it explains: its whole length for exact gaps, a part of it for windows.
    pub idle: Nanos,
    /// The thread; `None` only for [`What::NoRecord`].
    pub thread: Option<ThreadIx>,
    /// What the thread was doing.
    pub what: What,
    /// The cause.
    pub cause: Cause,
}

impl Segment {
    /// Its length.
    pub fn length(&self) -> Nanos {
        self.end.since(self.start)
    }
}

/// Appends a segment that ends where the last one began; joins it to the last one if both say the same.
pub(super) fn push(out: &mut Vec<Segment>, s: Segment) {
    if s.start >= s.end {
        return;
    }
    match out.last_mut() {
        Some(last)
            if last.thread == s.thread && last.what == s.what && last.cause == s.cause && last.start == s.end =>
        {
            last.start = s.start;
            last.idle += s.idle;
        }
        _ => out.push(s),
    }
}

/// Makes `t` an edge between segments.
pub(super) fn cut(segments: &mut Vec<Segment>, t: MonoNs) {
    let n = segments.partition_point(|s| s.end <= t);
    let Some(s) = segments.get_mut(n).filter(|s| s.start < t) else { return };
    let mut rest = *s;
    s.end = t;
    s.idle = s.length();
    rest.start = t;
    rest.idle = rest.length();
    segments.insert(n + 1, rest);
}
