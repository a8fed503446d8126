//! `perf bench sched pipe` pinned to one CPU, untraced and under each tracer, the tracer on another CPU.
//!
//! Two threads of one CPU hand a byte to and fro: two switches and two wake-ups an operation and nothing else, which is
//! the worst case for a scheduler tracer.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::shell;

/// CPU of the benchmark, and the one of the tracers.
const BENCH_CPU: &str = "1";
const TRACER_CPU: &str = "0";
/// A tracer that has not attached by then never will.
const ATTACH_LIMIT: Duration = Duration::from_secs(30);

/// One way to run the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Nothing attached.
    Untraced,
    /// gpustall follows a process that sleeps.
    Elsewhere,
    /// gpustall follows the benchmark itself.
    Attached,
    /// libbpf-tools' `runqlat`, which only counts run-queue delays.
    Runqlat,
}

const KINDS: [Kind; 4] = [Kind::Untraced, Kind::Elsewhere, Kind::Attached, Kind::Runqlat];

/// Results of one kind.
#[derive(Debug, Serialize, Deserialize)]
pub struct Candidate {
    /// Which.
    pub kind: Kind,
    /// Microseconds an operation, by round.
    pub us: Vec<f64>,
}

/// What the recordings of the benchmark itself say.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Recording {
    /// Off-CPU intervals in the last one.
    pub intervals: u64,
    /// Its bytes an interval.
    pub bytes_per_interval: f64,
    /// Largest resident size of the recorder in any of them, bytes.
    pub peak_rss: u64,
    /// Events lost in all of them.
    pub lost: u64,
}

