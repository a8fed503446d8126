//! Attribution: every idle moment of a GPU gets exactly one cause, by walking the wake-up graph backwards from the end of
//! each gap, starting at the thread that feeds the GPU.

mod blocked;
pub mod calls;
mod cause;
mod checkpoints;
mod gaps;
pub mod roles;
mod running;
mod segment;
mod startup;
mod surroundings;
mod totals;
mod walk;

#[cfg(test)]
mod tests;

pub use cause::Cause;
pub use gaps::{ExplainedGap, Usage};
pub use roles::{Role, Roles};
pub use segment::{NoRecord, Segment, What};
pub use surroundings::Surroundings;
pub use totals::{Detail, Group, Totals, blocked_file};

use crate::gpu::GpuActivity;
use crate::host::Mount;
use crate::timeline::Timeline;
use crate::units::{GpuIndex, Pid};

/// What explains the idle time of one GPU.
#[derive(Debug)]
pub struct GpuAttribution {
    /// The GPU and its activity.
    pub gpu: GpuActivity,
    /// Roles of the threads as seen from this GPU: its own processes feed it.
    pub roles: Roles,
    /// How long it was busy and idle.
    pub usage: Usage,
    /// Its idle time, summed.
    pub totals: Totals,
}

/// What explains the idle time of all GPUs.
#[derive(Debug)]
pub struct Attribution {
    /// Roles of the threads, all GPUs together.
    pub roles: Roles,
    /// What the host was doing.
    pub around: Surroundings,
    /// One entry per GPU.
    pub gpus: Vec<GpuAttribution>,
    /// Sums over all GPUs.
    pub totals: Totals,
    /// The whole recording explained as if it were one gap: what the feeder spent its time on. For recordings without
    /// GPU evidence.
    pub main_thread: Totals,
}

/// Explains the idle time of every GPU in `activity`.
pub fn attribute(tl: &Timeline, mounts: &[Mount], activity: Vec<GpuActivity>) -> Attribution {
    let of_target = |pid: &Pid| tl.threads.iter().any(|t| t.pid == *pid);
    let all_pids: Vec<Pid> = tl.gpu_processes.iter().map(|p| p.pid).filter(of_target).collect();
    let overall = roles::assign(tl, &all_pids);
    let mut roles = overall.clone();
    let around = Surroundings::new(tl, mounts);
    let mut gpus = Vec::new();
    let mut all = Totals::default();
    for gpu in activity {
        let on_it = tl.gpu_processes.iter().filter(|p| p.gpu == gpu.gpu);
        let pids: Vec<Pid> = on_it.map(|p| p.pid).filter(of_target).collect();
        // Roles take a pass over all intervals: only a GPU with processes of its own needs another one.
        let own = if pids.is_empty() || pids == all_pids { overall.clone() } else { roles::assign(tl, &pids) };
        let walker = walk::Walker::new(tl, &own, &around);
        let mut totals = Totals::default();
        let usage = gaps::explain(tl, &own, &walker, &gpu, &mut |gap| totals.add(tl, &own, gap));
        totals.trim();
        all.merge(&totals);
        roles.add(&own);
        gpus.push(GpuAttribution { gpu, roles: own, usage, totals });
    }
    let mut main_thread = Totals::default();
    if gpus.is_empty() {
        let (start, end) = tl.span;
        let segments = walk::Walker::new(tl, &roles, &around).explain(roles.feeder, start, end);
        main_thread.add(tl, &roles, ExplainedGap { gpu: GpuIndex(0), start, end, idle: end.since(start), segments });
    }
    Attribution { roles, around, gpus, totals: all, main_thread }
}
