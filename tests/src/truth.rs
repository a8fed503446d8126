//! The scorer: what a workload itself knows about why its GPU was idle. It shares no code with the tracer.
//!
//! Input are the workload's busy file (when its GPU was busy) and its truth log (what main and the workers did and for
//! how long), both in JSON lines with times in nanoseconds of `CLOCK_MONOTONIC`. For every idle gap the batch that was
//! owed is the one whose computing ends the gap; the gap is intersected with what that batch's worker logged for it.

use anyhow::{Context, bail};
use serde::Deserialize;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Where the idle time of the GPU went, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Idle {
    /// All of it, from the first to the last busy moment.
    pub total: f64,
    /// The owed batch's worker was reading, and neither ran nor waited for a CPU.
    pub disk: f64,
    /// It ran, in its transform or in the system calls of a read.
    pub preprocessing: f64,
    /// It was ready to run, but had no CPU.
    pub cpu_starved: f64,
    /// Anything else: main's own work, queues, a worker that had not begun.
    pub other: f64,
}

impl Idle {
    /// `part` of all idle time; 0 if the GPU was never idle.
    pub fn share(&self, part: f64) -> f64 {
        if self.total > 0.0 { part / self.total } else { 0.0 }
    }

    /// Shares for people.
    pub fn summary(&self) -> String {
        let percent = |part| 100.0 * self.share(part);
        format!(
            "idle {:.2} s: disk {:.1} %, preprocessing {:.1} %, cpu_starved {:.1} %, other {:.1} %",
            self.total,
            percent(self.disk),
            percent(self.preprocessing),
            percent(self.cpu_starved),
            percent(self.other)
        )
    }
}

/// A workload's account of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Seconds for which the GPU was busy.
    pub busy: f64,
    /// Seconds for which it was not, by cause.
    pub idle: Idle,
    /// Gaps counted.
    pub gaps: usize,
    /// Gaps for which no batch was found; their time is in `other`.
    pub unmatched: usize,
}

