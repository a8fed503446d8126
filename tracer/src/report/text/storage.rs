//! Files and directories that threads waited on, and what the block devices did meanwhile.

use super::page::{Look, Page, number, text};
use crate::report::words::{bytes, count, millis, nanos, rate, seconds};
use crate::report::{DeviceReport, HistogramSummary, PathWait, Report};

/// Files, and directories, shown.
const PATHS: usize = 5;
/// Devices shown.
const DEVICES: usize = 8;
/// So many times longer than the block layer's own time must a thread's wait be before it is called held back elsewhere.
const FAR_ABOVE: f64 = 5.0;
/// Waits below this are not worth a remark, nanoseconds.
const WORTH_A_REMARK: f64 = 1e6;
/// Fewer waits than this say nothing.
const ENOUGH: u64 = 20;

pub(super) fn write(page: &mut Page, report: &Report) {
    paths(page, "Files that threads waited on", "file", &report.files, false);
    paths(page, "Directories that threads waited in", "directory", &report.directories, true);
    devices(page, report);
}

fn paths(page: &mut Page, title: &str, what: &'static str, paths: &[PathWait], directories: bool) {
    if paths.is_empty() {
        return;
    }
    page.title(title);
    let rows: Vec<Vec<String>> = paths
        .iter()
        .take(PATHS)
        .map(|p| {
            let mean = if p.waits > 0 { seconds(p.blocked_s / p.waits as f64) } else { String::new() };
            vec![
                p.path.clone(),
                seconds(p.blocked_s),
                count(p.waits),
                mean,
                if p.opens > 0 { count(p.opens) } else { String::new() },
                p.mean_open_ms.map(millis).unwrap_or_default(),
                if directories { count(p.files) } else { String::new() },
            ]
        })
        .collect();
    let files = if directories { "files" } else { "" };
    let columns = [
        text(what).flexible(),
        number("blocked"),
        number("waits"),
        number("mean").optional(1),
        number("opens").optional(2),
        number("mean open").optional(3),
        number(files).optional(4),
    ];
    let shown = if directories { columns.len() } else { columns.len() - 1 };
    page.table(&columns[..shown], &rows);
}

fn devices(page: &mut Page, report: &Report) {
    let remark = held_back_elsewhere(report);
    if report.devices.is_empty() && remark.is_none() {
        return;
    }
    page.title("Block devices (mean time per request in the queue, then in the device)");
    let rows: Vec<Vec<String>> = report
        .devices
        .iter()
        .take(DEVICES)
        .map(|d| {
            let slow = block_histogram(report, d).map(|h| nanos(h.p99)).unwrap_or_default();
            vec![
                d.device.clone(),
                d.kind.clone(),
                d.operation.clone(),
                count(d.requests),
                rate(d.per_second),
                bytes(d.bytes as f64),
                millis(d.mean_queue_ms),
                millis(d.mean_device_ms),
                slow,
                submitters(d),
            ]
        })
        .collect();
    let columns = [
        text("device").flexible(),
        text("kind").optional(3),
        text("what"),
        number("requests"),
        number("per s").optional(1),
        number("moved").optional(2),
        number("queue"),
        number("device"),
        number("p99").optional(4),
        number("target/kernel/others").optional(5),
    ];
    page.table(&columns, &rows);
    if let Some(more) = report.devices.len().checked_sub(DEVICES).filter(|n| *n > 0) {
        page.paragraph(Look::Quiet, &format!("  … and {} more lines with --json", count(more as u64)));
    }
    if let Some(text) = remark {
        page.bullet(Look::Warning, "  ", &text);
    }
}

fn block_histogram<'a>(report: &'a Report, d: &DeviceReport) -> Option<&'a HistogramSummary> {
    let label = |h: &HistogramSummary, key: &str, value: &str| h.labels.get(key).is_some_and(|v| v == value);
    report
        .histograms
        .iter()
        .find(|h| h.name == "block_io_latency" && label(h, "device", &d.device) && label(h, "operation", &d.operation))
}

/// Who submitted the requests, in percent.
fn submitters(d: &DeviceReport) -> String {
    let total = d.by_target.saturating_add(d.by_kernel).saturating_add(d.by_others);
    if total == 0 {
        return String::new();
    }
    let part = |n: u64| format!("{:.0}", 100.0 * n as f64 / total as f64);
    format!("{}/{}/{} %", part(d.by_target), part(d.by_kernel), part(d.by_others))
}

/// A sentence when threads waited far longer for their reads than the block layer took for them: a control group's I/O
/// limit holds requests before the block layer's own tracepoints, so its numbers look healthy (9.6 ms against 71 µs were
/// measured under a limit of 100 operations a second).
fn held_back_elsewhere(report: &Report) -> Option<String> {
    let reads = report.histograms.iter().filter(|h| h.name == "blocked_read" && h.count > 0);
    let (waits, waited) =
        reads.fold((0u64, 0.0), |(n, t), h| (n.saturating_add(h.count), t + h.count as f64 * h.mean as f64));
    if waits < ENOUGH {
        return None;
    }
    let per_wait = waited / waits as f64;
    if per_wait < WORTH_A_REMARK {
        return None;
    }
    let blocks = report.devices.iter().filter(|d| d.operation == "read" && d.requests > 0);
    // Stacked devices (loop, device mapper) see a request twice; the slowest is the one to compare with.
    let slowest = blocks
        .clone()
        .map(|d| (d.mean_queue_ms + d.mean_device_ms) * 1e6)
        .fold(None, |worst, ns: f64| Some(worst.map_or(ns, |w: f64| w.max(ns))));
    let waited_words = seconds(per_wait / 1e9);
    let Some(slowest) = slowest else {
        return Some(format!(
            "Threads were blocked {waited_words} per read ({} waits), but no block device served reads: the time went to \
             a network or user-space file system, or requests were held back before the block layer.",
            count(waits)
        ));
    };
    // One wait can be for several requests.
    let requests: u64 = blocks.map(|d| d.by_target.saturating_add(d.by_kernel)).fold(0, u64::saturating_add);
    let expected = slowest * (requests as f64 / waits as f64).max(1.0);
    (per_wait > FAR_ABOVE * expected).then(|| {
        format!(
            "Threads were blocked {waited_words} per read ({} waits), but the block layer took only {} per request: \
             requests were held back before it, as an I/O limit of a control group does.",
            count(waits),
            seconds(slowest / 1e9)
        )
    })
}
