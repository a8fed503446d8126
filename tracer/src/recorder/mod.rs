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
    events: u64,
    lost: u64,
    notes: Vec<String>,
    signals: Signals,
}

/// Signals that end a recording. Handlers replace "ignored", which a shell sets for SIGINT in background jobs.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Recorder {
    /// Attaches to the target and creates the file. Must be called inside a tokio runtime.
    pub fn start(settings: Settings) -> Result<Recorder, RecordError> {
        output::check(&settings.output, settings.overwrite)?;
        let signals = Signals {
            interrupt: signal(SignalKind::interrupt()).map_err(RecordError::Signals)?,
            terminate: signal(SignalKind::terminate()).map_err(RecordError::Signals)?,
        };
        let started = host::clocks();
        let mut options = probe::Options::new(settings.pid);
        options.opens = settings.opens;
        options.sample_hz = settings.sample_hz;
        if let Some(bytes) = settings.ring_bytes {
            options.events_ring_bytes = bytes;
        }
        let probe = Probe::attach(&options)?;
        let mut notes: Vec<String> = probe
            .status()
            .iter()
            .filter_map(|s| Some(format!("{} is not recorded: {}", s.name, s.failure.as_ref()?)))
            .collect();
        let (gpu, gpu_note) = open_gpu(&settings);
        notes.extend(gpu_note.clone());
        let header = Header {
            written_by: env!("CARGO_PKG_VERSION").into(),
            started,
            host: host::hostname(),
            kernel: host::kernel_release(),
            cpus: host::online_cpus(),
            target: Target { pid: settings.pid, command: host::command_line(settings.pid).unwrap_or_default() },
            probes: probe
                .status()
                .iter()
                .map(|s| ProbeStatus { name: s.name.to_string(), failure: s.failure.clone() })
                .collect(),
            gpu_note,
            sample_hz: settings.sample_hz,
            opens: probe.opens().into(),
            mounts: host::mounts(settings.pid).unwrap_or_default(),
            disks: host::block_devices(),
            limits: limits_of_tree(settings.pid),
        };
        let writer = Writer::create(&settings.output, &header, settings.overwrite)?;
        let pids = BTreeSet::from([settings.pid]);
        Ok(Recorder {
            settings,
            probe,
            gpu,
            writer,
            host: host::HostSampler::new(),
            pids,
            started: started.mono,
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

    /// Records until `duration` is over, a signal comes or the target ends, and closes the file.
    ///
    /// If the file cannot be written any more, what was written before is kept and the error says so.
    pub async fn run(mut self, duration: Option<Duration>) -> Result<Finished, RecordError> {
        let mut status = StatusLine::new(self.settings.show_status);
        let mut ticks = tokio::time::interval(DRAIN_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let deadline = duration.map(|d| tokio::time::Instant::now() + d);
        let mut next_host = MonoNs(0);
        let ended = loop {
            let over = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = self.signals.interrupt.recv() => break Ended::Interrupted,
                _ = self.signals.terminate.recv() => break Ended::Terminated,
                () = over => break Ended::Duration,
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
                        break Ended::TargetExited;
                    }
                }
            }
        };
        status.clear();
        self.finish(ended)
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

    fn finish(mut self, ended: Ended) -> Result<Finished, RecordError> {
        let now = host::clocks().mono;
        self.sample_host(now)?;
        let mut sink = Sink::new(&mut self.writer, &mut self.pids, &mut self.events, &mut self.lost);
        let cost = self.probe.stop(&mut |e| sink.take(e));
        if let Some(gpu) = self.gpu.take() {
            gpu.stop().into_iter().for_each(|e| sink.take(e));
        }
        sink.result()?;
        let end = host::clocks();
        let usage = output::own_usage();
        let trailer = Trailer {
            ended: end,
            reason: ended.words().into(),
            command_status: None,
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
        output::give_to_caller(&self.settings.output);
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