impl Score {
    /// Busy time over all time.
    pub fn busy_share(&self) -> f64 {
        self.busy / (self.busy + self.idle.total)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Interval {
    start: u64,
    end: u64,
}

impl Interval {
    fn overlap(self, other: Interval) -> u64 {
        self.end.min(other.end).saturating_sub(self.start.max(other.start))
    }

    fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

#[derive(Deserialize)]
struct Change {
    t_ns: u64,
    #[serde(default)]
    gpu: u32,
    busy: bool,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Entry {
    Step {
        batch: u64,
        compute_start_ns: u64,
    },
    Sample(Sample),
    Put(Put),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Sample {
    batch: u64,
    read_start_ns: u64,
    read_end_ns: u64,
    read_cpu_ns: u64,
    /// Run-queue time; a workload that cannot tell leaves it out.
    #[serde(default)]
    read_delay_ns: u64,
    transform_start_ns: u64,
    transform_end_ns: u64,
    transform_cpu_ns: u64,
}

#[derive(Deserialize)]
struct Put {
    batch: u64,
    start_ns: u64,
    end_ns: u64,
    #[serde(default)]
    delay_ns: u64,
}

/// What a worker logged for one batch.
#[derive(Default)]
struct Batch {
    samples: Vec<Sample>,
    puts: Vec<Put>,
}

/// Scores a run by its two files.
pub fn score_files(busy_file: &Path, truth_file: &Path) -> anyhow::Result<Score> {
    let read = |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
    score(&read(busy_file)?, &read(truth_file)?)
}

/// Scores a run by the texts of its busy file and its truth log. Only GPU 0 counts.
pub fn score(busy_text: &str, truth_text: &str) -> anyhow::Result<Score> {
    let busy = busy_intervals(busy_text)?;
    let (mut steps, mut batches) = (Vec::new(), HashMap::<u64, Batch>::new());
    for line in truth_text.lines() {
        match serde_json::from_str(line).with_context(|| format!("bad line in the truth log: {line}"))? {
            Entry::Step { batch, compute_start_ns } => steps.push((compute_start_ns, batch)),
            Entry::Sample(sample) => batches.entry(sample.batch).or_default().samples.push(sample),
            Entry::Put(put) => batches.entry(put.batch).or_default().puts.push(put),
            Entry::Other => {}
        }
    }
    steps.sort_unstable();
    let mut score = Score {
        busy: seconds(busy.iter().map(|interval| interval.len()).sum()),
        idle: Idle::default(),
        gaps: 0,
        unmatched: 0,
    };
    for pair in busy.windows(2) {
        let gap = Interval { start: pair[0].end, end: pair[1].start };
        score.gaps += 1;
        let owed = owed_batch(&steps, pair[1]).and_then(|batch| batches.get(&batch));
        score.unmatched += usize::from(owed.is_none());
        let idle = owed.map_or_else(|| explain(gap, &Batch::default()), |batch| explain(gap, batch));
        for (sum, part) in [
            (&mut score.idle.total, idle.total),
            (&mut score.idle.disk, idle.disk),
            (&mut score.idle.preprocessing, idle.preprocessing),
            (&mut score.idle.cpu_starved, idle.cpu_starved),
            (&mut score.idle.other, idle.other),
        ] {
            *sum += part;
        }
    }
    Ok(score)
}

/// The batch whose computing begins with this busy interval: the log's own time stamp may lie a little to either side
/// of the busy file's.
fn owed_batch(steps: &[(u64, u64)], busy: Interval) -> Option<u64> {
    const SLACK: u64 = 2_000_000;
    let first = steps.partition_point(|(start, _)| start + SLACK < busy.start);
    let (start, batch) = steps.get(first)?;
    (*start < busy.end.max(busy.start + SLACK)).then_some(*batch)
}

/// Splits a gap by what the worker logged for the owed batch. Within one read or transform, CPU and run-queue time are
/// spread evenly, since only their sums are known.
fn explain(gap: Interval, batch: &Batch) -> Idle {
    let mut idle = Idle { total: seconds(gap.len()), ..Idle::default() };
    for s in &batch.samples {
        let read = Interval { start: s.read_start_ns, end: s.read_end_ns };
        let (inside, wall) = (seconds(gap.overlap(read)), read.len() as f64);
        if wall > 0.0 {
            let cpu = (s.read_cpu_ns as f64 / wall).min(1.0);
            let delay = (s.read_delay_ns as f64 / wall).min(1.0 - cpu);
            idle.preprocessing += inside * cpu;
            idle.cpu_starved += inside * delay;
            idle.disk += inside * (1.0 - cpu - delay);
        }
        let transform = Interval { start: s.transform_start_ns, end: s.transform_end_ns };
        let (inside, wall) = (seconds(gap.overlap(transform)), transform.len() as f64);
        if wall > 0.0 {
            // A transform waits for nothing but a CPU.
            let cpu = (s.transform_cpu_ns as f64 / wall).min(1.0);
            idle.preprocessing += inside * cpu;
            idle.cpu_starved += inside * (1.0 - cpu);
        }
    }
    for put in &batch.puts {
        let put_time = Interval { start: put.start_ns, end: put.end_ns };
        if put_time.len() > 0 {
            let delay = (put.delay_ns as f64 / put_time.len() as f64).min(1.0);
            idle.cpu_starved += seconds(gap.overlap(put_time)) * delay;
        }
    }
    idle.other = (idle.total - idle.disk - idle.preprocessing - idle.cpu_starved).max(0.0);
    idle
}

fn busy_intervals(text: &str) -> anyhow::Result<Vec<Interval>> {
    let mut intervals: Vec<Interval> = Vec::new();
    let mut since = None;
    let mut last = 0;
    for line in text.lines() {
        let change: Change =
            serde_json::from_str(line).with_context(|| format!("bad line in the busy file: {line}"))?;
        if change.gpu != 0 {
            continue;
        }
        if change.t_ns < last {
            bail!("the busy file goes back in time at {line}");
        }
        last = change.t_ns;
        match (since, change.busy) {
            (None, true) => since = Some(change.t_ns),
            (Some(start), false) => {
                intervals.push(Interval { start, end: change.t_ns });
                since = None;
            }
            _ => bail!("the busy file repeats a state at {line}"),
        }
    }
    Ok(intervals)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn busy(changes: &[(u64, bool)]) -> String {
        changes.iter().map(|(ms, busy)| format!("{{\"t_ns\":{},\"gpu\":0,\"busy\":{busy}}}\n", ms * MS)).collect()
    }

    fn step(batch: u64, compute_ms: u64) -> String {
        format!(
            "{{\"kind\":\"step\",\"batch\":{batch},\"worker\":0,\"wait_start_ns\":0,\"wait_end_ns\":0,\
             \"compute_start_ns\":{},\"compute_end_ns\":0}}\n",
            compute_ms * MS
        )
    }

    /// Times in ms: read from, to, its CPU and run-queue time; transform to, its CPU time.
    fn sample(batch: u64, read: (u64, u64), cpu: u64, delay: u64, until: u64, transform_cpu: u64) -> String {
        format!(
            "{{\"kind\":\"sample\",\"batch\":{batch},\"worker\":0,\"pid\":1,\"read_start_ns\":{},\"read_end_ns\":{},\
             \"read_cpu_ns\":{},\"read_delay_ns\":{},\"transform_start_ns\":{},\"transform_end_ns\":{},\
             \"transform_cpu_ns\":{}}}\n",
            read.0 * MS,
            read.1 * MS,
            cpu * MS,
            delay * MS,
            read.1 * MS,
            until * MS,
            transform_cpu * MS
        )
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn a_gap_is_split_by_what_the_owed_worker_did() {
        // Busy 0..10 and 110..120; batch 1, owed in the gap, was read in 20..100 (8 ms CPU, 16 ms run queue) and
        // transformed in 100..110 (5 ms CPU).
        let busy = busy(&[(0, true), (10, false), (110, true), (120, false)]);
        let log = step(0, 0) + &step(1, 110) + &sample(1, (20, 100), 8, 16, 110, 5);
        let score = score(&busy, &log).unwrap();
        assert_eq!((score.gaps, score.unmatched), (1, 0));
        assert!(close(score.busy, 0.020));
        assert!(close(score.idle.total, 0.100));
        assert!(close(score.idle.disk, 0.056), "{score:?}");
        assert!(close(score.idle.preprocessing, 0.013), "{score:?}");
        assert!(close(score.idle.cpu_starved, 0.021), "{score:?}");
        assert!(close(score.idle.other, 0.010), "{score:?}");
    }

    #[test]
    fn a_worker_that_loses_its_cpu_while_it_hands_over_is_starved() {
        let busy = busy(&[(0, true), (10, false), (110, true), (120, false)]);
        let put = format!(
            "{{\"kind\":\"put\",\"batch\":1,\"worker\":0,\"pid\":1,\"start_ns\":{},\"end_ns\":{},\"delay_ns\":{}}}\n",
            50 * MS,
            110 * MS,
            45 * MS
        );
        let score = score(&busy, &(step(1, 110) + &put)).unwrap();
        assert!(close(score.idle.cpu_starved, 0.045), "{score:?}");
        assert!(close(score.idle.other, 0.055), "{score:?}");
    }

    #[test]
    fn other_workers_and_later_batches_are_no_cause() {
        // While batch 1 was owed, batch 2 was read all the time: coincidence.
        let busy = busy(&[(0, true), (10, false), (50, true), (60, false)]);
        let log = step(0, 0)
            + &step(1, 50)
            + &step(2, 70)
            + &sample(1, (0, 5), 0, 0, 45, 40)
            + &sample(2, (5, 70), 0, 0, 70, 0);
        let score = score(&busy, &log).unwrap();
        assert!(close(score.idle.disk, 0.0), "{score:?}");
        assert!(close(score.idle.preprocessing, 0.035), "{score:?}");
        assert!(close(score.idle.other, 0.005), "{score:?}");
    }

    #[test]
    fn a_read_that_began_during_computing_counts_only_inside_the_gap() {
        let busy = busy(&[(0, true), (10, false), (30, true), (40, false)]);
        let log = step(1, 30) + &sample(1, (0, 30), 0, 0, 30, 0);
        let score = score(&busy, &log).unwrap();
        assert!(close(score.idle.disk, 0.020), "{score:?}");
        assert!(close(score.idle.share(score.idle.disk), 1.0));
        assert!(close(score.busy_share(), 0.5));
    }

    #[test]
    fn a_gap_without_a_batch_is_told() {
        let busy = busy(&[(0, true), (10, false), (30, true), (40, false)]);
        let score = score(&busy, &step(0, 0)).unwrap();
        assert_eq!(score.unmatched, 1);
        assert!(close(score.idle.other, 0.020));
    }

    #[test]
    fn time_before_the_first_and_after_the_last_busy_moment_does_not_count() {
        let score = score(&busy(&[(500, true), (510, false), (600, true)]), "").unwrap();
        assert_eq!(score.gaps, 0, "the last interval has no end");
        assert!(close(score.busy, 0.010));
    }

    #[test]
    fn damaged_files_are_refused() {
        assert!(score("{\"t_ns\":1", "").is_err());
        assert!(score(&busy(&[(2, true), (1, false)]), "").unwrap_err().to_string().contains("back in time"));
        assert!(score(&busy(&[(1, true), (2, true)]), "").unwrap_err().to_string().contains("repeats"));
        assert!(score("", "{\"kind\":\"sample\"}").is_err());
        assert!(score("", "{\"kind\":\"start\",\"pid\":1}\n").is_ok(), "unknown kinds are for other readers");
    }
}
