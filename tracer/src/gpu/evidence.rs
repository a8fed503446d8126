//! When a GPU was busy, whatever the source says about it.

use crate::events::GpuWindow;
use crate::units::{GpuIndex, MonoNs, Pid};

/// Where GPU evidence comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GpuSource {
    /// NVML utilization samples.
    Nvml,
    /// A GPU trace that the person gave.
    Trace,
    /// CUDA API edges.
    Cuda,
    /// A simulated GPU.
    Simulated,
}

/// A time in which a GPU was busy; `start < end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyInterval {
    /// It became busy.
    pub start: MonoNs,
    /// It became idle.
    pub end: MonoNs,
}

/// How activity is known.
#[derive(Clone, Debug, PartialEq)]
pub enum Activity {
    /// Exactly: sorted, non-overlapping busy intervals.
    Intervals(Vec<BusyInterval>),
    /// As utilization over sorted, non-overlapping windows.
    Windows(Vec<GpuWindow>),
}

/// Activity of one GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuActivity {
    /// Which GPU.
    pub gpu: GpuIndex,
    /// Its name, where known.
    pub name: String,
    /// Where the evidence comes from.
    pub source: GpuSource,
    /// Processes that the evidence itself says gave it work; empty where it says nothing of them.
    pub pids: Vec<Pid>,
    /// Times between busy ones of which nothing is known, in order: between traces of parts of a run. They are no gaps.
    pub holes: Vec<(MonoNs, MonoNs)>,
    /// When it was busy.
    pub activity: Activity,
}
