//! The cause of a time in which a thread ran, refined by what samples saw it doing.

use super::calls::{self, CallKind};
use super::roles::{self, Role, Roles};
use super::{Cause, Surroundings};
use crate::events::{ImageId, Syscall};
use crate::timeline::{Moment, ThreadIx, ThreadLine, Timeline};
use crate::units::{MonoNs, Nanos};
use std::collections::HashSet;

/// A sample speaks for at most this long on either side, with waits of the thread in between.
const REACH: Nanos = Nanos::from_millis(80);

/// A thread that went on for longer than this without a sample was not running: one and a half periods, since each CPU is sampled
/// by a timer of its own. Between two samples it takes three periods, so that one that came late or never makes no doubt.
pub fn seen_within(sample_period: Nanos) -> Nanos {
    // Less than what a virtual machine may lose at a time says nothing.
    const LEAST: Nanos = Nanos::from_millis(7);
    Nanos(sample_period.0.saturating_mul(3) / 2).max(LEAST)
}

/// Decides the causes of running time.
#[derive(Debug)]
pub struct Running {
    cuda: HashSet<ImageId>,
}

/// CPU time of a thread from one moment to another, negative if that was before. The moments must not lie far apart.
fn cpu_from(line: &ThreadLine, from: MonoNs, to: MonoNs) -> i64 {
    let (lo, hi) = (from.min(to), from.max(to));
    let mut cpu = hi.since(lo);
    for i in line.intervals.iter().skip(line.intervals.partition_point(|i| i.on <= lo)).take_while(|i| i.off < hi) {
        cpu -= i.on.min(hi).since(i.off.max(lo));
    }
    let cpu = i64::try_from(cpu.0).unwrap_or(i64::MAX);
    if to < from { -cpu } else { cpu }
}

/// Parts of `[from, to]`, latest first, in which a thread that should have been running was not seen to: some kernels do not
/// trace every switch, and then a wait looks like running. `[from, to]` lies between two intervals of the line; whoever runs is seen
/// `within` such a time.
pub fn unseen(line: &ThreadLine, within: Nanos, from: MonoNs, to: MonoNs) -> Vec<(MonoNs, MonoNs)> {
    let n = line.last_before(to);
    let start = n.and_then(|n| line.intervals.get(n)).map_or(line.born, |i| i.on);
    let end = line.intervals.get(n.map_or(0, |n| n + 1)).map_or(line.died, |i| i.off);
    if end.since(start) <= within {
        return Vec::new();
    }
    let mut out = Vec::new();
    let mut t = to;
    let near = line.samples_in((from - within).max(start), (to + within).min(end));
    for s in near.iter().rev() {
        let seen = s.time + within;
        if seen < t {
            out.push((seen.max(from), t));
        }
        t = t.min(s.time - within).max(from);
    }
    if t > from {
        out.push((from, t));
    }
    out
}

impl Running {
    /// For the images of this timeline.
    pub fn new(tl: &Timeline) -> Running {
        let cuda = tl.images.iter().filter(|(_, path)| roles::is_libcuda(path)).map(|(id, _)| *id).collect();
        Running { cuda }
    }

    /// Cause of running time by the thread's role alone.
    pub fn by_role(roles: &Roles, ix: ThreadIx) -> Cause {
        match roles.of(ix) {
            Role::Feeder if roles.loads_data(ix) => Cause::Preprocessing,
            // A command that the training process runs and waits for is its own code, too.
            Role::Feeder | Role::Helper | Role::Other => Cause::HostCode,
            Role::Worker => Cause::Preprocessing,
            Role::PinMemory => Cause::PinMemory,
            Role::Ipc => Cause::Ipc,
        }
    }

    /// Splits `[from, to]`, in which the thread ran, into stretches with one cause each, latest first.
    pub fn split(
        &self,
        tl: &Timeline,
        roles: &Roles,
        around: &Surroundings,
        ix: ThreadIx,
        (from, to): (MonoNs, MonoNs),
        trusted: Option<(MonoNs, MonoNs)>,
    ) -> Vec<(MonoNs, MonoNs, Cause)> {
        let plain = Running::by_role(roles, ix);
        let Some(line) = tl.thread(ix) else { return vec![(from, to, plain)] };
        let swapping = around.swapping(from, to);
        if line.pid != roles.feeder_pid && !swapping {
            return vec![(from, to, plain)];
        }
        // In the driver beside the GPU's own work, it waited for that.
        let waited = |s: &Moment| {
            let aside = trusted.is_some_and(|(first, last)| s.time < first || s.time > last);
            aside && self.special(roles, line, s, swapping) == Some(Cause::GpuDriver)
        };
        let near = line.samples_in(from - REACH, to + REACH).iter().filter(|s| !waited(s));
        if near.clone().all(|s| self.special(roles, line, s, swapping).is_none()) {
            return vec![(from, to, plain)];
        }
        // Each sample speaks for the time up to half-way to its neighbours, by the clock of the thread's own CPU time: then
        // each stands for one period of running, whether that was in one piece or between many short waits.
        let near: Vec<(i64, &Moment)> = near.map(|s| (cpu_from(line, from, s.time), s)).collect();
        let mut out: Vec<(MonoNs, MonoNs, Cause)> = Vec::new();
        let mut end = to;
        for (k, (at, s)) in near.iter().enumerate().rev() {
            let start = match k.checked_sub(1).and_then(|p| near.get(p)) {
                Some((before, _)) => from + Nanos(u64::try_from(before.midpoint(*at)).unwrap_or(0)),
                None => from,
            };
            if start >= end {
                continue;
            }
            let cause = self.special(roles, line, s, swapping).unwrap_or(plain);
            match out.last_mut() {
                Some(last) if last.2 == cause => last.0 = start,
                _ => out.push((start, end, cause)),
            }
            end = start;
            if end <= from {
                break;
            }
        }
        if end > from {
            out.push((from, end, plain));
        }
        out
    }

