//! `gpustall doctor`.

use crate::doctor::{self, Level, Options};
use crate::units::Pid;
use anyhow::Context;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// Tell whether this machine is ready for gpustall, and whether its hardware is held back
///
/// Every check is ok, a warning (gpustall works, but sees less or costs more) or a failure (gpustall cannot record), with
/// what to do about it. Exit status: 0 without a failure, 1 with one, 2 for wrong usage.
#[derive(Clone, Debug, clap::Args)]
pub struct DoctorArgs {
    /// Also examine the limits and files of this process and its descendants
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,
    /// Print one JSON object (schema gpustall.doctor/1) instead of text
    #[arg(long)]
    pub json: bool,
    /// Load NVML from this library instead of the system's libnvidia-ml.so.1
    #[arg(long, value_name = "PATH")]
    pub nvml_lib: Option<PathBuf>,
}

/// Runs the checks and prints them.
pub fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let options = Options { pid: args.pid.map(Pid), nvml_lib: args.nvml_lib };
    let checks = doctor::examine(&options)?;
    let mut out = std::io::stdout().lock();
    let printed = if args.json {
        let text = doctor::json(&checks, options.pid).context("cannot write the checks as JSON")?;
        writeln!(out, "{text}")
    } else {
        let terminal = out.is_terminal();
        let color = terminal && std::env::var_os("NO_COLOR").is_none();
        // A file or a pipe keeps whole lines, which grep likes better.
        let width = if terminal { terminal_width() } else { usize::MAX };
        write!(out, "{}", doctor::text(&checks, width, color))
    };
    match printed {
        // The reader has had enough (`gpustall doctor | head -1`).
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => {}
        other => other.context("cannot write to standard output")?,
    }
    Ok(if doctor::worst(&checks) < Level::Failure { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn terminal_width() -> usize {
    rustix::termios::tcgetwinsize(std::io::stdout())
        .ok()
        .map(|s| usize::from(s.ws_col))
        .filter(|w| *w > 0)
        .unwrap_or(100)
}
