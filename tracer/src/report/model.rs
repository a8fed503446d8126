//! The one model of a report, from which text and JSON are made. Its JSON is the documented schema `gpustall.report/1`:
//! times are seconds from the start of the recording unless a name says otherwise.

use crate::attribution::Cause;
use crate::diagnosis::{Verdict, WaitedFor};
use serde::{Deserialize, Serialize};

/// Name of the schema.
pub const SCHEMA: &str = "gpustall.report/1";

/// A whole report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// What was recorded.
    pub recording: RecordingInfo,
    /// One entry per GPU.
    pub gpus: Vec<GpuReport>,
    /// Causes over all GPUs, largest first; shares of all idle time sum to 1.
    pub causes: Vec<CauseShare>,
    /// The answer.
    pub verdict: Verdict,
    /// The longest gaps, longest first (at most 200; `gap_count` of each GPU counts all).
    pub gaps: Vec<Gap>,
    /// Gaps with the same chain of causes, most idle time first.
    pub gap_groups: Vec<GapGroup>,
    /// Latencies and durations.
    pub histograms: Vec<HistogramSummary>,
    /// Threads of the target, most time first.
    pub threads: Vec<ThreadReport>,
    /// Files that threads waited on, longest wait first.
    pub files: Vec<PathWait>,
    /// Directories of those files, longest wait first.
    pub directories: Vec<PathWait>,
    /// Block devices with traffic.
    pub devices: Vec<DeviceReport>,
    /// Threads outside the target that had the CPU while target threads waited for it.
    pub competitors: Vec<Competitor>,
    /// Where running target threads spent their CPU time, from samples.
    pub hot_images: Vec<HotImage>,
    /// What recording cost and lost.
    pub overhead: Overhead,
    /// What a reader must know to judge the numbers: losses, damage, missing probes, kind of evidence.
    pub notes: Vec<String>,
}

/// What was recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordingInfo {
    /// Length in seconds.
    pub duration_s: f64,
    /// Host name.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// The process.
    pub target: TargetInfo,
    /// Start, RFC 3339 in UTC.
    pub started_at: String,
    /// Start on CLOCK_MONOTONIC, nanoseconds.
    pub started_mono_ns: u64,
    /// Events lost, all kinds.
    pub lost_events: u64,
    /// The file was closed cleanly and nothing in it is damaged.
    pub complete: bool,
}

/// The process recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetInfo {
    /// Its pid.
    pub pid: u32,
    /// Its command line.
    pub command: String,
}

/// One GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuReport {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Source of the evidence: `nvml`, `trace`, `cuda`, `simulated` or `none`.
    pub source: String,
    /// How its busy times are known: `intervals` (exactly) or `windows` (as a share of windows).
    pub evidence: String,
    /// From its first to its last busy moment: start.
    pub active_from_s: f64,
    /// End of that span.
    pub active_to_s: f64,
    /// Busy time in the span, seconds.
    pub busy_s: f64,
    /// Idle time in the span, seconds.
    pub idle_s: f64,
    /// Idle share of the span, 0 to 1.
    pub idle_share: f64,
    /// Share of the idle time that is sure to lie where it was placed, 0 to 1: 1 with exact intervals; with windows, the part
    /// that lies in windows without any work or was placed in waits during which a GPU has nothing to do.
    pub certain_share: f64,
    /// It works for the recorded job. `false` where the processes that feed it are told and none was recorded: why it was idle is
    /// unknown then, and no part of what is said of the job as a whole.
    #[serde(default = "yes")]
    pub of_job: bool,
    /// For which processes of other GPUs its own process waited, longest first.
    #[serde(default)]
    pub waited_for: Vec<WaitedFor>,
    /// Idle time before the first busy moment, seconds.
    pub before_s: f64,
    /// Idle time after the last busy moment, seconds.
    pub after_s: f64,
    /// Number of gaps; with windows, the number of windows with idle time.
    pub gap_count: u64,
    /// Causes of its idle time, largest first; shares sum to 1.
    pub causes: Vec<CauseShare>,
    /// The answer for this GPU.
    pub verdict: Verdict,
    /// What NVML says of its state, one sentence each (throttling, PCIe link, memory, other processes).
    pub state: Vec<String>,
}

fn yes() -> bool {
    true
}

/// One cause's share.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CauseShare {
    /// The cause.
    pub cause: Cause,
    /// Idle time that it explains.
    pub seconds: f64,
    /// Of all idle time, 0 to 1.
    pub share: f64,
}

/// One link of a chain that explains a gap.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChainLink {
    /// Start of the stretch.
    pub start_s: f64,
    /// Its end.
    pub end_s: f64,
    /// Thread that it is about.
    pub tid: u32,
    /// Role of the thread.
    pub role: String,
    /// Cause.
    pub cause: Cause,
    /// What the thread was doing, in words.
    pub what: String,
}

