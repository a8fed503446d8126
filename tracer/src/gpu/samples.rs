//! From what a driver returns (stamped samples, or only a current rate) to windows of utilization on CLOCK_MONOTONIC.
//!
//! Nothing here touches a driver, so that every quirk has a test.

use super::clock::StampClock;
use crate::events::GpuWindow;
use crate::recording::ClockReading;
use crate::units::{GpuIndex, MonoNs, Nanos};
use std::collections::VecDeque;

/// Shortest sampling period that NVML documents: 1/6 s.
pub const SHORTEST_PERIOD: Nanos = Nanos(166_667_000);

/// Longest sampling period that NVML documents: 1 s.
pub const LONGEST_PERIOD: Nanos = Nanos(1_000_000_000);

/// Two stamps further apart than the longest period and a tenth have a hole between them.
const HOLE: Nanos = Nanos(1_100_000_000);

/// Neighbouring samples are joined up to this length: some boards sample every 20 ms, which no reader needs.
const JOIN_BELOW: Nanos = Nanos(100_000_000);

/// Without a sample for this long, the buffer counts as empty and current rates are used. Longer than the longest period,
/// since a call that finds nothing *new* answers the same as one that finds nothing at all.
const NO_SAMPLES_AFTER: Nanos = Nanos(1_500_000_000);

/// Current rates are held back this long, so that samples that come in after all take their place.
const RATE_LAG: Nanos = Nanos(500_000_000);

/// A wall clock that moved by more than this against the monotonic one was set (or the machine slept).
const STEP: u64 = 100_000_000;

/// A sample as the driver gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RawSample {
    /// Stamp in µs on a clock that the driver does not name; 0 in entries never filled.
    pub stamp_us: u64,
    /// Percent; drivers also return nonsense above 100.
    pub percent: f64,
}

impl RawSample {
    fn valid_percent(self) -> Option<f32> {
        (0.0..=100.0).contains(&self.percent).then_some(self.percent as f32)
    }
}

/// Builds the windows of one GPU: in order of time, never overlapping, none before the start.
#[derive(Debug)]
pub struct WindowBuilder {
    gpu: GpuIndex,
    clock: Option<StampClock>,
    /// Newest raw stamp used, handed back to the driver so that it returns newer ones only.
    last_stamp: u64,
    /// Time of that stamp.
    last_sample: Option<MonoNs>,
    /// Wall minus monotonic clock at the last call.
    wall_offset: Option<i128>,
    /// Distance of the last two samples: length of a window whose start is not known.
    period: Nanos,
    /// Everything before it has been told, or is lost.
    covered: MonoNs,
    /// Current rates read after `covered`.
    rates: VecDeque<(MonoNs, f32)>,
    /// No samples come: rates are used.
    on_rates: bool,
}

impl WindowBuilder {
    /// For a recording that starts at `start`.
    pub fn new(gpu: GpuIndex, start: MonoNs) -> WindowBuilder {
        WindowBuilder {
            gpu,
            clock: None,
            last_stamp: 0,
            last_sample: None,
            wall_offset: None,
            period: SHORTEST_PERIOD,
            covered: start,
            rates: VecDeque::new(),
            on_rates: false,
        }
    }

    /// The raw stamp to pass to the next call for samples, on the clocks as of `now`: 0 (all samples) after the wall clock
    /// was set, since a stamp from before may lie hours ahead of every sample to come.
    pub fn last_stamp(&mut self, now: &ClockReading) -> u64 {
        let offset = i128::from(now.wall.0) - i128::from(now.mono.0);
        let stepped = self.wall_offset.is_some_and(|o| o.abs_diff(offset) > u128::from(STEP));
        self.wall_offset = Some(offset);
        if stepped && self.clock == Some(StampClock::Epoch) {
            self.last_stamp = 0;
        }
        self.last_stamp
    }

    /// The clock of this driver's stamps, once known.
    pub fn clock(&self) -> Option<StampClock> {
        self.clock
    }

    /// Takes what a call for samples returned, in any order and with any nonsense, `now` being read right after the call.
    pub fn add_samples(&mut self, raw: &[RawSample], now: &ClockReading, out: &mut Vec<GpuWindow>) {
        // Some drivers return the whole buffer whatever stamp they are given.
        let mut fresh: Vec<RawSample> =
            raw.iter().copied().filter(|s| s.stamp_us != 0 && s.stamp_us > self.last_stamp).collect();
        fresh.sort_by_key(|s| s.stamp_us);
        fresh.dedup_by_key(|s| s.stamp_us);

        // After a step of the wall clock the newest stamps may be left-overs from before it; the newest that makes sense counts.
        let found =
            fresh.iter().rev().find_map(|s| Some((s.stamp_us, StampClock::detect(s.stamp_us, now, self.clock)?)));
        let Some((newest, clock)) = found else { return };
        self.clock = Some(clock);
        self.last_stamp = newest;

        // Windows before this index are told or come from rates, and stay as they are.
        let mut joinable = out.len();
        for s in fresh.into_iter().filter(|s| s.stamp_us <= newest) {
            if let Some(end) = clock.to_mono(s.stamp_us, now) {
                self.add_sample(end, s.valid_percent(), &mut joinable, out);
            }
        }
    }

