//! The two-minute tour: build the tool, become root, run `gpustall demo`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::shell;

/// Flags of `cargo xtask demo`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Passed on to `gpustall demo`: a scenario (disk, cpu-starved, preprocessing, compute) and its flags
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Runs `cargo xtask demo`, and ends with the status of `gpustall demo`.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut build = shell::cargo();
    // The stand-in libraries lie beside the tool, where `demo` looks for them.
    build.args([
        "build",
        "--release",
        "--locked",
        "--package=gpustall",
        "--package=standin-nvml",
        "--package=standin-cuda",
    ]);
    shell::run(&mut build).context("gpustall does not build")?;
    let tool = shell::target_dir()?.join("release/gpustall");
    let mut demo =
        shell::as_root_with_environment(&tool).context("the demo loads kernel programs, which only root may do")?;
    let status =
        demo.arg("demo").args(&args.args).status().with_context(|| format!("cannot start {}", tool.display()))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}
