//! The walk: from the end of a stretch of time back to its start, following the thread that the GPU waited for, and from
//! each of its waits to the thread that ended it.

use super::calls::{self, CallKind};
use super::locks;
use super::roles::{Role, Roles};
use super::running::{self, Running};
use super::segment::{NoRecord, Segment, Wait, What, push};
use super::{Cause, Surroundings, blocked};
use crate::events::SleepState;
use crate::timeline::{Interval, ThreadIx, ThreadLine, Timeline, WakeKind};
use crate::units::{MonoNs, Nanos};

/// Wakers are followed this deep. Most chains are short (feeder, pin-memory thread, queue thread, worker, its helper), but threads that
/// take turns at a lock, as at Python's every 5 ms, make one of as many links as turns.
const MAX_DEPTH: u32 = 48;

/// Running time between two waits that still counts as delivery work: unpickling a batch that came early, handing out
/// the next index. Measured 0.1 to 0.6 ms an early batch in PyTorch; a real loop body takes longer or makes the GPU busy.
pub(super) const DELIVERY: Nanos = Nanos::from_millis(2);

/// So many other waits in a row are no delivery work, however short: looked through for every wait of a thread that does
/// nothing else, they would take most of the walk's time.
pub(super) const OTHERS: u32 = 32;

/// How long a thread may take to give back what it had, its memory above all, after its exit was traced.
const EXITING: Nanos = Nanos::from_millis(1000);

/// How far the two words lie apart at which a condition variable waits in turn (`__g_signals` in glibc since 2.25). Locks of
/// their own are further apart.
const CONDITION: u64 = 4;

/// Walks one timeline.
#[derive(Debug)]
pub struct Walker<'a> {
    tl: &'a Timeline,
    roles: &'a Roles,
    around: &'a Surroundings,
    running: Running,
    /// Only samples from this time say that a thread was in the driver without waiting for the GPU; all if `None`.
    pub trust_samples_in: Option<(MonoNs, MonoNs)>,
}

