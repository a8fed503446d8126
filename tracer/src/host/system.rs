//! The machine itself: clocks, name, kernel, CPUs.

use crate::recording::ClockReading;
use crate::units::{BootNs, MonoNs, Nanos, WallNs};
use rustix::time::{ClockId, clock_gettime};

/// A reading whose three clocks lie further apart than this is taken again.
const CLOSE_ENOUGH: Nanos = Nanos(20_000);
/// How often it is tried; on a crowded machine the best of these is used.
const TRIES: usize = 10;

/// One moment on CLOCK_MONOTONIC, CLOCK_REALTIME and CLOCK_BOOTTIME. The monotonic clock is read before and after the
/// other two and its middle used; when a preemption falls in between, the reading is repeated.
pub fn clocks() -> ClockReading {
    let mut best: Option<(Nanos, ClockReading)> = None;
    for _ in 0..TRIES {
        let before = MonoNs(read(ClockId::Monotonic));
        let wall = WallNs(read(ClockId::Realtime));
        let boot = BootNs(read(ClockId::Boottime));
        let took = MonoNs(read(ClockId::Monotonic)).since(before);
        if best.is_none_or(|(shortest, _)| took < shortest) {
            best = Some((took, ClockReading { mono: before + Nanos(took.0 / 2), wall, boot }));
        }
        if took <= CLOSE_ENOUGH {
            break;
        }
    }
    best.map(|(_, reading)| reading).unwrap_or_default()
}

fn read(clock: ClockId) -> u64 {
    let t = clock_gettime(clock);
    u64::try_from(t.tv_sec).unwrap_or(0).saturating_mul(1_000_000_000) + u64::try_from(t.tv_nsec).unwrap_or(0)
}

/// Name of the host.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Kernel release, as `uname -r` prints it.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Number of CPUs online; at least 1.
pub fn online_cpus() -> u32 {
    online_list().map_or(1, |cpus| u32::try_from(cpus.len()).unwrap_or(1).max(1))
}

/// The CPUs online; `None` where /sys does not tell.
pub(crate) fn online_list() -> Option<Vec<u32>> {
    parse_cpu_list(&std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?)
}

/// Parses the kernel's list of CPUs: `0-3,8,10-11`. `None` if it is none.
pub fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        // No kernel has more CPUs than this (NR_CPUS is at most 8192 on x86-64).
        if last >= 1 << 16 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// Inode of a namespace from its link in /proc/PID/ns, such as `pid:[4026531836]`.
pub fn parse_ns_link(link: &str) -> Option<u64> {
    link.split_once(":[")?.1.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpu_list("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parse_cpu_list("0"), Some(vec![0]));
        assert_eq!(parse_cpu_list("\n"), Some(vec![]));
        assert_eq!(parse_cpu_list("all"), None);
        assert_eq!(parse_cpu_list("0-4000000000"), None);
    }

    #[test]
    fn namespace_links() {
        assert_eq!(parse_ns_link("pid:[4026531836]"), Some(4_026_531_836));
        assert_eq!(parse_ns_link("pid:4026531836"), None);
    }

    #[test]
    fn the_three_clocks_are_one_moment() {
        let a = clocks();
        let b = clocks();
        assert!(b.mono >= a.mono && a.mono.0 > 0);
        // Boot time runs ahead of monotonic time by the time suspended, which does not change meanwhile.
        let ahead = |c: ClockReading| c.boot.0 as i64 - c.mono.0 as i64;
        assert!((ahead(a) - ahead(b)).abs() < 50_000_000, "{a:?} {b:?}");
        assert!(a.wall.0 > 1_600_000_000_000_000_000);
    }
}
