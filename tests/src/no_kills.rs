//! Keeps the kernel from killing processes of a control group that have swap left.
//!
//! With a limit and fast swap, the kernel at times (Linux 6.18: once in some runs of a few seconds) finds nothing to reclaim in a
//! number of tries in a row and calls for a kill, though most of the swap space is free. Version 1 groups let the one who faults
//! wait instead; a little more room for a moment lets it go on.

use anyhow::{Context, Result};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the group is looked at.
const EVERY: Duration = Duration::from_millis(2);
/// Room that is given for a moment, bytes.
const ROOM: u64 = 4 << 20;
/// And no more than this.
const MOST_ROOM: u64 = 32 << 20;

/// Watches over a group until it is dropped.
#[derive(Debug)]
pub struct NoKills {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NoKills {
    /// For a group of version 1 with a limit of so many bytes.
    ///
    /// # Errors
    /// If kills cannot be switched off.
    pub fn in_group(group: &Path, limit: u64) -> Result<NoKills> {
        let (control, bytes) = (group.join("memory.oom_control"), group.join("memory.limit_in_bytes"));
        std::fs::write(&control, "1").with_context(|| format!("cannot write 1 to {}", control.display()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut room = 0;
            while !told.load(Ordering::Relaxed) {
                std::thread::sleep(EVERY);
                let waits = std::fs::read_to_string(&control).is_ok_and(|text| text.contains("under_oom 1"));
                if waits && room < MOST_ROOM {
                    room += ROOM;
                    let _ = std::fs::write(&bytes, (limit + room).to_string());
                } else if room > 0 && !waits && std::fs::write(&bytes, limit.to_string()).is_ok() {
                    // It fails while the kernel finds nothing to reclaim.
                    room = 0;
                }
            }
        });
        Ok(NoKills { stop, thread: Some(thread) })
    }
}

impl Drop for NoKills {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
