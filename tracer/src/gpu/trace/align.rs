//! From a trace's clock to CLOCK_MONOTONIC.

use super::super::clock::StampClock;
use crate::recording::ClockReading;
use crate::units::MonoNs;

/// Two readings of a clock that differ by more than a thousandth of the time between them, and by more than this, have a step
/// between them; below, the clock was only slewed.
const STEP_NS: u128 = 1_000_000;

/// The clocks of a recording.
#[derive(Clone, Copy, Debug)]
pub struct RecordingClocks {
    /// Its start on all clocks.
    pub start: ClockReading,
    /// Its end on all clocks, if it was closed.
    pub end: Option<ClockReading>,
    /// Its first and last moment, whatever part of it is looked at: where a trace lies does not depend on that.
    pub span: (MonoNs, MonoNs),
}

/// How a trace may tell time: nanoseconds on a clock, counted from `base`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Base {
    pub ns: i64,
    pub clock: StampClock,
}

/// Where a trace lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub base: Base,
    mapping: Mapping,
    /// The clock was set during the recording, by so many nanoseconds.
    pub step_ns: i128,
}

impl Placed {
    /// A time of the trace on CLOCK_MONOTONIC; absent before the boot.
    pub fn to_mono(self, t: i64) -> Option<MonoNs> {
        u64::try_from(self.mapping.mono(i128::from(t) + i128::from(self.base.ns))).ok().map(MonoNs)
    }
}

/// Nanoseconds of a clock as nanoseconds of CLOCK_MONOTONIC: a straight line.
#[derive(Clone, Copy, Debug)]
struct Mapping {
    clock_0: i128,
    mono_0: i128,
    /// Nanoseconds of CLOCK_MONOTONIC in so many of the clock.
    slope: (i128, i128),
}

impl Mapping {
    fn mono(&self, t: i128) -> i128 {
        let since = t - self.clock_0;
        self.mono_0 + since + since * (self.slope.0 - self.slope.1) / self.slope.1
    }

    fn at(clock: StampClock, reading: &ClockReading) -> Mapping {
        let (clock_0, mono_0) = (i128::from(clock.ns(reading)), i128::from(reading.mono.0));
        Mapping { clock_0, mono_0, slope: (1, 1) }
    }
}

/// How a clock ran: one line where it was slewed at most, else one for the time before a step and one for the time after it;
/// with the size of the step.
fn mappings(clock: StampClock, clocks: &RecordingClocks) -> (Vec<Mapping>, i128) {
    let start = Mapping::at(clock, &clocks.start);
    let Some(end) = clocks.end.map(|r| Mapping::at(clock, &r)) else { return (vec![start], 0) };
    let (clock_ns, mono_ns) = (end.clock_0 - start.clock_0, end.mono_0 - start.mono_0);
    let moved = clock_ns - mono_ns;
    if clock_ns <= 0 || mono_ns <= 0 || moved.unsigned_abs() > STEP_NS.max(mono_ns.unsigned_abs() / 1_000) {
        return (vec![start, end], moved);
    }
    (vec![Mapping { slope: (mono_ns, clock_ns), ..start }], 0)
}

/// The first of the ways to tell time in `bases` by which a trace from `first` to `last` overlaps the recording.
pub(super) fn place(first: i64, last: i64, bases: &[Base], clocks: &RecordingClocks) -> Option<Placed> {
    let (from, to) = (i128::from(clocks.span.0.0), i128::from(clocks.span.1.0));
    bases.iter().find_map(|base| {
        let (lines, step_ns) = mappings(base.clock, clocks);
        let at = |m: &Mapping, t: i64| m.mono(i128::from(t) + i128::from(base.ns));
        let mapping = lines.into_iter().find(|m| at(m, first) < to && at(m, last) > from)?;
        Some(Placed { base: *base, mapping, step_ns })
    })
}

