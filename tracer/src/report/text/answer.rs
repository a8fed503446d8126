//! The first lines: the answer, its evidence, what it could gain, what to do.

use super::page::{Look, Page};
use super::{has_evidence, span_s};
use crate::attribution::Cause;
use crate::diagnosis::Verdict;
use crate::report::words::{self, clause, hundredths, percent, plural, seconds};
use crate::report::{GpuReport, Report};
use std::collections::BTreeMap;

/// Evidence and advice lines shown.
const MOST_LINES: usize = 6;

pub(super) fn write(page: &mut Page, report: &Report) {
    let seen: Vec<&GpuReport> = by_idle(report);
    let verdict = &report.verdict;
    match seen.as_slice() {
        [] => {
            let why =
                "No GPU evidence: this recording does not say when a GPU was busy, so no idle time can be explained.";
            // The diagnosis says the same in its own words.
            let said = verdict.summary.contains("no GPU evidence");
            page.paragraph(Look::Answer, if said { &verdict.summary } else { why });
            page.paragraph(Look::Plain, if said { "" } else { &verdict.summary });
        }
        [worst, others @ ..] => {
            // Of a GPU that did nothing there is no share to tell.
            if says_idle_share(&verdict.summary) || span_s(worst) == 0.0 {
                page.paragraph(Look::Answer, &verdict.summary);
            } else {
                page.paragraph(Look::Answer, &idle_sentence(report, worst));
                page.paragraph(Look::Plain, &verdict.summary);
            }
            if !others.is_empty() {
                for gpu in &seen {
                    page.bullet(Look::Plain, "  ", &gpu_line(gpu));
                }
            }
        }
    }
    doubt(page, report);
    if !seen.is_empty() {
        page.paragraph(
            Look::Plain,
            &format!("Bottleneck: {}.{}", words::bottleneck(verdict.bottleneck), bound(verdict)),
        );
    }
    for gpu in report.gpus.iter().filter(|g| !has_evidence(g)) {
        page.paragraph(Look::Quiet, &format!("GPU {} ({}): no evidence of when it was busy.", gpu.index, gpu.name));
    }
    list(page, "Evidence", &verdict.evidence);
    list(page, "What to do", &verdict.advice);
    if report.gpus.iter().any(|g| !g.state.is_empty()) {
        page.title("State of the GPU");
    }
    for gpu in &report.gpus {
        for state in &gpu.state {
            page.bullet(Look::Plain, "- ", &format!("GPU {}: {state}", gpu.index));
        }
    }
}

/// GPUs with evidence, the idlest first.
fn by_idle(report: &Report) -> Vec<&GpuReport> {
    let mut gpus: Vec<&GpuReport> = report.gpus.iter().filter(|g| has_evidence(g)).collect();
    gpus.sort_by(|a, b| b.idle_share.total_cmp(&a.idle_share).then(a.index.cmp(&b.index)));
    gpus
}

/// A summary that tells the idle share itself needs no sentence before it that does.
fn says_idle_share(summary: &str) -> bool {
    summary.contains('%') && summary.contains("idle")
}

/// `GPU 0 was idle 61 % of 60 s. 52 points of that: workers waited for disk.`
fn idle_sentence(report: &Report, gpu: &GpuReport) -> String {
    let span = span_s(gpu);
    let mut text = format!("GPU {} was idle {} of {}.", gpu.index, percent(gpu.idle_share), seconds(span));
    let largest = gpu.causes.iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds));
    if let Some(largest) = largest.filter(|c| c.seconds > 0.0 && span > 0.0) {
        let what = clause(largest.cause, &main_role(report, gpu.index, largest.cause));
        text.push_str(&format!(" {} points of that: {what}.", hundredths(largest.seconds / span)));
    }
    text
}

/// The role that most of a cause's time in the listed gaps is about; empty unless one role has most of it.
fn main_role(report: &Report, gpu: u32, cause: Cause) -> String {
    let mut by_role: BTreeMap<&str, f64> = BTreeMap::new();
    for link in report.gaps.iter().filter(|g| g.gpu == gpu).flat_map(|g| &g.chain).filter(|l| l.cause == cause) {
        *by_role.entry(&link.role).or_insert(0.0) += (link.end_s - link.start_s).max(0.0);
    }
    let total: f64 = by_role.values().sum();
    by_role.into_iter().find(|(_, s)| *s > total * 0.6).map(|(role, _)| role.to_owned()).unwrap_or_default()
}

/// One GPU in one line: idle share and what for.
fn gpu_line(gpu: &GpuReport) -> String {
    let span = span_s(gpu);
    let mut text = format!("GPU {}: idle {} of {}", gpu.index, percent(gpu.idle_share), seconds(span));
    let parts: Vec<String> = gpu
        .causes
        .iter()
        .filter(|c| span > 0.0 && c.seconds / span >= 0.005)
        .take(3)
        .map(|c| format!("{} {}", words::cause(c.cause), hundredths(c.seconds / span)))
        .collect();
    if !parts.is_empty() {
        text.push_str(&format!(" – points of it: {}", parts.join(", ")));
    }
    text
}

/// How much could be won.
fn bound(verdict: &Verdict) -> String {
    match (verdict.speedup_bound, verdict.cause) {
        (Some(bound), Some(cause)) if bound.is_finite() && (1.005..1e4).contains(&bound) => {
            let times = if bound < 1.095 { format!("{bound:.2}") } else { format!("{bound:.1}") };
            let shorter = hundredths(1.0 - 1.0 / bound);
            format!(
                " At most {times}× faster (an epoch {shorter} % shorter) if this went away ({}).",
                words::cause(cause)
            )
        }
        _ => String::new(),
    }
}

/// What makes the answer less sure.
fn doubt(page: &mut Page, report: &Report) {
    let (lost, kept) = (report.recording.lost_events, report.overhead.intervals);
    if lost > 0 && lost.saturating_mul(100) > kept {
        let text =
            format!("Doubt: {} lost while recording; shares may be off.", plural(lost, "event was", "events were"));
        page.paragraph(Look::Warning, &text);
    }
}

fn list(page: &mut Page, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    page.title(title);
    for line in lines.iter().take(MOST_LINES) {
        page.bullet(Look::Plain, "- ", line);
    }
    if let Some(more) = lines.len().checked_sub(MOST_LINES).filter(|n| *n > 0) {
        page.paragraph(Look::Quiet, &format!("  … and {} more with --json", words::count(more as u64)));
    }
}
