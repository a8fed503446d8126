//! The map of traced threads, as user space sees it: shared memory, one byte per thread id.

use crate::units::Tid;
use aya::maps::MapData;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

/// Marks of all thread ids. The kernel writes to it too (fork, exec, exit), always single bytes.
pub struct TargetMap {
    base: NonNull<AtomicU8>,
    len: usize,
}

// SAFETY: a mapping that belongs to nobody else, of bytes that are only touched atomically.
unsafe impl Send for TargetMap {}

impl TargetMap {
    /// Maps `len` bytes of the map's values.
    pub fn new(map: &MapData, len: usize) -> io::Result<TargetMap> {
        // SAFETY: a new shared mapping of a map that was made with BPF_F_MMAPABLE; the kernel checks the length.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.fd().as_fd().as_raw_fd(),
                0,
            )
        };
        match NonNull::new(at.cast()) {
            Some(base) if at != libc::MAP_FAILED => Ok(TargetMap { base, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn slot(&self, tid: Tid) -> Option<&AtomicU8> {
        let i = tid.0 as usize;
        // SAFETY: inside the mapping, which lives as long as `self`.
        (i < self.len).then(|| unsafe { self.base.add(i).as_ref() })
    }

    /// Whether a thread is traced.
    pub fn contains(&self, tid: Tid) -> bool {
        self.slot(tid).is_some_and(|s| s.load(Ordering::Relaxed) != 0)
    }

    /// Traces a thread from now on; false if its id is beyond the map.
    pub fn insert(&self, tid: Tid) -> bool {
        // Sequentially consistent: what is read of the thread afterwards must be younger than the mark.
        self.slot(tid).map(|s| s.store(1, Ordering::SeqCst)).is_some()
    }

    /// Ends that.
    pub fn remove(&self, tid: Tid) {
        if let Some(s) = self.slot(tid) {
            s.store(0, Ordering::SeqCst);
        }
    }

    /// All traced threads.
    pub fn iter(&self) -> impl Iterator<Item = Tid> {
        (0..self.len as u32).map(Tid).filter(|t| self.contains(*t))
    }
}

impl Drop for TargetMap {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
