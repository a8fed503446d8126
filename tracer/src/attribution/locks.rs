//! Who had a lock that a thread asked for in vain until its time-out.

use super::walk::{DELIVERY, OTHERS, mergeable};
use crate::events::SleepState;
use crate::timeline::{Interval, ThreadLine, Timeline, WakeKind};
use crate::units::{MonoNs, Nanos};

/// So far ahead of a piece of a wait its end is looked for; parts of a recording reach further beyond their end ([`crate::timeline::MARGIN`]).
const AHEAD: Nanos = Nanos::from_millis(50);

/// Of a wait in the pieces `first` to `last`, none of which a thread ended: a wait for the same lock right behind or before it that
/// the one ended who had the lock meanwhile.
pub(super) fn held_by<'l>(tl: &Timeline, line: &'l ThreadLine, first: usize, last: usize) -> Option<&'l Interval> {
    near_its_end(tl, line, last).or_else(|| near_its_start(tl, line, first))
}

/// A wait of interval `n` for a lock ended by its time-out: who asks for Python's global lock looks every 5 ms whether it may
/// have it. The next wait for a part of the same lock that a thread ended, right behind it: that thread had the lock.
fn near_its_end<'l>(tl: &Timeline, line: &'l ThreadLine, n: usize) -> Option<&'l Interval> {
    let piece = line.intervals.get(n)?;
    let behind = line.intervals.get(n + 1..)?.iter().take(OTHERS as usize);
    let mut on = piece.on;
    let mut close = behind.take_while(|i| {
        let close = i.off.since(on) <= DELIVERY && i.off.since(piece.on) <= AHEAD;
        on = i.on;
        close
    });
    close.find(|i| ended_by_holder(tl, piece, i))
}

/// The same right before interval `n`, with which the wait began: that thread took the lock then.
fn near_its_start<'l>(tl: &Timeline, line: &'l ThreadLine, n: usize) -> Option<&'l Interval> {
    let piece = line.intervals.get(n)?;
    let before = line.intervals.get(..n)?.iter().rev().take(OTHERS as usize);
    let mut off = piece.off;
    let mut close = before.take_while(|i| {
        let close = off.since(i.on) <= DELIVERY;
        off = i.off;
        close
    });
    close.find(|i| ended_by_holder(tl, piece, i))
}

/// Whether a wait for the same lock as `piece` was ended by a thread that may have held it then: it did not wait itself.
fn ended_by_holder(tl: &Timeline, piece: &Interval, i: &Interval) -> bool {
    /// A lock may be made of several: Python's global lock has two mutexes and two condition variables within 120 bytes.
    const LOCK: u64 = 128;
    let middle = MonoNs(piece.off.0.midpoint(piece.wake.0));
    let waits = |t: &ThreadLine| {
        let last = t.last_before(middle).and_then(|n| t.intervals.get(n));
        last.is_some_and(|i| i.state != SleepState::Preempted && middle < i.wake)
    };
    i.syscall == piece.syscall
        && i.arg0.abs_diff(piece.arg0) <= LOCK
        && mergeable(i)
        && i.wake_kind == WakeKind::Thread
        && tl.thread_at(i.waker, i.wake).and_then(|ix| tl.thread(ix)).is_some_and(|t| !waits(t))
}
