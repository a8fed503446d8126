//! `gpustall record`.

use super::{output, times};
use crate::probe::OpenMode;
use crate::recorder::{Ended, Finished, Launched, RecordError, Recorder, Settings, default_name, name_for_command};
use crate::units::Pid;
use anyhow::Context;
use clap::ValueEnum;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

/// Attach to a training process, or launch one, and record why its GPU waits
///
/// Ends after --duration, at Ctrl-C or SIGTERM, or when the process ends; the file is whole in each case. Exit status: 0
/// when recorded (with a COMMAND: the command's own status, or 128 and the signal that ended it), 1 when recording failed, 2
/// for wrong usage, 126 when the COMMAND cannot be executed, 127 when it is not found.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("target").required(true).args(["pid", "command"]))]
pub struct RecordArgs {
    /// Attach to this process, its threads, its children and all that they start later
    #[arg(short, long, value_name = "PID", allow_negative_numbers = true, value_parser = process_id)]
    pub pid: Option<u32>,
    /// Launch this command, as the user who called sudo, and trace it from its first instruction
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
    /// The recording; named after the target and the time by default
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    pub overwrite: bool,
    /// Stop after this time
    #[arg(short, long, value_name = "TIME", value_parser = times::positive_duration)]
    pub duration: Option<Duration>,
    /// Which file opens to record: each, those in one second of ten, or only those that block
    #[arg(long, value_enum, default_value_t = Opens::Sampled)]
    pub opens: Opens,
    /// On-CPU samples per second and CPU; 0 for none
    #[arg(long, value_name = "HZ", default_value_t = 199, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub sample_hz: u32,
    /// Size of the kernel's ring for off-CPU intervals
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(4..=16384), hide = true)]
    pub ring_kib: Option<u32>,
    /// Load NVML from this library instead of the system's libnvidia-ml.so.1
    #[arg(long, value_name = "PATH")]
    pub nvml_lib: Option<PathBuf>,
    /// Do not ask NVML about the GPUs
    #[arg(long, conflicts_with = "nvml_lib")]
    pub no_gpu: bool,
    /// Say nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// Which file opens to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Opens {
    /// Each.
    All,
    /// Those in one second of ten.
    Sampled,
    /// Only those that block.
    Off,
}

impl From<Opens> for OpenMode {
    fn from(o: Opens) -> OpenMode {
        match o {
            Opens::All => OpenMode::All,
            Opens::Sampled => OpenMode::Sampled,
            Opens::Off => OpenMode::Off,
        }
    }
}

/// A process id; 2^22 is the kernel's own limit (`PID_MAX_LIMIT`).
fn process_id(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(pid @ 1..=0x40_0000) => Ok(pid),
        _ => Err("it is no process id; find the training process with `pgrep -af python` or `nvidia-smi`".into()),
    }
}

/// Records.
pub fn run(args: RecordArgs) -> anyhow::Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the recorder")?;
    runtime.block_on(async {
        match args.pid {
            Some(pid) => attach(&args, Pid(pid)).await,
            None => launch(&args).await,
        }
    })
}

async fn attach(args: &RecordArgs, pid: Pid) -> anyhow::Result<ExitCode> {
    let output = args.output.clone().unwrap_or_else(|| default_name(pid));
    let recorder = Recorder::start(settings(args, pid, output))?;
    tell_start(args, &recorder, pid);
    let finished = recorder.run(args.duration).await?;
    tell_end(args, &finished);
    Ok(ExitCode::SUCCESS)
}

async fn launch(args: &RecordArgs) -> anyhow::Result<ExitCode> {
    let command = args.command.first().map(|c| c.to_string_lossy().into_owned()).unwrap_or_default();
    let output = args.output.clone().unwrap_or_else(|| name_for_command(&command));
    let mut launched = match Launched::start(&args.command) {
        Ok(launched) => launched,
        Err(e) => return Ok(not_begun(&e)),
    };
    let pid = launched.pid();
    let recorder = match Recorder::start_launched(settings(args, pid, output), &launched) {
        Ok(recorder) => recorder,
        Err(e) => {
            launched.abandon().await;
            return Err(e.into());
        }
    };
    if let Err(e) = launched.go() {
        // Nothing ran, so nothing was recorded.
        recorder.discard();
        launched.abandon().await;
        return Ok(not_begun(&e));
    }
    tell_start(args, &recorder, pid);
    let recorded = recorder.run_command(args.duration, &mut launched).await;
    match &recorded {
        Ok(finished) => {
            tell_end(args, finished);
            if finished.ended == Ended::Terminated {
                launched.terminate();
            }
        }
        // The command goes on: a full disk is no reason to stop somebody's training.
        Err(e) => output::say(e),
    }
    let status = launched.wait_or_terminate().await?;
    Ok(if recorded.is_ok() { exit_code(status) } else { ExitCode::FAILURE })
}

/// Says why a command could not begin; gives the status that a shell gives then.
fn not_begun(e: &RecordError) -> ExitCode {
    output::say(e);
    match e {
        RecordError::Launch { status, .. } => ExitCode::from(*status),
        _ => ExitCode::FAILURE,
    }
}

/// As a shell gives a command's status on: 128 and the signal where one ended it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

fn settings(args: &RecordArgs, pid: Pid, output: PathBuf) -> Settings {
    Settings {
        pid,
        output,
        overwrite: args.overwrite,
        opens: args.opens.into(),
        sample_hz: args.sample_hz,
        ring_bytes: args.ring_kib.map(|k| k * 1024),
        gpu: !args.no_gpu,
        nvml_lib: args.nvml_lib.clone(),
        show_status: !args.quiet,
    }
}

fn tell_start(args: &RecordArgs, recorder: &Recorder, pid: Pid) {
    if args.quiet {
        return;
    }
    for note in recorder.notes() {
        output::say(note);
    }
    output::say(format_args!("recording process {pid}"));
}

fn tell_end(args: &RecordArgs, f: &Finished) {
    if args.quiet {
        return;
    }
    let lost = if f.lost == 0 { String::new() } else { format!(", {} lost", f.lost) };
    output::say(format_args!(
        "{} after {:.1} s: {} events{lost}, {:.1} MB in {path}; see them with: gpustall report {path}",
        f.ended.words(),
        f.length.secs(),
        f.written.events,
        f.written.bytes as f64 / 1e6,
        path = f.path.display(),
    ));
}