/// Runs all kinds `rounds` times, interleaved.
pub fn measure(tool: &Path, rounds: usize, operations: u64) -> Result<(Vec<Candidate>, Recording)> {
    for (program, package) in [("perf", "linux-perf"), ("taskset", "util-linux"), ("runqlat", "libbpf-tools")] {
        let sbin = Path::new("/usr/sbin").join(program);
        ensure!(
            shell::which(program).is_some() || sbin.is_file(),
            "the benchmark needs `{program}` (Debian's package {package})"
        );
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    ensure!(
        cpus >= 2,
        "the benchmark needs two CPUs, one for the pipe and one for the tracer; this machine offers {cpus}"
    );

    let scratch = tempfile::tempdir().context("cannot make a scratch directory")?;
    let mut candidates: Vec<Candidate> = KINDS.map(|kind| Candidate { kind, us: Vec::new() }).into();
    let mut recording = Recording::default();
    for round in 0..rounds {
        for place in 0..KINDS.len() {
            // Who comes first changes from round to round.
            let candidate = &mut candidates[(place + round) % KINDS.len()];
            let file = scratch.path().join("pipe.gpustall");
            let us = match candidate.kind {
                Kind::Untraced => bench(&mut pinned_bench(operations))?,
                Kind::Elsewhere => elsewhere(tool, &file, operations)?,
                Kind::Attached => attached(tool, &file, operations, &mut recording)?,
                Kind::Runqlat => runqlat(operations)?,
            };
            eprintln!("round {} of {rounds}: {:?} {us:.3} µs an operation", round + 1, candidate.kind);
            candidate.us.push(us);
            if file.exists() {
                fs::remove_file(&file).context("cannot remove a scratch recording")?;
            }
        }
    }
    Ok((candidates, recording))
}

fn pinned_bench(operations: u64) -> Command {
    let mut command = shell::command("taskset");
    command.args(["-c", BENCH_CPU, "perf", "bench", "sched", "pipe", "-l", &operations.to_string()]);
    command
}

/// Runs the benchmark (or a tracer that runs it) and reads its result.
fn bench(command: &mut Command) -> Result<f64> {
    let text = shell::output(command)?;
    micros(&text).with_context(|| format!("no `usecs/op` in what the benchmark printed: {text}"))
}

fn micros(text: &str) -> Option<f64> {
    text.lines().find_map(|line| line.trim().strip_suffix("usecs/op")?.trim().parse().ok())
}

fn elsewhere(tool: &Path, file: &Path, operations: u64) -> Result<f64> {
    let sleeper = Tracer::start(shell::command("sleep").arg("infinity"))?;
    let recorder = Tracer::start(
        pinned_tracer(tool).arg("record").arg("--pid").arg(sleeper.child.id().to_string()).arg("-o").arg(file),
    )?;
    // The header names the probes that are attached, so it is written when they are.
    recorder.wait_until("starts its recording", || fs::metadata(file).is_ok_and(|meta| meta.len() > 0))?;
    bench(&mut pinned_bench(operations))
}

fn attached(tool: &Path, file: &Path, operations: u64, recording: &mut Recording) -> Result<f64> {
    let mut command = pinned_tracer(tool);
    command.arg("record").arg("-o").arg(file).arg("--").arg("taskset");
    command.args(pinned_bench(operations).get_args());
    let us = bench(&mut command)?;

    let report = shell::output(shell::command(tool).arg("report").arg(file).arg("--json"))?;
    let report: serde_json::Value = serde_json::from_str(&report).context("cannot parse `gpustall report --json`")?;
    let overhead = &report["overhead"];
    let number = |name: &str| overhead[name].as_u64().with_context(|| format!("the report lacks overhead.{name}"));
    recording.intervals = number("intervals")?;
    recording.bytes_per_interval =
        overhead["bytes_per_interval"].as_f64().context("the report lacks overhead.bytes_per_interval")?;
    recording.peak_rss = recording.peak_rss.max(number("recorder_peak_rss")?);
    recording.lost += report["recording"]["lost_events"].as_u64().context("the report lacks recording.lost_events")?;
    // Each operation switches both threads out. Without this a recorder that attached too late would look cheap.
    ensure!(
        recording.intervals + recording.lost >= operations,
        "the recording holds {} intervals of {operations} pipe operations: it did not follow the benchmark",
        recording.intervals
    );
    Ok(us)
}

fn runqlat(operations: u64) -> Result<f64> {
    let program = shell::which("runqlat").unwrap_or_else(|| "/usr/sbin/runqlat".into());
    let tracer = Tracer::start(pinned_tracer(&program).args(["3600", "1"]).stdout(Stdio::null()))?;
    let mut seen = (0, Instant::now());
    tracer.wait_until("attaches its programs", || {
        let links = links(tracer.child.id());
        if links != seen.0 {
            seen = (links, Instant::now());
        }
        // It attaches one program after the other within milliseconds.
        links > 0 && seen.1.elapsed() > Duration::from_millis(500)
    })?;
    bench(&mut pinned_bench(operations))
}

/// Attached kernel programs that a process holds.
fn links(pid: u32) -> usize {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    entries
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter(|name| {
            let name = name.to_string_lossy();
            name.contains("bpf_link") || name.contains("bpf-link") || name.contains("raw-tracepoint")
        })
        .count()
}

fn pinned_tracer(program: &Path) -> Command {
    let mut command = shell::command("taskset");
    command.args(["-c", TRACER_CPU]).arg(program);
    command
}

/// A process that runs beside the benchmark and is ended, by its own pid, when dropped.
struct Tracer {
    child: Child,
    name: String,
}

impl Tracer {
    fn start(command: &mut Command) -> Result<Self> {
        let name = format!("{command:?}");
        let child = command.stdin(Stdio::null()).spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { child, name })
    }

    fn wait_until(&self, what: &str, mut ready: impl FnMut() -> bool) -> Result<()> {
        let start = Instant::now();
        while !ready() {
            let gone = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))
                .map_or(true, |stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')));
            if gone {
                bail!("{} ended before it {what}", self.name);
            }
            ensure!(start.elapsed() < ATTACH_LIMIT, "{} takes more than {ATTACH_LIMIT:?} until it {what}", self.name);
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        if let Ok(pid) = libc::pid_t::try_from(self.child.id()) {
            // SIGINT, so that a tracer detaches and finishes its file. `sleep` dies of it as well.
            // SAFETY: the child has not been waited for, so its pid still names it.
            unsafe { libc::kill(pid, libc::SIGINT) };
        }
        if let Err(error) = self.child.wait() {
            eprintln!("xtask: cannot wait for {}: {error}", self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::micros;

    #[test]
    fn the_result_of_perf_bench_is_found_and_nothing_else() {
        let text = "# Running 'sched/pipe' benchmark:\n     Total time: 1.557 [sec]\n\n       5.190000 usecs/op\n         192678 ops/sec\n";
        assert_eq!(micros(text), Some(5.19));
        assert_eq!(micros("     Total time: 1.557 [sec]\n"), None);
    }
}
