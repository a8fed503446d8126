//! GPU evidence as NVML gives it.

use crate::units::{GpuIndex, MonoNs, Pid};
use serde::{Deserialize, Serialize};

/// A GPU that is watched. Every optional value is absent where the driver does not tell it, never 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuDevice {
    /// Its index.
    pub gpu: GpuIndex,
    /// Product name.
    pub name: String,
    /// Its UUID.
    pub uuid: Option<String>,
    /// PCI address.
    pub pci: Option<String>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// PCIe generation and width that card and slot can do.
    pub pcie_max: Option<(u32, u32)>,
    /// Power limit in milliwatts.
    pub power_limit_mw: Option<u32>,
}

/// The GPU was busy for `utilization` percent of a window: in that share of it at least one kernel ran.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuWindow {
    /// Which GPU.
    pub gpu: GpuIndex,
    /// Start of the window.
    pub start: MonoNs,
    /// End of the window.
    pub end: MonoNs,
    /// Percent, 0 to 100.
    pub utilization: f32,
}

/// State of a GPU at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuState {
    /// When.
    pub time: MonoNs,
    /// Which GPU.
    pub gpu: GpuIndex,
    /// Memory in use, bytes.
    pub memory_used: Option<u64>,
    /// Share of time the memory was read or written, percent.
    pub memory_utilization: Option<u32>,
    /// Power draw in milliwatts.
    pub power_mw: Option<u32>,
    /// Temperature in °C.
    pub temperature_c: Option<u32>,
    /// Clock of the multiprocessors, MHz, and the highest it can have.
    pub sm_clock_mhz: Option<(u32, u32)>,
    /// Reasons why clocks are held down, as NVML's bit mask (`nvmlClocksEventReason*`).
    pub throttle_reasons: Option<u64>,
    /// PCIe generation and width now.
    pub pcie: Option<(u32, u32)>,
}

/// A process that uses a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuProcess {
    /// When it was seen.
    pub time: MonoNs,
    /// Which GPU.
    pub gpu: GpuIndex,
    /// The process.
    pub pid: Pid,
    /// GPU memory it uses, bytes.
    pub memory_used: Option<u64>,
}
