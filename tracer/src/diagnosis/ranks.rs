//! Several processes that feed GPUs: which of them the others waited for.

use super::words::{did, percent, seconds, who};
use super::{Facts, main_cause};
use crate::attribution::{Attribution, GpuAttribution};
use crate::units::{GpuIndex, Nanos, Pid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// From this share of its idle time on, that a GPU waited for the process of another one is worth a sentence.
const WORTH_TELLING: f64 = 0.20;

/// Idle time of one GPU in which its own process waited for that of another GPU, or for workers of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitedFor {
    /// The other GPU.
    pub gpu: u32,
    /// The process that feeds it.
    pub pid: u32,
    /// Idle time that went by so, seconds.
    pub seconds: f64,
    /// The same as a share of this GPU's idle time, 0 to 1.
    pub share: f64,
}

/// For whom the process of a GPU waited, longest first.
pub fn waited_for(at: &Attribution, gpu: &GpuAttribution) -> Vec<WaitedFor> {
    let mut by: BTreeMap<Pid, Nanos> = BTreeMap::new();
    for (ix, idle) in &gpu.totals.threads {
        if let Some(pid) = at.roles.works_for(*ix).filter(|pid| *pid != gpu.roles.feeder_pid) {
            *by.entry(pid).or_default() += *idle;
        }
    }
    let of = |pid: Pid| at.gpus.iter().find(|g| g.roles.feeder_pid == pid).map(|g| g.gpu.gpu);
    let mut all: Vec<WaitedFor> = by
        .into_iter()
        .filter_map(|(pid, idle)| {
            let GpuIndex(gpu_of_it) = of(pid)?;
            let share = idle.share_of(gpu.totals.idle);
            Some(WaitedFor { gpu: gpu_of_it, pid: pid.0, seconds: idle.secs(), share })
        })
        .collect();
    all.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    all
}

/// A sentence on one GPU, if its process waited long for another.
pub fn sentence(at: &Attribution, gpu: &GpuAttribution) -> Option<String> {
    let most = waited_for(at, gpu).into_iter().next().filter(|w| w.share >= WORTH_TELLING)?;
    Some(format!(
        "Its process ({}) waited for that of GPU {} (process {}) for {} of its idle time.",
        gpu.roles.feeder_pid,
        most.gpu,
        most.pid,
        percent(most.share)
    ))
}

/// Names the process that the others waited for most, and what held it up.
pub fn slowest(f: &Facts<'_>, at: &Attribution) -> Option<String> {
    let (slow, time) = find_slowest(at)?;
    let (_, cause, _) = main_cause(&slow.totals)?;
    Some(format!(
        "The process of GPU {} ({}) is the slowest: the others waited {} for it. It was held up itself: {} {}.",
        slow.gpu.gpu,
        slow.roles.feeder_pid,
        seconds(time),
        who(f.main_role(&slow.totals, cause)),
        did(cause)
    ))
}

/// What to do about it.
pub fn advice(at: &Attribution) -> Option<String> {
    let (slow, _) = find_slowest(at)?;
    Some(format!(
        "Mend the process of GPU {} ({}) first, or give it a smaller share of each batch: the others wait for it whatever they do themselves. Its own verdict says what holds it up.",
        slow.gpu.gpu, slow.roles.feeder_pid
    ))
}

/// The GPU whose process the others waited for most, and for how many seconds.
fn find_slowest(at: &Attribution) -> Option<(&GpuAttribution, f64)> {
    let mut by: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for w in at.gpus.iter().flat_map(|g| waited_for(at, g)) {
        let sum = by.entry(w.gpu).or_default();
        sum.0 += w.seconds;
        sum.1 = sum.1.max(w.share);
    }
    let (gpu, (time, share)) = by.into_iter().max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
    let slow = at.gpus.iter().find(|g| g.gpu.gpu.0 == gpu).filter(|_| share >= WORTH_TELLING)?;
    Some((slow, time))
}
