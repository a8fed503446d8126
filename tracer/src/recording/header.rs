//! What a recording says about itself, its host and its target: everything that a reader on another machine needs.

use crate::host::{BlockDevice, Mount, ProcessLimits};
use crate::units::{BootNs, MonoNs, Pid, WallNs};
use serde::{Deserialize, Serialize};

/// Version of the format that this program writes.
pub const FORMAT_VERSION: u32 = 1;

/// The first block of a recording.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Version of gpustall that wrote it.
    pub written_by: String,
    /// The same moment on three clocks, read together.
    pub started: ClockReading,
    /// Name of the host.
    pub host: String,
    /// Kernel release (`uname -r`).
    pub kernel: String,
    /// CPUs online.
    pub cpus: u32,
    /// The process that was attached to.
    pub target: Target,
    /// Which kernel programs were attached, and why others were not.
    pub probes: Vec<ProbeStatus>,
    /// Whether GPU evidence comes with it, in one sentence when it does not.
    pub gpu_note: Option<String>,
    /// Rate of on-CPU samples per CPU and second; 0 if off.
    pub sample_hz: u32,
    /// How file opens were recorded: `all`, `sampled` or `off`.
    pub opens: String,
    /// Mounts as the target sees them.
    pub mounts: Vec<Mount>,
    /// Block devices.
    pub disks: Vec<BlockDevice>,
    /// Limits on the target at the start; the I/O limits are those of all its processes.
    pub limits: ProcessLimits,
}

/// One moment on three clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// CLOCK_MONOTONIC: the clock of all events.
    pub mono: MonoNs,
    /// CLOCK_REALTIME.
    pub wall: WallNs,
    /// CLOCK_BOOTTIME.
    pub boot: BootNs,
}

/// The process that a recording is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Its pid.
    pub pid: Pid,
    /// Its command line, arguments separated by spaces.
    pub command: String,
}

/// State of one kernel program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeStatus {
    /// Name, as in the documentation (`sched_switch`, `block_rq_issue` …).
    pub name: String,
    /// Why it is not attached; absent if it is.
    pub failure: Option<String>,
}

/// The last block of a recording that was ended cleanly.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trailer {
    /// End of the recording.
    pub ended: ClockReading,
    /// Why it ended: `duration`, `interrupted`, `target exited`, `command exited`.
    pub reason: String,
    /// Exit status of the launched command, where one was launched and it exited by itself.
    pub command_status: Option<i32>,
    /// What recording cost.
    pub cost: Cost,
}

/// What a recording cost its machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Off-CPU intervals that the kernel programs emitted, dropped ones included.
    pub intervals_emitted: u64,
    /// CPU time of the recorder itself, seconds.
    pub recorder_cpu_s: f64,
    /// Peak resident memory of the recorder, bytes.
    pub recorder_peak_rss: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Run time of the kernel programs, nanoseconds, and number of runs, by program; empty unless the kernel counted
    /// them (`kernel.bpf_stats_enabled`).
    pub programs: Vec<ProgramCost>,
}

/// Cost of one kernel program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramCost {
    /// Its name.
    pub name: String,
    /// How often it ran.
    pub runs: u64,
    /// Time spent in it, nanoseconds.
    pub time_ns: u64,
}
