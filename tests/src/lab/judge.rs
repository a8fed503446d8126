//! Holds a report against the truth: largest error of a cause's share, gap boundaries, unknown, verdict.

use super::kinds;
use super::run::Outcome;
use super::scenario::Scenario;
use super::score::{Gap, NO_REQUEST, Score};
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
/// Below this idle share errors count for less: they would be points of so little time that a window's rounding is more. An error
/// then weighs as many points as the same time would be in a job that was idle for this share.
const LITTLE_IDLE: f64 = 0.10;
/// Largest difference between the true and the reported idle share with exact evidence, points.
pub const EXACT_IDLE_POINTS: f64 = 1.0;
/// The same with NVML windows: they are rounded down to whole percents, and in a run of a few seconds those at its edges count.
pub const NVML_IDLE_POINTS: f64 = 3.0;

/// Points by cause.
pub type Points = BTreeMap<String, f64>;

/// What a report says, held against the truth.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    /// `exact`, `trace` (the same busy times in a profiler's trace) or `nvml`.
    pub evidence: &'static str,
    /// Share of each cause in the idle time, points.
    pub reported: Points,
    /// Idle share of the active time, points.
    pub idle: f64,
    /// Largest error of a cause's share, points.
    pub largest_error: f64,
    /// That cause.
    pub largest_cause: String,
    /// Largest error of a cause's share in the idle time of one of several GPUs, points, and which cause and GPU.
    pub by_gpu: Option<(f64, String)>,
    /// Largest error of a gap's start or end, ms; exact evidence only.
    pub boundary_ms: Option<f64>,
    /// Share of `unknown`, points.
    pub unknown: f64,
    /// The bottleneck of the verdict.
    pub verdict: String,
    /// Whether it is the one that the truth says.
    pub verdict_right: bool,
    /// Number of gaps; exact evidence only, since windows have none.
    pub gaps: Option<u64>,
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
    /// The verdicts that are right by the truth: one, unless kinds of bottleneck are equal.
    pub right: Vec<&'static str>,
    /// By exact intervals, by a profiler's trace, and by NVML windows.
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
    let mut truth = Points::new();
    for cause in score.causes.keys() {
        // Reports know it as a kind of waiting for the network.
        let name = if *cause == NO_REQUEST { "network" } else { cause };
        *truth.entry(name.to_owned()).or_default() += 100.0 * score.share(cause);
    }
    let right = kinds::right(score);
    let weight = (score.idle_share() / LITTLE_IDLE).min(1.0);
    // The busy file has the times of the truth itself; a profiler's trace has them by another clock.
    let edges = |report| edges(score, report).map(Some);
    let exact = judgement("exact", score, &right, &outcome.exact, &truth, weight, edges(&outcome.exact)?)?;
    let trace = judgement("trace", score, &right, &outcome.profiled, &truth, weight, edges(&outcome.profiled)?)?;
    let nvml = judgement("nvml", score, &right, &outcome.nvml, &truth, weight, None)?;
    let disagreement = weight * largest(&exact.reported, &nvml.reported).0;
    let mut row = Row {
        scenario: scenario.name.to_owned(),
        idle: 100.0 * score.idle_share(),
        gaps: score.gaps.len(),
        right,
        truth,
        judgements: vec![exact, trace, nvml],
        disagreement,
        dropped: dropped(&outcome.exact),
        failures: Vec::new(),
    };
    row.failures = failures(scenario, &row, weight);
    Ok(row)
}

fn judgement(
    evidence: &'static str,
    score: &Score,
    right: &[&str],
    report: &Value,
    truth: &Points,
    weight: f64,
    boundary_ms: Option<f64>,
) -> Result<Judgement> {
    let reported = points(&report["causes"])?;
    let gpus = report["gpus"].as_array().context("the report has no GPUs")?;
    let sum = |key: &str| gpus.iter().filter_map(|g| g[key].as_f64()).sum::<f64>();
    let (busy, idle) = (sum("busy_s"), sum("idle_s"));
    let verdict = report["verdict"]["bottleneck"].as_str().context("the report has no verdict")?.to_owned();
    let (largest_error, largest_cause) = largest(truth, &reported);
    Ok(Judgement {
        evidence,
        by_gpu: worst_gpu(score, report)?,
        idle: if busy + idle > 0.0 { 100.0 * idle / (busy + idle) } else { 0.0 },
        largest_error: weight * largest_error,
        largest_cause,
        boundary_ms,
        unknown: weight * reported.get("unknown").copied().unwrap_or(0.0),
        verdict_right: right.contains(&verdict.as_str()),
        gaps: boundary_ms.map(|_| gpus.iter().filter_map(|gpu| gpu["gap_count"].as_u64()).sum()),
        verdict,
        reported,
    })
}

/// Shares of a list of causes.
fn points(causes: &Value) -> Result<Points> {
    let causes = causes.as_array().context("the report has no causes")?;
    let point = |c: &Value| Some((c["cause"].as_str()?.to_owned(), 100.0 * c["share"].as_f64()?));
    causes.iter().map(point).collect::<Option<Points>>().context("the report's causes are not as documented")
}

