//! How much could be gained at most if a cause went away: by how long the run would have to be even then.
//!
//! Each bound rests on work that is done whatever happens to the cause, so that it holds also where the estimate of a gain
//! would not: what cannot be shown to stay is taken to go away, too.

use super::facts::WorkerTime;
use crate::attribution::{Cause, Detail, Role};
use crate::units::Nanos;

/// What a training run of some length consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Its length: busy and idle time of the GPU.
    pub span: Nanos,
    /// Time in which the GPU was busy.
    pub busy: Nanos,
    /// Idle time in which the threads that feed the GPU did what they would still have to do ([`stays`]).
    pub serial: Nanos,
    /// Whether that could go on while the GPU works. A loop that waits for the GPU in each step cannot use that time; one
    /// that launches ahead can, and may have been idle only for want of data.
    pub overlaps: bool,
    /// What workers would still have to do, each for itself, on average over the workers ([`each_worker`]).
    pub each_worker: Nanos,
}

impl Run {
    /// The shortest that this run could become without the cause: no shorter than the work of the GPU and of its feeder, and
    /// no shorter than what each worker has to do, which works ahead while the others are busy.
    pub fn shortest(&self) -> Nanos {
        let feeding = if self.overlaps { self.busy.max(self.serial) } else { self.busy + self.serial };
        feeding.max(self.each_worker).min(self.span)
    }

    /// How many times faster it could be at most; `None` if it has no length.
    pub fn speedup(&self) -> Option<f64> {
        let shortest = self.shortest();
        (shortest > Nanos::ZERO).then(|| self.span.secs() / shortest.secs())
    }
}

/// Share of CPU time that is still needed when nobody else wants the CPUs. Two hardware threads of a core share its units,
/// which makes what runs on either take up to twice as long; virtual CPUs may be such threads without telling.
const ALONE_ON_A_CORE: f64 = 0.5;

/// CPU time that is left of this much when a cause goes away.
fn cpu_time(share: f64, gone: Cause) -> f64 {
    if gone == Cause::CpuStarved { share * ALONE_ON_A_CORE } else { share }
}

/// Share of idle time of this kind that is sure to stay when a cause goes away: what threads of the process that feeds the GPU
/// do themselves, by another cause, unless what ends the one may well end the other.
pub fn stays(d: &Detail, gone: Cause) -> f64 {
    // A faster disk makes swap faster, and more memory makes a larger page cache.
    let storage = |c| matches!(c, Cause::Disk | Cause::NetworkStorage | Cause::Memory);
    // Whatever goes away may have taken CPU time from others.
    let free = matches!(d.cause, Cause::CpuStarved | Cause::CpuThrottled | Cause::Unknown);
    let own = matches!(d.role, Role::Feeder | Role::Helper);
    if !own || d.cause == gone || free || (storage(gone) && storage(d.cause)) {
        return 0.0;
    }
    match d.cause {
        Cause::Preprocessing | Cause::HostCode | Cause::PinMemory | Cause::Ipc => cpu_time(1.0, gone),
        _ => 1.0,
    }
}

/// Share of their time that workers would still need for their work without a cause, each for itself. Their waits for a CPU are
/// left out throughout, since these may get shorter with any cause.
pub fn each_worker(t: WorkerTime, gone: Cause, may_be_more: bool) -> f64 {
    match gone {
        Cause::Disk | Cause::NetworkStorage => t.ran,
        // Bringing pages back takes CPU time, too, above all from compressed memory.
        Cause::Memory => 0.0,
        // Starting is most of what new workers run.
        Cause::WorkerStartup => 0.0,
        Cause::Preprocessing if may_be_more => 0.0,
        Cause::Preprocessing => t.storage,
        _ => cpu_time(t.ran, gone) + t.storage,
    }
}

