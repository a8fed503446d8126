//! One test per quirk of `nvmlDeviceGetSamples`.

use super::*;
use crate::units::{BootNs, WallNs};

const MS: u64 = 1_000_000;
/// Wall minus monotonic clock in these tests.
const WALL: u64 = 1_750_000_000_000 * MS;

/// All clocks at `ms` after boot; never suspended.
fn at(ms: u64) -> ClockReading {
    ClockReading { mono: MonoNs(ms * MS), boot: BootNs(ms * MS), wall: WallNs(ms * MS + WALL) }
}

/// Samples at these milliseconds of the monotonic clock.
fn samples(list: &[(u64, f64)]) -> Vec<RawSample> {
    list.iter().map(|&(ms, percent)| RawSample { stamp_us: ms * 1_000, percent }).collect()
}

/// Windows as (start ms, end ms, percent).
fn told(out: &[GpuWindow]) -> Vec<(u64, u64, i64)> {
    out.iter().map(|w| (w.start.0 / MS, w.end.0 / MS, w.utilization.round() as i64)).collect()
}

fn builder(start_ms: u64) -> WindowBuilder {
    WindowBuilder::new(GpuIndex(0), MonoNs(start_ms * MS))
}

#[test]
fn windows_lie_between_consecutive_stamps() {
    let (mut b, mut out) = (builder(10_000), Vec::new());
    b.add_samples(&samples(&[(10_167, 40.0), (10_334, 90.0)]), &at(10_340), &mut out);
    b.add_samples(&samples(&[(10_501, 0.0)]), &at(10_510), &mut out);
    assert_eq!(told(&out), [(10_000, 10_167, 40), (10_167, 10_334, 90), (10_334, 10_501, 0)]);
    assert_eq!(b.last_stamp(&at(10_510)), 10_501_000);
}

#[test]
fn history_from_before_the_start_is_left_out_and_the_first_window_is_cut() {
    let (mut b, mut out) = (builder(10_000), Vec::new());
    b.add_samples(&samples(&[(9_700, 100.0), (9_867, 100.0), (10_034, 50.0)]), &at(10_050), &mut out);
    assert_eq!(told(&out), [(10_000, 10_034, 50)]);
}

#[test]
fn unordered_repeated_and_already_seen_samples_count_once() {
    let (mut b, mut out) = (builder(10_000), Vec::new());
    b.add_samples(&samples(&[(10_334, 90.0), (10_167, 40.0), (10_167, 41.0)]), &at(10_340), &mut out);
    // The whole buffer again, as drivers do that ignore the last stamp.
    b.add_samples(&samples(&[(10_167, 40.0), (10_334, 90.0)]), &at(10_440), &mut out);
    assert_eq!(told(&out), [(10_000, 10_167, 40), (10_167, 10_334, 90)]);
}

#[test]
fn entries_never_filled_and_impossible_values_are_dropped() {
    let (mut b, mut out) = (builder(10_000), Vec::new());
    let list =
        [(0, 77.0), (10_167, 20.0), (10_334, 2_000_000_000.0), (10_501, 30.0), (10_668, f64::NAN), (10_835, -1.0)];
    b.add_samples(&samples(&list), &at(10_840), &mut out);
    // The impossible one's own window is unknown; it must not be lent to its neighbour.
    assert_eq!(told(&out), [(10_000, 10_167, 20), (10_334, 10_501, 30)]);
}

#[test]
fn the_rate_stands_in_for_an_impossible_value() {
    let (mut b, mut out) = (builder(10_000), Vec::new());
    b.add_samples(&samples(&[(10_167, 20.0)]), &at(10_170), &mut out);
    b.add_rate(MonoNs(10_340 * MS), 60, &mut out);
    b.add_samples(&samples(&[(10_334, 255.0), (10_501, 30.0)]), &at(10_510), &mut out);
    assert_eq!(told(&out), [(10_000, 10_167, 20), (10_167, 10_334, 60), (10_334, 10_501, 30)]);
}

#[test]
fn each_clock_of_a_driver_gives_the_same_windows() {
    for offset in [0, WALL / 1_000] {
        let (mut b, mut out) = (builder(10_000), Vec::new());
        let raw: Vec<RawSample> = samples(&[(10_167, 40.0), (10_334, 90.0)])
            .into_iter()
            .map(|s| RawSample { stamp_us: s.stamp_us + offset, ..s })
            .collect();
        b.add_samples(&raw, &at(10_340), &mut out);
        assert_eq!(told(&out), [(10_000, 10_167, 40), (10_167, 10_334, 90)]);
    }
}

