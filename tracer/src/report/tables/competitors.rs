//! Who had the CPU while threads of the target waited for it.

use super::waits::is_yield;
use crate::events::SleepState;
use crate::report::Competitor;
use crate::timeline::{Interval, Timeline};
use crate::units::{Nanos, Tid};
use rustc_hash::FxHashMap;

/// Rows of the table.
const MOST: usize = 50;

/// Run-queue time of target threads by the thread that had the CPU: the one that took it from a preempted thread, or the
/// one that ran before a woken thread got it. Waits on an idle CPU (its wake-up latency) belong to nobody.
#[derive(Debug, Default)]
pub(super) struct Waits {
    by_tid: FxHashMap<Tid, Nanos>,
    /// One thread often waits for the same other one many times in a row.
    same: (Tid, Nanos),
}

impl Waits {
    #[inline]
    pub(super) fn add(&mut self, i: &Interval) {
        let Some(tid) = competitor(i) else { return };
        if tid != self.same.0 {
            if self.same.1 > Nanos::ZERO {
                *self.by_tid.entry(self.same.0).or_default() += self.same.1;
            }
            self.same = (tid, Nanos::ZERO);
        }
        self.same.1 += i.run_queue();
    }

    /// Longest first.
    pub(super) fn rows(&self, tl: &Timeline) -> Vec<Competitor> {
        let mut all = self.by_tid.clone();
        if self.same.1 > Nanos::ZERO {
            *all.entry(self.same.0).or_default() += self.same.1;
        }
        let mut rows: Vec<(Tid, Nanos)> = all.into_iter().collect();
        rows.sort_by_key(|(tid, waited)| (std::cmp::Reverse(*waited), *tid));
        rows.truncate(MOST);
        rows.into_iter().map(|(tid, waited)| row(tl, tid, waited)).collect()
    }
}

fn competitor(i: &Interval) -> Option<Tid> {
    if i.run_queue() == Nanos::ZERO || is_yield(i) {
        return None;
    }
    let tid = if i.state == SleepState::Preempted { i.next } else { i.prev };
    (tid != Tid(0)).then_some(tid)
}

fn row(timeline: &Timeline, tid: Tid, waited: Nanos) -> Competitor {
    let of_target = timeline.thread_at(tid, timeline.span.1).and_then(|ix| timeline.thread(ix));
    let outsider = timeline.outsiders.get(&tid);
    let comm = of_target.map(|t| t.comm.clone()).or_else(|| outsider.map(|o| o.comm.clone()));
    Competitor {
        tid: tid.0,
        comm: comm.unwrap_or_default(),
        command: outsider.map(|o| o.command.clone()).unwrap_or_default(),
        in_target: of_target.is_some(),
        seconds: waited.secs(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::*;
    use super::*;
    use crate::events::{Event, Syscall, ThreadName};
    use crate::units::Pid;

    #[test]
    fn waits_are_charged_to_the_thread_that_ran() {
        let mut woken = blocked(10, 200, 210, 230, 202, SleepState::Interruptible);
        woken.prev_tid = Tid(11);
        let mut idle = blocked(10, 300, 310, 350, 202, SleepState::Interruptible);
        idle.prev_tid = Tid(0);
        let mut spin = preempted(10, 400, 450, 99);
        spin.syscall = Syscall(24);
        let name = ThreadName { tid: Tid(99), pid: Pid(90), comm: "backup".into(), command: "backup --all".into() };
        let rows = competitors(&timeline([
            Event::OffCpu(preempted(10, 0, 50, 99)),
            Event::OffCpu(preempted(10, 60, 70, 99)),
            Event::OffCpu(woken),
            Event::OffCpu(idle),
            Event::OffCpu(spin),
            Event::OffCpu(preempted(11, 500, 501, 98)),
            Event::ThreadName(name),
        ]));
        let seen: Vec<(u32, &str, &str, bool, f64)> =
            rows.iter().map(|r| (r.tid, &*r.comm, &*r.command, r.in_target, r.seconds)).collect();
        assert_eq!(
            seen,
            [(99, "backup", "backup --all", false, 0.06), (11, "", "", true, 0.02), (98, "", "", false, 0.001)]
        );
    }
}
