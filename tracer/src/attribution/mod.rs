//! Attribution: every idle moment of a GPU gets exactly one cause, by walking the wake-up graph backwards from the end of
//! each gap, starting at the thread that feeds the GPU.

mod blocked;
pub mod calls;
mod cause;
mod chain;
mod checkpoints;
mod deliveries;
mod evidence;
mod feeding;
mod gaps;
mod locks;
mod placing;
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
pub use chain::Link;
pub use evidence::Evidence;
pub use feeding::Feeding;
pub use gaps::Usage;
pub use roles::{Role, Roles};
pub use segment::{NoRecord, Segment, Wait, What};
pub use surroundings::Surroundings;
pub use totals::{Detail, Group, LongGap, Totals};

use crate::gpu::{self, Activity, GpuActivity};
use crate::host::Mount;
use crate::timeline::Timeline;
use crate::units::{GpuIndex, MonoNs, Nanos, Pid};
use gaps::{Kind, Pending, Stretch, Stretches};
use std::collections::{HashMap, HashSet};
use std::ops::Range;

/// What explains the idle time of one GPU.
#[derive(Debug)]
pub struct GpuAttribution {
    /// The GPU and its activity.
    pub gpu: GpuActivity,
    /// Roles of the threads as seen from this GPU: its own processes feed it.
    pub roles: Roles,
    /// Whether its processes were recorded.
    pub feeding: Feeding,
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
    /// Sums over all GPUs of the job; over all, if none is.
    pub totals: Totals,
    /// The whole recording explained as if it were one gap: what the feeder spent its time on. For recordings without
    /// GPU evidence.
    pub main_thread: Totals,
}

/// Explains the idle time of every GPU in `activity` from a whole timeline.
pub fn attribute(tl: &Timeline, mounts: &[Mount], activity: Vec<GpuActivity>) -> Attribution {
    let mut attributor = Attributor::new(tl, &Evidence::of(tl), mounts, activity);
    attributor.part(tl);
    attributor.finish()
}

/// Explains idle time part by part, from the end of a recording to its start; what it keeps does not grow with the
/// recording.
#[derive(Debug)]
pub struct Attributor {
    roles: Roles,
    around: Surroundings,
    gpus: Vec<OneGpu>,
    /// For want of a GPU.
    life: Option<Pending>,
    main_thread: Totals,
}

/// What was explained of one GPU.
#[derive(Debug)]
struct OneGpu {
    attribution: GpuAttribution,
    left: Stretches,
    pending: Option<Pending>,
}

impl Attributor {
    /// From what is known of the whole recording: `tl` without its intervals, and what was gathered while it went by.
    pub fn new(tl: &Timeline, evidence: &Evidence, mounts: &[Mount], activity: Vec<GpuActivity>) -> Attributor {
        let (by_gpu, feedings): (Vec<Vec<Pid>>, Vec<Feeding>) =
            feeding::find(tl, evidence, &activity).into_iter().map(|fed| (fed.pids, fed.feeding)).unzip();
        let all_pids: Vec<Pid> = by_gpu.iter().flatten().copied().collect();
        let feeders: HashSet<Pid> = by_gpu
            .iter()
            .filter(|pids| !pids.is_empty())
            .map(|pids| roles::feeder_process(tl, evidence, pids))
            .collect();
        let peers_of = |pid: Pid| feeders.iter().copied().filter(|p| *p != pid).collect::<HashSet<Pid>>();
        // Roles take a pass over all wake-ups: GPUs that are fed by the same process share them.
        let mut by_feeder: HashMap<Pid, Roles> = HashMap::new();
        let mut own_roles = Vec::new();
        for (pids, feeding) in by_gpu.iter().zip(&feedings) {
            if !feeding.is_of_job() {
                own_roles.push(Roles::of_nobody(tl));
                continue;
            }
            let pids = if pids.is_empty() { &all_pids } else { pids };
            let pid = roles::feeder_process(tl, evidence, pids);
            let own = by_feeder.entry(pid).or_insert_with(|| roles::assign(tl, evidence, pids, &peers_of(pid)));
            own_roles.push(own.clone());
        }
        let of_job = || own_roles.iter().zip(&feedings).filter(|(_, f)| f.is_of_job()).map(|(own, _)| own);
        let mut roles = match of_job().next() {
            Some(first) => first.clone(),
            None if activity.is_empty() => roles::assign(tl, evidence, &on_any_gpu(tl), &HashSet::new()),
            None => Roles::of_nobody(tl),
        };
        of_job().skip(1).for_each(|own| roles.add(own));
        let mut gpus = Vec::new();
        for ((mut gpu, mut own), feeding) in activity.into_iter().zip(own_roles).zip(feedings) {
            // A chain may lead into the process of another GPU, whose threads are there what they are to that one.
            if feeding.is_of_job() {
                own.add(&roles);
            }
            if let Activity::Windows(windows) = &mut gpu.activity
                && feeding.is_of_job()
                && let Some(end) = roles::end_of_feeding(tl, evidence, &own).filter(|end| *end < tl.span.1)
            {
                gpu::end_work(windows, end);
                // What is told of the time after it lags, or is the work of others.
                windows.iter_mut().filter(|w| w.start >= end).for_each(|w| w.utilization = 0.0);
            }
            let (left, usage) = Stretches::new(&gpu.activity, tl.span);
            let attribution = GpuAttribution { gpu, roles: own, feeding, usage, totals: Totals::default() };
            gpus.push(OneGpu { attribution, left, pending: None });
        }
        let mut main_thread = Totals::default();
        let (start, end) = tl.span;
        let whole = Stretch { kind: Kind::Life, start, end, idle: end.since(start) };
        let life = gpus.is_empty().then(|| Pending::new(whole, GpuIndex(0), &roles, &mut main_thread));
        Attributor { roles, around: Surroundings::new(tl, mounts), gpus, life, main_thread }
    }

