//! What can go wrong while the demo is set up or runs.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why the demo failed.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A file or directory of the demo's own could not be used.
    #[error("cannot {what} {path}: {source}; free some space, or set TMPDIR to a writable directory on a local disk")]
    File {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// No directory can hold the data set.
    #[error(
        "found no writable directory on a local disk with {needed_mib} MiB free (tried {tried}); set TMPDIR to one, or \
         run another scenario than disk"
    )]
    NoDisk {
        /// MiB needed.
        needed_mib: u64,
        /// Directories looked at.
        tried: String,
    },
    /// One of the demo's processes could not be started.
    #[error("cannot start the demo's {role} process ({program}): {source}; check that the program may be executed")]
    Spawn {
        /// Which process.
        role: &'static str,
        /// What was to be run.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// One of the demo's processes ended, or closed its pipe, before it was done.
    #[error(
        "the demo's {role} process ended early ({status}): {detail}; run the demo again, and with less load if it repeats"
    )]
    Ended {
        /// Which process.
        role: &'static str,
        /// Its exit status.
        status: String,
        /// First line that it or one of its workers wrote to standard error.
        detail: String,
    },
    /// The workload did not get warm in time.
    #[error(
        "the demo's workload was not ready after {0:?}; the disk or the CPUs are too busy, try again with less load"
    )]
    NotReady(Duration),
    /// A queue between two processes broke.
    #[error("the demo's queue {queue} broke: {source}; the process at its other end is gone")]
    Queue {
        /// Which queue.
        queue: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A batch arrived damaged or out of turn.
    #[error(
        "the demo's worker {worker} delivered a wrong batch ({what}); this is a defect of the demo, please report it"
    )]
    WrongBatch {
        /// Worker.
        worker: usize,
        /// What was wrong.
        what: String,
    },
    /// The simulated GPU's library is not usable.
    #[error(
        "cannot use the stand-in for libcuda {path}: {reason}; build it with `cargo build --workspace`, beside the gpustall binary"
    )]
    Cuda {
        /// Where it was looked for.
        path: PathBuf,
        /// What failed.
        reason: String,
    },
    /// A hidden sub-command was run by hand.
    #[error("this sub-command is started by `gpustall demo` itself ({0}); run `gpustall demo` instead")]
    NotByHand(&'static str),
    /// A system call of the set-up failed.
    #[error("cannot {what}: {source}; the demo needs Linux 5.10 or later")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
}

impl DemoError {
    /// For `map_err` on operations on a path.
    pub(super) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DemoError {
        let path = path.to_owned();
        move |source| DemoError::File { what, path, source }
    }

    /// For `map_err` on system calls.
    pub(super) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> DemoError {
        move |source| DemoError::System { what, source: source.into() }
    }
}
