//! State of the host: what /proc and the control groups say, about once a second.

use crate::units::{MonoNs, Nanos, Pid};
use serde::{Deserialize, Serialize};

/// CPU accounting of the control group that a target process is in. Counters since the group's creation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CgroupCpu {
    /// Path of the group.
    pub path: String,
    /// CPUs' worth of quota (`quota / period`); absent without one.
    pub quota_cpus: Option<f64>,
    /// Periods in which it was throttled.
    pub throttled_periods: u64,
    /// Time for which its threads were held back.
    pub throttled: Nanos,
}

/// Pressure stall information of one resource: time in which at least one task (`some`) or all (`full`) waited, counters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    /// At least one task waited.
    pub some: Nanos,
    /// All tasks waited.
    pub full: Nanos,
}

/// State of the host at one moment; counters since boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    /// When.
    pub time: MonoNs,
    /// CPUs online.
    pub cpus: u32,
    /// CPU time spent busy, all CPUs together (user, nice, system, interrupts, steal).
    pub cpu_busy: Nanos,
    /// CPU time spent idle, iowait included.
    pub cpu_idle: Nanos,
    /// Of `cpu_idle`, while some task waited for block I/O.
    pub cpu_iowait: Nanos,
    /// Memory that can be had without swapping, bytes.
    pub memory_available: u64,
    /// Pages swapped in since boot.
    pub swapped_in: u64,
    /// Major page faults since boot, whole machine.
    pub major_faults: u64,
    /// CPU pressure, where the kernel has it.
    pub pressure_cpu: Option<Pressure>,
    /// I/O pressure.
    pub pressure_io: Option<Pressure>,
    /// Memory pressure.
    pub pressure_memory: Option<Pressure>,
    /// The target's control groups with CPU accounting: each group that holds a target process, and each group above one
    /// of those that has a quota (a quota throttles the groups below without a trace in their own counters).
    pub cgroups: Vec<CgroupCpu>,
    /// Target processes that listen for connections; absent where it was not looked at, which costs more than the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listeners: Option<Vec<Pid>>,
}
