//! Running other programs: from the workspace root, with an environment that this `cargo` run has not coloured, and with
//! failures that name the command.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Root of the workspace.
pub fn root() -> &'static Path {
    // The manifest directory of this crate is `<root>/xtask`.
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest)
}

/// A command that runs in the workspace root.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// The `cargo` that runs this program, for the workspace's ordinary builds.
pub fn cargo() -> Command {
    command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Removes what `cargo` and `rustup` told this process about their own run, so that another toolchain can be chosen.
pub fn without_cargo_environment(command: &mut Command) -> &mut Command {
    for (name, _) in env::vars_os() {
        let name_text = name.to_string_lossy();
        let is_ours = name_text.starts_with("CARGO_PKG_")
            || name_text.starts_with("CARGO_PROFILE_")
            || name_text.starts_with("CARGO_BUILD_")
            || name_text.starts_with("CARGO_TARGET_")
            || matches!(
                &*name_text,
                "CARGO"
                    | "CARGO_MANIFEST_DIR"
                    | "CARGO_MANIFEST_PATH"
                    | "CARGO_ENCODED_RUSTFLAGS"
                    | "RUSTFLAGS"
                    | "RUSTC"
                    | "RUSTC_WRAPPER"
                    | "RUSTC_WORKSPACE_WRAPPER"
                    | "RUSTC_BOOTSTRAP"
                    | "RUSTUP_TOOLCHAIN"
                    | "LD_LIBRARY_PATH"
            );
        if is_ours {
            command.env_remove(&name);
        }
    }
    command
}

/// Runs a command with its output on the terminal; an error if it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let words = words(command);
    let status = command.status().with_context(|| format!("cannot start `{words}`"))?;
    if !status.success() {
        bail!("`{words}` failed ({status})");
    }
    Ok(())
}

/// Runs a command and returns what it wrote to standard output, trimmed; its errors go to the terminal.
pub fn output(command: &mut Command) -> Result<String> {
    let words = words(command);
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start `{words}`"))?;
    if !output.status.success() {
        bail!("`{words}` failed ({})", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Like [`output`], for a question to which "no" is an ordinary answer: nothing is printed when the command fails.
pub fn probe(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Finds a program on PATH.
pub fn which(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// A command that runs as root: as it is where this process is root, else through sudo.
pub fn as_root(program: &str) -> Result<Command> {
    if is_root() {
        return Ok(command(program));
    }
    if which("sudo").is_none() {
        bail!("`{program}` must run as root, and there is no sudo here; run this command as root");
    }
    let mut sudo = command("sudo");
    sudo.arg(program);
    Ok(sudo)
}

/// Runs a program of this workspace as root with the caller's PATH and Rust directories, which sudo would replace.
pub fn as_root_with_environment(program: &Path) -> Result<Command> {
    if is_root() {
        return Ok(command(program));
    }
    let mut sudo = as_root("env")?;
    for name in ["PATH", "CARGO_HOME", "RUSTUP_HOME", "CARGO_TARGET_DIR", "RUST_BACKTRACE", "TERM", "NO_COLOR"] {
        if let Some(value) = env::var_os(name) {
            let mut pair = OsString::from(name);
            pair.push("=");
            pair.push(value);
            sudo.arg(pair);
        }
    }
    sudo.arg(program);
    Ok(sudo)
}

/// Where cargo puts what it builds for this workspace.
pub fn target_dir() -> Result<PathBuf> {
    let text = output(cargo().args(["metadata", "--locked", "--no-deps", "--format-version=1"]))?;
    let metadata: serde_json::Value =
        serde_json::from_str(&text).context("cannot parse what `cargo metadata` printed")?;
    let dir = metadata["target_directory"].as_str().context("`cargo metadata` names no target directory")?;
    Ok(PathBuf::from(dir))
}

/// The command line as a person would type it.
fn words(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy().into_owned()));
    words.join(" ")
}