    fn add_sample(&mut self, end: MonoNs, percent: Option<f32>, joinable: &mut usize, out: &mut Vec<GpuWindow>) {
        let start = match self.last_sample {
            Some(last) if last < end && end.since(last) <= HOLE => {
                self.period = end.since(last).clamp(SHORTEST_PERIOD, LONGEST_PERIOD);
                last
            }
            _ => end - self.period,
        };
        self.last_sample = self.last_sample.max(Some(end));
        if end <= self.covered {
            return;
        }
        self.on_rates = false;
        let Some(utilization) = percent else {
            // The window is known, its value is not: the rates read meanwhile are the next best.
            self.spend_rates(end, true, out);
            self.covered = end;
            *joinable = out.len();
            return;
        };
        let before = out.len();
        self.spend_rates(start, true, out);
        if out.len() > before {
            *joinable = out.len();
        }
        let window = GpuWindow { gpu: self.gpu, start: start.max(self.covered), end, utilization };
        match out.get_mut(*joinable..).and_then(<[_]>::last_mut) {
            Some(last) if last.end == window.start && last.end.since(last.start) < JOIN_BELOW => {
                *last = join(*last, window)
            }
            _ => out.push(window),
        }
        self.covered = end;
        while self.rates.front().is_some_and(|(t, _)| *t <= end) {
            self.rates.pop_front();
        }
    }

    /// Takes a current rate in percent, read at `now`. It becomes a window only if no sample covers that time.
    pub fn add_rate(&mut self, now: MonoNs, percent: u32, out: &mut Vec<GpuWindow>) {
        if percent > 100 || now <= self.covered || self.rates.back().is_some_and(|(t, _)| *t >= now) {
            return;
        }
        self.rates.push_back((now, percent as f32));
        if now.since(self.covered) > NO_SAMPLES_AFTER {
            self.on_rates = true;
        }
        if self.on_rates {
            self.spend_rates(now - RATE_LAG, false, out);
        }
    }

    /// The recording ends: tells what was held back.
    ///
    /// A current rate is the driver's last finished window, not the time up to its reading. So where samples come, rates read
    /// within a period of the last of them only say that sample's value again, and of the time since nothing is known.
    pub fn finish(&mut self, out: &mut Vec<GpuWindow>) {
        if !self.on_rates && self.last_sample == Some(self.covered) {
            let told = MonoNs(self.covered.0 + self.period.0);
            self.rates.retain(|(t, _)| *t > told);
        }
        self.spend_rates(MonoNs(u64::MAX), true, out);
    }

    /// Makes windows of the rates read up to `until`. A rate stands for the time since the one before it; neighbours are
    /// joined to windows of a sampling period at least, the last of which stays behind unless `all` are wanted.
    fn spend_rates(&mut self, until: MonoNs, all: bool, out: &mut Vec<GpuWindow>) {
        let mut window: Option<GpuWindow> = None;
        let mut taken = 0;
        let mut spent = 0;
        let mut from = self.covered;
        for &(t, rate) in &self.rates {
            // A rate read shortly after `until` speaks of the time before it, too; it is cut there.
            let end = t.min(until);
            if end <= from || (t > until && !all) {
                break;
            }
            // A long silence of the reader itself is no evidence.
            let start = if end.since(from) > HOLE { end - self.period } else { from };
            let joined = match window.take() {
                Some(w) if w.end == start => join(w, GpuWindow { start, end, utilization: rate, ..w }),
                other => {
                    out.extend(other);
                    GpuWindow { gpu: self.gpu, start, end, utilization: rate }
                }
            };
            from = end;
            taken += usize::from(t <= until);
            if joined.end.since(joined.start) >= SHORTEST_PERIOD {
                self.covered = joined.end;
                spent = taken;
                out.push(joined);
            } else {
                window = Some(joined);
            }
            if t > until {
                break;
            }
        }
        if all && let Some(w) = window {
            self.covered = w.end;
            spent = taken;
            out.push(w);
        }
        self.rates.drain(..spent);
    }
}

/// Two neighbouring windows as one, utilization weighted by length.
fn join(a: GpuWindow, b: GpuWindow) -> GpuWindow {
    let (la, lb) = (a.end.since(a.start).0 as f64, b.end.since(b.start).0 as f64);
    let mean = (f64::from(a.utilization) * la + f64::from(b.utilization) * lb) / (la + lb).max(1.0);
    GpuWindow { end: b.end, utilization: mean as f32, ..a }
}

#[cfg(test)]
#[path = "samples_tests.rs"]
mod tests;
