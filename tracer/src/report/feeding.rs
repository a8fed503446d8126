//! GPUs whose processes were not recorded, in sentences.

use crate::attribution::{Feeding, GpuAttribution};
use crate::diagnosis::{listed, processes};
use crate::gpu::GpuSource;
use crate::timeline::Timeline;

/// One sentence on each GPU that is told to work for processes that are not in the recording.
pub(super) fn sentences(tl: &Timeline, gpus: &[GpuAttribution]) -> Vec<String> {
    gpus.iter().filter_map(|g| sentence(tl, g)).collect()
}

fn sentence(tl: &Timeline, g: &GpuAttribution) -> Option<String> {
    let gpu = g.gpu.gpu;
    let (told, assumed) = match &g.feeding {
        Feeding::Recorded => return None,
        Feeding::Assumed { told } => (told, true),
        Feeding::NotRecorded { told } => (told, false),
    };
    let said = match g.gpu.source {
        GpuSource::Nvml => format!("NVML lists {} on GPU {gpu}", processes(told)),
        _ if told.len() == 1 => format!("The GPU trace says that {} feeds GPU {gpu}", processes(told)),
        _ => format!("The GPU trace says that {} feed GPU {gpu}", processes(told)),
    };
    let then = if assumed {
        format!(
            "process {} is taken for the feeder, since processes have other ids in a container; if GPU {gpu} worked for another job, its causes are wrong.",
            g.roles.feeder_pid
        )
    } else {
        format!(
            "GPU {gpu} is taken to work for another job, and why it was idle is unknown; record the process that feeds it, or give the trace of the job that was recorded."
        )
    };
    Some(format!("{said}, but only {} recorded: {then}", recorded(tl)))
}

/// The recorded processes with their names, those that lived longest first.
fn recorded(tl: &Timeline) -> String {
    let mut mains: Vec<_> = tl.threads.iter().filter(|t| t.is_main()).collect();
    mains.sort_by_key(|t| (std::cmp::Reverse(t.alive()), t.pid));
    let names: Vec<String> = mains.iter().map(|t| format!("{} ({})", t.pid, t.comm)).collect();
    let were = if names.len() == 1 { "was" } else { "were" };
    format!("{} {were}", listed(&names))
}
