//! Memory that is taken back as soon as it is used: pages go to compressed swap all the time, as under a proactive reclaimer.
//!
//! A limit would be the simpler hold, but with a limit and compressed swap the kernel (seen on Linux 6.18, version 1 groups) at times
//! finds nothing to reclaim though swap is free, and kills.

use super::scenario::Hold;
use crate::swap::CompressedSwap;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes that are put away at a time.
const CHUNK: usize = 1 << 20;
/// Pause after each.
const PAUSE: Duration = Duration::from_millis(1);

/// Puts the largest anonymous mapping of the job away, part after part.
pub struct PagedOut {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    // After the thread: switching swap off reads all of it back.
    _swap: CompressedSwap,
    at_least: usize,
}

impl PagedOut {
    /// For a job that has such a mapping of so many bytes at least.
    ///
    /// # Errors
    /// If there can be no compressed swap.
    pub fn new(at_least: usize) -> Result<PagedOut> {
        Ok(PagedOut { stop: Arc::default(), thread: None, _swap: CompressedSwap::new()?, at_least })
    }
}

impl Hold for PagedOut {
    fn apply(&mut self, pids: &[u32]) -> Result<()> {
        let found = pids.iter().find_map(|pid| Some((*pid, largest_anonymous(*pid).filter(|m| m.1 >= self.at_least)?)));
        let (pid, (start, length)) = found.context("no process of the job has a mapping of that size")?;
        let process = pidfd(pid)?;
        put_away(&process, start, CHUNK)
            .context("the job's pages cannot be put away (it needs Linux 5.10 and root)")?;
        let stop = Arc::clone(&self.stop);
        self.thread = Some(std::thread::spawn(move || {
            let chunks = (0..length / CHUNK).cycle();
            for chunk in chunks.take_while(|_| !stop.load(Ordering::Relaxed)) {
                // The job ends before its hold.
                if put_away(&process, start + chunk * CHUNK, CHUNK).is_err() {
                    break;
                }
                std::thread::sleep(PAUSE);
            }
        }));
        Ok(())
    }
}

impl Drop for PagedOut {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Start and length of the largest mapping without a file.
fn largest_anonymous(pid: u32) -> Option<(usize, usize)> {
    let maps = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("maps")).ok()?;
    let anonymous = maps.lines().filter(|line| line.split_whitespace().count() == 5);
    let ranges = anonymous.filter_map(|line| {
        let (start, end) = line.split_whitespace().next()?.split_once('-')?;
        let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
        Some((start, end.checked_sub(start)?))
    });
    ranges.max_by_key(|(_, length)| *length)
}

fn pidfd(pid: u32) -> Result<OwnedFd> {
    // SAFETY: a system call without memory effects here.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    ensure!(fd >= 0, "pidfd_open failed: {}", std::io::Error::last_os_error());
    // SAFETY: a new descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(i32::try_from(fd)?) })
}

fn put_away(process: &OwnedFd, start: usize, length: usize) -> Result<()> {
    let range = libc::iovec { iov_base: start as *mut libc::c_void, iov_len: length };
    // SAFETY: the range is one of the other process, whose contents this leaves as they are.
    let done = unsafe {
        libc::syscall(libc::SYS_process_madvise, process.as_raw_fd(), &raw const range, 1, libc::MADV_PAGEOUT, 0)
    };
    ensure!(done >= 0, "process_madvise failed: {}", std::io::Error::last_os_error());
    Ok(())
}
