//! Opens, and the names of files that threads blocked on.

use super::{exactly, sched};
use crate::events::{FileOpen, FileRef, OpenOutcome, Syscall};
use crate::units::{MonoNs, Nanos, Pid, Tid};
use std::mem::offset_of;
use tracer_ebpf as raw;

/// Bytes of a [`raw::FileOpen`] before its path.
const HEAD: usize = offset_of!(raw::FileOpen, path);

/// Decodes [`raw::FileOpen`], which comes with only as many bytes of its path as it uses.
pub fn open(bytes: &[u8]) -> Option<FileOpen> {
    let mut whole = [0; size_of::<raw::FileOpen>()];
    whole.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let r = exactly::<raw::FileOpen>(&whole)?;
    if bytes.len() != HEAD + r.path_len as usize {
        return None;
    }
    Some(FileOpen {
        time: MonoNs(r.time_ns),
        tid: Tid(r.tid),
        pid: Pid(r.pid),
        syscall: Syscall(r.syscall),
        path: String::from_utf8_lossy(r.path.get(..r.path_len as usize)?).into_owned(),
        outcome: (r.flags & raw::OPEN_BLOCKED == 0).then_some(OpenOutcome {
            latency: Nanos(r.latency_ns),
            result: r.result,
            flags: r.open_flags,
        }),
    })
}

/// Where a file lies inside its mount, as its directory entries say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileNames {
    /// The file.
    pub file: FileRef,
    /// Process that used it.
    pub pid: Pid,
    /// Descriptor through which it was used.
    pub fd: u32,
    /// FileNames from the top down, the file's own last; empty for the root of a file system.
    pub names: Vec<String>,
    /// Directories above the first name, or the ends of long names, are missing.
    pub cut: bool,
}

/// Decodes [`raw::FilePath`].
pub fn path(bytes: &[u8]) -> Option<FileNames> {
    let r = exactly::<raw::FilePath>(bytes)?;
    let used = r.names.get(..r.parts as usize)?;
    Some(FileNames {
        file: sched::file(&r.file),
        pid: Pid(r.pid),
        fd: r.fd,
        names: used.iter().rev().map(|name| super::text(name)).collect(),
        cut: used.len() == raw::PATH_PARTS
            || used.iter().any(|name| name.iter().position(|b| *b == 0).is_none_or(|end| end == raw::PART_MAX - 1)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::bytes;
    use super::*;

    fn opened(path: &str) -> raw::FileOpen {
        let mut r = raw::FileOpen {
            kind: raw::Kind::FileOpen as u32,
            tid: 4,
            pid: 3,
            flags: 0,
            time_ns: 50,
            latency_ns: 7,
            result: -2,
            open_flags: 0o2_000_000,
            syscall: 257,
            path_len: path.len() as u16,
            pad: 0,
            path: [0; raw::PATH_MAX],
        };
        r.path[..path.len()].copy_from_slice(path.as_bytes());
        r
    }

    #[test]
    fn an_open_carries_only_the_used_part_of_its_path() {
        let r = opened("/data/a.jpg");
        let o = open(&bytes(&r)[..HEAD + 11]).unwrap();
        assert_eq!((o.path.as_str(), o.syscall), ("/data/a.jpg", Syscall(257)));
        assert_eq!(o.outcome, Some(OpenOutcome { latency: Nanos(7), result: -2, flags: 0o2_000_000 }));
        for wrong in [0, HEAD - 1, HEAD + 10, HEAD + 12, size_of_val(&r)] {
            assert_eq!(open(&bytes(&r)[..wrong]), None, "{wrong}");
        }
        assert_eq!(open(&[bytes(&r), &[0; 64]].concat()), None);
    }

    #[test]
    fn a_blocked_open_has_no_outcome() {
        let r = raw::FileOpen { flags: raw::OPEN_BLOCKED, ..opened("x") };
        assert_eq!(open(&bytes(&r)[..HEAD + 1]).unwrap().outcome, None);
    }

    #[test]
    fn names_come_from_the_top_down() {
        let file = raw::FileId { ino: 5, dev: 8 << 20, ..Default::default() };
        let mut r = raw::FilePath {
            kind: raw::Kind::FilePath as u32,
            parts: 2,
            file,
            pid: 3,
            fd: 9,
            names: [[b'x'; raw::PART_MAX]; raw::PATH_PARTS],
        };
        r.names[0][..6].copy_from_slice(b"a.jpg\0");
        r.names[1][..6].copy_from_slice(b"train\0");
        let p = path(bytes(&r)).unwrap();
        assert_eq!((p.names, p.cut), (vec!["train".to_owned(), "a.jpg".to_owned()], false));
        r.parts = 3;
        assert!(path(bytes(&r)).unwrap().cut, "a name that fills its room may go on");
        r.parts = raw::PATH_PARTS as u32 + 1;
        assert_eq!(path(bytes(&r)), None);
    }
}
