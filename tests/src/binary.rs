//! The `gpustall` binary under test.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Path of the `gpustall` binary, built first with the profile of the running test, so that it is never an old one.
/// (Cargo sets `CARGO_BIN_EXE_gpustall` only for tests of the package that has the binary.)
pub fn gpustall() -> anyhow::Result<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match BUILT.get_or_init(|| build().map_err(|e| format!("{e:#}"))) {
        Ok(path) => Ok(path),
        Err(e) => bail!("{e}"),
    }
}

fn build() -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--package", "gpustall", "--bin", "gpustall", "--message-format=json"]);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let built = command.stderr(Stdio::inherit()).output().context("cannot run cargo to build gpustall")?;
    if !built.status.success() {
        bail!("gpustall does not build: see the messages above");
    }
    // One JSON object a line; that of the binary names the file.
    let mut executable = built.stdout.split(|b| *b == b'\n').filter_map(|line| {
        let message: serde_json::Value = serde_json::from_slice(line).ok()?;
        Some(PathBuf::from(message.get("executable")?.as_str()?))
    });
    executable.next_back().context("cargo built gpustall but did not say where")
}
