//! `gpustall demo`.

use super::{output, times};
use crate::demo::{self, CudaWait, Scenario};
use crate::probe::OpenMode;
use crate::recorder::{Ended, Recorder, Settings};
use crate::report::{Options, of_file};
use anyhow::{Context, bail};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// File name of the library that stands in for NVML, beside the executable.
const STANDIN_NVML: &str = "libstandin_nvml.so";

/// Trace a real workload with a simulated GPU; needs root but no GPU
///
/// Starts a main process with workers that read and decode a real data set, holds them up in a known way, traces them
/// with the real kernel programs and prints the report. Exit status: 0 when there is a report, 1 when something failed, 2
/// for wrong usage.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoArgs {
    /// What holds the GPU up
    #[arg(value_enum, default_value_t = Scenario::Disk)]
    pub scenario: Scenario,
    /// How long to trace
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = times::positive_duration)]
    pub duration: Duration,
    /// Print one JSON object (schema gpustall.report/1) instead of text
    #[arg(long)]
    pub json: bool,
    /// Let the simulated GPU speak through a library that stands in for NVML, instead of giving exact busy times
    #[arg(long)]
    pub nvml: bool,
    /// The library that stands in for NVML; libstandin_nvml.so beside the executable by default
    #[arg(long, value_name = "PATH", requires = "nvml")]
    pub nvml_lib: Option<PathBuf>,
    /// Keep the recording in this file; with --keep-busy BUSY, gpustall report FILE --gpu-trace BUSY reads it again
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Keep what the workload itself measured in this file, to judge the report by
    #[arg(long, value_name = "TRUTH")]
    pub keep_truth: Option<PathBuf>,
    /// Keep the exact busy times of the simulated GPU in this file, for --gpu-trace
    #[arg(long, value_name = "BUSY")]
    pub keep_busy: Option<PathBuf>,
}

/// Runs the workload under the tracer and prints the report.
pub fn run(args: DemoArgs) -> anyhow::Result<ExitCode> {
    let standin = if args.nvml { Some(standin(&args)?) } else { None };
    let options = demo::Options {
        scenario: args.scenario,
        duration: args.duration,
        nvml: args.nvml,
        cuda_wait: CudaWait::default(),
        limit_disk: true,
        program: None,
    };
    let mut running = demo::start(&options)?;
    if standin.is_some() {
        // SAFETY: no other thread of this process is running yet; the stand-in reads this when it is initialised.
        unsafe {
            std::env::set_var("GPUSTALL_STANDIN_BUSY", running.busy_file());
        }
    }
    if !args.json {
        output::say(format_args!("scenario {}: {}", args.scenario.name(), running.how()));
    }
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let file = args.output.clone().unwrap_or_else(|| folder.path().join("demo.gpustall"));
    let settings = Settings {
        pid: running.pid(),
        output: file.clone(),
        overwrite: false,
        opens: OpenMode::Sampled,
        sample_hz: 199,
        ring_bytes: None,
        gpu: args.nvml,
        nvml_lib: standin,
        show_status: !args.json,
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the recorder")?;
    let finished = runtime.block_on(async {
        let recorder = Recorder::start(settings)?;
        running.go()?;
        anyhow::Ok(recorder.run(None).await?)
    })?;
    // Ended early, there is a report on what was seen until then, and dropping the workload ends it.
    if finished.ended == Ended::TargetExited {
        running.wait()?;
    }
    for (keep, from) in [(&args.keep_truth, running.truth_file()), (&args.keep_busy, running.busy_file())] {
        if let Some(to) = keep {
            std::fs::copy(&from, to).with_context(|| format!("cannot write {}", to.display()))?;
        }
    }
    let gpu_trace = if args.nvml { Vec::new() } else { vec![running.busy_file()] };
    let report = of_file(&file, &Options { gpu_trace, simulated: true, ..Options::default() })?;
    drop(running);
    output::print(&report, args.json).context("cannot write to standard output")?;
    Ok(ExitCode::SUCCESS)
}

fn standin(args: &DemoArgs) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.nvml_lib {
        return Ok(path.clone());
    }
    let exe = std::env::current_exe().context("cannot find the running program")?;
    let path = exe.with_file_name(STANDIN_NVML);
    if !path.exists() {
        bail!(
            "{} is missing: build it with cargo build --package standin-nvml, or name it with --nvml-lib",
            path.display()
        );
    }
    Ok(path)
}
