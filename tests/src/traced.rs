//! Runs the I/O workload with the real kernel programs attached to it.

use crate::loopdev::starting;
use anyhow::{Context, Result, bail, ensure};
use gpustall::events::Event;
use gpustall::probe::{Options, Probe, ProbeStatus};
use gpustall::units::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long any workload may take. A test that comes to this has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two looks into the rings.
const DRAIN: Duration = Duration::from_millis(5);

/// What a traced workload left.
pub struct Traced {
    /// Its process.
    pub pid: Pid,
    /// Everything that was recorded.
    pub events: Vec<Event>,
    /// What it says it did.
    pub facts: Value,
    /// Which programs were attached.
    pub status: Vec<ProbeStatus>,
    /// How opens were recorded.
    pub opens: &'static str,
}

impl Traced {
    /// A number among the facts.
    pub fn fact(&self, name: &str) -> Result<u64> {
        self.facts[name].as_u64().with_context(|| format!("the workload said nothing of {name}: {}", self.facts))
    }

    /// Whether a program is attached; an error names why it is not.
    pub fn attached(&self, name: &str) -> Result<()> {
        let status = self.status.iter().find(|s| s.name == name).with_context(|| format!("no status of {name}"))?;
        ensure!(status.failure.is_none(), "{name} is not attached: {:?}", status.failure);
        Ok(())
    }
}

/// A workload that has started and waits for the word to go.
struct Workload {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Workload {
    fn start(program: &str, args: &[&str]) -> Result<Workload> {
        let mut child = {
            let _alone = starting();
            let mut command = Command::new(program);
            command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn().with_context(|| format!("starting {program}"))?
        };
        let output = child.stdout.take().context("no output")?;
        let (send, lines) = channel();
        std::thread::spawn(move || BufReader::new(output).lines().map_while(Result::ok).try_for_each(|l| send.send(l)));
        let workload = Workload { input: child.stdin.take(), child, lines };
        ensure!(workload.lines.recv_timeout(PATIENCE)? == "ready", "the workload did not get ready");
        Ok(workload)
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Traces one run of the workload at `program` (`env!("CARGO_BIN_EXE_io-workload")`), which does what `args` say.
pub fn traced(program: &str, args: &[&str], set: impl FnOnce(&mut Options)) -> Result<Traced> {
    let mut workload = Workload::start(program, args)?;
    let pid = Pid(workload.child.id());
    let mut options = Options::new(pid);
    set(&mut options);
    let mut probe = Probe::attach(&options).context("attaching needs root and a kernel with BTF")?;
    let (status, opens) = (probe.status().to_vec(), probe.opens());
    let mut events = Vec::new();
    let input = workload.input.as_mut().context("no input")?;
    input.write_all(b"go\n")?;
    let start = Instant::now();
    let facts = loop {
        probe.drain(&mut |e| events.push(e));
        match workload.lines.recv_timeout(DRAIN) {
            Ok(line) => break serde_json::from_str(&line)?,
            Err(RecvTimeoutError::Disconnected) => bail!("the workload {args:?} failed"),
            Err(RecvTimeoutError::Timeout) => ensure!(start.elapsed() < PATIENCE, "the workload {args:?} hangs"),
        }
    };
    // It keeps its descriptors open until its input closes.
    probe.drain(&mut |e| events.push(e));
    probe.stop(&mut |e| events.push(e));
    Ok(Traced { pid, events, facts, status, opens })
}
