//! The `gpustall` binary under test.

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Path of the `gpustall` binary, built first with the profile of the running test, so that it is never an old one.
/// (Cargo sets `CARGO_BIN_EXE_gpustall` only for tests of the package that has the binary.)
pub fn gpustall() -> anyhow::Result<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match BUILT.get_or_init(|| executable().map_err(|e| format!("{e:#}"))) {
        Ok(path) => Ok(path),
        Err(e) => bail!("{e}"),
    }
}

fn executable() -> anyhow::Result<PathBuf> {
    let files = build(&["--package", "gpustall", "--bin", "gpustall"], "executable")?;
    files.into_iter().next_back().context("cargo built gpustall but did not say where")
}

/// Builds what `what` selects with the profile of this program; gives the paths that cargo's messages have under `key`.
pub(crate) fn build(what: &[&str], key: &str) -> anyhow::Result<Vec<PathBuf>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--message-format=json"]).args(what);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let built = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    if !built.status.success() {
        bail!("{} does not build: see the messages above", what.join(" "));
    }
    // One JSON object a line; that of what was asked for comes last and names its files.
    let files = built.stdout.split(|b| *b == b'\n').flat_map(|line| {
        let message: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
        match message.get(key) {
            Some(serde_json::Value::Array(files)) => {
                files.iter().filter_map(|f| f.as_str()).map(PathBuf::from).collect()
            }
            Some(serde_json::Value::String(file)) => vec![PathBuf::from(file)],
            _ => Vec::new(),
        }
    });
    Ok(files.collect())
}