impl<'a> Walker<'a> {
    /// A walker over `tl`.
    pub fn new(tl: &'a Timeline, roles: &'a Roles, around: &'a Surroundings) -> Walker<'a> {
        Walker { tl, roles, around, running: Running::new(tl), trust_samples_in: None }
    }

    /// Whether it goes by these roles.
    pub fn is_for(&self, roles: &Roles) -> bool {
        std::ptr::eq(self.roles, roles)
    }

    /// Explains `[from, to]` as seen from `thread`: segments in order of time that cover it without gap or overlap.
    #[cfg(test)]
    pub fn explain(&self, thread: Option<ThreadIx>, from: MonoNs, to: MonoNs) -> Vec<Segment> {
        let mut out = Vec::new();
        self.explain_back(thread, from, to, from, &mut out);
        out.reverse();
        out
    }

    /// The same, latest segment first, and only until a place at or before `enough` where the walk is back on `thread`
    /// itself: from there another call gives the same as if this one had gone on. Returns that place.
    pub fn explain_back(
        &self,
        thread: Option<ThreadIx>,
        from: MonoNs,
        to: MonoNs,
        enough: MonoNs,
        out: &mut Vec<Segment>,
    ) -> MonoNs {
        match thread {
            Some(ix) => self.walk(ix, from, to, enough, 0, out),
            None => {
                let why = if self.roles.feeder_missing { NoRecord::OtherJob } else { NoRecord::NoFeeder };
                push(out, unknown(from, to, why));
                from
            }
        }
    }

    /// Follows a thread back from `to` until a step has come to `enough`, at most to `from`.
    fn walk(
        &self,
        ix: ThreadIx,
        from: MonoNs,
        to: MonoNs,
        enough: MonoNs,
        depth: u32,
        out: &mut Vec<Segment>,
    ) -> MonoNs {
        let Some(line) = self.tl.thread(ix) else {
            push(out, unknown(from, to, NoRecord::NotAlive));
            return from;
        };
        let mut t = to;
        if t > line.died {
            let lo = line.died.max(from);
            // A thread that woke another after its exit was seen was still giving back what it had.
            if depth > 0 && t.since(line.died) <= EXITING {
                let cause = Running::by_role(self.roles, ix);
                self.push_of(ix, line, lo, t, What::Ran, cause, out);
            } else {
                push(out, unknown(lo, t, NoRecord::NotAlive));
            }
            t = lo;
        }
        let enough = enough.max(from);
        while t > enough {
            if t <= line.born {
                self.before_birth(line, from, t, depth, out);
                return from;
            }
            let floor = from.max(line.born);
            let Some((n, i)) = line.last_before(t).and_then(|n| Some((n, line.intervals.get(n)?))) else {
                self.ran(ix, line, floor, t, out);
                t = floor;
                continue;
            };
            if i.on < t {
                let lo = i.on.max(floor);
                self.ran(ix, line, lo, t, out);
                t = lo;
            } else if i.wake < t {
                let lo = i.wake.max(floor);
                self.waited_for_cpu(ix, line, i, lo, t, out);
                t = lo;
            } else {
                let (start, woken) = self.wait_before(line, n, floor);
                let lo = start.max(floor);
                self.was_blocked(ix, line, woken.unwrap_or(i), lo, t, depth, out);
                t = lo;
            }
        }
        t
    }

    /// A thread that did not exist yet: its parent was about to make it.
    fn before_birth(&self, line: &ThreadLine, from: MonoNs, to: MonoNs, depth: u32, out: &mut Vec<Segment>) {
        let parent = line.parent.and_then(|tid| self.tl.thread_at(tid, line.born));
        match parent {
            Some(p) if depth < MAX_DEPTH => {
                self.walk(p, from, to, from, depth + 1, out);
            }
            _ => push(out, unknown(from, to, NoRecord::NotAlive)),
        }
    }

    fn ran(&self, ix: ThreadIx, line: &ThreadLine, from: MonoNs, to: MonoNs, out: &mut Vec<Segment>) {
        let mut t = to;
        let unseen = if self.roles.sampled || self.tl.sample_period > Nanos::ZERO {
            running::unseen(line, running::seen_within(self.tl.sample_period), from, to)
        } else {
            Vec::new()
        };
        for (lo, hi) in unseen {
            self.surely_ran(ix, line, hi, t, out);
            push(out, unknown(lo, hi, NoRecord::Untraced));
            t = lo;
        }
        self.surely_ran(ix, line, from, t, out);
    }

    fn surely_ran(&self, ix: ThreadIx, line: &ThreadLine, from: MonoNs, to: MonoNs, out: &mut Vec<Segment>) {
        if from >= to {
            return;
        }
        for (lo, hi, cause) in
            self.running.split(self.tl, self.roles, self.around, ix, (from, to), self.trust_samples_in)
        {
            self.push_of(ix, line, lo, hi, What::Ran, cause, out);
        }
    }

    fn waited_for_cpu(
        &self,
        ix: ThreadIx,
        line: &ThreadLine,
        i: &Interval,
        from: MonoNs,
        to: MonoNs,
        out: &mut Vec<Segment>,
    ) {
        // A thread that yields in a loop is spinning, not starved: that time is its own.
        if calls::kind(i.syscall) == CallKind::Yield {
            return self.ran(ix, line, from, to, out);
        }
        let by = if i.state == SleepState::Preempted && i.next.0 != 0 { i.next } else { i.prev };
        // Quotas are handed out in periods of milliseconds; shorter waits are the run queue's own.
        let held_back = i.run_queue() >= Nanos::from_millis(1) && self.around.throttled(i.off, i.on);
        let cause = if held_back { Cause::CpuThrottled } else { Cause::CpuStarved };
        self.push_of(ix, line, from, to, What::WaitedForCpu { by }, cause, out);
    }

    #[allow(clippy::too_many_arguments, reason = "the state of the walk; a struct would only rename it")]
    fn was_blocked(
        &self,
        ix: ThreadIx,
        line: &ThreadLine,
        i: &Interval,
        from: MonoNs,
        to: MonoNs,
        depth: u32,
        out: &mut Vec<Segment>,
    ) {
        if let Some(waker) = self.edge(line, i) {
            if self.ended(waker, i) {
                let what = What::Blocked(Wait::of(i));
                return self.push_of(ix, line, from, to, what, Cause::WorkerStartup, out);
            }
            if depth < MAX_DEPTH {
                self.walk(waker, from, to, from, depth + 1, out);
                return;
            }
            return push(out, unknown(from, to, NoRecord::TooDeep));
        }
        // Without a file (sync) nothing better is known than whose thread it is.
        let checkpoint =
            line.pid == self.roles.feeder_pid && (i.file.0 == 0 || self.roles.checkpoints.contains(&i.file));
        let cause = if self.opens_checkpoint(line, i) {
            Cause::Checkpoint
        } else {
            blocked::cause(self.tl, self.around, line, i, checkpoint)
        };
        self.push_of(ix, line, from, to, What::Blocked(Wait::of(i)), cause, out);
    }

    /// Whether the feeder's process waits while it opens the file of a checkpoint: what the file held is being cut off.
    fn opens_checkpoint(&self, line: &ThreadLine, i: &Interval) -> bool {
        // open, creat, openat, openat2
        const OPENS: [i16; 4] = [2, 85, 257, 437];
        line.pid == self.roles.feeder_pid
            && OPENS.contains(&i.syscall.0)
            && self.tl.blocked_path(line, i).is_some_and(|path| self.roles.checkpoint_paths.contains(path))
    }

    /// The thread of the target that ended this wait, unless the wait has a better explanation of its own.
    fn edge(&self, line: &ThreadLine, i: &Interval) -> Option<ThreadIx> {
        if i.wake_kind != WakeKind::Thread || i.waker == line.tid {
            return None;
        }
        if blocked::has_no_edge(i, i.waker_pid == line.pid) {
            return None;
        }
        if calls::kind(i.syscall) == CallKind::AsyncIo && i.waker_pid != line.pid {
            return None;
        }
        self.tl.thread_at(i.waker, i.wake).filter(|ix| self.tl.thread(*ix).is_some_and(|t| t.pid == i.waker_pid))
    }

    /// Whether a wait was one for the end of a worker: its last act is to wake who waits for it.
    fn ended(&self, waker: ThreadIx, i: &Interval) -> bool {
        // What the kernel still does after that waking takes some 100 µs, more if the CPU is lost meanwhile.
        const LAST_ACT: Nanos = Nanos::from_millis(5);
        let ends = |t: &ThreadLine| t.died < self.tl.span.1 && t.died <= i.wake + LAST_ACT;
        // Whichever thread is the last to go does the waking.
        self.tl.thread(waker).is_some_and(|t| {
            let main = self.tl.thread_at(t.pid.main_thread(), i.wake).and_then(|m| self.tl.thread(m));
            matches!(self.roles.of(waker), Role::Worker | Role::Ipc)
                && t.pid != self.roles.feeder_pid
                && ends(t)
                && main.is_some_and(ends)
        })
    }

    /// The wait that ends with interval `n`: its start, and the interval whose waker explains it. Earlier intervals in the same
    /// system call with the same argument (the same call alone for poll, the same lock for futex), with only delivery work
    /// between them, belong to it. The last waker counts; where the last piece of a wait for a lock ended by its time-out,
    /// the lock had become free just then, and the waker before it counts.
    fn wait_before<'l>(&self, line: &'l ThreadLine, n: usize, floor: MonoNs) -> (MonoNs, Option<&'l Interval>) {
        let Some(last) = line.intervals.get(n) else { return (floor, None) };
        let mut start = last.off;
        if !mergeable(last) {
            return (start, Some(last));
        }
        let kind = calls::kind(last.syscall);
        let same_wait = |i: &Interval| match kind {
            // Deliveries that come early make one wait of many. What no thread ended at all, such as waits for the GPU in
            // step after step, is one by one.
            CallKind::Poll => [last, i].iter().any(|i| i.wake_kind == WakeKind::Thread),
            CallKind::Futex => i.arg0.abs_diff(last.arg0) <= CONDITION,
            _ => i.arg0 == last.arg0,
        };
        let mut woken = last;
        let (mut k, mut first) = (n, n);
        let mut others = 0;
        while start > floor && k > 0 && others < OTHERS {
            k -= 1;
            let Some(i) = line.intervals.get(k) else { break };
            if start.since(i.on) > DELIVERY {
                break;
            }
            if i.syscall == last.syscall && same_wait(i) && mergeable(i) {
                (start, first) = (i.off, k);
                others = 0;
                if kind == CallKind::Futex && woken.wake_kind == WakeKind::Interrupt {
                    woken = i;
                }
            } else {
                others += 1;
            }
            // Another wait in between is part of the delivery as long as it is short; the check above bounds their sum.
        }
        if kind == CallKind::Futex && woken.wake_kind == WakeKind::Interrupt {
            woken = locks::held_by(self.tl, line, first, n).unwrap_or(woken);
        }
        (start, Some(woken))
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of a segment")]
    fn push_of(
        &self,
        ix: ThreadIx,
        line: &ThreadLine,
        start: MonoNs,
        end: MonoNs,
        what: What,
        cause: Cause,
        out: &mut Vec<Segment>,
    ) {
        let segment = |start: MonoNs, end: MonoNs, cause| Segment {
            start,
            end,
            idle: end.since(start),
            thread: Some(ix),
            what,
            cause,
        };
        // Until its first delivery a new worker is starting up, whatever state it is in.
        let starts_until = match self.roles.of(ix) {
            Role::Worker | Role::Ipc if line.pid != self.roles.feeder_pid => self.roles.first_delivery(ix),
            _ => None,
        };
        match starts_until {
            Some(until) if until >= end => push(out, segment(start, end, Cause::WorkerStartup)),
            Some(until) if until > start => {
                push(out, segment(until, end, cause));
                push(out, segment(start, until, Cause::WorkerStartup));
            }
            _ => push(out, segment(start, end, cause)),
        }
    }
}

/// Waits that may come in several pieces: for other threads, not for storage.
pub(super) fn mergeable(i: &Interval) -> bool {
    !i.is_uninterruptible() && i.state == SleepState::Interruptible
}

fn unknown(start: MonoNs, end: MonoNs, why: NoRecord) -> Segment {
    Segment { start, end, idle: end.since(start), thread: None, what: What::NoRecord(why), cause: Cause::Unknown }
}
