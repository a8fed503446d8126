//! How the job used CPUs, how it started its workers, and whether its loop waits for the GPU.

use super::facts::Facts;
use crate::attribution::{Cause, Role, Totals};
use crate::timeline::{ThreadIx, ThreadLine};
use crate::units::{Nanos, Pid, Tid};
use std::collections::BTreeMap;

/// From this share of the GPU's busy time on that the feeder spends waiting for the GPU, it waits for it in each step.
const WAITS: f64 = 0.8;
/// A thread that runs for less than this share of the recording is no burden.
const BUSY_THREAD: f64 = 0.02;

/// CPU time of the job, in CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuUse {
    /// It ran on so many on average.
    pub ran: f64,
    /// It would have run on so many, had none been missing.
    pub wanted: f64,
}

/// How workers were started inside the recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Starts {
    /// How many were.
    pub workers: usize,
    /// How many of them went on with a program of their own, as spawn does.
    pub by_exec: usize,
}

impl Facts<'_> {
    /// What the job used and wanted of the CPUs.
    pub fn cpu_use(&self) -> CpuUse {
        let (mut ran, mut queued) = (Nanos::ZERO, Nanos::ZERO);
        for (ix, t) in self.tl.lines() {
            ran += self.ran(ix, t);
            queued += self.sums.threads.get(ix.0 as usize).map_or(Nanos::ZERO, |s| s.run_queue);
        }
        let of = |n: Nanos| n.secs() / self.seconds();
        CpuUse { ran: of(ran), wanted: of(ran + queued) }
    }

    fn ran(&self, ix: ThreadIx, t: &ThreadLine) -> Nanos {
        let off = self.sums.threads.get(ix.0 as usize).map_or(Nanos::ZERO, |s| s.run_queue + s.blocked);
        t.alive() - off
    }

    /// CPUs that the job may use: those of the machine, or fewer by its affinity or its quota.
    pub fn cpus_allowed(&self) -> f64 {
        let machine = f64::from(self.header.cpus.max(1));
        let limits = &self.header.limits;
        let affinity = if limits.allowed_cpus.is_empty() { machine } else { limits.allowed_cpus.len() as f64 };
        affinity.min(machine).min(limits.quota_cpus.unwrap_or(machine))
    }

    /// Busy threads of a worker process, on average; 0 without worker processes.
    pub fn threads_per_worker(&self) -> f64 {
        let mut by: BTreeMap<Pid, usize> = BTreeMap::new();
        for (ix, t) in self.tl.lines() {
            if t.is_main() && t.pid != self.at.roles.feeder_pid && self.at.roles.of(ix) == Role::Worker {
                by.entry(t.pid).or_default();
            }
        }
        for (ix, t) in self.tl.lines() {
            if self.ran(ix, t).share_of(self.tl.duration()) >= BUSY_THREAD
                && let Some(n) = by.get_mut(&t.pid)
            {
                *n += 1;
            }
        }
        if by.is_empty() { 0.0 } else { by.values().sum::<usize>() as f64 / by.len() as f64 }
    }

    /// Whether workers are threads of the process that feeds the GPU.
    pub fn workers_are_threads(&self) -> bool {
        let mut workers = self.tl.lines().filter(|(ix, _)| self.at.roles.of(*ix) == Role::Worker).peekable();
        workers.peek().is_some() && workers.all(|(_, t)| t.pid == self.at.roles.feeder_pid)
    }

    /// The workers that were started while recording.
    pub fn starts(&self) -> Starts {
        let mut starts = Starts::default();
        for (ix, t) in self.tl.lines() {
            if t.forked && t.is_main() && t.pid != self.at.roles.feeder_pid && self.at.roles.of(ix) == Role::Worker {
                starts.workers += 1;
                starts.by_exec += usize::from(t.execed);
            }
        }
        starts
    }

    /// The worker that the GPU waited for most, and its share of the waits for all workers.
    pub fn slowest_worker(&self, totals: &Totals) -> Option<(Tid, f64)> {
        let of_workers = || totals.threads.iter().filter(|(ix, _)| self.at.roles.of(**ix) == Role::Worker);
        let all: Nanos = of_workers().map(|(_, n)| *n).sum();
        let (ix, most) = of_workers().max_by_key(|(ix, n)| (**n, std::cmp::Reverse(**ix)))?;
        Some((self.tl.thread(*ix)?.tid, most.share_of(all)))
    }

    /// Whether the threads that feed the GPUs wait for them in each step: about as long as these were busy, they were in the
    /// driver. Waits in idle time that look the same do not count.
    pub fn waits_for_gpu(&self) -> bool {
        let busy: Nanos = self.at.gpus.iter().map(|g| g.usage.busy).sum();
        let tick = 1.0 / f64::from(self.header.sample_hz.max(1));
        let mut in_driver = 0.0;
        for (ix, _) in self.tl.lines() {
            let Some(sum) = self.sums.threads.get(ix.0 as usize) else { continue };
            let drives = match self.at.roles.of(ix) {
                Role::Feeder => true,
                Role::Helper => sum.in_libcuda > 0,
                _ => false,
            };
            if drives {
                in_driver += sum.on_gpu.secs() + sum.in_libcuda as f64 * tick;
            }
        }
        let otherwise = |c| matches!(c, Cause::Sleep | Cause::GpuDriver | Cause::Network | Cause::Unknown);
        let of_feeder = |r| matches!(r, Role::Feeder | Role::Helper);
        let details = self.at.totals.details.iter().filter(|(d, _)| of_feeder(d.role) && otherwise(d.cause));
        in_driver - details.map(|(_, n)| n.secs()).sum::<f64>() >= WAITS * busy.secs()
    }
}