#[test]
fn an_empty_buffer_is_told_from_rates() {
    let (mut b, mut out) = (builder(10_000), Vec::new());
    for ms in (10_100..=13_000).step_by(100) {
        b.add_samples(&[], &at(ms), &mut out);
        b.add_rate(MonoNs(ms * MS), 0, &mut out);
    }
    assert_eq!(out.first().unwrap().start, MonoNs(10_000 * MS));
    assert!(out.iter().all(|w| w.utilization == 0.0 && w.end.since(w.start) >= SHORTEST_PERIOD));
    assert!(out.windows(2).all(|w| w[0].end == w[1].start));
    b.finish(&mut out);
    assert_eq!(out.last().unwrap().end, MonoNs(13_000 * MS));
}

#[test]
fn no_new_samples_between_two_calls_is_not_an_empty_buffer() {
    let (mut b, mut out) = (builder(10_000), Vec::new());
    b.add_samples(&samples(&[(10_167, 40.0)]), &at(10_170), &mut out);
    for ms in (10_200..=11_100).step_by(100) {
        b.add_rate(MonoNs(ms * MS), 99, &mut out);
    }
    b.add_samples(&samples(&[(11_167, 50.0)]), &at(11_170), &mut out);
    assert_eq!(told(&out), [(10_000, 10_167, 40), (10_167, 11_167, 50)], "a period of 1 s is legal");
}

#[test]
fn samples_after_an_empty_buffer_take_over_without_overlap() {
    let (mut b, mut out) = (builder(10_000), Vec::new());
    b.add_samples(&samples(&[(10_167, 40.0)]), &at(10_170), &mut out);
    for ms in (10_200..=13_000).step_by(100) {
        b.add_rate(MonoNs(ms * MS), 0, &mut out);
    }
    b.add_samples(&samples(&[(13_034, 80.0), (13_201, 90.0)]), &at(13_210), &mut out);
    assert!(out.windows(2).all(|w| w[0].end == w[1].start), "{:?}", told(&out));
    let tail = &told(&out)[out.len() - 3..];
    assert_eq!(tail[0], (12_800, 13_034 - 167, 0));
    assert_eq!(&tail[1..], [(13_034 - 167, 13_034, 80), (13_034, 13_201, 90)]);
    assert!(told(&out)[1..out.len() - 2].iter().all(|w| w.2 == 0));
}

#[test]
fn a_hole_without_rates_stays_a_hole() {
    let (mut b, mut out) = (builder(10_000), Vec::new());
    b.add_samples(&samples(&[(10_167, 40.0), (15_000, 80.0)]), &at(15_010), &mut out);
    assert_eq!(told(&out), [(10_000, 10_167, 40), (14_833, 15_000, 80)]);
}

#[test]
fn a_frozen_buffer_gives_way_to_rates() {
    let (mut b, mut out) = (builder(10_000), Vec::new());
    // Stamps from 9 minutes ago, for ever.
    let frozen: Vec<RawSample> =
        [1_u64, 2].iter().map(|s| RawSample { stamp_us: s * 1_000_000, percent: 97.0 }).collect();
    let start = 600_000;
    b.covered = MonoNs(start * MS);
    for ms in (start..start + 3_000).step_by(100) {
        b.add_samples(&frozen, &at(ms), &mut out);
        b.add_rate(MonoNs(ms * MS), 12, &mut out);
    }
    assert!(out.len() > 5 && out.iter().all(|w| w.utilization == 12.0), "{:?}", told(&out));
}

