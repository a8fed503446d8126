//! Which recorded processes a GPU belongs to, and what is left where none of its processes was recorded.

use super::evidence::Evidence;
use super::roles;
use crate::gpu::{GpuActivity, GpuSource};
use crate::timeline::Timeline;
use crate::units::{GpuIndex, Pid};
use std::collections::{BTreeSet, HashSet};

/// Whether the processes that give a GPU its work were recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feeding {
    /// One of them was, or nothing is told of them.
    Recorded,
    /// None of those that are told was, but a recorded process drives a GPU: it is taken for the feeder. In a container processes
    /// have other ids than on the host, where recordings take them from.
    Assumed {
        /// The processes that are told.
        told: Vec<Pid>,
    },
    /// None of them was, and nothing else ties the recorded processes to this GPU: it works for another job. What the recorded
    /// threads did meanwhile would be a cause by coincidence, so its idle time is `unknown`; nor does it count for the job as a
    /// whole, as long as that has a GPU of its own.
    NotRecorded {
        /// The processes that are told.
        told: Vec<Pid>,
    },
}

impl Feeding {
    /// Whether the GPU's idle time is of the recorded job.
    pub fn is_of_job(&self) -> bool {
        !matches!(self, Feeding::NotRecorded { .. })
    }
}

/// A GPU and its processes.
#[derive(Debug)]
pub(super) struct Fed {
    /// Its recorded processes; empty where none is known.
    pub pids: Vec<Pid>,
    pub feeding: Feeding,
}

/// Finds the recorded processes of each GPU. What the evidence itself says of its processes comes first, then what NVML listed.
pub(super) fn find(tl: &Timeline, evidence: &Evidence, activity: &[GpuActivity]) -> Vec<Fed> {
    let recorded: HashSet<Pid> = tl.threads.iter().map(|t| t.pid).collect();
    let of_job = |pids: &[Pid]| -> Vec<Pid> { pids.iter().copied().filter(|p| recorded.contains(p)).collect() };
    let listed = |gpu: GpuIndex| -> Vec<Pid> {
        let on: BTreeSet<Pid> = tl.gpu_processes.iter().filter(|p| p.gpu == gpu).map(|p| p.pid).collect();
        on.into_iter().collect()
    };
    // The evidence counts processes as the recording does: who is not among the recorded ones was not recorded.
    let same_ids = activity.iter().any(|g| !of_job(&g.pids).is_empty());
    let known: Vec<(Vec<Pid>, Vec<Pid>)> = activity
        .iter()
        .map(|g| {
            let told = of_job(&g.pids);
            if !told.is_empty() {
                return (told, Vec::new());
            }
            let on_gpu = listed(g.gpu);
            let pids = if g.pids.is_empty() || !same_ids { of_job(&on_gpu) } else { Vec::new() };
            let missing = match g.source {
                _ if !g.pids.is_empty() => g.pids.clone(),
                GpuSource::Nvml if pids.is_empty() => on_gpu,
                // A trace may number GPUs in its own way: what NVML lists on this one says nothing.
                _ => Vec::new(),
            };
            (pids, missing)
        })
        .collect();
    // A job that is known to be on one GPU is not guessed to be on another.
    let elsewhere = known.iter().any(|(pids, _)| !pids.is_empty());
    let drives = !elsewhere && roles::seen_in_libcuda(tl, evidence);
    let feeding = |(pids, told): (Vec<Pid>, Vec<Pid>)| {
        let feeding = match told.is_empty() {
            true => Feeding::Recorded,
            false if !pids.is_empty() || drives => Feeding::Assumed { told },
            false => Feeding::NotRecorded { told },
        };
        Fed { pids, feeding }
    };
    known.into_iter().map(feeding).collect()
}
