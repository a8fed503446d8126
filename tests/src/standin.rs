//! Where the stand-in libraries lie.

use crate::binary;
use anyhow::{Context, Result};
use std::path::PathBuf;

/// Path of the stand-in for `libnvidia-ml.so.1`, to be given with `--nvml-lib`.
///
/// It is built with the tests, since they depend on it, and lies beside them in the target directory: in `deps` as a
/// dependency, one level up when built by itself. Without it the path is one that does not exist, which whoever loads it
/// says plainly.
pub fn standin_nvml() -> PathBuf {
    beside_this_program("libstandin_nvml.so")
}

/// Path of the stand-in for `libcuda.so.1`, built first with the profile of this program, so that it is never an old one.
///
/// # Errors
/// If it does not build.
pub fn standin_cuda() -> Result<PathBuf> {
    let files = binary::build(&["--package", "standin-cuda"], "filenames")?;
    files.into_iter().next_back().context("cargo built standin-cuda but did not say where")
}

fn beside_this_program(name: &str) -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let here = program.parent().map(PathBuf::from).unwrap_or_default();
    let up = here.parent().map(PathBuf::from).unwrap_or_default();
    // Tests run from `deps`; programs lie above it. The copy in `deps` is the one that cargo keeps up to date.
    let candidates = [here.join("deps").join(name), here.join(name), up.join(name)];
    let found = candidates.iter().find(|p| p.is_file()).cloned();
    found.unwrap_or_else(|| here.join(name))
}
