//! Paths of mapped files that threads waited for in page faults, from /proc: the kernel programs see only the inode.

use crate::events::{FileRef, FileType, NamedFile, OffCpu};
use crate::units::{DevId, Pid};
use procfs::process::{MMapPath, Process};
use std::collections::{BTreeMap, HashSet};

/// Processes whose maps are read in one round: a long list takes about a millisecond.
const MAX_PROCESSES: usize = 4;

/// Which files have been looked for, and which are to be.
#[derive(Debug, Default)]
pub struct MappedFiles {
    seen: HashSet<(DevId, u64)>,
    wanted: BTreeMap<Pid, Vec<FileRef>>,
}

impl MappedFiles {
    /// Takes note of the file of a page fault.
    pub fn note(&mut self, o: &OffCpu) {
        let Some(file) = o.file.filter(|f| o.syscall.is_none() && f.file_type() == FileType::Regular) else { return };
        if self.seen.insert((file.dev, file.ino)) {
            self.wanted.entry(o.pid).or_default().push(file);
        }
    }

    /// Looks for what is wanted and passes on what is found. A file that is no longer mapped stays without a name.
    pub fn report(&mut self, sink: &mut dyn FnMut(NamedFile)) {
        for _ in 0..MAX_PROCESSES {
            let Some((pid, mut files)) = self.wanted.pop_first() else { return };
            let maps = i32::try_from(pid.0).ok().and_then(|p| Process::new(p).ok()?.maps().ok());
            for map in maps.into_iter().flatten() {
                let MMapPath::Path(path) = &map.pathname else { continue };
                let dev = (u32::try_from(map.dev.0).ok(), u32::try_from(map.dev.1).ok());
                let same = |f: &&FileRef| f.ino == map.inode && dev == (Some(f.dev.major), Some(f.dev.minor));
                if let (Some(n), Some(path)) = (files.iter().position(|f| same(&f)), path.to_str()) {
                    // A file may be mapped in many pieces.
                    sink(NamedFile { file: files.swap_remove(n), path: path.to_owned() });
                }
            }
        }
    }
}
