//! All scenarios, by what they are about.

mod cpu;
mod storage;
mod torch;

use super::scenario::Scenario;
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

/// Every scenario, in the order of the scoreboard.
pub fn all() -> Vec<Scenario> {
    [cpu::scenarios(), storage::scenarios(), torch::scenarios()].into_iter().flatten().collect()
}

/// Debian's interpreter, which has `python3-torch`.
pub const PYTHON: &str = "/usr/bin/python3";

/// The command line of a Python workload in `tests/workloads/lab`.
///
/// # Errors
/// If there is no such workload.
pub fn python(script: &str, args: &[&str]) -> Result<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/lab").join(script);
    ensure!(path.is_file(), "there is no workload {}", path.display());
    Ok([PYTHON.to_owned(), path.display().to_string()]
        .into_iter()
        .chain(args.iter().map(|a| (*a).to_owned()))
        .collect())
}

/// A program of this crate: it lies beside the running one, or above it where that is a test.
///
/// # Errors
/// If it is not built.
pub fn program(name: &str) -> Result<PathBuf> {
    let this = std::env::current_exe().context("cannot find the running program")?;
    let folders = this.ancestors().skip(1).take(2);
    folders.map(|folder| folder.join(name)).find(|path| path.is_file()).with_context(|| format!("{name} is not built"))
}

/// Why PyTorch jobs cannot run here, if they cannot.
pub fn no_torch() -> Option<String> {
    let torch = Path::new("/usr/lib/python3/dist-packages/torch");
    (!torch.is_dir()).then(|| "PyTorch is missing: apt-get install --no-install-recommends python3-torch".to_owned())
}
