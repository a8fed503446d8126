//! What can hold training back.

use serde::{Deserialize, Serialize};

/// What held the training back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// The GPU was the limit.
    Compute,
    /// The GPU's memory was.
    GpuMemory,
    /// Loading data on the CPU.
    DataLoading,
    /// Storage.
    StorageIo,
    /// Too little CPU for the work.
    CpuStarvation,
    /// The training loop's own code.
    HostCode,
    /// Checkpoints.
    Checkpoint,
    /// Starting workers.
    WorkerStartup,
    /// Waiting for other processes or machines.
    Communication,
    /// The GPU's clocks were held down.
    GpuSlowed,
    /// There was nothing to do.
    NoWork,
    /// No bottleneck can be named.
    None,
}
