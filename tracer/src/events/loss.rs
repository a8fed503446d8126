//! What did not make it into the recording, by kind.

use crate::units::MonoNs;
use serde::{Deserialize, Serialize};

/// Kind of loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    /// Off-CPU intervals: ring full.
    OffCpu,
    /// On-CPU samples: ring full.
    CpuSample,
    /// Block requests: ring full.
    Block,
    /// File opens and paths: ring full.
    File,
    /// Task events: ring full.
    Task,
    /// Threads whose state could not be kept (state map full).
    StateFull,
    /// Block requests that could not be followed (request map full).
    RequestFull,
    /// Intervals whose times ran backwards or whose end was not seen, discarded.
    BadInterval,
    /// Threads with ids beyond the target map.
    TidOutOfRange,
    /// Records of a kind or size that this version does not know.
    Undecodable,
}

/// So many events were lost up to `time`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// When it was noticed.
    pub time: MonoNs,
    /// What was lost.
    pub kind: LossKind,
    /// How many since the last such event.
    pub count: u64,
}
