//! How a driver samples: windows on a grid, a bounded buffer, nothing at all when idle.

use crate::busy::BusyFile;
use crate::config::{Clock, Config};

/// Sampling period: 1/6 s.
const PERIOD_NS: u64 = 166_666_667;

/// A sample can be read so long after its window's end: drivers lag, and a workload writes its change after making it, if it loses
/// its CPU or faults in between long after. A change that comes later is missed.
const LAG_NS: u64 = 120_000_000;

/// Samples that the buffer holds.
pub(crate) const CAPACITY: usize = 100;

/// A GPU idle for so long stops sampling and empties its buffer.
const SLEEPS_AFTER_NS: u64 = 1_000_000_000;

/// One moment on the clocks, ns.
#[derive(Clone, Copy)]
pub(crate) struct Now {
    pub mono: u64,
    /// The clock of the stamps.
    pub stamps: u64,
}

impl Now {
    pub(crate) fn read(clock: Clock) -> Now {
        let id = match clock {
            Clock::Epoch => libc::CLOCK_REALTIME,
            Clock::Boot => libc::CLOCK_BOOTTIME,
            Clock::Mono => libc::CLOCK_MONOTONIC,
        };
        Now { mono: read(libc::CLOCK_MONOTONIC), stamps: read(id) }
    }

    fn stamp_us(self, mono: u64) -> u64 {
        // `mono` is never after `self.mono`.
        self.stamps.saturating_sub(self.mono.saturating_sub(mono)) / 1_000
    }
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec that outlives the call.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// A sample as NVML returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub stamp_us: u64,
    pub percent: u32,
}

/// The library's state between `nvmlInit` and `nvmlShutdown`.
pub(crate) struct Library {
    pub config: Config,
    pub busy: BusyFile,
    /// Buffers as of the start, for `FROZEN`.
    frozen: Vec<Vec<Sample>>,
}

impl Library {
    pub(crate) fn new(config: Config) -> Library {
        let mut library = Library { busy: BusyFile::new(config.busy.clone()), config, frozen: Vec::new() };
        if library.config.frozen {
            library.busy.update();
            let now = Now::read(library.config.clock);
            library.frozen = (0..library.config.gpus).map(|gpu| library.buffer(gpu, now)).collect();
        }
        library
    }

    pub(crate) fn supports(&self, call: &str) -> bool {
        !self.config.unsupported.contains(call)
    }

    /// The sample buffer, oldest first; empty when the GPU sleeps.
    pub(crate) fn samples(&self, gpu: u32, now: Now) -> Vec<Sample> {
        let mut buffer = match self.frozen.get(gpu as usize) {
            Some(buffer) => buffer.clone(),
            None => self.buffer(gpu, now),
        };
        if self.config.absurd && !buffer.is_empty() {
            for s in buffer.iter_mut().filter(|s| (s.stamp_us / (PERIOD_NS / 1_000)).is_multiple_of(5)) {
                s.percent = 2_863_311_530;
            }
            buffer.insert(0, Sample { stamp_us: 0, percent: 57 });
        }
        buffer
    }

    fn buffer(&self, gpu: u32, now: Now) -> Vec<Sample> {
        if !self.awake(gpu, now.mono) {
            return Vec::new();
        }
        let mut newest_first = Vec::with_capacity(CAPACITY);
        let mut end = last_window_end(now.mono);
        // A buffer emptied in the past stays empty up to then.
        while newest_first.len() < CAPACITY && end >= PERIOD_NS && self.awake(gpu, end) {
            newest_first.push(Sample { stamp_us: now.stamp_us(end), percent: self.percent(gpu, end) });
            end -= PERIOD_NS;
        }
        newest_first.reverse();
        newest_first
    }

    fn awake(&self, gpu: u32, at: u64) -> bool {
        self.busy.busy(gpu, at.saturating_sub(SLEEPS_AFTER_NS), at) > 0
    }