/// The span of a recording on a clock, nanoseconds.
pub(super) fn span_on(clock: StampClock, clocks: &RecordingClocks) -> (i128, i128) {
    let offset = i128::from(clock.ns(&clocks.start)) - i128::from(clocks.start.mono.0);
    (i128::from(clocks.span.0.0) + offset, i128::from(clocks.span.1.0) + offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{BootNs, WallNs};

    const S: u64 = 1_000_000_000;
    const WALL: u64 = 1_750_000_000 * S;

    fn reading(mono: u64, wall_ahead: i64) -> ClockReading {
        let wall = (WALL + mono).saturating_add_signed(wall_ahead);
        ClockReading { mono: MonoNs(mono), boot: BootNs(mono + 300 * S), wall: WallNs(wall) }
    }

    /// A recording from 1,000 s to 1,060 s, the wall clock moved by so much at its end.
    fn clocks(moved: i64) -> RecordingClocks {
        let (start, end) = (reading(1_000 * S, 0), reading(1_060 * S, moved));
        RecordingClocks { start, end: Some(end), span: (start.mono, end.mono) }
    }

    fn base(ns: u64, clock: StampClock) -> Base {
        Base { ns: ns as i64, clock }
    }

    #[test]
    fn the_first_clock_that_overlaps_is_taken() {
        let all = [base(0, StampClock::Epoch), base(0, StampClock::Boot), base(0, StampClock::Mono)];
        for (t, clock) in
            [(WALL + 1_010 * S, StampClock::Epoch), (1_310 * S, StampClock::Boot), (1_010 * S, StampClock::Mono)]
        {
            let p = place(t as i64, (t + S) as i64, &all, &clocks(0)).unwrap();
            assert_eq!(p.base.clock, clock);
            assert_eq!(p.to_mono((t + 5) as i64), Some(MonoNs(1_010 * S + 5)));
        }
        assert!(place(0, S as i64, &all, &clocks(0)).is_none());
    }

    #[test]
    fn a_base_is_added() {
        let p = place(0, S as i64, &[base(WALL + 1_030 * S, StampClock::Epoch)], &clocks(0)).unwrap();
        assert_eq!(p.to_mono(7), Some(MonoNs(1_030 * S + 7)));
        assert_eq!(p.to_mono(-2_000 * S as i64), None);
    }

    #[test]
    fn a_slewed_clock_is_followed() {
        // 6 ms in 60 s: 100 ppm.
        let c = clocks(6_000_000);
        let t = WALL + 1_030 * S + 3_000_000;
        let p = place(t as i64, t as i64 + 1, &[base(0, StampClock::Epoch)], &c).unwrap();
        assert!(p.to_mono(t as i64).unwrap().0.abs_diff(1_030 * S) < 1_000, "{:?}", p.to_mono(t as i64));
        assert_eq!(p.step_ns, 0);
    }

    #[test]
    fn a_clock_that_was_set_is_told_and_either_side_is_tried() {
        let c = clocks(3_600 * S as i64);
        let p = place((WALL + 1_010 * S) as i64, (WALL + 1_011 * S) as i64, &[base(0, StampClock::Epoch)], &c).unwrap();
        assert_eq!((p.step_ns, p.to_mono((WALL + 1_010 * S) as i64)), (3_600 * S as i128, Some(MonoNs(1_010 * S))));
        let t = WALL + 4_650 * S;
        let p = place(t as i64, t as i64 + 1, &[base(0, StampClock::Epoch)], &c).unwrap();
        assert_eq!(p.to_mono(t as i64), Some(MonoNs(1_050 * S)));
    }

    #[test]
    fn a_recording_without_an_end_is_placed_by_its_start() {
        let c = RecordingClocks { end: None, ..clocks(0) };
        let t = WALL + 1_010 * S;
        assert!(place(t as i64, t as i64 + 1, &[base(0, StampClock::Epoch)], &c).is_some());
        assert_eq!(span_on(StampClock::Epoch, &c).0, i128::from(WALL + 1_000 * S));
    }
}
