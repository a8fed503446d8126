//! Why a recording could not be written or opened, and what to do about it.

use std::io;
use std::path::{Path, PathBuf};

/// Why a recording could not be written. What was written before stays readable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The file is there already.
    #[error("{path} exists already and is not overwritten: choose another file with -o, or remove it first")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The folder does not exist.
    #[error("cannot create {path}: its folder does not exist; make it with mkdir -p, or choose another file with -o")]
    NoFolder {
        /// The file.
        path: PathBuf,
    },
    /// The path names a folder.
    #[error("cannot write to {path}: it is a folder; name a file in it with -o")]
    IsFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The path names a pipe, a socket or a device.
    #[error("cannot record to {path}: it is no ordinary file; name another one with -o")]
    NotAFile {
        /// What it names.
        path: PathBuf,
    },
    /// No permission, or a read-only file system.
    #[error("cannot create {path} ({reason}): choose a file in a folder that you may write to with -o")]
    NotWritable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// The file could not be created for another reason.
    #[error("cannot create {path} ({reason}): choose another file with -o")]
    Create {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// The disk is full, or the quota used up.
    #[error(
        "recording to {path} stopped since its disk is full ({reason}): the first {written} bytes are kept and can be \
         reported on; free some space, or record to another disk with -o"
    )]
    Full {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
        /// Bytes of whole blocks in the file.
        written: u64,
    },
    /// The file reached a size limit.
    #[error(
        "recording to {path} stopped at the size limit for files ({reason}): the first {written} bytes are kept and can \
         be reported on; raise the limit with ulimit -f unlimited, or record for a shorter time with --duration"
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
        /// Bytes of whole blocks in the file.
        written: u64,
    },
    /// Writing failed for another reason.
    #[error(
        "recording to {path} stopped since it cannot be written to any more ({reason}): the first {written} bytes are \
         kept and can be reported on; record to another disk with -o"
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
        /// Bytes of whole blocks in the file.
        written: u64,
    },
    /// The header is larger than a block may be.
    #[error("cannot begin {path}: what there is to say about this host takes {bytes} bytes, more than a block holds")]
    HeaderTooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: usize,
    },
    /// The writer's threads or its compressor could not be started.
    #[error("cannot start the threads that write {path} ({reason}): free some memory or raise the limit on processes")]
    Start {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
}

impl WriteError {
    /// Why a file could not be created.
    pub(super) fn creating(path: &Path, error: &io::Error) -> WriteError {
        let (path, reason) = (path.to_owned(), error.to_string());
        match error.kind() {
            io::ErrorKind::AlreadyExists => WriteError::Exists { path },
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => WriteError::NoFolder { path },
            io::ErrorKind::IsADirectory => WriteError::IsFolder { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                WriteError::NotWritable { path, reason }
            }
            _ => WriteError::Create { path, reason },
        }
    }

    /// Why a block could not be written after `written` good bytes.
    pub(super) fn writing(path: &Path, error: &io::Error, written: u64) -> WriteError {
        let (path, reason) = (path.to_owned(), error.to_string());
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => WriteError::Full { path, reason, written },
            io::ErrorKind::FileTooLarge => WriteError::TooLarge { path, reason, written },
            _ => WriteError::Write { path, reason, written },
        }
    }
}

/// Why a recording could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// There is no such file.
    #[error("there is no file {path}: check the name; gpustall record -o FILE makes one")]
    NotFound {
        /// The file.
        path: PathBuf,
    },
    /// No permission.
    #[error(
        "no permission to read {path}: a recording made with sudo belongs to root; read it with sudo too, or chown it"
    )]
    Denied {
        /// The file.
        path: PathBuf,
    },
    /// The path names a folder.
    #[error("{path} is a folder: name the recording in it")]
    IsFolder {
        /// The folder.
        path: PathBuf,
    },
    /// The path names a pipe, a socket or a device.
    #[error("cannot read {path}: it is no ordinary file; name a file that gpustall record made")]
    NotAFile {
        /// What it names.
        path: PathBuf,
    },
    /// The system failed to read it.
    #[error("cannot read {path} ({reason}): copy it to another disk and try again")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// Nothing in it.
    #[error("{path} is empty: its recorder ended before it wrote anything; record again")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Some other file.
    #[error("{path} is not a gpustall recording: name a file that gpustall record made")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Written by a later version.
    #[error(
        "{path} is in recording format {found}, and this gpustall reads formats up to {known}: update gpustall with \
         cargo install gpustall"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format version.
        found: u32,
        /// The newest that this program knows.
        known: u32,
    },
    /// The first block, without which the rest means nothing, is gone.
    #[error(
        "{path} begins like a gpustall recording, but its header is damaged or cut off: copy it again from where it \
         was made, or record again"
    )]
    HeaderDamaged {
        /// The file.
        path: PathBuf,
    },
}

impl ReadError {
    /// Why a file could not be opened or read.
    pub(super) fn reading(path: &Path, error: &io::Error) -> ReadError {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ReadError::NotFound { path },
            io::ErrorKind::PermissionDenied => ReadError::Denied { path },
            io::ErrorKind::IsADirectory => ReadError::IsFolder { path },
            _ => ReadError::Read { path, reason: error.to_string() },
        }
    }
}
