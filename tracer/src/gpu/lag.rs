//! How far utilization windows lag behind what the host saw.
//!
//! A driver may stamp its samples late, by up to a period. Then idle time is looked for after the wait that caused it. What the
//! host knows exactly is when the feeder was in the driver (launching, or waiting for results) and when it was not; a window's
//! utilization follows the feeder's share of driver time in it, at the right lag more than at any other.

use crate::events::GpuWindow;
use crate::units::{MonoNs, Nanos};

/// Lags that are tried: up to one sampling period at its longest.
const LONGEST: Nanos = Nanos::from_millis(1_000);

/// Distance of two lags that are tried.
const STEP: Nanos = Nanos::from_millis(5);

/// Fewer windows than this say nothing.
const FEWEST_WINDOWS: usize = 24;

/// More than this (11 minutes and up) do not make it surer, only slower: the first ones are used.
const MOST_WINDOWS: usize = 4_096;

/// Utilization must follow the feeder at least so well (Pearson's correlation).
const AGREEMENT: f64 = 0.6;

/// By so many standard errors the best lag must do better than no lag and than any lag that is not beside it. With 200 lags tried,
/// chance alone reaches 3 in one of a hundred recordings.
const SIGMAS: f64 = 3.5;

/// Lags nearer than this to the best are beside it: windows of 1/6 s cannot tell them apart sharply.
const BESIDE: Nanos = Nanos::from_millis(100);

/// A lag that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lag {
    /// Windows tell of a time so much earlier than their stamps.
    pub lag: Nanos,
    /// It is known to so much on either side (one standard error).
    pub give_or_take: Nanos,
    /// Correlation of utilization and driver time at this lag, and without one.
    pub agreement: (f64, f64),
}

/// The lag of the windows of **one** GPU, if it is significant; `None` means that they stay where they are.
///
/// `windows` and `in_driver` (stretches in which the feeder was in the driver) are sorted and do not overlap. Windows that reach
/// out of `span`, the time in which the feeder is known, by any lag that is tried, are left out, so that all lags are judged by
/// the same windows.
pub fn estimate(windows: &[GpuWindow], in_driver: &[(MonoNs, MonoNs)], span: (MonoNs, MonoNs)) -> Option<Lag> {
    let inside = |w: &&GpuWindow| w.start.since(span.0) >= LONGEST && w.start >= span.0 && w.end <= span.1;
    let used: Vec<&GpuWindow> = windows.iter().filter(inside).take(MOST_WINDOWS).collect();
    if used.len() < FEWEST_WINDOWS {
        return None;
    }
    let driver = Cumulated::new(in_driver);
    let utilization: Vec<f64> = used.iter().map(|w| f64::from(w.utilization)).collect();
    let fit = |lag: Nanos| {
        let share = |w: &&GpuWindow| {
            let (from, to) = (w.start - lag, w.end - lag);
            (driver.until(to) - driver.until(from)) / (to.since(from).0 as f64).max(1.0)
        };
        correlation(&utilization, &used.iter().map(share).collect::<Vec<f64>>())
    };
    let lags: Vec<Nanos> = (0..=LONGEST.0 / STEP.0).map(|k| Nanos(k * STEP.0)).collect();
    let fits: Option<Vec<(Nanos, f64)>> = lags.into_iter().map(|lag| Some((lag, fit(lag)?))).collect();
    let fits = fits?;
    let none = fits.first()?.1;
    let &(lag, best) = fits.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    // Fisher's transform: its standard error depends on the number of windows alone.
    let error = 1.0 / (used.len() as f64 - 3.0).sqrt();
    let worse_by = |other: f64| (fisher(best) - fisher(other)) / error;
    let rival = fits.iter().filter(|(l, _)| l.0.abs_diff(lag.0) > BESIDE.0).map(|(_, r)| *r).fold(-1.0, f64::max);
    if lag == Nanos::ZERO || best < AGREEMENT || worse_by(none) < SIGMAS || worse_by(rival) < SIGMAS {
        return None;
    }
    let beside = || fits.iter().filter(|(_, r)| worse_by(*r) <= 1.0).map(|(l, _)| *l);
    let give_or_take = beside().map(|l| Nanos(l.0.abs_diff(lag.0))).max().unwrap_or_default().max(STEP);
    Some(Lag { lag, give_or_take, agreement: (best, none) })
}

