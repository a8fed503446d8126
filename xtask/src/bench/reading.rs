//! How long `gpustall report` takes for a large recording, and how much memory.

use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::shell;

/// Reports made of the same file; the median counts.
const RUNS: usize = 3;

/// What reading cost.
#[derive(Debug)]
pub struct Reading {
    /// Intervals in the recording.
    pub intervals: u64,
    /// Size of the recording.
    pub bytes: u64,
    /// Median time of a report.
    pub time: Duration,
    /// Peak resident size of the reporting process, bytes.
    pub peak_rss: u64,
}

/// Writes a recording of so many intervals and times reports of it.
pub fn measure(tool: &Path, generator: &Path, intervals: u64) -> Result<Reading> {
    let scratch = tempfile::tempdir().context("cannot make a scratch directory")?;
    let file = scratch.path().join("large.gpustall");
    shell::run(shell::command(generator).arg(intervals.to_string()).arg(&file))?;
    let bytes = std::fs::metadata(&file).context("cannot see the synthetic recording")?.len();

    let mut times = Vec::new();
    let mut peak_rss = 0;
    for run in 1..=RUNS {
        let mut report = shell::command(tool);
        report.arg("report").arg(&file).arg("--json").stdout(Stdio::null());
        let (time, rss) = timed(&mut report)?;
        eprintln!("report {run} of {RUNS}: {:.2} s, {} MiB", time.as_secs_f64(), rss >> 20);
        times.push(time);
        peak_rss = peak_rss.max(rss);
    }
    times.sort();
    Ok(Reading { intervals, bytes, time: times[RUNS / 2], peak_rss })
}

/// Wall time and peak resident size of a command.
fn timed(command: &mut Command) -> Result<(Duration, u64)> {
    let start = Instant::now();
    let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let pid = libc::pid_t::try_from(child.id()).context("a pid that is no pid")?;
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // The standard library's wait does not give the resident size.
    // SAFETY: both pointers are valid for writing, and nobody else waits for this child.
    let waited = unsafe { libc::wait4(pid, &raw mut status, 0, usage.as_mut_ptr()) };
    let time = start.elapsed();
    if waited != pid {
        return Err(std::io::Error::last_os_error()).with_context(|| format!("cannot wait for {command:?}"));
    }
    if status != 0 {
        bail!("{command:?} failed (wait status {status})");
    }
    // SAFETY: zeroed at first, and filled in by the call that succeeded; every bit pattern is valid.
    let usage = unsafe { usage.assume_init() };
    // Linux gives it in KiB.
    Ok((time, u64::try_from(usage.ru_maxrss).unwrap_or(0) << 10))
}
