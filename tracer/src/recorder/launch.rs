//! Launching a command so that it is traced from its first instruction: a copy of this program waits at a gate until the
//! probe is attached, gives up root if sudo was used, and becomes the command.

use super::RecordError;
use crate::units::Pid;
use nix::unistd::{Gid, Uid, User, initgroups, setgid, setuid};
use std::ffi::{CString, OsString};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};

/// Name of the hidden sub-command that [`gate`] answers to.
pub const GATE: &str = "launch-gate";

/// Descriptor through which the gate is opened: the first after the standard streams.
const GATE_FD: i32 = 3;

/// A command that waits at the gate.
pub struct Launched {
    child: tokio::process::Child,
    gate: Option<std::fs::File>,
    command: String,
}

impl Launched {
    /// Starts the gate process. Its pid is the command's.
    pub fn start(command: &[OsString]) -> Result<Launched, RecordError> {
        let name = command.first().map(|c| c.to_string_lossy().into_owned()).unwrap_or_default();
        let failed = |e: std::io::Error| RecordError::Launch { command: name.clone(), reason: e.to_string() };
        let (read, write) = nix::unistd::pipe().map_err(|e| failed(e.into()))?;
        let program = std::env::current_exe().map_err(failed)?;
        let mut gate = Command::new(program);
        gate.arg(GATE).arg("--").args(command);
        let (from, keep) = (read.as_raw_fd(), write.as_raw_fd());
        // SAFETY: dup2, fcntl and close are async-signal-safe, and nothing is allocated between fork and exec.
        unsafe {
            gate.pre_exec(move || {
                // A background shell ignores SIGINT; the command must get what it would get without us.
                libc::close(keep);
                if from == GATE_FD {
                    // dup2 onto itself would leave close-on-exec as it is.
                    if libc::fcntl(from, libc::F_SETFD, 0) < 0 {
                        return Err(std::io::Error::last_os_error());
                    }
                } else if libc::dup2(from, GATE_FD) < 0 {
                    return Err(std::io::Error::last_os_error());
                } else {
                    libc::close(from);
                }
                Ok(())
            });
        }
        let child = tokio::process::Command::from(gate).spawn().map_err(failed)?;
        drop(read);
        Ok(Launched { child, gate: Some(std::fs::File::from(write)), command: name })
    }

    /// Its pid.
    pub fn pid(&self) -> Pid {
        Pid(self.child.id().unwrap_or(0))
    }

    /// Lets the command begin.
    pub fn go(&mut self) -> Result<(), RecordError> {
        let Some(mut gate) = self.gate.take() else { return Ok(()) };
        gate.write_all(b"g").map_err(|e| RecordError::Launch { command: self.command.clone(), reason: e.to_string() })
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        if let Some(id) = self.child.id() {
            // SAFETY: kill has no memory effects; the child is not reaped yet, so the pid is still its own.
            unsafe {
                libc::kill(id as i32, libc::SIGTERM);
            }
        }
    }

    /// Waits for its end.
    pub async fn wait(&mut self) -> Result<ExitStatus, RecordError> {
        let command = self.command.clone();
        self.child.wait().await.map_err(|e| RecordError::Launch { command, reason: e.to_string() })
    }
}

/// The gate process: waits for the word, becomes the person who called sudo, and then the command. Returns only on failure.
pub fn gate(command: &[OsString]) -> RecordError {
    let name = command.first().map(|c| c.to_string_lossy().into_owned()).unwrap_or_default();
    let failed = |reason: String| RecordError::Launch { command: name.clone(), reason };
    // SAFETY: the parent passes this descriptor to the gate and nobody else in this process owns it.
    let mut file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(GATE_FD) });
    let mut word = [0u8; 1];
    match file.read(&mut word) {
        Ok(1) => {}
        // The recorder ended before it let the command begin.
        Ok(_) => return failed("the recorder ended first".into()),
        Err(e) => return failed(e.to_string()),
    }
    drop(file);
    if let Err(reason) = become_caller() {
        return failed(reason);
    }
    let Some((program, args)) = command.split_first() else { return failed("there is none".into()) };
    failed(Command::new(program).args(args).exec().to_string())
}

/// Gives up root for the user who called sudo, with all of that user's groups.
fn become_caller() -> Result<(), String> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let id = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    let (Some(uid), Some(gid)) = (id("SUDO_UID"), id("SUDO_GID")) else { return Ok(()) };
    if uid == 0 {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    let user = User::from_uid(uid).ok().flatten();
    let why = |what: &str, e: nix::Error| format!("{what} failed: {e}");
    match &user {
        Some(u) => {
            let name = CString::new(u.name.as_bytes()).map_err(|e| e.to_string())?;
            initgroups(&name, gid).map_err(|e| why("initgroups", e))?;
        }
        None => nix::unistd::setgroups(&[gid]).map_err(|e| why("setgroups", e))?,
    }
    setgid(gid).map_err(|e| why("setgid", e))?;
    setuid(uid).map_err(|e| why("setuid", e))?;
    if let Some(u) = user {
        // SAFETY: the gate process has one thread.
        unsafe {
            std::env::set_var("HOME", u.dir.as_os_str());
            std::env::set_var("USER", std::ffi::OsStr::from_bytes(u.name.as_bytes()));
            std::env::set_var("LOGNAME", std::ffi::OsStr::from_bytes(u.name.as_bytes()));
        }
    }
    Ok(())
}
