//! A real workload to trace on a machine without a GPU: a main process with a simulated GPU, worker processes that read
//! and decode a real data set, queues between them, and a real hold-up that keeps the GPU waiting.
//!
//! [`start`] makes everything and returns once the job is warm; [`Running::go`] starts the steady phase, so that a
//! tracer can be attached in between; dropping [`Running`] ends and removes all of it. The processes are this same
//! program, started again with [`Role`] as their command line (a hidden sub-command named [`SUBCOMMAND`]).

mod busy;
mod cgroup;
mod clock;
mod cuda;
mod dataset;
mod disk;
mod error;
mod leftovers;
mod plan;
mod running;
mod truth;
mod work;
mod workload;

pub use cuda::CudaWait;
pub use error::DemoError;
pub use running::{Options, Running, start};
pub use workload::{Role, SUBCOMMAND, run};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What holds the simulated GPU up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// Workers wait for a disk that is held back.
    Disk,
    /// Workers are ready to run, but other programs have their CPU.
    CpuStarved,
    /// Workers run all the time: decoding costs more than the GPU's own work.
    Preprocessing,
    /// Nothing: data are always ready, and the GPU is the limit.
    Compute,
}

impl Scenario {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Disk => "disk",
            Scenario::CpuStarved => "cpu-starved",
            Scenario::Preprocessing => "preprocessing",
            Scenario::Compute => "compute",
        }
    }
}
