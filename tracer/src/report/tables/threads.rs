//! Threads: how long each ran, waited for a CPU, and was blocked, and in which call.

use super::histograms::OfRoles;
use super::waits::{WaitKind, is_yield};
use crate::events::Syscall;
use crate::events::syscalls;
use crate::report::{ThreadReport, TopWait};
use crate::timeline::{Interval, ThreadIx, ThreadLine, Timeline};
use crate::units::Nanos;

/// Sums over the intervals of one thread.
#[derive(Debug, Default)]
pub(super) struct Sums {
    run_queue: Nanos,
    longest: Nanos,
    disk: Nanos,
    blocked: Nanos,
    /// Blocked time by system call; a thread blocks in few.
    by_call: Vec<(Syscall, Nanos)>,
}

impl Sums {
    #[inline]
    pub(super) fn add(&mut self, i: &Interval, kind: WaitKind) {
        if !is_yield(i) {
            self.run_queue += i.run_queue();
            self.longest = self.longest.max(i.run_queue());
        }
        let waited = i.blocked();
        if waited == Nanos::ZERO {
            return;
        }
        self.blocked += waited;
        // All numbers below zero mean the same.
        let call = Syscall(i.syscall.0.max(-1));
        match self.by_call.iter_mut().find(|(c, _)| *c == call) {
            Some((_, n)) => *n += waited,
            None => self.by_call.push((call, waited)),
        }
        if kind.is_storage() {
            self.disk += waited;
        }
    }

    fn longest_call(&self) -> Option<(Syscall, Nanos)> {
        self.by_call.iter().max_by_key(|(call, n)| (*n, std::cmp::Reverse(*call))).copied()
    }
}

/// One row per thread, most time spent running, waiting for a CPU or on storage first. Running, run queue and blocked time
/// sum to the life of the thread; time in `sched_yield` loops counts as running, since such a thread spins.
pub(super) fn rows(tl: &Timeline, sums: &[Sums], roles: &OfRoles) -> Vec<ThreadReport> {
    let none = Sums::default();
    let of = |ix: ThreadIx| sums.get(ix.0 as usize).unwrap_or(&none);
    let mut rows: Vec<ThreadReport> = tl.lines().map(|(ix, line)| row(line, of(ix), roles.of(ix))).collect();
    let busy = |t: &ThreadReport| t.running_s + t.runqueue_s + t.disk_s;
    rows.sort_by(|a, b| busy(b).total_cmp(&busy(a)).then(a.tid.cmp(&b.tid)));
    rows
}

fn row(line: &ThreadLine, s: &Sums, role: &str) -> ThreadReport {
    ThreadReport {
        tid: line.tid.0,
        pid: line.pid.0,
        comm: line.comm.clone(),
        role: role.to_owned(),
        alive_s: line.alive().secs(),
        running_s: (line.alive() - s.run_queue - s.blocked).secs(),
        runqueue_s: s.run_queue.secs(),
        disk_s: s.disk.secs(),
        blocked_s: s.blocked.secs(),
        max_runqueue_ms: s.longest.millis(),
        top_wait: s
            .longest_call()
            .map(|(call, waited)| TopWait { syscall: syscalls::wait_name(call), seconds: waited.secs() }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::*;
    use super::*;
    use crate::events::{Event, SleepState};

    #[test]
    fn times_of_a_thread_sum_to_its_life() {
        let timeline = timeline([
            Event::OffCpu(disk_read(10, 100, 300, 310, 7)),
            Event::OffCpu(blocked(10, 400, 450, 450, 202, SleepState::Interruptible)),
            Event::OffCpu(preempted(10, 500, 540, 99)),
            Event::OffCpu(blocked(11, 0, 900, 900, 7, SleepState::Interruptible)),
        ]);
        let rows = threads(&timeline, &|ix| if ix.0 == 0 { "worker" } else { "helper" });
        let t = &rows[0];
        assert_eq!((t.tid, t.role.as_str()), (10, "worker"));
        assert_eq!((t.alive_s, t.running_s, t.runqueue_s, t.disk_s, t.blocked_s), (1.0, 0.7, 0.05, 0.2, 0.25));
        assert_eq!(t.max_runqueue_ms, 40.0);
        assert_eq!(t.top_wait, Some(TopWait { syscall: "read".into(), seconds: 0.2 }));
        let u = &rows[1];
        assert_eq!((u.tid, u.disk_s, u.blocked_s), (11, 0.0, 0.9));
        assert_eq!(u.top_wait, Some(TopWait { syscall: "poll".into(), seconds: 0.9 }));
    }

    #[test]
    fn page_faults_and_numbers_without_a_name_are_kept_apart() {
        let mut fault = blocked(10, 0, 10, 10, -1, SleepState::Uninterruptible);
        fault.iowait = true;
        let strange = blocked(10, 20, 25, 25, i16::MAX, SleepState::Interruptible);
        let timeline = timeline([Event::OffCpu(fault), Event::OffCpu(strange)]);
        let rows = threads(&timeline, &|_| "");
        assert_eq!(rows[0].top_wait, Some(TopWait { syscall: "page fault".into(), seconds: 0.01 }));
        assert_eq!(rows[0].disk_s, 0.01);
    }

    #[test]
    fn yielding_is_running() {
        let mut spin = preempted(10, 0, 500, 99);
        spin.syscall = Syscall(24);
        let rows = threads(&timeline([Event::OffCpu(spin)]), &|_| "");
        assert_eq!((rows[0].running_s, rows[0].runqueue_s, rows[0].blocked_s), (1.0, 0.0, 0.0));
        assert_eq!(rows[0].top_wait, None);
    }
}
