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
mod scale;
mod segment;
mod startup;
mod surroundings;
mod totals;
mod turns;
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
use turns::{OfTurns, Turns};

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
    turns: OfTurns,
}

impl Attributor {
    /// From what is known of the whole recording: `tl` without its intervals, and what was gathered while it went by.
    pub fn new(tl: &Timeline, evidence: &Evidence, mounts: &[Mount], activity: Vec<GpuActivity>) -> Attributor {
        let (by_gpu, feedings): (Vec<Vec<Pid>>, Vec<Feeding>) =
            feeding::find(tl, evidence, &activity).into_iter().map(|fed| (fed.pids, fed.feeding)).unzip();
        let turns = turns_of(tl, evidence, &by_gpu, &feedings);
        let feeders: HashSet<Pid> = by_gpu
            .iter()
            .zip(&turns)
            .filter(|(told, turns)| !told.is_empty() || turns.pids.len() > 1)
            .flat_map(|(_, turns)| turns.pids.iter().copied())
            .collect();
        let peers_of = |pid: Pid| feeders.iter().copied().filter(|p| *p != pid).collect::<HashSet<Pid>>();
        // Roles take a pass over all wake-ups: GPUs that are fed by the same process share them.
        let mut by_feeder: HashMap<Pid, Roles> = HashMap::new();
        let mut of = |pid: &Pid| {
            let own = by_feeder.entry(*pid).or_insert_with(|| roles::assign(tl, evidence, *pid, &peers_of(*pid)));
            own.clone()
        };
        // Of each GPU those of its processes, the first of which feeds it most.
        let own_roles: Vec<Vec<Roles>> = turns.iter().map(|turns| turns.pids.iter().map(&mut of).collect()).collect();
        let mut of_job = own_roles.iter().flatten();
        let mut roles = match of_job.next() {
            Some(first) => first.clone(),
            None if activity.is_empty() => {
                let feeder = roles::feeder_process(tl, evidence, &on_any_gpu(tl));
                roles::assign(tl, evidence, feeder, &HashSet::new())
            }
            None => Roles::of_nobody(tl),
        };
        of_job.for_each(|own| roles.add(own));
        let mut gpus = Vec::new();
        for (((mut gpu, own), feeding), turns) in activity.into_iter().zip(own_roles).zip(feedings).zip(turns) {
            // A chain may lead into another process that feeds a GPU, whose threads are there what they are to that one.
            let mut own = own.into_iter().map(|mut own| {
                own.add(&roles);
                own
            });
            let (own, others) = (own.next().unwrap_or_else(|| Roles::of_nobody(tl)), own.collect::<Vec<Roles>>());
            let end_of_feeding = || {
                let all = std::iter::once(&own).chain(&others);
                all.filter_map(|own| roles::end_of_feeding(tl, evidence, own)).max()
            };
            if let Activity::Windows(windows) = &mut gpu.activity
                && feeding.is_of_job()
                && let Some(end) = end_of_feeding().filter(|end| *end < tl.span.1)
            {
                gpu::end_work(windows, end);
                // What is told of the time after it lags, or is the work of others.
                windows.iter_mut().filter(|w| w.start >= end).for_each(|w| w.utilization = 0.0);
            }
            let (left, usage) = Stretches::new(&gpu, tl.span);
            let attribution = GpuAttribution { gpu, roles: own, feeding, usage, totals: Totals::default() };
            gpus.push(OneGpu { attribution, left, pending: None, turns: OfTurns::new(turns, others) });
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
            let GpuAttribution { gpu, roles: first, totals, .. } = &mut g.attribution;
            let roles_at = |t| g.turns.at(first, t);
            let mut walker: Option<walk::Walker<'_>> = None;
            loop {
                let next = || {
                    let stretch = g.left.next_back(&gpu.activity)?;
                    Some(Pending::new(stretch, gpu.gpu, roles_at(stretch.end), totals))
                };
                let Some(pending) = g.pending.take().or_else(next) else { break };
                let roles = roles_at(pending.end());
                let walker = match &mut walker {
                    Some(walker) if walker.is_for(roles) => walker,
                    other => other.insert(walk::Walker::new(tl, roles, &self.around)),
                };
                g.pending = pending.explain(tl, roles, walker, totals);
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

/// Which processes feed each GPU, and when; none where it works for another job.
fn turns_of(tl: &Timeline, evidence: &Evidence, told: &[Vec<Pid>], feedings: &[Feeding]) -> Vec<Turns> {
    let mut all: Vec<Pid> = told.iter().flatten().copied().collect();
    // Where nothing is told, whoever drives a GPU takes turns at the only one.
    if all.is_empty() && told.len() == 1 {
        all.extend(roles::libcuda_by_process(tl, evidence).into_keys());
    }
    let of = |(pids, feeding): (&Vec<Pid>, &Feeding)| match feeding.is_of_job() {
        true => turns::find(tl, evidence, if pids.is_empty() { &all } else { pids }),
        false => Turns::default(),
    };
    told.iter().zip(feedings).map(of).collect()
}

/// Recorded processes that hold a context on some GPU.
fn on_any_gpu(tl: &Timeline) -> Vec<Pid> {
    let recorded: HashSet<Pid> = tl.threads.iter().map(|t| t.pid).collect();
    tl.gpu_processes.iter().map(|p| p.pid).filter(|p| recorded.contains(p)).collect()
}