/// One gap between two busy times of a GPU, or one window with idle time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gap {
    /// Which GPU.
    pub gpu: u32,
    /// Start.
    pub start_s: f64,
    /// End.
    pub end_s: f64,
    /// Its largest cause.
    pub cause: Cause,
    /// What happened, in order of time, neighbouring stretches of the same kind joined.
    pub chain: Vec<ChainLink>,
}

/// Gaps that read the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GapGroup {
    /// The chain in words, such as `feeder ← worker: disk`.
    pub chain: String,
    /// How many gaps.
    pub count: u64,
    /// Idle time of all of them.
    pub seconds: f64,
    /// Largest cause.
    pub cause: Cause,
}

/// Summary of one histogram, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistogramSummary {
    /// Name: `block_io_latency`, `block_io_queue`, `block_io_device`, `blocked_read`, `file_open`, `run_queue`,
    /// `on_cpu_burst`, `gpu_busy`, `gpu_idle`.
    pub name: String,
    /// What it is about (`device`, `operation`, `role`, `gpu` …).
    pub labels: std::collections::BTreeMap<String, String>,
    /// Always `ns`.
    pub unit: String,
    /// Number of values.
    pub count: u64,
    /// Mean.
    pub mean: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Largest value.
    pub max: u64,
}

/// One thread of the target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadReport {
    /// Its id.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Its role: `feeder`, `worker`, `pin_memory`, `ipc`, `helper` …
    pub role: String,
    /// How long it existed inside the recording.
    pub alive_s: f64,
    /// Time on a CPU.
    pub running_s: f64,
    /// Time runnable without a CPU.
    pub runqueue_s: f64,
    /// Time blocked on storage.
    pub disk_s: f64,
    /// Time blocked, storage included.
    pub blocked_s: f64,
    /// Longest time runnable without a CPU, milliseconds.
    pub max_runqueue_ms: f64,
    /// System call with the most blocked time, and that time: `read`, `futex` …; absent if it never blocked.
    pub top_wait: Option<TopWait>,
}

/// The system call that a thread was blocked in for longest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TopWait {
    /// Name of the call, or `page fault`.
    pub syscall: String,
    /// Time blocked in it.
    pub seconds: f64,
}

/// Waits on one file or directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathWait {
    /// Its path.
    pub path: String,
    /// Time that target threads were blocked on it, summed over threads.
    pub blocked_s: f64,
    /// Number of waits.
    pub waits: u64,
    /// Opens seen (of a directory: of files in it).
    pub opens: u64,
    /// Mean latency of those opens in milliseconds; absent without any.
    pub mean_open_ms: Option<f64>,
    /// Files seen (1 for a file).
    pub files: u64,
}

/// One block device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Name such as `sda`, or `major:minor`.
    pub device: String,
    /// `rotational`, `solid state`, `virtual`, `loop` or `unknown`.
    pub kind: String,
    /// `read`, `write`, `flush`, `discard` or `other`.
    pub operation: String,
    /// Requests completed.
    pub requests: u64,
    /// Per second of the recording.
    pub per_second: f64,
    /// Bytes moved.
    pub bytes: u64,
    /// Mean time in the queue, milliseconds.
    pub mean_queue_ms: f64,
    /// Mean time in the device, milliseconds.
    pub mean_device_ms: f64,
    /// Requests that the target submitted.
    pub by_target: u64,
    /// Requests that kernel threads submitted.
    pub by_kernel: u64,
    /// Requests that other processes submitted.
    pub by_others: u64,
}

/// A thread that had the CPU instead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Competitor {
    /// Its id.
    pub tid: u32,
    /// Its name.
    pub comm: String,
    /// Command line of its process.
    pub command: String,
    /// Whether it belongs to the target itself.
    pub in_target: bool,
    /// Run-queue time of target threads that ended, or began, with this thread on their CPU.
    pub seconds: f64,
}

/// One image (executable or library) in which threads of a role spent CPU time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HotImage {
    /// Role of the threads.
    pub role: String,
    /// File name of the image, or the system call for time inside the kernel.
    pub image: String,
    /// Share of the role's samples.
    pub share: f64,
    /// Samples.
    pub samples: u64,
}

/// What recording cost and lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// CPU time of the recorder, seconds; `None` if the recording was not closed, since its last block tells it.
    pub recorder_cpu_s: Option<f64>,
    /// Peak resident memory of the recorder, bytes; `None` likewise.
    pub recorder_peak_rss: Option<u64>,
    /// Size of the recording, bytes.
    pub recording_bytes: u64,
    /// Off-CPU intervals in it.
    pub intervals: u64,
    /// Bytes per interval, all families together.
    pub bytes_per_interval: f64,
    /// Events lost, by kind.
    pub lost: std::collections::BTreeMap<String, u64>,
    /// Kernel time of the programs, nanoseconds a run, by program; empty unless the kernel counted it.
    pub program_ns: std::collections::BTreeMap<String, f64>,
}
