//! Files: what was opened, what a thread waited on, and where it lies.

use super::Syscall;
use crate::units::{DevId, MonoNs, Nanos, Pid, Tid};
use serde::{Deserialize, Serialize};

/// Type of a file, from its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// A file with data on some file system.
    Regular,
    /// A directory.
    Directory,
    /// A pipe, named or not.
    Pipe,
    /// A socket.
    Socket,
    /// A character device, such as /dev/nvidia0.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// Anything else: eventfd, epoll and other anonymous inodes.
    Other,
}

/// A file as the kernel identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileRef {
    /// Inode number.
    pub ino: u64,
    /// Device of its file system.
    pub dev: DevId,
    /// The device that it stands for, if it is a device node.
    pub rdev: DevId,
    /// Magic of the file system (`linux/magic.h`).
    pub magic: u32,
    /// Type and permissions (`i_mode`).
    pub mode: u16,
}

impl FileRef {
    /// Its type.
    pub fn file_type(&self) -> FileType {
        match self.mode & 0o170_000 {
            0o100_000 => FileType::Regular,
            0o040_000 => FileType::Directory,
            0o010_000 => FileType::Pipe,
            0o140_000 => FileType::Socket,
            0o020_000 => FileType::CharDevice,
            0o060_000 => FileType::BlockDevice,
            _ => FileType::Other,
        }
    }
}

/// One file open, or another path-taking system call that blocked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileOpen {
    /// Start of the call; for a blocked call the start of the off-CPU interval.
    pub time: MonoNs,
    /// The thread.
    pub tid: Tid,
    /// Its process.
    pub pid: Pid,
    /// The call: `openat`, `openat2`, or, blocked, also `newfstatat` and the like.
    pub syscall: Syscall,
    /// The path as the caller gave it.
    pub path: String,
    /// Latency, descriptor or negated errno, and open flags; `None` when the call was seen only because it blocked.
    pub outcome: Option<OpenOutcome>,
}

/// How an open ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenOutcome {
    /// How long the call took.
    pub latency: Nanos,
    /// Descriptor, or negated errno.
    pub result: i32,
    /// Open flags (`O_*`).
    pub flags: u32,
}

/// Path of a file that a target thread waited on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedFile {
    /// The file.
    pub file: FileRef,
    /// Its path in the mount namespace of the tracer where that could be found, else inside its mount.
    pub path: String,
}
