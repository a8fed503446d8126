//! Why each GPU was idle, as a table with bars.

use super::page::{Page, bar, number, text};
use super::{has_evidence, of_job, span_s};
use crate::report::words::{self, count, hundredths, percent, plural, seconds};
use crate::report::{CauseShare, GpuReport, Report};

/// GPUs with a table of their own; more are told in one line each, with one table over all.
const MOST_TABLES: usize = 2;
/// Causes with a line of their own.
const MOST_CAUSES: usize = 7;
/// Widest bar, in characters.
const BAR: usize = 24;

pub(super) fn write(page: &mut Page, report: &Report) {
    let seen: Vec<&GpuReport> = report.gpus.iter().filter(|g| has_evidence(g) && span_s(g) > 0.0).collect();
    if seen.len() > MOST_TABLES {
        let seen = of_job(report);
        let span = seen.iter().map(|g| span_s(g)).sum();
        let idle: f64 = seen.iter().map(|g| g.idle_s).sum();
        page.title(&format!("Why {} GPUs were idle ({} of {} GPU time)", seen.len(), seconds(idle), seconds(span)));
        table(page, &report.causes, span);
        return;
    }
    for gpu in seen {
        page.title(&heading(gpu));
        table(page, &gpu.causes, span_s(gpu));
    }
}

fn heading(gpu: &GpuReport) -> String {
    let name = if gpu.name.is_empty() { String::new() } else { format!(" ({})", gpu.name) };
    let gaps = if gpu.source == "nvml" {
        plural(gpu.gap_count, "window with idle time", "windows with idle time")
    } else {
        plural(gpu.gap_count, "gap", "gaps")
    };
    let mut text = format!("Why GPU {}{name} was idle: {} in {gaps}", gpu.index, seconds(gpu.idle_s));
    if gpu.before_s > 0.0 || gpu.after_s > 0.0 {
        let (before, after) = (seconds(gpu.before_s), seconds(gpu.after_s));
        text.push_str(&format!("; not counted: {before} before its first and {after} after its last busy moment"));
    }
    text
}

fn table(page: &mut Page, causes: &[CauseShare], span: f64) {
    let widest = causes.iter().map(|c| c.share).fold(0.0, f64::max);
    let row = |name: String, seconds_idle: f64, share: f64| {
        let points = if span > 0.0 { hundredths(seconds_idle / span) } else { String::new() };
        let length = if widest > 0.0 { share / widest } else { 0.0 };
        vec![name, points, percent(share), seconds(seconds_idle), bar(length, BAR)]
    };
    let mut rows: Vec<Vec<String>> =
        causes.iter().take(MOST_CAUSES).map(|c| row(words::cause(c.cause).to_owned(), c.seconds, c.share)).collect();
    let rest = causes.get(MOST_CAUSES..).unwrap_or(&[]);
    if !rest.is_empty() {
        let (s, share) = rest.iter().fold((0.0, 0.0), |(s, share), c| (s + c.seconds, share + c.share));
        rows.push(row(format!("{} more", count(rest.len() as u64)), s, share));
    }
    let columns = [text("cause"), number("points of time"), number("of idle"), number("time"), text("").optional(1)];
    page.table(&columns, &rows);
}
