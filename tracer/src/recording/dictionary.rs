//! Dictionaries of a block: threads, files and other values that many rows share, each stored once.
//!
//! A dictionary lists its entries in order of their first use; its column has no count, it ends where the column ends.

use super::columns::{Column, Cursor};
use crate::events::FileRef;
use crate::units::{DevId, Pid, Tid};
use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;
use std::hash::Hash;

/// Gives each distinct value the next index.
#[derive(Debug)]
pub(super) struct Dictionary<K>(IndexSet<K, FxBuildHasher>);

impl<K> Default for Dictionary<K> {
    fn default() -> Self {
        Dictionary(IndexSet::default())
    }
}

impl<K: Hash + Eq> Dictionary<K> {
    /// Forgets all values, keeps the memory.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Index of `key`, and whether it is new.
    #[inline]
    pub(super) fn intern(&mut self, key: K) -> (usize, bool) {
        self.0.insert_full(key)
    }
}

/// Distinct numbers, each as the difference from the one before.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    known: Dictionary<u64>,
    last: u64,
}

impl Numbers {
    /// Starts a new block.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.last = 0;
    }

    /// Index of `value`; a new one is written to `column`.
    #[inline]
    pub(super) fn intern(&mut self, value: u64, column: &mut Column) -> usize {
        let (index, new) = self.known.intern(value);
        if new {
            column.put_delta(self.last, value);
            self.last = value;
        }
        index
    }

    /// Reads the column back; at most `limit` entries.
    pub(super) fn read(mut column: Cursor<'_>, limit: usize) -> Option<Vec<u64>> {
        let mut last = 0;
        entries(limit, |at_end| {
            *at_end = column.is_at_end();
            if *at_end {
                return None;
            }
            last = column.take_delta(last)?;
            Some(last)
        })
    }
}

/// Distinct threads: thread id as the difference from the one before, process id as the difference from the thread id.
#[derive(Debug, Default)]
pub(super) struct Threads {
    known: Dictionary<(Tid, Pid)>,
    last: u64,
}

impl Threads {
    /// Starts a new block.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.last = 0;
    }

    /// Index of a thread; a new one is written to `column`.
    pub(super) fn intern(&mut self, tid: Tid, pid: Pid, column: &mut Column) -> usize {
        let (index, new) = self.known.intern((tid, pid));
        if new {
            column.put_delta(self.last, u64::from(tid.0));
            column.put_delta(u64::from(tid.0), u64::from(pid.0));
            self.last = u64::from(tid.0);
        }
        index
    }

    /// Reads the column back; at most `limit` entries.
    pub(super) fn read(mut column: Cursor<'_>, limit: usize) -> Option<Vec<(Tid, Pid)>> {
        let mut last = 0;
        entries(limit, |at_end| {
            *at_end = column.is_at_end();
            if *at_end {
                return None;
            }
            last = column.take_delta(last)?;
            let pid = column.take_delta(last)?;
            Some((Tid(last.try_into().ok()?), Pid(pid.try_into().ok()?)))
        })
    }
}

/// Everything of a file but its inode number: files of one data set agree in it.
type FileKind = (DevId, DevId, u32, u16);

/// Distinct files: a dictionary of kinds, then the kind of each file, and its inode number as the difference from the
/// file of the same kind before.
#[derive(Debug, Default)]
pub(super) struct Files {
    known: Dictionary<FileRef>,
    kinds: Dictionary<FileKind>,
    last: Vec<u64>,
}

impl Files {
    /// Starts a new block.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.kinds.clear();
        self.last.clear();
    }

    /// 0 for no file, else its index plus 1; new ones are written to the three columns.
    pub(super) fn intern(&mut self, file: Option<FileRef>, [kinds, kind_of, inode]: [&mut Column; 3]) -> usize {
        let Some(file) = file else { return 0 };
        let (index, new) = self.known.intern(file);
        if new {
            let (kind, new_kind) = self.kinds.intern((file.dev, file.rdev, file.magic, file.mode));
            if new_kind {
                for part in [file.dev.major, file.dev.minor, file.rdev.major, file.rdev.minor, file.magic] {
                    kinds.put(u64::from(part));
                }
                kinds.put(u64::from(file.mode));
                self.last.push(0);
            }
            kind_of.put(kind as u64);
            if let Some(last) = self.last.get_mut(kind) {
                inode.put_delta(*last, file.ino);
                *last = file.ino;
            }
        }
        index + 1
    }

    /// Reads the three columns back; at most `limit` entries each. The first entry of the result is "no file".
    pub(super) fn read(columns: [Cursor<'_>; 3], limit: usize) -> Option<Vec<Option<FileRef>>> {
        let [mut kinds, mut kind_of, mut inode] = columns;
        let mut kinds = entries(limit, |at_end| {
            *at_end = kinds.is_at_end();
            if *at_end {
                return None;
            }
            let dev = DevId { major: kinds.take_as()?, minor: kinds.take_as()? };
            let rdev = DevId { major: kinds.take_as()?, minor: kinds.take_as()? };
            Some(FileRef { ino: 0, dev, rdev, magic: kinds.take_as()?, mode: kinds.take_as()? })
        })?;
        let mut files = entries(limit, |at_end| {
            *at_end = kind_of.is_at_end();
            if *at_end {
                return None;
            }
            // The kind's own number field holds the inode of its last file.
            let last = kinds.get_mut(kind_of.take_as::<usize>()?)?;
            last.ino = inode.take_delta(last.ino)?;
            Some(Some(*last))
        })?;
        files.insert(0, None);
        Some(files)
    }
}

/// Collects what `next` gives until it says that the column is at its end; `None` if it fails before, or after more
/// than `limit` entries: a false dictionary must not take more memory than the rows that it serves.
pub(super) fn entries<T>(limit: usize, mut next: impl FnMut(&mut bool) -> Option<T>) -> Option<Vec<T>> {
    let mut out = Vec::new();
    let mut at_end = false;
    loop {
        match next(&mut at_end) {
            Some(entry) if out.len() < limit => out.push(entry),
            None if at_end => return Some(out),
            _ => return None,
        }
    }
}
