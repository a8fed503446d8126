//! Off-CPU intervals: when a target thread left the CPU, who woke it, and when it ran again.

use super::FileRef;
use crate::units::{MonoNs, Nanos, Pid, Tid};
use serde::{Deserialize, Serialize};

/// A system call by its x86-64 number; -1 outside any system call (user code or a page fault).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Syscall(pub i16);

impl Syscall {
    /// No system call: a blocked thread waits for a page fault, a running one is in user code.
    pub const NONE: Syscall = Syscall(-1);

    /// In a sample: the thread ran inside a page fault.
    pub const FAULT: Syscall = Syscall(-2);

    /// Whether the thread was outside any system call.
    pub fn is_none(self) -> bool {
        self.0 < 0
    }
}

/// How a thread slept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SleepState {
    /// It did not: it was runnable all along (preempted, or it yielded).
    Preempted,
    /// S state: waits for an event and can be interrupted.
    Interruptible,
    /// D state: waits for something that cannot be interrupted, as a rule the disk.
    Uninterruptible,
    /// Just forked, not yet run.
    New,
    /// Stopped, traced or dying.
    Other,
}

/// Who made a waking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Waker {
    /// A thread, in this system call.
    Thread {
        /// The thread.
        tid: Tid,
        /// Its process.
        pid: Pid,
        /// What it was in.
        syscall: Syscall,
    },
    /// A kernel thread (kworker, ksoftirqd): work done on nobody's behalf in particular.
    KernelThread {
        /// The thread.
        tid: Tid,
    },
    /// An interrupt: a timer, a disk or a network card.
    Interrupt,
}

/// The end of a blocked time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wakeup {
    /// When the thread was made runnable; never before the interval's start.
    pub at: MonoNs,
    /// Who did it.
    pub by: Waker,
}

/// One time off the CPU of one target thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OffCpu {
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub pid: Pid,
    /// CPU on which it ran again.
    pub cpu: u16,
    /// It left the CPU.
    pub off: MonoNs,
    /// It was woken; `None` if it was preempted, or if the wait had not ended when the recording stopped.
    pub wakeup: Option<Wakeup>,
    /// It ran again (or, with `pending`, the recording stopped).
    pub on: MonoNs,
    /// How it slept.
    pub state: SleepState,
    /// The kernel counted it as waiting for block I/O.
    pub iowait: bool,
    /// System call it was in.
    pub syscall: Syscall,
    /// First argument of that system call (a descriptor, a futex address); for `poll`, `epoll_wait` and `epoll_pwait` the
    /// time-out instead, milliseconds as a sign-extended `int`.
    pub arg0: u64,
    /// File behind the descriptor it waited on, where there is one.
    pub file: Option<FileRef>,
    /// Thread that got its CPU; 0 is the idle task.
    pub next_tid: Tid,
    /// Thread that had the CPU before it ran again; 0 is the idle task.
    pub prev_tid: Tid,
    /// The wait began before the tracer was attached; `off` is the time of the attach.
    pub seeded: bool,
    /// The wait had not ended when the recording stopped.
    pub pending: bool,
}

impl OffCpu {
    /// End of the blocked part; equal to `off` for a thread that was runnable all along.
    pub fn blocked_until(&self) -> MonoNs {
        match (self.state, self.wakeup) {
            (_, Some(w)) => w.at,
            (SleepState::Preempted | SleepState::New, None) => self.off,
            (_, None) => self.on,
        }
    }

    /// Time blocked: from leaving the CPU to the waking.
    pub fn blocked(&self) -> Nanos {
        self.blocked_until().since(self.off)
    }

    /// Time on the run queue: runnable, but not running.
    pub fn run_queue(&self) -> Nanos {
        self.on.since(self.blocked_until())
    }
}