#[test]
fn setting_the_wall_clock_back_loses_nothing_new() {
    let (mut b, mut out) = (builder(10_000), Vec::new());
    let epoch = |ms: u64, percent, wall: u64| RawSample { stamp_us: ms * 1_000 + wall / 1_000, percent };
    assert_eq!(b.last_stamp(&at(10_330)), 0);
    b.add_samples(&[epoch(10_167, 40.0, WALL), epoch(10_334, 50.0, WALL)], &at(10_340), &mut out);
    // One hour back. The driver's buffer still holds the old stamps.
    let wall = WALL - 3_600_000 * MS;
    let now = ClockReading { wall: WallNs(10_510 * MS + wall), ..at(10_510) };
    assert_eq!(b.last_stamp(&now), 0, "the old stamp would hide every sample of the next hour");
    let raw = [epoch(10_167, 40.0, WALL), epoch(10_334, 50.0, WALL), epoch(10_501, 60.0, wall)];
    b.add_samples(&raw, &now, &mut out);
    assert_eq!(told(&out), [(10_000, 10_167, 40), (10_167, 10_334, 50), (10_334, 10_501, 60)]);
    // And forward again.
    let now = ClockReading { wall: WallNs(10_700 * MS + WALL), ..at(10_700) };
    b.last_stamp(&now);
    b.add_samples(&[epoch(10_501, 60.0, wall), epoch(10_668, 70.0, WALL)], &now, &mut out);
    assert_eq!(told(&out).last(), Some(&(10_501, 10_668, 70)));
    assert_eq!(out.len(), 4);
}

#[test]
fn fast_samples_are_joined() {
    let (mut b, mut out) = (builder(10_000), Vec::new());
    let list: Vec<(u64, f64)> = (1..=10).map(|i| (10_000 + 20 * i, if i % 2 == 0 { 100.0 } else { 0.0 })).collect();
    b.add_samples(&samples(&list), &at(10_205), &mut out);
    assert_eq!(told(&out), [(10_000, 10_100, 40), (10_100, 10_200, 60)]);
}

#[test]
fn rates_above_100_and_times_that_do_not_advance_are_ignored() {
    let (mut b, mut out) = (builder(10_000), Vec::new());
    b.add_rate(MonoNs(9_000 * MS), 50, &mut out);
    b.add_rate(MonoNs(10_100 * MS), 101, &mut out);
    b.add_rate(MonoNs(10_200 * MS), 50, &mut out);
    b.add_rate(MonoNs(10_200 * MS), 70, &mut out);
    b.finish(&mut out);
    assert_eq!(told(&out), [(10_000, 10_200, 50)]);
}

#[test]
fn a_reader_that_was_stopped_leaves_a_hole_not_a_guess() {
    let (mut b, mut out) = (builder(10_000), Vec::new());
    b.add_rate(MonoNs(10_100 * MS), 80, &mut out);
    b.add_rate(MonoNs(10_200 * MS), 80, &mut out);
    b.add_rate(MonoNs(60_000 * MS), 10, &mut out);
    b.finish(&mut out);
    assert_eq!(told(&out), [(10_000, 10_200, 80), (59_833, 60_000, 10)]);
}

proptest::proptest! {
    /// Whatever a driver returns, windows are in order, inside the recording and never overlap.
    #[test]
    fn windows_never_overlap(calls in proptest::collection::vec(
        (0_u64..3_000, proptest::collection::vec((0_u64..30_000, -10.0_f64..300.0), 0..8), 0_u32..120), 1..40)
    ) {
        let (mut b, mut out) = (builder(10_000), Vec::new());
        let mut ms = 10_000;
        for (step, list, rate) in calls {
            ms += step;
            b.last_stamp(&at(ms));
            b.add_samples(&samples(&list), &at(ms), &mut out);
            b.add_rate(MonoNs(ms * MS), rate, &mut out);
        }
        b.finish(&mut out);
        for w in &out {
            proptest::prop_assert!(w.start < w.end && (0.0..=100.0).contains(&w.utilization));
            proptest::prop_assert!(w.start.0 >= 10_000 * MS && w.end.0 <= (ms + 50) * MS);
        }
        for pair in out.windows(2) {
            proptest::prop_assert!(pair[0].end <= pair[1].start, "{:?}", told(&out));
        }
    }
}

#[test]
fn the_last_rates_say_the_last_sample_again() {
    let (mut b, mut out) = (builder(10_000), Vec::new());
    b.add_samples(&samples(&[(10_167, 40.0), (10_334, 6.0)]), &at(10_340), &mut out);
    for ms in [10_380, 10_430, 10_480] {
        b.add_rate(MonoNs(ms * MS), 6, &mut out);
    }
    b.finish(&mut out);
    assert_eq!(told(&out), [(10_000, 10_167, 40), (10_167, 10_334, 6)], "nothing is known of the time since");
    b.add_rate(MonoNs(10_520 * MS), 0, &mut out);
    b.finish(&mut out);
    assert_eq!(
        told(&out)[2..],
        [(10_334, 10_520, 0)],
        "the sample is late, and the rate is already that of its window"
    );
}
