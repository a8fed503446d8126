//! A recording in the making: attaches the probe, drains it, asks the GPU and the host beside it, and writes all of it to
//! one file until something ends it.

mod error;
mod launch;
mod output;
mod status;

pub use error::RecordError;
pub use launch::{GATE, Launched, gate};
pub use output::{default_name, name_for_command};

use crate::events::{Event, TaskWhat};
use crate::gpu::{self, GpuThread};
use crate::host::{self, ProcessLimits};
use crate::probe::{self, OpenMode, Probe};
use crate::recording::{Cost, Header, ProbeStatus, ProgramCost, Target, Trailer, Writer, Written};
use crate::units::{MonoNs, Nanos, Pid};
use status::StatusLine;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

/// The rings are emptied this often.
const DRAIN_EVERY: Duration = Duration::from_millis(10);
/// The host is asked this often: often enough to see CPU quotas run out.
const HOST_EVERY: Nanos = Nanos::from_millis(250);

/// What to record.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The process.
    pub pid: Pid,
    /// The file; must not exist unless `overwrite`.
    pub output: PathBuf,
    /// Replace an existing file.
    pub overwrite: bool,
    /// How file opens are seen.
    pub opens: OpenMode,
    /// On-CPU samples per second and CPU; 0 for none.
    pub sample_hz: u32,
    /// Size of the ring for intervals and samples, bytes.
    pub ring_bytes: Option<u32>,
    /// Ask NVML about the GPUs.
    pub gpu: bool,
    /// The NVML library to ask; the system's if `None`.
    pub nvml_lib: Option<PathBuf>,
    /// Show a line about the recording on standard error if that is a terminal.
    pub show_status: bool,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its duration was over.
    Duration,
    /// SIGINT (Ctrl-C).
    Interrupted,
    /// SIGTERM.
    Terminated,
    /// SIGHUP: the terminal was closed.
    HungUp,
    /// The target ended.
    TargetExited,
}

impl Ended {
    /// As the recording's trailer says it.
    pub fn words(self) -> &'static str {
        match self {
            Ended::Duration => "duration",
            Ended::Interrupted => "interrupted",
            Ended::Terminated => "terminated",
            Ended::HungUp => "hung up",
            Ended::TargetExited => "target exited",
        }
    }
}

/// A finished recording.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The file.
    pub path: PathBuf,
    /// Why it ended.
    pub ended: Ended,
    /// Its length.
    pub length: Nanos,
    /// What was written.
    pub written: Written,
    /// Events lost.
    pub lost: u64,
}

/// An attached recorder. Dropping it detaches the probe and keeps what was written so far.
pub struct Recorder {
    settings: Settings,
    probe: Probe,
    gpu: Option<GpuThread>,
    writer: Writer,
    host: host::HostSampler,
    pids: BTreeSet<Pid>,
    started: MonoNs,
    /// The file was there before and is being replaced.
    existed: bool,
    events: u64,
    lost: u64,
    notes: Vec<String>,
    signals: Signals,
}

/// Signals that end a recording. Handlers replace "ignored", which a shell sets for SIGINT in background jobs.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// The terminal or the connection is gone; absent under nohup, which asks to go on.
    hang_up: Option<Signal>,
}

impl Signals {
    fn catch() -> Result<Signals, RecordError> {
        let caught = |kind| signal(kind).map_err(RecordError::Signals);
        Ok(Signals {
            interrupt: caught(SignalKind::interrupt())?,
            terminate: caught(SignalKind::terminate())?,
            hang_up: if hang_up_is_ignored() { None } else { Some(caught(SignalKind::hangup())?) },
        })
    }
}

async fn hung_up(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Whether whoever started us set SIGHUP to "ignored".
fn hang_up_is_ignored() -> bool {
    // SAFETY: `sigaction` is plain old data, for which zeros are valid; with no new action the call only writes the old.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGHUP, std::ptr::null(), &raw mut old) == 0 && old.sa_sigaction == libc::SIG_IGN
    }
}

impl Recorder {
    /// Attaches to the target and creates the file. Must be called inside a tokio runtime.
    pub fn start(settings: Settings) -> Result<Recorder, RecordError> {
        let command = host::command_line(settings.pid).unwrap_or_default();
        Recorder::start_as(settings, command)
    }

    /// The same for a command that still waits at its gate.
    pub fn start_launched(settings: Settings, launched: &Launched) -> Result<Recorder, RecordError> {
        Recorder::start_as(settings, launched.command_line().to_owned())
    }

