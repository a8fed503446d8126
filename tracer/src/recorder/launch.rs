//! Launching a command so that it is traced from its first instruction: a copy of this program waits at a gate until the
//! probe is attached, gives up root if sudo was used, and becomes the command.

use super::RecordError;
use crate::units::Pid;
use nix::unistd::{Gid, Uid, User, initgroups, setgid, setuid};
use std::ffi::{CString, OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use tokio::signal::unix::{SignalKind, signal};

/// Name of the hidden sub-command that [`gate`] answers to.
pub const GATE: &str = "launch-gate";

/// Exit statuses of a shell for a command that is not there, and for one that cannot be executed.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// A command that waits at the gate.
pub struct Launched {
    child: tokio::process::Child,
    /// The word to begin goes through this to the gate, and the reason why the command cannot begin comes back.
    gate: Option<UnixStream>,
    command: String,
    command_line: String,
}

impl Launched {
    /// Starts the gate process. Its pid is the command's.
    pub fn start(command: &[OsString]) -> Result<Launched, RecordError> {
        let name = command.first().map(|c| c.to_string_lossy().into_owned()).unwrap_or_default();
        let failed =
            |e: std::io::Error| RecordError::Launch { command: name.clone(), reason: e.to_string(), status: 1 };
        // Before anything is attached or an older recording replaced for a name with a typing error.
        if let Some(program) = command.first()
            && !is_there(program)
        {
            let reason = std::io::Error::from_raw_os_error(libc::ENOENT).to_string();
            return Err(RecordError::Launch { command: name, reason, status: NOT_FOUND });
        }
        // Both ends are closed on exec; the gate keeps its own, whatever its number: none that the command expects from
        // whoever called gpustall is taken away.
        let (ours, its) = UnixStream::pair().map_err(failed)?;
        let program = std::env::current_exe().map_err(failed)?;
        let keep = its.as_raw_fd();
        let mut gate = Command::new(program);
        gate.arg(GATE).arg(keep.to_string()).arg("--").args(command);
        // SAFETY: fcntl is async-signal-safe, and nothing is allocated between fork and exec.
        unsafe {
            gate.pre_exec(move || match libc::fcntl(keep, libc::F_SETFD, 0) {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            });
        }
        let child = tokio::process::Command::from(gate).spawn().map_err(failed)?;
        drop(its);
        let words: Vec<_> = command.iter().map(|w| w.to_string_lossy()).collect();
        let command_line = words.join(" ").replace(char::is_control, " ");
        Ok(Launched { child, gate: Some(ours), command: name, command_line })
    }

    /// Its pid.
    pub fn pid(&self) -> Pid {
        Pid(self.child.id().unwrap_or(0))
    }

    /// The command with its arguments, separated by spaces.
    pub fn command_line(&self) -> &str {
        &self.command_line
    }

    /// Lets the command begin, and waits until it has or cannot.
    pub fn go(&mut self) -> Result<(), RecordError> {
        let Some(mut gate) = self.gate.take() else { return Ok(()) };
        let mut answer = Vec::new();
        // A gate that was killed answers nothing; the recording then ends with its target.
        let said = gate.write_all(b"g").and_then(|()| gate.read_to_end(&mut answer));
        match (said, answer.split_first()) {
            (Ok(_), Some((status, reason))) => Err(RecordError::Launch {
                command: self.command.clone(),
                reason: String::from_utf8_lossy(reason).into_owned(),
                status: *status,
            }),
            _ => Ok(()),
        }
    }

    /// Gives the command up before it began.
    pub async fn abandon(mut self) {
        self.gate = None;
        // Only so that no process is left behind; the gate ends when it hears nothing.
        let _ = self.child.wait().await;
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
        self.child.wait().await.map_err(|e| RecordError::Launch { command, reason: e.to_string(), status: 1 })
    }

    /// Waits for its end, and hands SIGTERM on to it meanwhile: whoever ends gpustall means the command.
    pub async fn wait_or_terminate(&mut self) -> Result<ExitStatus, RecordError> {
        let mut terminated = signal(SignalKind::terminate()).map_err(RecordError::Signals)?;
        loop {
            tokio::select! {
                status = self.wait() => return status,
                _ = terminated.recv() => self.terminate(),
            }
        }
    }
}

/// Whether a program can be found, by its path or in PATH. Whether it can be executed shows when it is.
fn is_there(program: &OsStr) -> bool {
    if program.as_bytes().contains(&b'/') {
        return Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).exists())
}

/// The gate process: waits for the word, becomes the person who called sudo, and then the command. Returns only on failure,
/// with its exit status; `link` is the descriptor to the recorder, which says what failed.
pub fn gate(link: RawFd, command: &[OsString]) -> u8 {
    // The parent passes an open descriptor; anybody else who calls this by hand gets an error for a wrong one.
    // SAFETY: no memory effects.
    if unsafe { libc::fcntl(link, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return 1;
    }
    // SAFETY: it is open, and nobody else in this process owns it.
    let mut link = unsafe { UnixStream::from_raw_fd(link) };
    let mut word = [0u8; 1];
    if link.read_exact(&mut word).is_err() {
        // The recorder ended before it let the command begin, and has said why.
        return 1;
    }
    let (status, reason) = match become_caller() {
        Err(reason) => (NOT_EXECUTABLE, reason),
        Ok(()) => become_command(command),
    };
    let mut answer = vec![status];
    answer.extend(reason.bytes());
    // A recorder that is gone has no use for it.
    let _ = link.write_all(&answer);
    status
}

/// Returns only on failure: exit status and reason.
fn become_command(command: &[OsString]) -> (u8, String) {
    let Some((program, args)) = command.split_first() else { return (NOT_FOUND, "it has no name".into()) };
    let error = Command::new(program).args(args).exec();
    let status = if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    (status, error.to_string())
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
