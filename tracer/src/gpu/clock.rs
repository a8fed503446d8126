//! Which clock a driver stamps its samples with.

use crate::recording::ClockReading;
use crate::units::MonoNs;

/// A stamp may lie this far ahead of a reading taken just after the call that returned it: two clocks cannot be read at
/// the same instant, and drivers round.
const AHEAD_US: i64 = 50_000;

/// A sampling driver's newest stamp is at most one period (1 s) and a call old. What is older than this comes from a
/// buffer that the driver no longer fills, and says nothing about its clock.
const STALE_US: i64 = 10_000_000;

/// The clock of a driver's sample stamps. NVML only says "CPU time in µs": most drivers use the wall clock, some the time
/// since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StampClock {
    /// CLOCK_REALTIME.
    Epoch,
    /// CLOCK_BOOTTIME.
    Boot,
    /// CLOCK_MONOTONIC.
    Mono,
}

impl StampClock {
    /// Every clock that a driver may use.
    pub const ALL: [StampClock; 3] = [StampClock::Mono, StampClock::Boot, StampClock::Epoch];

    /// This clock's nanoseconds in a reading.
    pub(super) fn ns(self, now: &ClockReading) -> u64 {
        match self {
            StampClock::Epoch => now.wall.0,
            StampClock::Boot => now.boot.0,
            StampClock::Mono => now.mono.0,
        }
    }

    /// Age of a stamp in µs by this clock; negative when it lies ahead.
    fn age_us(self, stamp_us: u64, now: &ClockReading) -> i64 {
        let now_us = i64::try_from(self.ns(now) / 1_000).unwrap_or(i64::MAX);
        now_us.saturating_sub(i64::try_from(stamp_us).unwrap_or(i64::MAX))
    }

    /// A stamp of this clock on CLOCK_MONOTONIC, by the offset between the two as of `now`. Absent for stamps from before
    /// the boot or further ahead of `now` than clocks can disagree (left over from before the wall clock was set back).
    pub fn to_mono(self, stamp_us: u64, now: &ClockReading) -> Option<MonoNs> {
        if self.age_us(stamp_us, now) < -AHEAD_US {
            return None;
        }
        let offset = i128::from(now.mono.0) - i128::from(self.ns(now));
        u64::try_from(i128::from(stamp_us) * 1_000 + offset).ok().map(MonoNs)
    }

    /// The clock that a driver used for `newest_us`, the newest stamp it gave, right before `now` was read.
    ///
    /// `current` is kept while it makes sense: where the machine was suspended for a moment, boot and monotonic clock differ
    /// by less than a stamp's age and only a stamp that would lie ahead tells them apart. Absent when the stamp is not
    /// recent by any clock.
    pub fn detect(newest_us: u64, now: &ClockReading, current: Option<StampClock>) -> Option<StampClock> {
        let fits = |c: &StampClock| (-AHEAD_US..=STALE_US).contains(&c.age_us(newest_us, now));
        if let Some(c) = current.filter(fits) {
            return Some(c);
        }
        StampClock::ALL.into_iter().filter(fits).min_by_key(|c| c.age_us(newest_us, now).abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{BootNs, WallNs};

    /// Up for 5,000 s, of which 300 s suspended; the wall clock shows a day in 2025.
    fn now() -> ClockReading {
        ClockReading {
            mono: MonoNs(4_700_000_000_000),
            boot: BootNs(5_000_000_000_000),
            wall: WallNs(1_750_000_000_000_000_000),
        }
    }

    #[test]
    fn each_clock_is_recognised_and_converted() {
        let cases = [
            (StampClock::Epoch, 1_750_000_000_000_000 - 200_000),
            (StampClock::Boot, 5_000_000_000 - 200_000),
            (StampClock::Mono, 4_700_000_000 - 200_000),
        ];
        for (clock, stamp) in cases {
            assert_eq!(StampClock::detect(stamp, &now(), None), Some(clock));
            assert_eq!(clock.to_mono(stamp, &now()), Some(MonoNs(4_699_800_000_000)));
        }
    }

    #[test]
    fn a_stale_buffer_says_nothing() {
        assert_eq!(StampClock::detect(4_700_000_000 - 60_000_000, &now(), None), None);
        assert_eq!(StampClock::detect(1, &now(), Some(StampClock::Mono)), None);
        assert_eq!(StampClock::detect(u64::MAX, &now(), None), None);
    }

    #[test]
    fn a_short_suspend_is_told_apart_by_the_first_stamp_ahead() {
        let now = ClockReading { boot: BootNs(4_700_300_000_000), ..now() };
        // Boot stamps, 350 ms old: 50 ms old as monotonic ones, so the first guess is wrong ...
        let guess = StampClock::detect(4_700_300_000 - 350_000, &now, None);
        assert_eq!(guess, Some(StampClock::Mono));
        // ... and the next, 100 ms old, would lie 200 ms ahead of the monotonic clock.
        assert_eq!(StampClock::detect(4_700_300_000 - 100_000, &now, guess), Some(StampClock::Boot));
    }

    #[test]
    fn stamps_from_before_the_boot_or_from_the_future_have_no_place() {
        assert_eq!(StampClock::Epoch.to_mono(1_000_000, &now()), None);
        assert_eq!(StampClock::Epoch.to_mono(1_750_000_003_600_000_000, &now()), None);
        assert_eq!(StampClock::Mono.to_mono(u64::MAX, &now()), None);
    }
}
