//! Threads: how long each ran, waited for a CPU, and was blocked, and in which call.

use super::Roles;
use super::waits::{BlockActivity, is_yield, wait_kind};
use crate::events::Syscall;
use crate::events::syscalls;
use crate::report::{ThreadReport, TopWait};
use crate::timeline::{ThreadLine, Timeline};
use crate::units::Nanos;

/// One row per thread, most time spent running, waiting for a CPU or on storage first. Running, run queue and blocked time
/// sum to the life of the thread; time in `sched_yield` loops counts as running, since such a thread spins.
pub fn threads(timeline: &Timeline, roles: &Roles<'_>) -> Vec<ThreadReport> {
    let blocks = BlockActivity::new(timeline);
    let mut by_call = ByCall::default();
    let mut rows: Vec<ThreadReport> = timeline
        .lines()
        .map(|(ix, line)| ThreadReport { role: roles(ix).to_owned(), ..row(timeline, &blocks, line, &mut by_call) })
        .collect();
    let busy = |t: &ThreadReport| t.running_s + t.runqueue_s + t.disk_s;
    rows.sort_by(|a, b| busy(b).total_cmp(&busy(a)).then(a.tid.cmp(&b.tid)));
    rows
}

fn row(timeline: &Timeline, blocks: &BlockActivity<'_>, line: &ThreadLine, by_call: &mut ByCall) -> ThreadReport {
    let (mut run_queue, mut longest, mut disk, mut blocked) = (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
    by_call.clear();
    for i in &line.intervals {
        if !is_yield(i) {
            run_queue += i.run_queue();
            longest = longest.max(i.run_queue());
        }
        let waited = i.blocked();
        if waited == Nanos::ZERO {
            continue;
        }
        blocked += waited;
        by_call.add(i.syscall, waited);
        if wait_kind(timeline, blocks, i).is_storage() {
            disk += waited;
        }
    }
    ThreadReport {
        tid: line.tid.0,
        pid: line.pid.0,
        comm: line.comm.clone(),
        role: String::new(),
        alive_s: line.alive().secs(),
        running_s: (line.alive() - run_queue - blocked).secs(),
        runqueue_s: run_queue.secs(),
        disk_s: disk.secs(),
        blocked_s: blocked.secs(),
        max_runqueue_ms: longest.millis(),
        top_wait: by_call
            .longest()
            .map(|(call, waited)| TopWait { syscall: syscalls::wait_name(call), seconds: waited.secs() }),
    }
}

/// Blocked time by system call, in a table that is used again for each thread: indexed by number, since a hash lookup per
/// interval would cost more than all else here.
#[derive(Default)]
struct ByCall {
    /// Index 0 is "no system call".
    time: Vec<Nanos>,
    used: Vec<u16>,
}

impl ByCall {
    fn clear(&mut self) {
        for ix in self.used.drain(..) {
            if let Some(t) = self.time.get_mut(usize::from(ix)) {
                *t = Nanos::ZERO;
            }
        }
    }

    fn add(&mut self, call: Syscall, waited: Nanos) {
        // All numbers below zero mean the same.
        let ix = (i32::from(call.0.max(-1)) + 1) as u16;
        if self.time.len() <= usize::from(ix) {
            self.time.resize(usize::from(ix) + 1, Nanos::ZERO);
        }
        if let Some(t) = self.time.get_mut(usize::from(ix)) {
            if *t == Nanos::ZERO {
                self.used.push(ix);
            }
            *t += waited;
        }
    }

    fn longest(&self) -> Option<(Syscall, Nanos)> {
        let time = |ix: u16| self.time.get(usize::from(ix)).copied().unwrap_or_default();
        self.used
            .iter()
            .max_by_key(|ix| (time(**ix), std::cmp::Reverse(**ix)))
            .map(|ix| (Syscall((i32::from(*ix) - 1) as i16), time(*ix)))
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
