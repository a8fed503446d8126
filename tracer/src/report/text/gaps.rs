//! The longest gaps with what happened in each, and gaps that read the same.

use super::of_job;
use super::page::{Look, Page, number, text};
use crate::report::words::{self, count, percent, plural, seconds};
use crate::report::{ChainLink, Gap, Report};

/// Gaps shown one by one.
const LONGEST: usize = 5;
/// Links of a chain shown; the shortest are left out.
const LINKS: usize = 3;
/// Groups shown.
const GROUPS: usize = 5;

pub(super) fn write(page: &mut Page, report: &Report) {
    if !report.gaps.is_empty() {
        page.title("Longest idle times (time from the start of the recording)");
        for gap in report.gaps.iter().take(LONGEST) {
            one(page, gap, report.gpus.len() > 1);
        }
    }
    if !report.gap_groups.is_empty() {
        page.title("Idle times that read the same");
        let all: f64 = of_job(report).iter().map(|g| g.idle_s).sum();
        let rows: Vec<Vec<String>> = report
            .gap_groups
            .iter()
            .take(GROUPS)
            .map(|g| {
                let share = if all > 0.0 { percent(g.seconds / all) } else { String::new() };
                let mean = if g.count > 0 { seconds(g.seconds / g.count as f64) } else { String::new() };
                vec![g.chain.clone(), count(g.count), seconds(g.seconds), mean, share]
            })
            .collect();
        let columns = [
            text("chain of causes").flexible(),
            number("times"),
            number("total"),
            number("mean").optional(1),
            number("of idle"),
        ];
        page.table(&columns, &rows);
    }
}

fn one(page: &mut Page, gap: &Gap, name_gpu: bool) {
    let gpu = if name_gpu { format!("GPU {}, ", gap.gpu) } else { String::new() };
    let mut line =
        format!("at {}: {gpu}{} – {}", moment(gap.start_s), seconds(gap.end_s - gap.start_s), words::cause(gap.cause));
    let (shown, left_out) = longest_in_order(&gap.chain);
    let mut separator = ": ";
    for link in shown {
        line.push_str(separator);
        line.push_str(&words_of(link));
        separator = "; then ";
    }
    if left_out > 0 {
        line.push_str(&format!("; and {}", plural(left_out, "shorter stretch", "shorter stretches")));
    }
    page.bullet(Look::Plain, "- ", &line);
}

/// A moment, to the millisecond.
fn moment(s: f64) -> String {
    if s.is_finite() && s.abs() < 1e7 { format!("{s:.3} s") } else { seconds(s) }
}

/// The longest links, in order of time, and how many are not among them.
fn longest_in_order(chain: &[ChainLink]) -> (Vec<&ChainLink>, u64) {
    let mut by_length: Vec<usize> = (0..chain.len()).collect();
    by_length.sort_by(|a, b| length(&chain[*b]).total_cmp(&length(&chain[*a])));
    by_length.truncate(LINKS);
    by_length.sort_unstable();
    let left_out = (chain.len() - by_length.len()) as u64;
    (by_length.into_iter().map(|i| &chain[i]).collect(), left_out)
}

fn length(link: &ChainLink) -> f64 {
    link.end_s - link.start_s
}

/// `worker 4711 read /data/a.jpg (disk, 12 ms)`
fn words_of(link: &ChainLink) -> String {
    let why = format!("({}, {})", words::cause(link.cause), seconds(length(link)));
    if link.tid == 0 {
        // A stretch that is about no thread.
        return format!("{} {why}", link.what);
    }
    let role = if link.role.is_empty() { "thread" } else { &link.role };
    format!("{} {} {} {why}", role.replace('_', "-"), link.tid, link.what)
}
