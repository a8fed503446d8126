//! What can go wrong when reading the host.

use crate::units::Pid;
use std::path::{Path, PathBuf};

/// Why something about the host could not be read.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The process does not exist, or ended meanwhile.
    #[error(
        "no process has pid {0}: it has ended or never was; look the pid up again, for example with `pgrep -af python`"
    )]
    NoSuchProcess(Pid),
    /// The process belongs to somebody else.
    #[error("process {pid} may not be read (permission denied on {path}): run gpustall with sudo")]
    NotPermitted {
        /// The process.
        pid: Pid,
        /// What was to be read.
        path: PathBuf,
    },
    /// Anything else.
    #[error("cannot read {path}: {source}; is /proc mounted, and readable for this user?")]
    Unreadable {
        /// What was to be read.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

impl HostError {
    /// Sorts an error met while reading `path`, which says something about process `pid`.
    pub(crate) fn of_process(pid: Pid, path: &Path, error: std::io::Error) -> HostError {
        match (error.kind(), error.raw_os_error()) {
            // ESRCH: the process ended between the open and the read.
            (std::io::ErrorKind::NotFound, _) | (_, Some(libc::ESRCH)) => HostError::NoSuchProcess(pid),
            (std::io::ErrorKind::PermissionDenied, _) => HostError::NotPermitted { pid, path: path.to_owned() },
            _ => HostError::Unreadable { path: path.to_owned(), source: error },
        }
    }
}
