//! The report of a recording file: reads, attributes, diagnoses and assembles.

use super::{Parts, Report, assemble, evidence};
use crate::attribution;
use crate::diagnosis;
use crate::gpu::TraceError;
use crate::recording::{Header, ReadError, Reader};
use crate::timeline;
use crate::units::{MonoNs, Nanos};
use std::path::{Path, PathBuf};

/// What to report on.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Part of the recording, as times from its start; all of it if `None`.
    pub from: Option<Nanos>,
    /// End of that part.
    pub to: Option<Nanos>,
    /// A trace of GPU activity to use instead of what was recorded, of any kind that docs/gpu-evidence.md lists.
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
    /// The part asked for ends before it begins.
    #[error("--from ({from}) is {} --to ({to}): give an earlier --from or a later --to", if .from > .to { "after" } else { "the same as" })]
    Backwards {
        /// Start asked for.
        from: Nanos,
        /// End asked for.
        to: Nanos,
    },
    /// Nothing is asked for: a part that ends where the recording starts.
    #[error("there is nothing before --to 0: give a later --to")]
    NothingBefore,
    /// The part asked for begins where the recording has ended.
    #[error("--from is after the end of this recording: it is {length} long; give a time inside it")]
    PastEnd {
        /// Length of the recording.
        length: Nanos,
    },
}

impl ReportError {
    /// Whether the arguments are wrong, whatever the recording holds.
    pub fn is_wrong_usage(&self) -> bool {
        matches!(self, ReportError::Backwards { .. } | ReportError::NothingBefore)
    }
}

/// Makes the report of a recording.
pub fn of_file(path: &Path, options: &Options) -> Result<Report, ReportError> {
    check_part(options.from, options.to)?;
    let mut reader = Reader::open(path)?;
    let header = reader.header().clone();
    let start = header.started.mono;
    let part = match (options.from, options.to) {
        (None, None) => None,
        (from, to) => Some((start + from.unwrap_or_default(), to.map_or(MonoNs(u64::MAX), |to| start + to))),
    };
    let loaded = timeline::load(&mut reader, part);
    let tl = &loaded.timeline;
    if part.is_some_and(|(from, _)| from >= loaded.end) {
        return Err(ReportError::PastEnd { length: loaded.end.since(start) });
    }
    let evidence = evidence::find(tl, &header, loaded.trailer.as_ref(), options)?;
    let attribution = attribution::attribute(tl, &header.mounts, evidence.activity);
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
        notes: notes_of(&header, evidence.notes),
    }))
}

/// Whether there can be anything in this part of a recording.
fn check_part(from: Option<Nanos>, to: Option<Nanos>) -> Result<(), ReportError> {
    match (from, to) {
        (Some(from), Some(to)) if from >= to => Err(ReportError::Backwards { from, to }),
        (_, Some(Nanos::ZERO)) => Err(ReportError::NothingBefore),
        _ => Ok(()),
    }
}

fn notes_of(header: &Header, mut notes: Vec<String>) -> Vec<String> {
    if header.sample_hz == 0 {
        notes.push("On-CPU samples were off: what running threads did is known by their role only.".into());
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_must_begin_before_it_ends() {
        let said = |from, to| check_part(Some(Nanos::from_millis(from)), Some(Nanos::from_millis(to)));
        let text = said(5_000, 2_000).unwrap_err().to_string();
        assert!(text.starts_with("--from (5.0 s) is after --to (2.0 s)"), "{text}");
        assert!(said(300, 300).unwrap_err().to_string().contains("the same as"));
        assert!(said(200, 300).is_ok());
        assert!(check_part(None, Some(Nanos::ZERO)).is_err_and(|e| e.is_wrong_usage()));
        assert!(check_part(Some(Nanos::ZERO), None).is_ok());
    }
}
