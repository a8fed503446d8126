//! The report of a recording file: reads, attributes, diagnoses and assembles.

use super::{Parts, Report, assemble};
use crate::attribution;
use crate::diagnosis;
use crate::gpu::{self, GpuActivity, GpuSource, TraceError};
use crate::recording::{Header, ReadError, Reader};
use crate::timeline::{self, Timeline};
use crate::units::{MonoNs, Nanos};
use std::path::{Path, PathBuf};

/// What to report on.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Part of the recording, as times from its start; all of it if `None`.
    pub from: Option<Nanos>,
    /// End of that part.
    pub to: Option<Nanos>,
    /// A trace of GPU activity to use instead of what was recorded, of kind `busy` (docs/gpu-evidence.md).
    pub gpu_trace: Option<PathBuf>,
    /// The trace is of a simulated GPU.
    pub simulated: bool,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The recording cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The GPU trace cannot be used.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The part asked for is not in the recording.
    #[error(
        "there is nothing between {from} and {to} in this recording: it is {length} long; give times inside it with --from and --to"
    )]
    NoSuchPart {
        /// Start asked for.
        from: Nanos,
        /// End asked for.
        to: Nanos,
        /// Length of the recording.
        length: Nanos,
    },
}

/// Makes the report of a recording.
pub fn of_file(path: &Path, options: &Options) -> Result<Report, ReportError> {
    let mut reader = Reader::open(path)?;
    let header = reader.header().clone();
    let start = header.started.mono;
    let part = match (options.from, options.to) {
        (None, None) => None,
        (from, to) => Some((start + from.unwrap_or_default(), to.map_or(MonoNs(u64::MAX), |to| start + to))),
    };
    let loaded = timeline::load(&mut reader, part);
    let tl = &loaded.timeline;
    if let Some((from, to)) = part
        && (from >= tl.span.1 || from >= to)
    {
        let length = tl.span.1.since(start);
        return Err(ReportError::NoSuchPart { from: from.since(start), to: to.since(start).min(length), length });
    }
    let activity = activity(tl, options)?;
    let mut notes = Vec::new();
    if activity.is_empty() {
        notes.push(header.gpu_note.clone().unwrap_or_else(|| "No GPU was watched while recording.".into()));
    }
    let attribution = attribution::attribute(tl, &header.mounts, activity);
    let diagnosis = diagnosis::diagnose(tl, &attribution, &header);
    let file_bytes = std::fs::metadata(path).map_or(0, |m| m.len());
    Ok(assemble(&Parts {
        header: &header,
        trailer: loaded.trailer.as_ref(),
        damage: &loaded.damage,
        file_bytes,
        timeline: tl,
        attribution: &attribution,
        diagnosis: &diagnosis,
        notes: notes_of(&header, notes),
    }))
}

fn activity(tl: &Timeline, options: &Options) -> Result<Vec<GpuActivity>, TraceError> {
    let Some(trace) = &options.gpu_trace else {
        return Ok(gpu::windows_to_activity(&tl.gpus, &tl.gpu_windows));
    };
    let mut activity = gpu::read_busy(trace, tl.span.1)?;
    gpu::check_overlap(&activity, tl.span.0, tl.span.1)?;
    if options.simulated {
        for g in &mut activity {
            g.source = GpuSource::Simulated;
            g.name = "simulated GPU".into();
        }
    }
    Ok(activity)
}

fn notes_of(header: &Header, mut notes: Vec<String>) -> Vec<String> {
    if header.sample_hz == 0 {
        notes.push("On-CPU samples were off: what running threads did is known by their role only.".into());
    }
    notes
}
