//! The ground-truth lab: build the tool and the jobs, become root, run them.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::shell;

/// Flags of `cargo xtask lab`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Passed on: names of scenarios (`disk*` stands for all that begin so), --list, --rounds N, --seconds S, --keep DIR, --json, --mend
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Runs `cargo xtask lab`: success if every run is at the mark.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut build = shell::cargo();
    build.args(["build", "--locked", "--package=gpustall", "--package=gpustall-tests"]);
    build.args(["--package=standin-nvml", "--package=standin-cuda"]);
    shell::run(&mut build).context("the lab does not build")?;
    let lab = shell::target_dir()?.join("debug/lab");
    let mut lab =
        shell::as_root_with_environment(&lab).context("the lab loads kernel programs, which only root may do")?;
    let status = lab.args(&args.args).status().context("cannot start the lab")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
