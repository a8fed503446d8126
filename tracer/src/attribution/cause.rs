//! The causes that idle time can have.

use serde::{Deserialize, Serialize};

/// Why a GPU was idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Threads waited for a local disk.
    Disk,
    /// Threads waited for a network or user-space file system.
    NetworkStorage,
    /// Threads could run but had no CPU.
    CpuStarved,
    /// Threads could run but their control group's CPU quota held them back.
    CpuThrottled,
    /// Workers were decoding, augmenting or otherwise computing the input.
    Preprocessing,
    /// The thread that feeds the GPU ran code of its own.
    HostCode,
    /// Batches were being copied to pinned memory.
    PinMemory,
    /// Batches were being handed from process to process.
    Ipc,
    /// A checkpoint was being written.
    Checkpoint,
    /// Workers were being started.
    WorkerStartup,
    /// Memory was short: swap or reclaim.
    Memory,
    /// Threads waited for a socket.
    Network,
    /// Threads waited inside the GPU driver.
    GpuDriver,
    /// Threads slept by their own wish.
    Sleep,
    /// Threads waited for a process outside the target.
    OtherProcess,
    /// It could not be told.
    Unknown,
}

impl Cause {
    /// Whether somebody outside the target ends such waits.
    pub fn is_ended_outside(self) -> bool {
        matches!(self, Cause::OtherProcess | Cause::Network | Cause::NetworkStorage)
    }

    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Disk => "disk",
            Cause::NetworkStorage => "network_storage",
            Cause::CpuStarved => "cpu_starved",
            Cause::CpuThrottled => "cpu_throttled",
            Cause::Preprocessing => "preprocessing",
            Cause::HostCode => "host_code",
            Cause::PinMemory => "pin_memory",
            Cause::Ipc => "ipc",
            Cause::Checkpoint => "checkpoint",
            Cause::WorkerStartup => "worker_startup",
            Cause::Memory => "memory",
            Cause::Network => "network",
            Cause::GpuDriver => "gpu_driver",
            Cause::Sleep => "sleep",
            Cause::OtherProcess => "other_process",
            Cause::Unknown => "unknown",
        }
    }
}