    /// Roles of the threads, all GPUs together.
    pub fn roles(&self) -> &Roles {
        &self.roles
    }

    /// First and last busy moment of the GPUs of the job; `None` if they were never busy.
    pub fn active(&self) -> Option<(MonoNs, MonoNs)> {
        let of_job = || self.gpus.iter().map(|g| &g.attribution).filter(|g| g.feeding.is_of_job());
        let busy = || of_job().map(|g| &g.usage).filter(|u| u.busy > Nanos::ZERO);
        Some((busy().map(|u| u.from).min()?, busy().map(|u| u.to).max()?))
    }

    /// From when on a part of the recording that covers `own` should be known, to explain all that ends in it.
    pub fn need(&self, own: &Range<MonoNs>) -> MonoNs {
        let of_gpu = |g: &OneGpu| {
            let first = g.left.start_of_first_after(&g.attribution.gpu.activity, own.start);
            first.into_iter().chain(g.pending.as_ref().map(Pending::start)).min()
        };
        let all = self.gpus.iter().filter_map(of_gpu).chain(self.life.as_ref().map(Pending::start));
        all.min().unwrap_or(own.start)
    }

    /// Explains what ends in the next part of the recording, going back in time.
    pub fn part(&mut self, tl: &Timeline) {
        for g in &mut self.gpus {
            let GpuAttribution { gpu, roles, totals, .. } = &mut g.attribution;
            let mut walker = walk::Walker::new(tl, roles, &self.around);
            loop {
                let next = || Some(Pending::new(g.left.next_back(&gpu.activity)?, gpu.gpu, roles, totals));
                let Some(pending) = g.pending.take().or_else(next) else { break };
                g.pending = pending.explain(tl, roles, &mut walker, totals);
                if g.pending.is_some() {
                    break;
                }
            }
        }
        if let Some(life) = self.life.take() {
            let mut walker = walk::Walker::new(tl, &self.roles, &self.around);
            self.life = life.explain(tl, &self.roles, &mut walker, &mut self.main_thread);
        }
    }

    /// What was explained, when the start of the recording was reached.
    pub fn finish(self) -> Attribution {
        let mut totals = Totals::default();
        let mut gpus = Vec::new();
        let any_of_job = self.gpus.iter().any(|g| g.attribution.feeding.is_of_job());
        for mut g in self.gpus {
            g.attribution.totals.trim();
            g.attribution.usage.certain = g.attribution.totals.certain;
            if g.attribution.feeding.is_of_job() || !any_of_job {
                totals.merge(&g.attribution.totals);
            }
            gpus.push(g.attribution);
        }
        Attribution { roles: self.roles, around: self.around, gpus, totals, main_thread: self.main_thread }
    }
}

/// Recorded processes that hold a context on some GPU.
fn on_any_gpu(tl: &Timeline) -> Vec<Pid> {
    let recorded: HashSet<Pid> = tl.threads.iter().map(|t| t.pid).collect();
    tl.gpu_processes.iter().map(|p| p.pid).filter(|p| recorded.contains(p)).collect()
}
