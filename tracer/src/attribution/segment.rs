//! The pieces that an explanation is made of.

use super::Cause;
use crate::timeline::ThreadIx;
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
    /// It was blocked in this interval of its line.
    Blocked {
        /// Index into the line's intervals.
        interval: u32,
    },
    /// Nothing is known about it.
    NoRecord(NoRecord),
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
    /// There is no thread to begin with.
    NoFeeder,
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