    fn percent(&self, gpu: u32, window_end: u64) -> u32 {
        let window_end = window_end.saturating_sub(self.config.lag.as_nanos() as u64).max(PERIOD_NS);
        let busy = self.busy.busy(gpu, window_end - PERIOD_NS, window_end);
        u32::try_from((busy * 100 + PERIOD_NS / 2) / PERIOD_NS).unwrap_or(100)
    }

    /// Utilization over the last window, percent.
    pub(crate) fn rate(&self, gpu: u32, now: Now) -> u32 {
        let end = last_window_end(now.mono);
        if end < PERIOD_NS { 0 } else { self.percent(gpu, end) }
    }

    /// Whether it works right now, as clocks and power would show.
    pub(crate) fn loaded(&self, gpu: u32, now: Now) -> bool {
        self.busy.busy(gpu, now.mono.saturating_sub(PERIOD_NS), now.mono) > 0
    }
}

fn last_window_end(mono: u64) -> u64 {
    mono.saturating_sub(LAG_NS) / PERIOD_NS * PERIOD_NS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const S: u64 = 1_000_000_000;

    /// Busy for the first 70 ms of every 100 ms from 100 s to 103 s; again, all the time, from 110 s to 110.5 s.
    fn library() -> (Library, tempfile::NamedTempFile) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut line = |t: u64, busy: bool| writeln!(file, "{{\"t_ns\": {t}, \"gpu\": 0, \"busy\": {busy}}}").unwrap();
        for i in 0..30 {
            line(100 * S + i * S / 10, true);
            line(100 * S + i * S / 10 + 70_000_000, false);
        }
        line(110 * S, true);
        line(110 * S + S / 2, false);
        let mut config = Config::from_env();
        config.busy = Some(file.path().to_owned());
        let mut library = Library::new(config);
        library.busy.update();
        (library, file)
    }

    fn at(mono: u64) -> Now {
        Now { mono, stamps: mono + 1_750_000_000 * S }
    }

    #[test]
    fn samples_are_whole_percents_on_the_grid_and_sum_to_the_truth() {
        let (library, _file) = library();
        let samples = library.samples(0, at(103 * S + S / 2));
        assert!(samples.windows(2).all(|w| w[1].stamp_us.abs_diff(w[0].stamp_us + PERIOD_NS / 1_000) <= 1));
        let busy: u64 = samples.iter().map(|s| u64::from(s.percent) * PERIOD_NS / 100).sum();
        assert!(busy.abs_diff(21 * S / 10) < S / 20, "{busy}");
        let newest = samples.last().unwrap().stamp_us - 1_750_000_000_000_000;
        assert!((103_300_000..103_480_001).contains(&newest), "{newest}");
    }

    #[test]
    fn an_idle_gpu_empties_its_buffer_for_good() {
        let (library, _file) = library();
        assert!(library.samples(0, at(99 * S)).is_empty());
        assert!(!library.samples(0, at(103 * S + 900_000_000)).is_empty());
        assert!(library.samples(0, at(104 * S + 1)).is_empty());
        assert_eq!(library.rate(0, at(105 * S)), 0);
        let again = library.samples(0, at(110 * S + 600_000_000));
        assert!(again.len() < 5, "samples from before the sleep came back: {again:?}");
        assert!(library.samples(1, at(102 * S)).is_empty());
    }

    #[test]
    fn the_buffer_is_bounded() {
        let (mut library, mut file) = library();
        writeln!(file, "{{\"t_ns\": {}, \"gpu\": 0, \"busy\": true}}", 200 * S).unwrap();
        library.busy.update();
        let samples = library.samples(0, at(300 * S));
        assert_eq!(samples.len(), CAPACITY);
        assert!(samples.iter().all(|s| s.percent == 100));
    }

    #[test]
    fn absurd_values_and_a_frozen_buffer_on_demand() {
        let (mut library, _file) = library();
        library.config.absurd = true;
        let samples = library.samples(0, at(103 * S));
        assert_eq!(samples[0].stamp_us, 0);
        assert!(samples.iter().any(|s| s.percent > 100));
        library.frozen = vec![vec![Sample { stamp_us: 5, percent: 97 }]];
        assert_eq!(library.samples(0, at(103 * S)), library.samples(0, at(200 * S)));
    }
}
