//! Latencies, who had the CPU instead, and where running threads spent their time.

use super::page::{Look, Page, number, text};
use crate::report::words::{count, nanos, percent, plural, seconds};
use crate::report::{HistogramSummary, HotImage, Report};
use std::collections::BTreeMap;

/// Lines of the latency table for one kind of latency.
const PER_NAME: usize = 3;
/// Competitors shown.
const COMPETITORS: usize = 5;
/// Images shown for a role.
const IMAGES: usize = 5;
/// Roles whose images are shown.
const ROLES: usize = 4;
/// Latencies in the order shown, in words. Those of block requests are in the table of devices.
const LATENCIES: [(&str, &str); 6] = [
    ("run_queue", "wait for a CPU"),
    ("blocked_read", "blocked in a read"),
    ("file_open", "file open"),
    ("on_cpu_burst", "stretch on a CPU"),
    ("gpu_busy", "GPU busy stretch"),
    ("gpu_idle", "GPU idle stretch"),
];

pub(super) fn write(page: &mut Page, report: &Report) {
    latencies(page, &report.histograms);
    competitors(page, report);
    images(page, &report.hot_images);
}

fn latencies(page: &mut Page, histograms: &[HistogramSummary]) {
    let mut rows = Vec::new();
    for (name, words) in LATENCIES {
        let mut found: Vec<&HistogramSummary> = histograms.iter().filter(|h| h.name == name && h.count > 0).collect();
        // Those with most time in them.
        found.sort_by(|a, b| {
            (u128::from(b.count) * u128::from(b.mean)).cmp(&(u128::from(a.count) * u128::from(a.mean)))
        });
        for h in found.into_iter().take(PER_NAME) {
            rows.push(vec![
                format!("{words}{}", labels(h)),
                count(h.count),
                nanos(h.p50),
                nanos(h.p90),
                nanos(h.p99),
                nanos(h.max),
            ]);
        }
    }
    if rows.is_empty() {
        return;
    }
    page.title("How long things took");
    let columns =
        [text("what").flexible(), number("count"), number("median"), number("p90"), number("p99"), number("longest")];
    page.table(&columns, &rows);
}

/// `: worker`, `: GPU 0`.
fn labels(h: &HistogramSummary) -> String {
    let parts: Vec<String> = h
        .labels
        .iter()
        .filter(|(key, value)| !(key.as_str() == "role" && value.as_str() == "all"))
        .map(|(key, value)| if key == "gpu" { format!("GPU {value}") } else { value.replace('_', "-") })
        .collect();
    if parts.is_empty() { String::new() } else { format!(": {}", parts.join(" ")) }
}

fn competitors(page: &mut Page, report: &Report) {
    if report.competitors.is_empty() {
        return;
    }
    page.title("Who had the CPU while target threads waited for it");
    let rows: Vec<Vec<String>> = report
        .competitors
        .iter()
        .take(COMPETITORS)
        .map(|c| {
            let whose = if c.in_target { "the target itself" } else { "outside" };
            vec![c.tid.to_string(), c.comm.clone(), whose.to_owned(), seconds(c.seconds), c.command.clone()]
        })
        .collect();
    let columns =
        [number("tid"), text("name"), text("whose").optional(1), number("wait caused"), text("command").flexible()];
    page.table(&columns, &rows);
}

fn images(page: &mut Page, images: &[HotImage]) {
    let mut roles: BTreeMap<&str, Vec<&HotImage>> = BTreeMap::new();
    for image in images {
        roles.entry(&image.role).or_default().push(image);
    }
    let samples = |images: &[&HotImage]| images.iter().fold(0u64, |n, i| n.saturating_add(i.samples));
    let mut roles: Vec<(&str, Vec<&HotImage>)> = roles.into_iter().collect();
    roles.sort_by_key(|(_, images)| std::cmp::Reverse(samples(images)));
    if roles.is_empty() {
        return;
    }
    page.title("Where running threads spent their CPU time (shares of samples)");
    for (role, mut images) in roles.into_iter().take(ROLES) {
        images.sort_by(|a, b| b.share.total_cmp(&a.share));
        let parts: Vec<String> =
            images.iter().take(IMAGES).map(|i| format!("{} {}", i.image, percent(i.share))).collect();
        let role = if role.is_empty() { "other".to_owned() } else { role.replace('_', "-") };
        let n = plural(samples(&images), "sample", "samples");
        page.bullet(Look::Plain, "- ", &format!("{role}: {} ({n})", parts.join(", ")));
    }
}
