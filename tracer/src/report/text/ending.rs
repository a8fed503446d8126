//! The last lines: what was recorded, what that cost and lost, and what a reader must know.

use super::page::{Look, Page};
use crate::report::Report;
use crate::report::words::{bytes, count, percent, plural, seconds};

/// Notes shown.
const NOTES: usize = 12;

pub(super) fn write(page: &mut Page, report: &Report) {
    let (recording, cost) = (&report.recording, &report.overhead);
    page.title("About this recording");
    page.paragraph(
        Look::Plain,
        &format!(
            "{} of pid {} ({}) on {}, Linux {}, from {}.",
            seconds(recording.duration_s),
            recording.target.pid,
            recording.target.command,
            recording.host,
            recording.kernel,
            recording.started_at
        ),
    );
    let mut line = format!("Recording cost {} of CPU time", seconds(cost.recorder_cpu_s));
    if recording.duration_s > 0.0 {
        line.push_str(&format!(" ({} of one CPU)", percent(cost.recorder_cpu_s / recording.duration_s)));
    }
    line.push_str(&format!(
        ", {} of memory at most and {} of disk: {} off-CPU intervals at {:.1} B each.",
        bytes(cost.recorder_peak_rss as f64),
        bytes(cost.recording_bytes as f64),
        count(cost.intervals),
        cost.bytes_per_interval.clamp(0.0, 1e6)
    ));
    page.paragraph(Look::Plain, &line);
    if !cost.program_ns.is_empty() {
        let programs: Vec<String> = cost.program_ns.iter().map(|(name, ns)| format!("{name} {ns:.0} ns")).collect();
        page.paragraph(Look::Plain, &format!("Kernel programs took, per run: {}.", programs.join(", ")));
    }
    if recording.lost_events == 0 {
        page.paragraph(Look::Plain, "No event was lost.");
    } else {
        let kinds: Vec<String> =
            cost.lost.iter().filter(|(_, n)| **n > 0).map(|(kind, n)| format!("{kind} {}", count(*n))).collect();
        let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
        let lost = plural(recording.lost_events, "event was", "events were");
        page.paragraph(Look::Warning, &format!("{lost} lost{kinds}."));
    }
    if !recording.complete {
        page.paragraph(
            Look::Warning,
            "The recording was not closed cleanly or is damaged: this is what could be read.",
        );
    }
    for note in report.notes.iter().take(NOTES) {
        page.bullet(Look::Plain, "- ", note);
    }
    if let Some(more) = report.notes.len().checked_sub(NOTES).filter(|n| *n > 0) {
        page.paragraph(Look::Quiet, &format!("  … and {} more notes with --json", count(more as u64)));
    }
}