/// Whether the work of the feeder could overlap with the GPU's once a cause is gone: it does already, or what goes away is
/// what keeps it from that, which is waiting for the GPU.
pub fn overlaps(waits_for_gpu: bool, gone: Cause) -> bool {
    !waits_for_gpu || matches!(gone, Cause::GpuDriver | Cause::HostCode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn s(n: u64) -> Nanos {
        Nanos::from_millis(1000 * n)
    }

    fn of(role: Role, cause: Cause) -> Detail {
        Detail { cause, role, syscall: None, outsider: None, competitor: None, no_record: None }
    }

    const WORKERS: WorkerTime = WorkerTime { ran: 0.5, queued: 0.25, blocked: 0.25, storage: 0.125 };

    #[test]
    fn what_the_gpu_and_its_feeder_do_stays() {
        let run = Run { span: s(100), busy: s(30), serial: s(20), ..Run::default() };
        assert_eq!(run.shortest(), s(50));
        assert_eq!(run.speedup(), Some(2.0));
    }

    #[test]
    fn a_loop_that_launches_ahead_hides_its_own_work() {
        // Per step: 50 ms for the disk, 10 ms of its own, 20 ms on the GPU that it does not wait for. Without the disk a step
        // takes the GPU's 20 ms and not 30.
        let run = Run { span: s(80), busy: s(20), serial: s(10), overlaps: true, each_worker: s(0) };
        assert_eq!(run.shortest(), s(20));
        // Where its own work is longer than the GPU's, that is what is left.
        assert_eq!(Run { serial: s(40), ..run }.shortest(), s(40));
    }

    #[test]
    fn what_each_worker_has_to_do_stays_too() {
        // Workers read for 60 s and decode for 35 s: with a disk of infinite speed they still decode.
        let run = Run { span: s(100), busy: s(10), each_worker: s(35), ..Run::default() };
        assert_eq!(run.shortest(), s(35));
    }

    #[test]
    fn no_run_gets_longer_and_an_empty_one_has_no_bound() {
        let crowded = Run { span: s(10), busy: s(8), serial: s(1), each_worker: s(60), ..Run::default() };
        assert_eq!(crowded.speedup(), Some(1.0));
        assert_eq!(Run::default().speedup(), None);
    }

    #[test]
    fn only_what_the_feeder_does_itself_stays() {
        assert_eq!(stays(&of(Role::Feeder, Cause::HostCode), Cause::Disk), 1.0);
        assert_eq!(stays(&of(Role::Helper, Cause::Checkpoint), Cause::Disk), 1.0);
        // Workers work ahead while the GPU is busy.
        assert_eq!(stays(&of(Role::Worker, Cause::Preprocessing), Cause::Disk), 0.0);
        assert_eq!(stays(&of(Role::PinMemory, Cause::PinMemory), Cause::Disk), 0.0);
        assert_eq!(stays(&of(Role::Feeder, Cause::Disk), Cause::Disk), 0.0);
    }

    #[test]
    fn what_may_go_with_the_cause_does_not_count() {
        // A job that swaps to the disk it reads from.
        assert_eq!(stays(&of(Role::Feeder, Cause::Disk), Cause::Memory), 0.0);
        assert_eq!(stays(&of(Role::Feeder, Cause::Memory), Cause::Disk), 0.0);
        // Cheaper preprocessing leaves CPUs to the feeder.
        assert_eq!(stays(&of(Role::Feeder, Cause::CpuStarved), Cause::Preprocessing), 0.0);
        // What is not known may be the cause itself.
        assert_eq!(stays(&of(Role::Feeder, Cause::Unknown), Cause::Disk), 0.0);
    }

    #[test]
    fn without_competitors_a_core_is_faster() {
        assert_eq!(stays(&of(Role::Feeder, Cause::HostCode), Cause::CpuStarved), 0.5);
        assert_eq!(stays(&of(Role::Feeder, Cause::Disk), Cause::CpuStarved), 1.0);
    }

    #[test]
    fn workers_keep_the_work_that_the_cause_is_not() {
        assert_eq!(each_worker(WORKERS, Cause::Disk, true), 0.5);
        assert_eq!(each_worker(WORKERS, Cause::Checkpoint, true), 0.625);
        assert_eq!(each_worker(WORKERS, Cause::CpuStarved, false), 0.375);
        assert_eq!(each_worker(WORKERS, Cause::Preprocessing, false), 0.125);
        assert_eq!(each_worker(WORKERS, Cause::Preprocessing, true), 0.0, "more of them share it");
        // New workers import and copy for most of their lives; compressed swap runs.
        assert_eq!(each_worker(WORKERS, Cause::WorkerStartup, true), 0.0);
        assert_eq!(each_worker(WORKERS, Cause::Memory, true), 0.0);
    }

    #[test]
    fn without_synchronising_calls_a_loop_may_launch_ahead() {
        assert!(!overlaps(true, Cause::Disk));
        assert!(overlaps(false, Cause::Disk));
        assert!(overlaps(true, Cause::GpuDriver) && overlaps(true, Cause::HostCode));
    }

    proptest! {
        /// A pipeline of known costs, by the step: the GPU, the feeder's own work, what each of its workers does, and a cause
        /// that holds up the feeder. Without it no schedule beats the bound that was told.
        #[test]
        fn no_schedule_beats_it(
            gpu in 1u64..50, own in 0u64..50, worker in 0u64..50, gone in 0u64..50, waits: bool, workers in 1u64..4,
        ) {
            let step = |gone: u64| {
                let feeding = if waits { gpu + own + gone } else { gpu.max(own + gone) };
                feeding.max(worker.div_ceil(workers))
            };
            let (before, after) = (step(gone), step(0));
            // The own work that was seen while the GPU was idle, at most all of it.
            let serial = own.min(before - gpu);
            let run = Run {
                span: s(before), busy: s(gpu), serial: s(serial), overlaps: !waits,
                each_worker: s(worker / workers),
            };
            let told = run.speedup().unwrap_or(0.0);
            prop_assert!(before as f64 / after as f64 <= told + 1e-9, "{before} to {after}, at most {told}");
        }
    }
}
