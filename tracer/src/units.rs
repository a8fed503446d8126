//! Clocks, ids and durations as types, so that a wrong unit does not compile.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// No time at all.
    pub const ZERO: Nanos = Nanos(0);

    /// So many milliseconds.
    pub const fn from_millis(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    /// So many seconds, rounded to the nanosecond; negative and non-finite values give zero.
    pub fn from_secs_f64(s: f64) -> Nanos {
        // `as` saturates and sends NaN to 0.
        Nanos((s * 1e9).round() as u64)
    }

    /// In seconds.
    pub fn secs(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// In milliseconds.
    pub fn millis(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// This share of `whole`; 0 when `whole` is zero.
    pub fn share_of(self, whole: Nanos) -> f64 {
        if whole.0 == 0 { 0.0 } else { self.0 as f64 / whole.0 as f64 }
    }

    /// Difference, or zero when `other` is longer.
    pub fn saturating_sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        *self = *self + other;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        self.saturating_sub(other)
    }
}

impl SubAssign for Nanos {
    fn sub_assign(&mut self, other: Nanos) {
        *self = *self - other;
    }
}

impl std::iter::Sum for Nanos {
    fn sum<I: Iterator<Item = Nanos>>(iter: I) -> Nanos {
        iter.fold(Nanos::ZERO, Add::add)
    }
}

impl fmt::Display for Nanos {
    /// With the unit that gives a short number: `850 ns`, `71 µs`, `9.6 ms`, `12.3 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{ns} ns"),
            1_000..10_000 => write!(f, "{:.1} µs", ns / 1e3),
            10_000..1_000_000 => write!(f, "{:.0} µs", ns / 1e3),
            1_000_000..10_000_000 => write!(f, "{:.1} ms", ns / 1e6),
            10_000_000..1_000_000_000 => write!(f, "{:.0} ms", ns / 1e6),
            _ => write!(f, "{:.1} s", ns / 1e9),
        }
    }
}

/// A point on `CLOCK_MONOTONIC`, the clock of all kernel records (`bpf_ktime_get_ns`): nanoseconds since boot, not
/// counting suspend, never stepped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MonoNs(pub u64);

impl MonoNs {
    /// Time since `earlier`; zero if it is in fact later.
    pub fn since(self, earlier: MonoNs) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Nanos> for MonoNs {
    type Output = MonoNs;
    fn add(self, d: Nanos) -> MonoNs {
        MonoNs(self.0.saturating_add(d.0))
    }
}

impl Sub<Nanos> for MonoNs {
    type Output = MonoNs;
    fn sub(self, d: Nanos) -> MonoNs {
        MonoNs(self.0.saturating_sub(d.0))
    }
}

/// A point on the wall clock (`CLOCK_REALTIME`): nanoseconds since 1970, stepped at will by the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallNs(pub u64);

/// A point on `CLOCK_BOOTTIME`: like [`MonoNs`], but suspend counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootNs(pub u64);

/// A thread id of the initial pid namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tid(pub u32);

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A process id of the initial pid namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pid(pub u32);

impl Pid {
    /// Id of the process's main thread.
    pub fn main_thread(self) -> Tid {
        Tid(self.0)
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Index of a GPU as NVML and nvidia-smi count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuIndex(pub u32);

impl fmt::Display for GpuIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A block or character device number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DevId {
    /// Driver.
    pub major: u32,
    /// Instance.
    pub minor: u32,
}

impl DevId {
    /// From the kernel's own encoding (`major << 20 | minor`, `linux/kdev_t.h`).
    pub fn from_kernel(dev: u32) -> DevId {
        DevId { major: dev >> 20, minor: dev & 0xf_ffff }
    }
}

impl fmt::Display for DevId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_print_with_a_fitting_unit() {
        let cases =
            [(850, "850 ns"), (1_500, "1.5 µs"), (71_000, "71 µs"), (9_600_000, "9.6 ms"), (12_340_000_000, "12.3 s")];
        for (ns, text) in cases {
            assert_eq!(Nanos(ns).to_string(), text);
        }
    }

    #[test]
    fn seconds_that_make_no_sense_are_zero() {
        assert_eq!(Nanos::from_secs_f64(-1.0), Nanos::ZERO);
        assert_eq!(Nanos::from_secs_f64(f64::NAN), Nanos::ZERO);
        assert_eq!(Nanos::from_secs_f64(0.25), Nanos::from_millis(250));
    }

    #[test]
    fn kernel_device_numbers_split_into_major_and_minor() {
        assert_eq!(DevId::from_kernel(254 << 20 | 3), DevId { major: 254, minor: 3 });
    }
}
