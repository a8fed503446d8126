//! The report of a recording file: reads, attributes, diagnoses and assembles.

use super::{Parts, Report, assemble, evidence, tables};
use crate::attribution::{Attributor, Evidence};
use crate::diagnosis;
use crate::gpu::TraceError;
use crate::recording::{Header, ReadError, Reader};
use crate::timeline::Recorded;
use crate::units::{MonoNs, Nanos};
use std::path::{Path, PathBuf};

/// What to report on.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Part of the recording, as times from its start; all of it if `None`.
    pub from: Option<Nanos>,
    /// End of that part.
    pub to: Option<Nanos>,
    /// Traces of GPU activity to use instead of what was recorded, of any kind that docs/gpu-evidence.md lists: one, or one of
    /// each process.
    pub gpu_trace: Vec<PathBuf>,
    /// The traces are of a simulated GPU.
    pub simulated: bool,
    /// Intervals that are held at a time; a good number if `None`. The report is the same whatever it is.
    pub part_rows: Option<usize>,
}

/// Intervals that are held at a time, and as many again where long gaps need them: some 20 MiB.
const PART_ROWS: usize = 128 << 10;

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
    let mut seen = (Evidence::default(), (tables::Opens::default(), evidence::InDriver::default()));
    let recorded = Recorded::survey(&mut reader, path, part, &mut seen)?;
    let (evidence, (opens, in_driver)) = seen;
    if part.is_some_and(|(from, _)| from >= recorded.end) {
        return Err(ReportError::PastEnd { length: recorded.end.since(start) });
    }
    let gpu = evidence::find(&recorded, &in_driver, &header, options)?;
    let mut attributor = Attributor::new(recorded.timeline(), &evidence, &header.mounts, gpu.activity);
    let mut tables = tables::Tables::new(opens);
    let mut sums = diagnosis::Sums::of(attributor.active());
    let mut sweep = recorded.sweep(options.part_rows.unwrap_or(PART_ROWS));
    while let Some(tl) = sweep.next_part(|own| attributor.need(own)) {
        attributor.part(tl);
        tables.add(tl, &|ix| attributor.roles().of(ix).name());
        sums.add(tl, attributor.roles());
    }
    let swept = sweep.finish();
    let tl = &swept.timeline;
    let attribution = attributor.finish();
    let diagnosis = diagnosis::diagnose(tl, &attribution, &sums, &header, gpu.elsewhere);
    let file_bytes = std::fs::metadata(path).map_or(0, |m| m.len());
    Ok(assemble(&Parts {
        header: &header,
        trailer: swept.trailer.as_ref(),
        damage: &swept.damage,
        file_bytes,
        timeline: tl,
        tables,
        attribution: &attribution,
        diagnosis: &diagnosis,
        notes: notes_of(&header, gpu.notes),
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
