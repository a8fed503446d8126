//! The measured part of the page on performance.

use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result};

use super::pipe::{Candidate, Kind, Recording};
use super::reading::Reading;
use crate::shell;

/// Renders everything as Markdown.
pub fn render(runs: &[Candidate], recording: &Recording, reading: &Reading, operations: u64) -> Result<String> {
    let untraced = &runs.iter().find(|run| run.kind == Kind::Untraced).context("no untraced run")?.us;
    let runqlat = &runs.iter().find(|run| run.kind == Kind::Runqlat).context("no run under runqlat")?.us;
    let yardstick = median(&added(runqlat, untraced));

    let mut text = String::new();
    writeln!(text, "Machine: {}.\n", machine()?)?;
    writeln!(
        text,
        "`perf bench sched pipe -l {operations}` on one CPU, tracer on another; medians of {} interleaved rounds. \"Added\" is \
         against the untraced run of the same round.\n",
        untraced.len()
    )?;
    writeln!(
        text,
        "| attached | µs an operation | lowest–highest | added ns | lowest–highest | relative to runqlat |"
    )?;
    writeln!(text, "|---|---|---|---|---|---|")?;
    for run in runs {
        let (low, high) = range(&run.us);
        write!(text, "| {} | {:.2} | {low:.2}–{high:.2} ", name(run.kind), median(&run.us))?;
        if run.kind == Kind::Untraced {
            writeln!(text, "| – | – | – |")?;
        } else {
            let added = added(&run.us, untraced);
            let (low, high) = range(&added);
            let middle = median(&added);
            writeln!(text, "| {middle:.0} | {low:.0}–{high:.0} | {:.2} |", middle / yardstick)?;
        }
    }
    writeln!(text, "\n| recording | |\n|---|---|")?;
    writeln!(text, "| intervals of one run of the benchmark | {} |", thousands(recording.intervals))?;
    writeln!(text, "| bytes an interval | {:.1} |", recording.bytes_per_interval)?;
    writeln!(text, "| largest resident size of the recorder, rings included | {:.1} MiB |", mib(recording.peak_rss))?;
    writeln!(text, "| events lost, all rounds | {} |", thousands(recording.lost))?;
    writeln!(
        text,
        "| report of {} synthetic intervals ({:.0} MiB) | {:.1} s, {:.0} MiB resident |",
        thousands(reading.intervals),
        mib(reading.bytes),
        reading.time.as_secs_f64(),
        mib(reading.peak_rss)
    )?;
    Ok(text.trim_end().to_owned())
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Untraced => "nothing",
        Kind::Elsewhere => "gpustall, to another process",
        Kind::Attached => "gpustall, to the benchmark",
        Kind::Runqlat => "libbpf-tools `runqlat`",
    }
}

/// Nanoseconds that a tracer adds, round by round.
fn added(traced: &[f64], untraced: &[f64]) -> Vec<f64> {
    traced.iter().zip(untraced).map(|(traced, untraced)| (traced - untraced) * 1e3).collect()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

fn range(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &value| (low.min(value), high.max(value)))
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// CPU, number of CPUs, kernel: what a reader needs to judge absolute numbers.
fn machine() -> Result<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name.trim().to_owned()))
        .unwrap_or_else(|| "unknown CPU".to_owned());
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").context("cannot read the kernel's release")?;
    // A version of its own may name the place where the kernel was built; three numbers say enough.
    let kernel = kernel.trim().split('-').next().unwrap_or_default().to_owned();
    let guest = if cpuinfo.contains(" hypervisor") { " (virtual machine)" } else { "" };
    let commit = shell::probe(shell::command("git").args(["rev-parse", "--short", "HEAD"])).unwrap_or_default();
    Ok(format!("{model}, {cpus} CPUs{guest}, Linux {kernel}; commit {commit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_the_differences_within_a_round() {
        // A machine that is slow in the second round only: the tracer added 1 µs each time.
        let (untraced, traced) = ([5.0, 9.0, 5.5], [6.0, 10.0, 6.5]);
        assert_eq!(median(&added(&traced, &untraced)).round(), 1000.0);
    }

    #[test]
    fn a_median_of_an_even_number_lies_between() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
    }

    #[test]
    fn thousands_are_set_apart_from_the_right() {
        assert_eq!([thousands(0), thousands(999), thousands(10_000_000)], ["0", "999", "10,000,000"]);
    }
}
