//! `gpustall report`.

use super::{output, times};
use crate::report::{Options, of_file};
use crate::units::Nanos;
use anyhow::Context;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Tell from a recording why the GPU was idle
///
/// Exit status: 0 when there is a report, 1 when the recording or the trace cannot be used, 2 for wrong usage.
#[derive(Clone, Debug, clap::Args)]
pub struct ReportArgs {
    /// A recording made by gpustall record
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print one JSON object (schema gpustall.report/1) instead of text
    #[arg(long)]
    pub json: bool,
    /// Report only on what happened after this time from the start of the recording
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    pub from: Option<Duration>,
    /// Report only on what happened before this time from the start of the recording
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    pub to: Option<Duration>,
    /// Exact busy times of the GPU instead of NVML's, from the same run: a PyTorch profiler trace (.json or .json.gz), an Nsight
    /// Systems report exported with nsys export --type sqlite, or a busy file of lines such as {"t_ns": CLOCK_MONOTONIC,
    /// "gpu": 0, "busy": true}. Give it again for each process that wrote a trace of its own
    #[arg(long, value_name = "TRACE")]
    pub gpu_trace: Vec<PathBuf>,
}

/// Prints the report.
pub fn run(args: ReportArgs) -> anyhow::Result<ExitCode> {
    let nanos = |d: Duration| Nanos(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX));
    let options =
        Options { from: args.from.map(nanos), to: args.to.map(nanos), gpu_trace: args.gpu_trace, ..Options::default() };
    let report = match of_file(&args.file, &options) {
        Ok(report) => report,
        Err(e) if e.is_wrong_usage() => {
            output::say(&e);
            return Ok(ExitCode::from(2));
        }
        Err(e) => return Err(e.into()),
    };
    output::print(&report, args.json).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}
