//! Holds a report against the truth: largest error of a cause's share, gap boundaries, unknown, verdict.

use super::run::Outcome;
use super::scenario::Scenario;
use super::score::Score;
use super::table::UNLOGGED;
use crate::lost::dropped;
use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Largest share of the idle time, in points, by which a cause may be wrong with exact evidence.
pub const EXACT_POINTS: f64 = 5.0;
/// The same with NVML windows, and between the two kinds.
pub const NVML_POINTS: f64 = 10.0;
/// Largest error of a gap's start or end, ms.
pub const BOUNDARY_MS: f64 = 2.0;
/// Share of idle time, in points, below which `unknown` must be.
pub const UNKNOWN_POINTS: f64 = 3.0;
/// Share of idle time, in points, that the job itself may not know.
pub const UNLOGGED_POINTS: f64 = 2.0;
/// Below this idle share the answer is that the GPU is the limit; the causes of the little that is left are not judged.
const LITTLE_IDLE: f64 = 0.10;
/// Largest difference between the true and the reported idle share with exact evidence, points.
pub const EXACT_IDLE_POINTS: f64 = 1.0;
/// The same with NVML windows: they are rounded down to whole percents, and those at the edges of a run of a few seconds count
/// in part.
pub const NVML_IDLE_POINTS: f64 = 5.0;

/// Points by cause.
pub type Points = BTreeMap<String, f64>;

/// What a report says, held against the truth.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    /// `exact` or `nvml`.
    pub evidence: &'static str,
    /// Share of each cause in the idle time, points.
    pub reported: Points,
    /// Idle share of the active time, points.
    pub idle: f64,
    /// Largest error of a cause's share, points.
    pub largest_error: f64,
    /// That cause.
    pub largest_cause: String,
    /// Largest error of a gap's start or end, ms; exact evidence only.
    pub boundary_ms: Option<f64>,
    /// Share of `unknown`, points.
    pub unknown: f64,
    /// The bottleneck of the verdict.
    pub verdict: String,
    /// Whether it is one of the scenario's right ones.
    pub verdict_right: bool,
}

/// A run, held against the truth.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the scenario.
    pub scenario: String,
    /// True share of each cause in the idle time, points.
    pub truth: Points,
    /// True idle share of the active time, points.
    pub idle: f64,
    /// Number of gaps.
    pub gaps: usize,
    /// By exact intervals, then by NVML windows.
    pub judgements: Vec<Judgement>,
    /// Largest difference between the two kinds of evidence, points.
    pub disagreement: f64,
    /// Events that the tracer dropped.
    pub dropped: u64,
    /// What is below the mark, one sentence each.
    pub failures: Vec<String>,
}

/// Judges a run.
///
/// # Errors
/// If a report lacks what the report's schema promises.
pub fn judge(scenario: &Scenario, outcome: &Outcome) -> Result<Row> {
    let score = &outcome.score;
    let truth: Points = score.causes.keys().map(|c| ((*c).to_owned(), 100.0 * score.share(c))).collect();
    let weight = if score.idle_share() < LITTLE_IDLE { 0.0 } else { 1.0 };
    let exact = judgement("exact", scenario, &outcome.exact, &truth, weight, Some(score))?;
    let nvml = judgement("nvml", scenario, &outcome.nvml, &truth, weight, None)?;
    let disagreement = weight * largest(&exact.reported, &nvml.reported).0;
    let mut row = Row {
        scenario: scenario.name.to_owned(),
        idle: 100.0 * score.idle_share(),
        gaps: score.gaps.len(),
        truth,
        judgements: vec![exact, nvml],
        disagreement,
        dropped: dropped(&outcome.exact),
        failures: Vec::new(),
    };
    row.failures = failures(scenario, &row, weight);
    Ok(row)
}

fn judgement(
    evidence: &'static str,
    scenario: &Scenario,
    report: &Value,
    truth: &Points,
    weight: f64,
    exact: Option<&Score>,
) -> Result<Judgement> {
    let causes = report["causes"].as_array().context("the report has no causes")?;
    let reported = causes
        .iter()
        .map(|c| Some((c["cause"].as_str()?.to_owned(), 100.0 * c["share"].as_f64()?)))
        .collect::<Option<Points>>()
        .context("the report's causes are not as documented")?;
    let gpus = report["gpus"].as_array().context("the report has no GPUs")?;
    let sum = |key: &str| gpus.iter().filter_map(|g| g[key].as_f64()).sum::<f64>();
    let (busy, idle) = (sum("busy_s"), sum("idle_s"));
    let verdict = report["verdict"]["bottleneck"].as_str().context("the report has no verdict")?.to_owned();
    let (largest_error, largest_cause) = largest(truth, &reported);
    Ok(Judgement {
        evidence,
        idle: if busy + idle > 0.0 { 100.0 * idle / (busy + idle) } else { 0.0 },
        largest_error: weight * largest_error,
        largest_cause,
        boundary_ms: exact.map(|score| boundaries(score, report)).transpose()?,
        unknown: weight * reported.get("unknown").copied().unwrap_or(0.0),
        verdict_right: scenario.verdict.contains(&verdict.as_str()),
        verdict,
        reported,
    })
}

