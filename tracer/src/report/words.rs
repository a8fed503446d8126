//! Names in words. Numbers are in [`crate::numbers`].

use crate::attribution::Cause;
use crate::diagnosis::Bottleneck;

pub use crate::numbers::{bytes, count, hundredths, millis, nanos, percent, plural, rate, seconds};

/// Threads of a role as the subject of a sentence, and whether it is a plural.
pub fn role_subject(role: &str) -> (String, bool) {
    match role {
        "feeder" => ("the feeding thread".to_owned(), false),
        "worker" => ("workers".to_owned(), true),
        "pin_memory" => ("the pin-memory thread".to_owned(), false),
        "ipc" => ("transfer threads".to_owned(), true),
        "" => ("threads".to_owned(), true),
        other => (format!("{other} threads"), true),
    }
}

/// Name of a cause in tables.
pub fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Disk => "disk",
        Cause::NetworkStorage => "network storage",
        Cause::CpuStarved => "no CPU free",
        Cause::CpuThrottled => "CPU quota",
        Cause::Preprocessing => "preprocessing",
        Cause::HostCode => "host code",
        Cause::PinMemory => "pinning memory",
        Cause::Ipc => "process transfer",
        Cause::Checkpoint => "checkpoint",
        Cause::WorkerStartup => "worker start-up",
        Cause::Memory => "memory short",
        Cause::Network => "network",
        Cause::GpuDriver => "GPU driver",
        Cause::Sleep => "sleep",
        Cause::OtherProcess => "other process",
        Cause::Unknown => "unknown",
    }
}

/// What happened while a GPU was idle, as a clause about threads of `role` (empty: threads in general).
pub fn clause(cause: Cause, role: &str) -> String {
    let (who, many) = role_subject(role);
    let were = if many { "were" } else { "was" };
    match cause {
        Cause::Disk => format!("{who} waited for disk"),
        Cause::NetworkStorage => format!("{who} waited for a network or user-space file system"),
        Cause::CpuStarved => format!("{who} could run but had no CPU"),
        Cause::CpuThrottled => format!("the control group's CPU quota held {who} back"),
        Cause::Preprocessing => format!("{who} {were} preparing batches on the CPU"),
        Cause::HostCode => format!("{who} ran host code"),
        Cause::PinMemory => "batches were copied to pinned memory".to_owned(),
        Cause::Ipc => "batches were handed from process to process".to_owned(),
        Cause::Checkpoint => "a checkpoint was written".to_owned(),
        Cause::WorkerStartup => "workers were starting".to_owned(),
        Cause::Memory => format!("{who} waited for memory (swap or reclaim)"),
        Cause::Network => format!("{who} waited for a socket"),
        Cause::GpuDriver => format!("{who} waited inside the GPU driver"),
        Cause::Sleep => format!("{who} slept by choice"),
        Cause::OtherProcess => format!("{who} waited for a process outside the target"),
        Cause::Unknown => "the cause could not be told".to_owned(),
    }
}

/// Name of a bottleneck.
pub fn bottleneck(bottleneck: Bottleneck) -> &'static str {
    match bottleneck {
        Bottleneck::Compute => "GPU compute",
        Bottleneck::GpuMemory => "GPU memory",
        Bottleneck::DataLoading => "data loading on the CPU",
        Bottleneck::StorageIo => "storage I/O",
        Bottleneck::CpuStarvation => "CPU starvation",
        Bottleneck::HostCode => "host code",
        Bottleneck::Checkpoint => "checkpoints",
        Bottleneck::WorkerStartup => "worker start-up",
        Bottleneck::Communication => "communication",
        Bottleneck::GpuSlowed => "GPU slowed down",
        Bottleneck::NoWork => "no work for the GPU",
        Bottleneck::None => "none found",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_agree_with_their_subject() {
        assert_eq!(clause(Cause::Disk, "worker"), "workers waited for disk");
        assert_eq!(clause(Cause::Preprocessing, "feeder"), "the feeding thread was preparing batches on the CPU");
        assert_eq!(clause(Cause::CpuStarved, ""), "threads could run but had no CPU");
    }
}