/// Moves windows to where a lag says that they belong; what lay before the clock's zero is dropped.
pub fn shift(windows: &mut Vec<GpuWindow>, lag: Nanos) {
    windows.retain(|w| w.start.0 >= lag.0);
    for w in windows {
        w.start = w.start - lag;
        w.end = w.end - lag;
    }
}

/// Time in the driver up to a moment.
struct Cumulated<'a> {
    stretches: &'a [(MonoNs, MonoNs)],
    /// Nanoseconds before each stretch.
    before: Vec<u64>,
}

impl<'a> Cumulated<'a> {
    fn new(stretches: &'a [(MonoNs, MonoNs)]) -> Cumulated<'a> {
        let before = stretches
            .iter()
            .scan(0u64, |sum, (from, to)| {
                let here = *sum;
                *sum += to.since(*from).0;
                Some(here)
            })
            .collect();
        Cumulated { stretches, before }
    }

    fn until(&self, t: MonoNs) -> f64 {
        let Some(k) = self.stretches.partition_point(|(from, _)| *from < t).checked_sub(1) else { return 0.0 };
        let (Some((from, to)), Some(before)) = (self.stretches.get(k), self.before.get(k)) else { return 0.0 };
        (before + t.min(*to).since(*from).0) as f64
    }
}

/// Pearson's correlation; `None` where one of the two hardly varies.
fn correlation(a: &[f64], b: &[f64]) -> Option<f64> {
    let n = a.len() as f64;
    let (mean_a, mean_b) = (a.iter().sum::<f64>() / n, b.iter().sum::<f64>() / n);
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        let (x, y) = (x - mean_a, y - mean_b);
        ab += x * y;
        aa += x * x;
        bb += y * y;
    }
    // Utilization is rounded to whole percents: a spread below that is noise.
    (aa / n > 1.0 && bb / n > 1e-4).then(|| ab / (aa * bb).sqrt())
}

