//! The GPU evidence of a report: what was recorded, or the trace that the person gave.

use super::from_file::Options;
use crate::gpu::{self, GpuActivity, GpuSource, RecordingClocks, TraceError};
use crate::recording::{Header, Trailer};
use crate::timeline::Timeline;

/// Evidence and what a reader must know of it, one sentence each.
pub(super) struct Evidence {
    pub activity: Vec<GpuActivity>,
    pub notes: Vec<String>,
}

/// Finds the evidence that `options` ask for.
pub(super) fn find(
    tl: &Timeline,
    header: &Header,
    trailer: Option<&Trailer>,
    options: &Options,
) -> Result<Evidence, TraceError> {
    match &options.gpu_trace {
        None => Ok(recorded(tl, header)),
        Some(path) => {
            let clocks = RecordingClocks { start: header.started, end: trailer.map(|t| t.ended), span: tl.span };
            let mut trace = gpu::read_trace(path, &clocks)?;
            if options.simulated {
                for g in &mut trace.activity {
                    g.source = GpuSource::Simulated;
                    g.name = "simulated GPU".into();
                }
                trace.notes.clear();
            }
            Ok(Evidence { activity: trace.activity, notes: trace.notes })
        }
    }
}

fn recorded(tl: &Timeline, header: &Header) -> Evidence {
    let activity = gpu::windows_to_activity(&tl.gpus, &tl.gpu_windows);
    let mut notes = Vec::new();
    if activity.is_empty() {
        notes.push(header.gpu_note.clone().unwrap_or_else(|| "No GPU was watched while recording.".into()));
    }
    Evidence { activity, notes }
}
