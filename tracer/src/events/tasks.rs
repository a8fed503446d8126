//! Lifecycle and names of threads.

use crate::units::{MonoNs, Pid, Tid};
use serde::{Deserialize, Serialize};

/// What happened to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskWhat {
    /// It was there when the tracer attached; `parent` is the parent *process*.
    Found {
        /// Parent process.
        parent: Pid,
    },
    /// It was forked (or cloned as a thread, when its pid is the parent's) by this thread.
    Forked {
        /// The thread that made it.
        parent: Tid,
    },
    /// It runs another program; before that it was this thread.
    Exec {
        /// Its thread id before the exec.
        old_tid: Tid,
    },
    /// It has a new name.
    Renamed,
    /// It ended.
    Exited,
}

/// Something happened to a target thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEvent {
    /// When.
    pub time: MonoNs,
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub pid: Pid,
    /// What.
    pub what: TaskWhat,
    /// Its name (`comm`, at most 15 bytes).
    pub comm: String,
}

/// Name of a thread outside the target that took its CPU or woke it, or of a target thread when the recording stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadName {
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub pid: Pid,
    /// Name of the thread (`comm`).
    pub comm: String,
    /// Command line of its process, cut to 200 bytes; empty for a kernel thread.
    pub command: String,
}
