//! Why a recording failed.

use crate::probe::ProbeError;
use crate::recording::WriteError;
use std::io;

/// Why a recording failed.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The target could not be attached to.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The file could not be made or written.
    #[error(transparent)]
    Write(#[from] WriteError),
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
    },
}
