//! The last lines: what was recorded, what that cost and lost, and what a reader must know.

use super::page::{Look, Page};
use crate::report::words::{bytes, count, percent, plural, seconds};
use crate::report::{Overhead, Report};

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
    page.paragraph(Look::Plain, &cost_line(cost, recording.duration_s));
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

/// What recording took. What an unclosed recording does not tell is left out.
fn cost_line(cost: &Overhead, duration_s: f64) -> String {
    let mut taken = Vec::new();
    if let Some(cpu_s) = cost.recorder_cpu_s {
        let share =
            if duration_s > 0.0 { format!(" ({} of one CPU)", percent(cpu_s / duration_s)) } else { String::new() };
        taken.push(format!("{} of CPU time{share}", seconds(cpu_s)));
    }
    if let Some(rss) = cost.recorder_peak_rss {
        taken.push(format!("{} of memory at most", bytes(rss as f64)));
    }
    let disk = format!(
        "{} of disk: {} off-CPU intervals at {:.1} B each.",
        bytes(cost.recording_bytes as f64),
        count(cost.intervals),
        cost.bytes_per_interval.clamp(0.0, 1e6)
    );
    if taken.is_empty() {
        format!("The recording takes {disk}")
    } else {
        format!("Recording cost {} and {disk}", taken.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_that_are_not_known_are_not_told() {
        let known = Overhead {
            recorder_cpu_s: Some(0.5),
            recorder_peak_rss: Some(40 << 20),
            recording_bytes: 2 << 20,
            intervals: 10,
            bytes_per_interval: 12.5,
            ..Overhead::default()
        };
        let told = cost_line(&known, 10.0);
        assert!(told.starts_with("Recording cost 500 ms of CPU time (5 % of one CPU), 40"), "{told}");
        let unknown = Overhead { recorder_cpu_s: None, recorder_peak_rss: None, ..known };
        let told = cost_line(&unknown, 10.0);
        assert!(
            told.starts_with("The recording takes 2") && !told.contains("CPU time") && !told.contains("memory"),
            "{told}"
        );
    }
}