/// Of several GPUs the one where a share differs most: two whose causes were swapped have the right sums.
fn worst_gpu(score: &Score, report: &Value) -> Result<Option<(f64, String)>> {
    let gpus: BTreeSet<u32> = score.gaps.iter().map(|gap| gap.gpu).collect();
    if gpus.len() < 2 {
        return Ok(None);
    }
    let mut worst = (0.0, String::new());
    for gpu in gpus {
        let mut truth = Points::new();
        let own = || score.gaps.iter().filter(|gap| gap.gpu == gpu);
        let idle: f64 = own().map(|gap| gap.span.len() as f64).sum();
        for (cause, ns) in own().flat_map(|gap| &gap.causes) {
            *truth.entry((*cause).to_owned()).or_default() += 100.0 * ns / idle;
        }
        let told = report["gpus"].as_array().into_iter().flatten().find(|g| g["index"] == gpu);
        let told = told.with_context(|| format!("the report has no GPU {gpu}"))?;
        let (error, cause) = largest(&truth, &points(&told["causes"])?);
        if error > worst.0 {
            worst = (error, format!("{cause} on GPU {gpu}"));
        }
    }
    Ok(Some(worst))
}

/// The cause whose share differs most. What the job or the tracer does not know is no cause.
fn largest(a: &Points, b: &Points) -> (f64, String) {
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).filter(|n| *n != UNLOGGED && *n != "unknown").collect();
    let share = |points: &Points, name: &String| points.get(name).copied().unwrap_or(0.0);
    let errors = names.into_iter().map(|n| ((share(a, n) - share(b, n)).abs(), n.clone()));
    errors.max_by(|x, y| x.0.total_cmp(&y.0)).unwrap_or_default()
}

/// Largest distance of a reported gap's start or end from those of the nearest true gap, and of a true gap from the nearest reported
/// one. Reports list the longest gaps only, so a true gap must be listed if it is longer than the shortest that is.
fn edges(score: &Score, report: &Value) -> Result<f64> {
    let started = report["recording"]["started_mono_ns"].as_u64().context("the recording has no start")?;
    let mut reported = Vec::new();
    for gap in report["gaps"].as_array().context("the report has no gaps")? {
        let at = |key: &str| gap[key].as_f64().map(|s| s * 1e9 + started as f64);
        let (Some(gpu), Some(start), Some(end)) = (gap["gpu"].as_u64(), at("start_s"), at("end_s")) else {
            anyhow::bail!("a gap of the report is not as documented: {gap}");
        };
        reported.push((gpu as u32, start, end));
    }
    let off = |gap: &Gap, (gpu, start, end): (u32, f64, f64)| {
        let off = (gap.span.start as f64 - start).abs().max((gap.span.end as f64 - end).abs());
        if gap.gpu == gpu { off } else { f64::INFINITY }
    };
    let shortest = reported.iter().map(|(_, start, end)| end - start).fold(f64::INFINITY, f64::min);
    let counted: u64 =
        report["gpus"].as_array().into_iter().flatten().filter_map(|gpu| gpu["gap_count"].as_u64()).sum();
    let all = reported.len() as u64 >= counted;
    let must_be_listed = score.gaps.iter().filter(|gap| all || gap.span.len() as f64 > shortest);
    let missing = must_be_listed.map(|gap| reported.iter().map(|r| off(gap, *r)).fold(f64::INFINITY, f64::min));
    let invented = reported.iter().map(|r| score.gaps.iter().map(|gap| off(gap, *r)).fold(f64::INFINITY, f64::min));
    Ok(missing.chain(invented).fold(0.0, f64::max) / 1e6)
}

fn failures(scenario: &Scenario, row: &Row, weight: f64) -> Vec<String> {
    let mut failures = Vec::new();
    if !scenario.verdict.iter().any(|meant| row.right.contains(meant)) {
        failures.push(format!(
            "the job was not what it is meant to be: its truth is {}, not {}",
            row.right.join(" or "),
            scenario.verdict.join(" or ")
        ));
    }
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
        if let Some((error, whose)) = judged.by_gpu.as_ref().filter(|(error, _)| *error > allowed) {
            failures.push(format!("{evidence}: {whose} is off by {error:.1} points (at most {allowed})"));
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
        if let Some(gaps) = judged.gaps.filter(|gaps| *gaps != row.gaps as u64) {
            failures.push(format!("{evidence}: the GPU had {} gaps, and {gaps} are reported", row.gaps));
        }
        if !judged.verdict_right {
            let right = row.right.join(" or ");
            failures.push(format!("{evidence}: the verdict is {}, right is {right}", judged.verdict));
        }
        if let Some(ms) = judged.boundary_ms.filter(|ms| *ms > BOUNDARY_MS) {
            failures.push(format!("{evidence}: a gap's edge is off by {ms:.1} ms (at most {BOUNDARY_MS})"));
        }
    }
    if let [exact, .., nvml] = row.judgements.as_slice()
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
