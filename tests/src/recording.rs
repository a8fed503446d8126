//! `gpustall record` and `gpustall report` as a person runs them.

use crate::binary::gpustall;
use anyhow::{Context, Result, bail, ensure};
use gpustall::recording::{Batch, Reader, Trailer};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread::JoinHandle;

/// A `gpustall` command with these arguments.
pub fn command<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Result<Command> {
    let mut command = Command::new(gpustall()?);
    // Whoever runs the tests through sudo is no part of them.
    command.args(args).env_remove("SUDO_UID").env_remove("SUDO_GID").stdin(Stdio::null());
    Ok(command)
}

/// Runs it to its end.
pub fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Result<Output> {
    command(args)?.output().context("cannot run gpustall")
}

/// Standard error as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Fails unless the program ended with this status and said exactly one sentence, which it gives back.
pub fn one_sentence(output: &Output, status: i32) -> Result<String> {
    let text = stderr(output);
    ensure!(output.status.code() == Some(status), "{} instead of status {status}: {text}", output.status);
    ensure!(text.starts_with("gpustall: "), "not a message of gpustall's: {text:?}");
    ensure!(text.ends_with('\n') && text.lines().count() == 1, "not one line: {text:?}");
    ensure!(!text.contains("panicked") && !text.contains("\u{1b}"), "not for people: {text:?}");
    Ok(text)
}

/// A recorder at work.
pub struct Recording {
    child: Child,
    said: Option<JoinHandle<String>>,
    first: String,
}

impl Recording {
    /// Starts it and waits until it says that it records. `command` must be a `gpustall record` that is not quiet.
    pub fn start(command: &mut Command) -> Result<Recording> {
        let mut child = command.stderr(Stdio::piped()).spawn().context("cannot start gpustall")?;
        let mut lines = BufReader::new(child.stderr.take().context("no standard error")?);
        let mut first = String::new();
        while !first.contains("recording process") {
            if lines.read_line(&mut first)? == 0 {
                let status = child.wait()?;
                bail!("it did not start to record ({status}): {first}");
            }
        }
        let said = std::thread::spawn(move || {
            let mut rest = String::new();
            // A broken pipe shows as a missing message.
            let _ = lines.read_to_string(&mut rest);
            rest
        });
        Ok(Recording { child, said: Some(said), first })
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) -> Result<()> {
        // SAFETY: no memory effects; the child is not collected yet, so the pid is its own.
        let failed = unsafe { libc::kill(self.child.id() as i32, signal) } != 0;
        if failed { Err(std::io::Error::last_os_error().into()) } else { Ok(()) }
    }

    /// Waits for its end; all that it said on standard error comes with its status.
    pub fn wait(&mut self) -> Result<(ExitStatus, String)> {
        let status = self.child.wait()?;
        let rest = self.said.take().and_then(|said| said.join().ok()).unwrap_or_default();
        Ok((status, format!("{}{rest}", self.first)))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // Both fail only if it has been collected already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All batches of a recording that must be whole, and its closing block.
pub fn whole(path: &Path) -> Result<(Vec<Batch>, Trailer)> {
    let mut reader = Reader::open(path)?;
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_batch() {
        batches.push(batch);
    }
    ensure!(reader.damage().is_none(), "damaged: {:?}", reader.damage());
    match batches.pop() {
        Some(Batch::Trailer(trailer)) => Ok((batches, trailer)),
        other => bail!("the last block is {other:?}"),
    }
}

/// The report of a recording as JSON, which must come with status 0 and without a word on standard error.
pub fn report(path: &Path, more: &[&str]) -> Result<Value> {
    let mut command = command(["report", "--json"])?;
    let output = command.args(more).arg(path).output()?;
    ensure!(output.status.success() && output.stderr.is_empty(), "{}: {}", output.status, stderr(&output));
    serde_json::from_slice(&output.stdout).context("the report is not JSON")
}
