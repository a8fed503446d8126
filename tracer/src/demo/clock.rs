//! The clocks of the truth log.

use crate::units::{MonoNs, Nanos};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::pread;
use rustix::thread::ClockId;
use std::os::fd::OwnedFd;

/// Now, on the clock of all kernel records.
pub fn now() -> MonoNs {
    MonoNs(read(ClockId::Monotonic))
}

/// CPU time of the calling thread.
pub fn thread_cpu() -> Nanos {
    Nanos(read(ClockId::ThreadCPUTime))
}

fn read(clock: ClockId) -> u64 {
    let t = rustix::time::clock_gettime(clock);
    (t.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec as u64)
}

/// Time that one thread spent on the run queue, from its `schedstat` file (second field; needs `CONFIG_SCHED_INFO`,
/// which all distributions set).
pub struct RunDelay(Option<OwnedFd>);

impl RunDelay {
    /// Of the calling thread, whichever thread asks later.
    pub fn of_this_thread() -> RunDelay {
        RunDelay(open("/proc/thread-self/schedstat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok())
    }

    /// So far; zero where the kernel does not count it.
    pub fn so_far(&self) -> Nanos {
        let mut text = [0u8; 96];
        let Some(fd) = &self.0 else { return Nanos::ZERO };
        let Ok(n) = pread(fd, &mut text, 0) else { return Nanos::ZERO };
        Nanos(parse_run_delay(text.get(..n).unwrap_or_default()).unwrap_or(0))
    }
}

fn parse_run_delay(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_delay_is_the_second_field() {
        assert_eq!(parse_run_delay(b"96734 3100577 2\n"), Some(3_100_577));
        assert_eq!(parse_run_delay(b"96734\n"), None);
        assert_eq!(parse_run_delay(b""), None);
    }

    #[test]
    fn cpu_time_moves_only_with_work() {
        let (wall, cpu) = (now(), thread_cpu());
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(now().since(wall) >= Nanos::from_millis(20));
        assert!(thread_cpu() - cpu < Nanos::from_millis(10));
    }
}
