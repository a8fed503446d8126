//! The right verdict, from the truth alone: the kind of bottleneck that most idle time belongs to.

use super::score::{NO_REQUEST, Score};
use super::table::UNLOGGED;
use std::collections::BTreeMap;

/// Below this idle share the GPU is the limit, points of the active time.
const COMPUTE_BOUND: f64 = 10.0;
/// An idle share is known to be on one side of that when it is so far from it, points.
const EDGE: f64 = 1.0;
/// Kinds whose shares of the idle time are no further apart are equally right, points.
const EQUAL: f64 = 5.0;

/// Causes by kind; docs/causes.md has the same table for users.
const KINDS: &[(&str, &[&str])] = &[
    ("storage_io", &["disk", "network_storage", "memory"]),
    ("cpu_starvation", &["cpu_starved", "cpu_throttled"]),
    ("data_loading", &["preprocessing", "pin_memory", "ipc"]),
    ("host_code", &["host_code", "sleep", "gpu_driver"]),
    ("checkpoint", &["checkpoint"]),
    ("worker_startup", &["worker_startup"]),
    ("communication", &["network", "other_process"]),
    ("no_work", &[NO_REQUEST]),
];

/// The kinds that are right: one, unless two are equal or the idle share is at the edge.
pub fn right(score: &Score) -> Vec<&'static str> {
    let idle = 100.0 * score.idle_share();
    let mut right = Vec::new();
    if idle < COMPUTE_BOUND + EDGE {
        right.push("compute");
    }
    if idle >= COMPUTE_BOUND - EDGE {
        let mut shares: BTreeMap<&str, f64> = BTreeMap::new();
        for cause in score.causes.keys().filter(|cause| **cause != UNLOGGED) {
            if let Some((kind, _)) = KINDS.iter().find(|(_, causes)| causes.contains(cause)) {
                *shares.entry(kind).or_default() += 100.0 * score.share(cause);
            }
        }
        let most = shares.values().copied().fold(0.0, f64::max);
        right.extend(shares.into_iter().filter(|(_, share)| *share >= most - EQUAL).map(|(kind, _)| kind));
    }
    right
}

#[cfg(test)]
mod tests {
    use super::super::account::Span;
    use super::super::score::{Causes, Gap};
    use super::*;

    /// `busy` and the causes in ms.
    fn score(busy: f64, causes: &[(&'static str, f64)]) -> Score {
        let idle: f64 = causes.iter().map(|(_, ms)| ms).sum();
        let span = Span { start: 0, end: idle as u64 };
        let causes: Causes = causes.iter().copied().collect();
        Score { busy_ns: busy, gaps: vec![Gap { gpu: 0, span, causes: causes.clone() }], causes }
    }

    #[test]
    fn the_largest_kind_is_right_and_not_the_largest_cause() {
        let got = right(&score(100.0, &[("preprocessing", 40.0), ("cpu_starved", 30.0), ("cpu_throttled", 30.0)]));
        assert_eq!(got, ["cpu_starvation"]);
        assert_eq!(right(&score(100.0, &[("disk", 52.0), ("host_code", 48.0)])), ["host_code", "storage_io"]);
        assert_eq!(right(&score(100.0, &[("unlogged", 90.0), ("sleep", 10.0)])), ["host_code"]);
        assert_eq!(right(&score(100.0, &[(NO_REQUEST, 90.0), ("network", 10.0)])), ["no_work"]);
    }

    #[test]
    fn a_busy_gpu_is_the_limit_itself() {
        assert_eq!(right(&score(100.0, &[("disk", 5.0)])), ["compute"]);
        assert_eq!(right(&score(90.0, &[("disk", 10.0)])), ["compute", "storage_io"]);
        assert_eq!(right(&score(80.0, &[("disk", 20.0)])), ["storage_io"]);
    }
}
