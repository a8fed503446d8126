//! What gpustall costs: the traced side on a pinned pipe benchmark beside `runqlat`, and the time to read a recording.
//!
//! Numbers, not tests: a shared machine makes any limit on time fail some day. Rounds are interleaved, so that a noisy
//! minute hits every candidate.

mod pipe;
mod reading;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::{prepare, shell};

const PAGE: &str = "docs/performance.md";
const BEGIN: &str = "<!-- measured: begin -->";
const END: &str = "<!-- measured: end -->";

/// Flags of `cargo xtask bench`.
#[derive(clap::Args)]
pub struct Args {
    /// Rounds of the pipe benchmark; every candidate runs once in each
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Pipe operations in each run; enough for some ten seconds, so that a burst of file opens has its share in each
    #[arg(long, default_value_t = 3_000_000)]
    operations: u64,
    /// Off-CPU intervals in the recording that is read
    #[arg(long, default_value_t = 10_000_000)]
    intervals: u64,
    /// Put the table into docs/performance.md
    #[arg(long)]
    write: bool,
}

/// Flags of the half that runs as root.
#[derive(clap::Args)]
pub struct MeasureArgs {
    tool: PathBuf,
    rounds: usize,
    operations: u64,
}

/// All that was measured.
#[derive(Debug, Serialize, Deserialize)]
struct Pipe {
    runs: Vec<pipe::Candidate>,
    recording: pipe::Recording,
}

/// Runs `cargo xtask bench`.
pub fn run(args: &Args) -> Result<()> {
    ensure!(args.rounds > 0 && args.operations > 0, "--rounds and --operations must be at least 1");
    shell::run(shell::cargo().args(["build", "--release", "--locked", "--package=gpustall"]))?;
    shell::run(shell::cargo().args([
        "build",
        "--release",
        "--locked",
        "--package=gpustall-tests",
        "--example=synthetic-recording",
    ]))?;
    let release = shell::target_dir()?.join("release");
    let tool = release.join("gpustall");

    prepare::through_sudo()?;
    let pipe = measure_as_root(&tool, args)?;
    let reading = reading::measure(&tool, &release.join("examples/synthetic-recording"), args.intervals)?;
    let text = table::render(&pipe.runs, &pipe.recording, &reading, args.operations)?;
    println!("{text}");
    if args.write { write_page(&text) } else { Ok(()) }
}

/// Runs the hidden half and prints what it measured as JSON.
pub fn measure(args: &MeasureArgs) -> Result<()> {
    let (runs, recording) = pipe::measure(&args.tool, args.rounds, args.operations)?;
    let text = serde_json::to_string(&Pipe { runs, recording }).context("cannot serialise the measurements")?;
    println!("{text}");
    Ok(())
}

/// The benchmark's tracers need root, its build must not leave root's files behind: so two processes.
fn measure_as_root(tool: &Path, args: &Args) -> Result<Pipe> {
    let this = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = shell::as_root_with_environment(&this)?;
    command.arg("bench-measure").arg(tool).arg(args.rounds.to_string()).arg(args.operations.to_string());
    let output = command.stderr(Stdio::inherit()).output().context("cannot start the measuring half")?;
    if !output.status.success() {
        bail!("the pipe benchmark failed");
    }
    serde_json::from_slice(&output.stdout).context("cannot parse what the measuring half printed")
}

/// Replaces what stands between the marks in the page on performance.
fn write_page(text: &str) -> Result<()> {
    let path = shell::root().join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let (before, rest) = page.split_once(BEGIN).with_context(|| format!("{PAGE} lacks the line {BEGIN}"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("{PAGE} lacks the line {END}"))?;
    fs::write(&path, format!("{before}{BEGIN}\n{text}\n{END}{after}"))
        .with_context(|| format!("cannot write {PAGE}"))?;
    println!("wrote {PAGE}");
    Ok(())
}