    fn start_as(settings: Settings, command: String) -> Result<Recorder, RecordError> {
        output::check(&settings.output, settings.overwrite)?;
        let signals = Signals::catch()?;
        let existed = settings.output.exists();
        let mut options = probe::Options::new(settings.pid);
        options.opens = settings.opens;
        options.sample_hz = settings.sample_hz;
        if let Some(bytes) = settings.ring_bytes {
            options.events_ring_bytes = bytes;
        }
        let probe = Probe::attach(&options)?;
        // What happened before this moment was seen by no program, so the recording begins here.
        let started = host::clocks();
        let mut notes: Vec<String> = probe
            .status()
            .iter()
            .filter_map(|s| Some(format!("the probe on {} is not attached: {}", s.name, s.failure.as_ref()?)))
            .collect();
        let (gpu, gpu_note) = open_gpu(&settings);
        notes.extend(gpu_note.clone());
        let header = Header {
            written_by: env!("CARGO_PKG_VERSION").into(),
            started,
            host: host::hostname(),
            kernel: host::kernel_release(),
            cpus: host::online_cpus(),
            target: Target { pid: settings.pid, command },
            probes: probe
                .status()
                .iter()
                .map(|s| ProbeStatus { name: s.name.to_string(), failure: s.failure.clone() })
                .collect(),
            gpu_note,
            sample_hz: if probe.samples() { settings.sample_hz } else { 0 },
            opens: probe.opens().into(),
            mounts: host::mounts(settings.pid).unwrap_or_default(),
            disks: host::block_devices(),
            limits: limits_of_tree(settings.pid),
        };
        let writer = Writer::create(&settings.output, &header, settings.overwrite)?;
        // At once: also a recording that is cut short belongs to whoever asked for it.
        output::give_to_caller(&settings.output);
        let pids = BTreeSet::from([settings.pid]);
        Ok(Recorder {
            settings,
            probe,
            gpu,
            writer,
            host: host::HostSampler::new(),
            pids,
            started: started.mono,
            existed,
            events: 0,
            lost: 0,
            notes,
            signals,
        })
    }

    /// What cannot be recorded, and why, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Gives the recording up and removes its file, unless that was there before.
    pub fn discard(self) {
        let (path, existed) = (self.settings.output.clone(), self.existed);
        // Closes the file first.
        drop(self);
        if !existed {
            output::remove(&path);
        }
    }

    /// Records until `duration` is over, a signal comes or the target ends, and closes the file.
    ///
    /// If the file cannot be written any more, what was written before is kept and the error says so.
    pub async fn run(mut self, duration: Option<Duration>) -> Result<Finished, RecordError> {
        let ended = self.until_ended(duration).await?;
        self.finish(ended, None)
    }

    /// The same for a command that was launched; the recording tells its exit status where it ends first.
    pub async fn run_command(
        mut self,
        duration: Option<Duration>,
        command: &mut Launched,
    ) -> Result<Finished, RecordError> {
        let ended = self.until_ended(duration).await?;
        let status = match ended {
            Ended::TargetExited => command.wait().await?.code(),
            _ => None,
        };
        self.finish(ended, status)
    }

    async fn until_ended(&mut self, duration: Option<Duration>) -> Result<Ended, RecordError> {
        let mut status = StatusLine::new(self.settings.show_status);
        let ended = self.watch(duration, &mut status).await;
        status.clear();
        ended
    }

    async fn watch(&mut self, duration: Option<Duration>, status: &mut StatusLine) -> Result<Ended, RecordError> {
        let mut ticks = tokio::time::interval(DRAIN_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let deadline = duration.map(|d| tokio::time::Instant::now() + d);
        let mut next_host = MonoNs(0);
        loop {
            let over = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = self.signals.interrupt.recv() => return Ok(Ended::Interrupted),
                _ = self.signals.terminate.recv() => return Ok(Ended::Terminated),
                () = hung_up(&mut self.signals.hang_up) => return Ok(Ended::HungUp),
                () = over => return Ok(Ended::Duration),
                _ = ticks.tick() => {
                    let alive = self.probe.target_alive();
                    let now = host::clocks().mono;
                    self.tick(now)?;
                    if now >= next_host {
                        self.sample_host(now)?;
                        next_host = now + HOST_EVERY;
                    }
                    let gpu = self.gpu.as_ref().and_then(GpuThread::latest_utilization);
                    status.show(now, now.since(self.started), self.events, self.lost, gpu);
                    if !alive {
                        return Ok(Ended::TargetExited);
                    }
                }
            }
        }
    }

