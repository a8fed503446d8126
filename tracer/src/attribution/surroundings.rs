//! What the host was doing around a moment, and what kind of storage a file lies on.

use crate::events::FileRef;
use crate::host::{FsKind, Mount, fs_kind, fs_kind_of_magic};
use crate::timeline::Timeline;
use crate::units::{DevId, MonoNs};
use std::collections::HashMap;

/// Facts around the threads that decide between causes.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// Windows between host samples in which a control group of the target was held back by its CPU quota.
    throttled: Vec<(MonoNs, MonoNs)>,
    /// Windows in which pages were swapped in.
    swapping: Vec<(MonoNs, MonoNs)>,
    kinds: HashMap<DevId, FsKind>,
    mounts: Vec<Mount>,
}

impl Surroundings {
    /// From the host samples of a timeline and the mounts of the recording's header.
    pub fn new(timeline: &Timeline, mounts: &[Mount]) -> Surroundings {
        let mut s = Surroundings { mounts: mounts.to_vec(), ..Surroundings::default() };
        for m in mounts {
            if let Some(kind) = fs_kind(&m.fs_type) {
                s.kinds.insert(m.dev, kind);
            }
        }
        // The longest mount point first, so that the first prefix found is the right one.
        s.mounts.sort_by_key(|m| std::cmp::Reverse(m.point.len()));
        for pair in timeline.host.windows(2) {
            let [a, b] = pair else { continue };
            let throttled = b
                .cgroups
                .iter()
                .any(|now| a.cgroups.iter().any(|then| then.path == now.path && now.throttled > then.throttled));
            if throttled {
                s.throttled.push((a.time, b.time));
            }
            if b.swapped_in > a.swapped_in {
                s.swapping.push((a.time, b.time));
            }
        }
        s
    }

    /// Whether the target's CPU quota was used up at some time around `[from, to]`.
    pub fn throttled(&self, from: MonoNs, to: MonoNs) -> bool {
        overlaps(&self.throttled, from, to)
    }

    /// Whether pages were swapped in at some time around `[from, to]`.
    pub fn swapping(&self, from: MonoNs, to: MonoNs) -> bool {
        overlaps(&self.swapping, from, to)
    }

    /// Whether a user-space file system is mounted where the target can see it.
    pub fn has_user_space(&self) -> bool {
        self.kinds.values().any(|k| *k == FsKind::UserSpace)
    }

    /// Kind of the file system under a file.
    pub fn kind_of(&self, file: &FileRef) -> FsKind {
        match fs_kind_of_magic(file.magic) {
            // FUSE and overlay have one magic for many file systems; the mount's type tells more.
            general @ (None | Some(FsKind::Local | FsKind::UserSpace)) => {
                self.kinds.get(&file.dev).copied().or(general).unwrap_or(FsKind::Local)
            }
            Some(known) => known,
        }
    }

    /// Kind of the file system under an absolute path; local if it is relative or unknown.
    pub fn kind_of_path(&self, path: &str) -> FsKind {
        let under = |m: &&Mount| {
            path.strip_prefix(m.point.as_str())
                .is_some_and(|rest| m.point == "/" || rest.is_empty() || rest.starts_with('/'))
        };
        self.mounts.iter().find(under).and_then(|m| fs_kind(&m.fs_type)).unwrap_or(FsKind::Local)
    }
}

fn overlaps(windows: &[(MonoNs, MonoNs)], from: MonoNs, to: MonoNs) -> bool {
    let after = windows.partition_point(|(_, end)| *end <= from);
    windows.get(after).is_some_and(|(start, _)| *start < to)
}
