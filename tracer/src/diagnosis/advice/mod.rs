//! Advice that fits the evidence: for each cause a rule from facts to sentences, most useful first. A family of causes has a
//! file; a rule is a pure function of the few facts that decide.

mod between;
mod cpu;
mod preparing;
mod room;
mod storage;
mod training;

#[cfg(test)]
mod tests;

use super::facts::Facts;
use crate::attribution::{Cause, Totals};
use crate::units::Nanos;
use room::Room;

/// How fast the run could be at most without its cause, where that is known: what more workers are worth depends on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Length of the run.
    pub span: Nanos,
    /// The shortest that it could be.
    pub shortest: Nanos,
}

/// How many workers more there is room for, if any.
pub fn more_workers(f: &Facts<'_>, totals: &Totals) -> Option<usize> {
    Room::of(f, totals, Pace::default()).more()
}

/// What to do about a cause, most useful first.
pub fn on(f: &Facts<'_>, totals: &Totals, cause: Cause, pace: Pace) -> Vec<String> {
    match cause {
        Cause::Disk => storage::disk(&storage::OnDisk::of(f, totals)),
        Cause::NetworkStorage => storage::share(&storage::OnShare::of(f, totals)),
        Cause::Memory => storage::memory(&storage::Short::of(f, totals)),
        Cause::CpuStarved => cpu::starved(&cpu::Starved::of(f, totals)),
        Cause::CpuThrottled => cpu::throttled(&cpu::Throttled::of(f)),
        Cause::Preprocessing => preparing::preprocessing(&preparing::Preparing::of(f, totals, pace)),
        Cause::HostCode => training::host_code(&training::Loop::of(f, totals)),
        Cause::Sleep => training::sleep(&training::Loop::of(f, totals)),
        Cause::GpuDriver => training::gpu_driver(),
        Cause::Checkpoint => training::checkpoint(&training::Checkpoints::of(f, totals)),
        Cause::WorkerStartup => training::worker_startup(&training::Starting::of(f, totals)),
        Cause::PinMemory => between::pin_memory(),
        Cause::Ipc => between::ipc(f.workers_are_threads()),
        Cause::Network => between::network(between::Peer::of(f, totals, cause).as_ref()),
        Cause::OtherProcess => between::other_process(between::Peer::of(f, totals, cause).as_ref()),
        Cause::Unknown => between::unknown(&between::Unrecorded::of(f)),
    }
}
