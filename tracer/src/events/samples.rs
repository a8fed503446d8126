//! On-CPU samples: what running target threads were doing, a few hundred times a second.

use super::{FileRef, Syscall};
use crate::units::{MonoNs, Pid, Tid};
use serde::{Deserialize, Serialize};

/// Refers to an [`ImageName`] of the same recording; 0 is "not known".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ImageId(pub u32);

/// One sample of a running thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuSample {
    /// When.
    pub time: MonoNs,
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub pid: Pid,
    /// CPU it ran on.
    pub cpu: u16,
    /// System call it was in; none in user code, [`Syscall::FAULT`] inside a page fault.
    pub syscall: Syscall,
    /// User-space instruction pointer.
    pub user_ip: u64,
    /// Mapped file that holds the instruction pointer.
    pub image: ImageId,
    /// File behind the first argument of the system call, where it takes a descriptor.
    pub file: Option<FileRef>,
}

/// A file that is mapped as code: an executable or a library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageName {
    /// What samples call it.
    pub id: ImageId,
    /// Its path, or a name in brackets such as `[vdso]`.
    pub path: String,
}