    /// What a sample says beyond the thread's role.
    fn special(&self, roles: &Roles, line: &ThreadLine, s: &Moment, swapping: bool) -> Option<Cause> {
        // Compressed swap (zram, zswap) blocks nobody: pages are fetched back, and others put away, inside the fault.
        if swapping && s.syscall == Syscall::FAULT {
            return Some(Cause::Memory);
        }
        if line.pid != roles.feeder_pid {
            return None;
        }
        let on_file = roles.checkpoints.contains(&s.file);
        match calls::kind(s.syscall) {
            CallKind::Write | CallKind::Sync if on_file => Some(Cause::Checkpoint),
            CallKind::PageFault if self.cuda.contains(&s.image) => Some(Cause::GpuDriver),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::SleepState;
    use crate::timeline::{FileIx, Interval, WakeKind};
    use crate::units::{Pid, Tid};

    fn ms(t: u64) -> MonoNs {
        MonoNs(t * 1_000_000)
    }

    const SEEN: Nanos = Nanos::from_millis(25);

    /// Off the CPU in these times, sampled at those.
    fn line(off: &[(u64, u64)], samples: &[u64]) -> ThreadLine {
        let interval = |(from, to): &(u64, u64)| Interval {
            off: ms(*from),
            wake: ms(*to),
            on: ms(*to),
            arg0: 0,
            waker: Tid(0),
            waker_pid: Pid(0),
            next: Tid(0),
            prev: Tid(0),
            file: FileIx(0),
            syscall: Syscall(0),
            waker_syscall: Syscall::NONE,
            wake_kind: WakeKind::Interrupt,
            state: SleepState::Interruptible,
            iowait: false,
            seeded: false,
            pending: false,
        };
        let moment = |t: &u64| Moment { time: ms(*t), syscall: Syscall::NONE, image: ImageId(1), file: FileIx(0) };
        ThreadLine {
            tid: Tid(1),
            pid: Pid(1),
            comm: String::new(),
            born: ms(0),
            died: ms(1000),
            forked: false,
            execed: false,
            parent: None,
            intervals: off.iter().map(interval).collect(),
            samples: samples.iter().map(moment).collect(),
        }
    }

    #[test]
    fn waits_between_do_not_count_as_running() {
        let l = line(&[(10, 50), (60, 90)], &[]);
        assert_eq!(cpu_from(&l, ms(0), ms(100)), 30_000_000);
        assert_eq!(cpu_from(&l, ms(95), ms(5)), -20_000_000);
        assert_eq!(cpu_from(&l, ms(55), ms(55)), 0);
    }

    #[test]
    fn a_slow_rate_takes_longer_to_see_a_thread() {
        assert_eq!(seen_within(Nanos(1_000_000_000 / 199)), Nanos(7_537_687));
        assert_eq!(seen_within(Nanos::from_millis(100)), Nanos::from_millis(150));
        assert_eq!(seen_within(Nanos::from_millis(1)), Nanos::from_millis(7));
    }

    #[test]
    fn a_long_run_without_a_sample_was_none() {
        let l = line(&[(0, 100), (200, 300)], &[]);
        assert_eq!(unseen(&l, SEEN, ms(100), ms(200)), [(ms(100), ms(200))]);
        assert_eq!(unseen(&l, SEEN, ms(120), ms(150)), [(ms(120), ms(150))], "a gap's part of it");
    }

    #[test]
    fn a_short_run_need_not_be_sampled_and_a_sampled_one_was_real() {
        assert!(unseen(&line(&[(0, 100), (120, 300)], &[]), SEEN, ms(100), ms(120)).is_empty());
        let samples: Vec<u64> = (100..200).step_by(5).collect();
        assert!(unseen(&line(&[(0, 100), (200, 300)], &samples), SEEN, ms(100), ms(200)).is_empty());
    }

    #[test]
    fn only_what_is_far_from_any_sample_is_doubted() {
        let l = line(&[(0, 100), (300, 400)], &[110, 115, 200]);
        assert_eq!(unseen(&l, SEEN, ms(100), ms(300)), [(ms(225), ms(300)), (ms(140), ms(175))]);
    }
}
