//! Why a recording failed.

use crate::probe::ProbeError;
use crate::recording::WriteError;
use std::io;
use std::path::PathBuf;

/// Why a recording failed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The target could not be attached to.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The file could not be made or written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Somebody removed the file.
    #[error(
        "{path} was removed while it was being recorded to, so there is no recording; record again to another file with -o"
    )]
    Gone {
        /// The file.
        path: PathBuf,
    },
    /// Signals could not be caught.
    #[error("cannot catch signals ({0}): start gpustall from an ordinary shell")]
    Signals(io::Error),
    /// The command could not be started.
    #[error("cannot start the command {command} ({reason}): check its name and that it may be executed")]
    Launch {
        /// The command.
        command: String,
        /// What the system says.
        reason: String,
        /// Exit status, as a shell gives it: 127 when it is not there, 126 when it cannot be executed.
        status: u8,
    },
}
