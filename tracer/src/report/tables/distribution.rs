//! One distribution of times with a fixed relative error.

use crate::report::HistogramSummary;
use crate::units::Nanos;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Longer times count as this one: an hour.
const LONGEST: u64 = 3_600_000_000_000;
/// Quantiles are right to this many digits.
const DIGITS: u8 = 3;

/// A distribution.
#[derive(Debug)]
pub(super) struct Distribution {
    histogram: Option<Histogram<u64>>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Default for Distribution {
    fn default() -> Distribution {
        Distribution::new()
    }
}

impl Distribution {
    pub(super) fn new() -> Distribution {
        // The bounds are constants that the crate accepts; were it to refuse them, counts and means would still be right.
        Distribution { histogram: Histogram::new_with_bounds(1, LONGEST, DIGITS).ok(), count: 0, sum: 0, max: 0 }
    }

    pub(super) fn add(&mut self, value: Nanos) {
        let ns = value.0.min(LONGEST);
        self.count += 1;
        self.sum += u128::from(ns);
        self.max = self.max.max(ns);
        if let Some(h) = &mut self.histogram {
            h.saturating_record(ns);
        }
    }

    /// The row of the report; `None` without values.
    pub(super) fn summary(&self, name: &str, labels: &[(&str, &str)]) -> Option<HistogramSummary> {
        if self.count == 0 {
            return None;
        }
        // A quantile is the upper edge of its bucket, which can lie above the largest value.
        let quantile = |q| self.histogram.as_ref().map_or(self.max, |h| h.value_at_quantile(q)).min(self.max);
        Some(HistogramSummary {
            name: name.to_owned(),
            labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>(),
            unit: "ns".to_owned(),
            count: self.count,
            mean: (self.sum / u128::from(self.count)) as u64,
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            max: self.max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_three_digits() {
        let mut d = Distribution::new();
        for i in 1..=1_000u64 {
            d.add(Nanos(i * 1_000_000));
        }
        let s = d.summary("run_queue", &[("role", "worker")]).unwrap();
        assert_eq!((s.count, s.mean, s.max), (1_000, 500_500_000, 1_000_000_000));
        for (got, exact) in [(s.p50, 500e6), (s.p90, 900e6), (s.p99, 990e6)] {
            assert!((got as f64 / exact - 1.0).abs() < 1e-3, "{got} is not {exact}");
        }
    }

    #[test]
    fn zero_and_endless_times_stay_inside() {
        let mut d = Distribution::new();
        assert_eq!(d.summary("x", &[]), None);
        d.add(Nanos(0));
        d.add(Nanos(u64::MAX));
        let s = d.summary("x", &[]).unwrap();
        assert_eq!((s.count, s.p50, s.p99, s.max), (2, 0, LONGEST, LONGEST));
    }
}