fn fisher(r: f64) -> f64 {
    r.clamp(-0.999_999, 0.999_999).atanh()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::GpuIndex;

    const MS: u64 = 1_000_000;
    const SPAN: (MonoNs, MonoNs) = (MonoNs(100_000 * MS), MonoNs(140_000 * MS));

    /// A job of irregular steps: the feeder is elsewhere (waits for data), then in the driver. (from, to) in ms.
    fn job(seed: u64, wait: (u64, u64), compute: (u64, u64)) -> Vec<(MonoNs, MonoNs)> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (mut t, mut list) = (SPAN.0.0 / MS, Vec::new());
        while t < SPAN.1.0 / MS {
            let from = t + rng.u64(wait.0..=wait.1);
            t = from + rng.u64(compute.0..=compute.1);
            list.push((MonoNs(from * MS), MonoNs(t * MS)));
        }
        list
    }

    /// Windows of `period` ms that tell of the job `lag` ms too late, in whole percents, with so much noise.
    fn windows(job: &[(MonoNs, MonoNs)], period: u64, lag: u64, noise: f64) -> Vec<GpuWindow> {
        let mut rng = fastrand::Rng::with_seed(7);
        let busy = Cumulated::new(job);
        let (first, last) = (SPAN.0.0 / MS, SPAN.1.0 / MS);
        (first..last - period)
            .step_by(period as usize)
            .map(|t| {
                let at = |ms: u64| busy.until(MonoNs((ms - lag) * MS));
                let share = (at(t + period) - at(t)) / (period * MS) as f64;
                let told = (100.0 * share + noise * (rng.f64() - 0.5)).round().clamp(0.0, 100.0);
                GpuWindow {
                    gpu: GpuIndex(0),
                    start: MonoNs(t * MS),
                    end: MonoNs((t + period) * MS),
                    utilization: told as f32,
                }
            })
            .collect()
    }

    #[test]
    fn a_shift_is_found_at_any_period() {
        for seed in 0..3 {
            let job = job(seed, (20, 400), (50, 600));
            for period in [100, 167, 250] {
                for lag in [60, 90, 167, 300, 500] {
                    let found = estimate(&windows(&job, period, lag, 0.0), &job, SPAN);
                    let found = found.unwrap_or_else(|| panic!("seed {seed}, period {period}, lag {lag}: none"));
                    assert!(
                        found.lag.0.abs_diff(lag * MS) <= 15 * MS,
                        "seed {seed}, period {period}: {lag} as {found:?}"
                    );
                    assert!(found.give_or_take.0 <= 60 * MS && found.agreement.0 > 0.95, "{found:?}");
                }
            }
        }
    }

    #[test]
    fn noise_widens_the_answer_and_does_not_move_it() {
        for seed in 0..10 {
            let job = job(seed, (20, 400), (50, 600));
            let noisy = estimate(&windows(&job, 167, 167, 60.0), &job, SPAN).unwrap();
            assert!(noisy.lag.0.abs_diff(167 * MS) <= 2 * noisy.give_or_take.0.max(20 * MS), "{noisy:?}");
            let clean = estimate(&windows(&job, 167, 167, 0.0), &job, SPAN).unwrap();
            assert!(noisy.agreement.0 < clean.agreement.0 && noisy.give_or_take >= clean.give_or_take, "{noisy:?}");
        }
    }

    #[test]
    fn windows_that_are_in_time_stay() {
        for seed in 0..20 {
            let job = job(seed, (20, 400), (50, 600));
            for noise in [0.0, 30.0, 60.0] {
                assert_eq!(estimate(&windows(&job, 167, 0, noise), &job, SPAN), None, "seed {seed}, noise {noise}");
            }
        }
    }

    #[test]
    fn utilization_that_has_nothing_to_do_with_the_feeder_gives_no_lag() {
        for seed in 0..60 {
            let others = windows(&job(1_000 + seed, (20, 400), (50, 600)), 167, 0, 0.0);
            let found = estimate(&others, &job(seed, (20, 400), (50, 600)), SPAN);
            assert_eq!(found, None, "seed {seed}");
        }
    }

    #[test]
    fn constant_utilization_gives_no_lag() {
        let job = job(1, (20, 400), (50, 600));
        for percent in [0.0, 50.0, 100.0] {
            let flat: Vec<GpuWindow> =
                windows(&job, 167, 100, 0.0).into_iter().map(|w| GpuWindow { utilization: percent, ..w }).collect();
            assert_eq!(estimate(&flat, &job, SPAN), None);
        }
        assert_eq!(estimate(&windows(&job, 167, 100, 0.0), &[], SPAN), None);
        assert_eq!(estimate(&windows(&job, 167, 100, 0.0), &[SPAN], SPAN), None);
    }

    #[test]
    fn a_regular_job_whose_lag_cannot_be_told_from_another_step_gives_none() {
        // Steps of exactly 400 ms: a lag of 100 ms looks like one of 500 ms.
        let job = job(1, (200, 200), (200, 200));
        assert_eq!(estimate(&windows(&job, 167, 100, 10.0), &job, SPAN), None);
    }

    #[test]
    fn few_windows_give_no_lag() {
        let job = job(1, (20, 400), (50, 600));
        let some: Vec<GpuWindow> = windows(&job, 167, 167, 0.0).into_iter().take(29).collect();
        assert_eq!(estimate(&some, &job, SPAN), None, "24 of 29 begin within a second of the start or there are fewer");
        assert_eq!(estimate(&[], &job, SPAN), None);
        assert_eq!(estimate(&some, &job, (MonoNs(0), MonoNs(0))), None);
    }

    #[test]
    fn shifting_keeps_lengths() {
        let mut list = windows(&job(1, (20, 400), (50, 600)), 167, 0, 0.0);
        let before = list.clone();
        shift(&mut list, Nanos::from_millis(100));
        assert_eq!(list.len(), before.len());
        assert!(
            list.iter().zip(&before).all(|(a, b)| a.end.0 + 100 * MS == b.end.0 && a.start.0 + 100 * MS == b.start.0)
        );
        shift(&mut list, Nanos(u64::MAX));
        assert!(list.is_empty());
    }
}
