//! The compact form of an off-CPU interval: 64 bytes, since a recording holds millions.

use crate::events::{OffCpu, SleepState, Syscall, Waker};
use crate::units::{MonoNs, Nanos, Pid, Tid};

/// Refers to a file of the same timeline; 0 is "none".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileIx(pub u32);

/// What ended the blocked part of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WakeKind {
    /// Nothing: the thread was runnable all along, or the wait had not ended when the recording stopped.
    None,
    /// A thread; `waker` says which.
    Thread,
    /// A kernel thread; `waker` says which.
    KernelThread,
    /// An interrupt.
    Interrupt,
}

/// One time off the CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// It left the CPU.
    pub off: MonoNs,
    /// It became runnable; `off` if it was all along, `on` if it never did.
    pub wake: MonoNs,
    /// It ran again.
    pub on: MonoNs,
    /// First argument of its system call; for `poll`, `epoll_wait` and `epoll_pwait` the time-out, see [`Interval::timed_out`].
    pub arg0: u64,
    /// Waking thread.
    pub waker: Tid,
    /// Process of the waking thread.
    pub waker_pid: Pid,
    /// Thread that got its CPU.
    pub next: Tid,
    /// Thread that had the CPU before it.
    pub prev: Tid,
    /// File that it waited on.
    pub file: FileIx,
    /// System call it was in.
    pub syscall: Syscall,
    /// System call that the waker was in.
    pub waker_syscall: Syscall,
    /// What woke it.
    pub wake_kind: WakeKind,
    /// How it slept.
    pub state: SleepState,
    /// The kernel counted it as waiting for block I/O.
    pub iowait: bool,
    /// It began before the recording.
    pub seeded: bool,
    /// It had not ended when the recording stopped.
    pub pending: bool,
}

impl Interval {
    /// The compact form of a recorded interval; `file` stands for its file.
    #[inline]
    pub fn of(o: &OffCpu, file: FileIx) -> Interval {
        let (wake_kind, waker, waker_pid, waker_syscall) = match o.wakeup.map(|w| w.by) {
            None => (WakeKind::None, Tid(0), Pid(0), Syscall::NONE),
            Some(Waker::Interrupt) => (WakeKind::Interrupt, Tid(0), Pid(0), Syscall::NONE),
            Some(Waker::KernelThread { tid }) => (WakeKind::KernelThread, tid, Pid(tid.0), Syscall::NONE),
            Some(Waker::Thread { tid, pid, syscall }) => (WakeKind::Thread, tid, pid, syscall),
        };
        Interval {
            off: o.off,
            wake: o.blocked_until(),
            on: o.on,
            arg0: o.arg0,
            waker,
            waker_pid,
            next: o.next_tid,
            prev: o.prev_tid,
            file,
            syscall: o.syscall,
            waker_syscall,
            wake_kind,
            state: o.state,
            iowait: o.iowait,
            seeded: o.seeded,
            pending: o.pending,
        }
    }

    /// Cut to the span of a recording; `None` if nothing of it lies inside. An error if its times run backwards.
    #[inline]
    #[allow(clippy::result_unit_err, reason = "there is one way to fail")]
    pub(super) fn within(mut self, (start, end): (MonoNs, MonoNs)) -> Result<Option<Interval>, ()> {
        if self.on < self.off || self.wake < self.off || self.wake > self.on {
            return Err(());
        }
        if self.on < start || self.off > end {
            return Ok(None);
        }
        let inside = |t: MonoNs| t.max(start).min(end);
        (self.off, self.wake, self.on) = (inside(self.off), inside(self.wake), inside(self.on));
        Ok(Some(self))
    }

    /// Time blocked.
    pub fn blocked(&self) -> Nanos {
        self.wake.since(self.off)
    }

    /// Time runnable without a CPU.
    pub fn run_queue(&self) -> Nanos {
        self.on.since(self.wake)
    }

    /// Whether a wait in `poll` or `epoll_wait` that an interrupt ended was ended by its time-out, rather than by a packet
    /// or another device. `None` where the time-out is not known (other calls, and older recordings, which hold an
    /// address in its place).
    pub fn timed_out(&self) -> Option<bool> {
        const TOLD: [i16; 3] = [7, 232, 281];
        let ms = self.arg0 as i64;
        if !TOLD.contains(&self.syscall.0) || ms > i64::from(i32::MAX) || ms < i64::from(i32::MIN) {
            return None;
        }
        // The kernel never wakes early, but the call began a little before the thread left the CPU.
        let due = Nanos::from_millis(u64::try_from(ms).unwrap_or(0).saturating_sub(1));
        Some(self.wake_kind == WakeKind::Interrupt && ms >= 0 && self.blocked() >= due)
    }

    /// Blocked in a way that counts as waiting for storage, whatever woke it: D state or iowait.
    pub fn is_uninterruptible(&self) -> bool {
        self.iowait || self.state == SleepState::Uninterruptible
    }
}

// A field more would cost every recording's memory; weigh it.
const _: () = assert!(size_of::<Interval>() == 64);