    /// Drains what the probe and the GPU have, and lets a second's worth of it reach the disk.
    fn tick(&mut self, now: MonoNs) -> Result<(), RecordError> {
        let mut sink = Sink::new(&mut self.writer, &mut self.pids, &mut self.events, &mut self.lost);
        self.probe.drain(&mut |e| sink.take(e));
        if let Some(gpu) = &self.gpu {
            gpu.drain().for_each(|e| sink.take(e));
        }
        sink.result()?;
        self.probe.tick(now);
        self.writer.tick(now)?;
        Ok(())
    }

    fn sample_host(&mut self, now: MonoNs) -> Result<(), RecordError> {
        let pids: Vec<Pid> = self.pids.iter().copied().collect();
        let sample = self.host.sample(now, &pids);
        self.writer.push(Event::Host(sample))?;
        Ok(())
    }

    fn finish(mut self, ended: Ended, command_status: Option<i32>) -> Result<Finished, RecordError> {
        let now = host::clocks().mono;
        self.sample_host(now)?;
        let mut sink = Sink::new(&mut self.writer, &mut self.pids, &mut self.events, &mut self.lost);
        let cost = self.probe.stop(&mut |e| sink.take(e));
        let end = host::clocks();
        if let Some(gpu) = self.gpu.take() {
            gpu.stop().into_iter().for_each(|e| sink.take(e));
        }
        sink.result()?;
        let usage = output::own_usage();
        let trailer = Trailer {
            ended: end,
            reason: ended.words().into(),
            command_status,
            cost: Cost {
                intervals_emitted: cost.intervals,
                recorder_cpu_s: usage.cpu.secs(),
                recorder_peak_rss: usage.peak_rss,
                bytes_written: self.writer.bytes_written(),
                programs: match cost.program_runs {
                    0 => Vec::new(),
                    runs => vec![ProgramCost { name: "all".into(), runs, time_ns: cost.program_time.0 }],
                },
            },
        };
        let written = self.writer.finish(&trailer)?;
        if !self.settings.output.exists() {
            return Err(RecordError::Gone { path: self.settings.output });
        }
        Ok(Finished {
            path: self.settings.output,
            ended,
            length: end.mono.since(self.started),
            written,
            lost: self.lost,
        })
    }
}

/// Limits on the target, and the I/O limits on any of its descendants: workers may be in groups of their own.
fn limits_of_tree(pid: Pid) -> ProcessLimits {
    let mut limits = host::limits(pid);
    for child in host::process_tree(pid).unwrap_or_default().into_iter().filter(|p| *p != pid) {
        for io in host::limits(child).io {
            if !limits.io.contains(&io) {
                limits.io.push(io);
            }
        }
    }
    limits
}

/// NVML, or why not.
fn open_gpu(settings: &Settings) -> (Option<GpuThread>, Option<String>) {
    if !settings.gpu {
        return (None, None);
    }
    match gpu::spawn(settings.nvml_lib.clone()) {
        Ok(thread) => {
            let notes = thread.notes().join("; ");
            (Some(thread), (!notes.is_empty()).then_some(notes))
        }
        Err(e) => (None, Some(e.to_string())),
    }
}

/// Passes events to the writer, remembers the first failure, and keeps count.
struct Sink<'a> {
    writer: &'a mut Writer,
    pids: &'a mut BTreeSet<Pid>,
    events: &'a mut u64,
    lost: &'a mut u64,
    failure: Option<RecordError>,
}

impl<'a> Sink<'a> {
    fn new(writer: &'a mut Writer, pids: &'a mut BTreeSet<Pid>, events: &'a mut u64, lost: &'a mut u64) -> Sink<'a> {
        Sink { writer, pids, events, lost, failure: None }
    }

    fn take(&mut self, event: Event) {
        match &event {
            Event::Task(t) if t.pid.main_thread() == t.tid => match t.what {
                TaskWhat::Exited => {
                    self.pids.remove(&t.pid);
                }
                _ => {
                    self.pids.insert(t.pid);
                }
            },
            Event::Loss(l) => *self.lost += l.count,
            _ => {}
        }
        *self.events += 1;
        if let Err(e) = self.writer.push(event)
            && self.failure.is_none()
        {
            self.failure = Some(e.into());
        }
    }

    fn result(self) -> Result<(), RecordError> {
        self.failure.map_or(Ok(()), Err)
    }
}
