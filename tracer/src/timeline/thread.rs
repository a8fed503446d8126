//! One thread's line: when it lived, when it was off the CPU, and what it was seen doing.

use super::{FileIx, Interval};
use crate::events::{ImageId, Syscall};
use crate::units::{MonoNs, Nanos, Pid, Tid};

/// Refers to a [`ThreadLine`] of the same timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadIx(pub u32);

/// One on-CPU sample of a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// When.
    pub time: MonoNs,
    /// System call it was in.
    pub syscall: Syscall,
    /// Mapped file that holds its instruction pointer.
    pub image: ImageId,
    /// File that the system call works on.
    pub file: FileIx,
}

/// One thread of the target.
#[derive(Clone, Debug)]
pub struct ThreadLine {
    /// Its id.
    pub tid: Tid,
    /// Its process.
    pub pid: Pid,
    /// Its last name.
    pub comm: String,
    /// It was made, or the recording began.
    pub born: MonoNs,
    /// It ended, or the recording did.
    pub died: MonoNs,
    /// Its birth was seen: it did not exist when the recording began.
    pub forked: bool,
    /// It went on with another program inside the recording, as a worker does that is started by spawn.
    pub execed: bool,
    /// The thread that made it, or the main thread of its parent process.
    pub parent: Option<Tid>,
    /// Times off the CPU, sorted, without overlaps.
    pub intervals: Vec<Interval>,
    /// Samples, by time.
    pub samples: Vec<Moment>,
}

impl ThreadLine {
    /// It is the main thread of its process.
    pub fn is_main(&self) -> bool {
        self.pid.main_thread() == self.tid
    }

    /// Index of the last interval that began before `t`.
    pub fn last_before(&self, t: MonoNs) -> Option<usize> {
        self.intervals.partition_point(|i| i.off < t).checked_sub(1)
    }

    /// How long it lived inside the recording.
    pub fn alive(&self) -> Nanos {
        self.died.since(self.born)
    }

    /// Time off the CPU, blocked or runnable.
    pub fn off_cpu(&self) -> Nanos {
        self.intervals.iter().map(|i| i.on.since(i.off)).sum()
    }

    /// Time on a CPU.
    pub fn running(&self) -> Nanos {
        self.alive() - self.off_cpu()
    }

    /// Samples in `[from, to)`.
    pub fn samples_in(&self, from: MonoNs, to: MonoNs) -> &[Moment] {
        let a = self.samples.partition_point(|s| s.time < from);
        let b = self.samples.partition_point(|s| s.time < to);
        self.samples.get(a..b).unwrap_or(&[])
    }
}