/// The cause whose share differs most. What the job or the tracer does not know is no cause.
fn largest(a: &Points, b: &Points) -> (f64, String) {
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).filter(|n| *n != UNLOGGED && *n != "unknown").collect();
    let share = |points: &Points, name: &String| points.get(name).copied().unwrap_or(0.0);
    let errors = names.into_iter().map(|n| ((share(a, n) - share(b, n)).abs(), n.clone()));
    errors.max_by(|x, y| x.0.total_cmp(&y.0)).unwrap_or_default()
}

/// Largest distance of a reported gap's start or end from those of the true gap that it overlaps most.
fn boundaries(score: &Score, report: &Value) -> Result<f64> {
    let started = report["recording"]["started_mono_ns"].as_u64().context("the recording has no start")?;
    let mut worst: f64 = 0.0;
    for gap in report["gaps"].as_array().context("the report has no gaps")? {
        let at = |key: &str| gap[key].as_f64().map(|s| s * 1e9 + started as f64);
        let (gpu, Some(start), Some(end)) = (gap["gpu"].as_u64(), at("start_s"), at("end_s")) else {
            anyhow::bail!("a gap of the report is not as documented: {gap}");
        };
        let distance = score
            .gaps
            .iter()
            .filter(|true_gap| Some(u64::from(true_gap.gpu)) == gpu)
            .map(|g| (g.span.start as f64 - start).abs().max((g.span.end as f64 - end).abs()))
            .fold(f64::INFINITY, f64::min);
        worst = worst.max(distance / 1e6);
    }
    Ok(worst)
}

fn failures(scenario: &Scenario, row: &Row, weight: f64) -> Vec<String> {
    let mut failures = Vec::new();
    let unlogged = weight * row.truth.get(UNLOGGED).copied().unwrap_or(0.0);
    if unlogged > UNLOGGED_POINTS {
        failures.push(format!(
            "the job itself does not know {unlogged:.1} points of its idle time (at most {UNLOGGED_POINTS})"
        ));
    }
    if row.gaps == 0 {
        failures.push("the GPU had no gap".to_owned());
    }
    for judged in &row.judgements {
        let evidence = judged.evidence;
        let allowed = if judged.boundary_ms.is_some() { EXACT_POINTS } else { NVML_POINTS };
        if judged.largest_error > allowed {
            let cause = &judged.largest_cause;
            let share = |points: &Points| points.get(cause).copied().unwrap_or(0.0);
            failures.push(format!(
                "{evidence}: {cause} is {:.1} % of the idle time and reported as {:.1} % (off by at most {allowed} points)",
                share(&row.truth),
                share(&judged.reported)
            ));
        }
        let allowed = if judged.boundary_ms.is_some() { EXACT_IDLE_POINTS } else { NVML_IDLE_POINTS };
        if (judged.idle - row.idle).abs() > allowed {
            failures.push(format!(
                "{evidence}: the GPU was idle {:.1} % and is reported as {:.1} % (off by at most {allowed} points)",
                row.idle, judged.idle
            ));
        }
        if judged.unknown >= UNKNOWN_POINTS {
            failures.push(format!("{evidence}: {:.1} % unknown (below {UNKNOWN_POINTS})", judged.unknown));
        }
        if !judged.verdict_right {
            let right = scenario.verdict.join(" or ");
            failures.push(format!("{evidence}: the verdict is {}, right is {right}", judged.verdict));
        }
        if let Some(ms) = judged.boundary_ms.filter(|ms| *ms > BOUNDARY_MS) {
            failures.push(format!("{evidence}: a gap's edge is off by {ms:.1} ms (at most {BOUNDARY_MS})"));
        }
    }
    if let [exact, nvml] = row.judgements.as_slice()
        && exact.verdict != nvml.verdict
    {
        failures.push(format!("the verdict is {} by exact intervals and {} by NVML", exact.verdict, nvml.verdict));
    }
    if row.disagreement > NVML_POINTS {
        failures
            .push(format!("exact intervals and NVML differ by {:.1} points (at most {NVML_POINTS})", row.disagreement));
    }
    if row.dropped > 0 {
        failures.push(format!("the tracer dropped {} events", row.dropped));
    }
    failures
}
