//! PyTorch's DataLoader: start methods, numbers of workers, epochs, the pin-memory thread, the main loop itself.

use super::{no_torch, python};
use crate::lab::scenario::{Free, Parts, Scenario};

const SCRIPT: &str = "torch_loader.py";

/// One row for each; `$args` are those of the workload.
macro_rules! torch {
    ($name:literal, $about:literal, $args:expr, $verdict:expr) => {
        torch!($name, $about, $args, $verdict, &[])
    };
    ($name:literal, $about:literal, $args:expr, $verdict:expr, $rows:expr) => {
        Scenario {
            name: $name,
            about: $about,
            job: || python(SCRIPT, &$args),
            hold: |_| Ok(Box::new(Free)),
            rows: $rows,
            verdict: &$verdict,
            missing: no_torch,
        }
    };
}

/// Main waits for Python's global lock while its other threads run the job's own code.
const LOCK: &[(&str, Parts)] = &[("host", ["host_code", "cpu_starved", "host_code"])];

pub fn scenarios() -> Vec<Scenario> {
    vec![
        torch!(
            "torch-fork",
            "one forked worker decodes for longer than the GPU computes",
            ["--workers", "1", "--work-ms", "10"],
            ["data_loading"]
        ),
        torch!(
            "torch-main",
            "no workers: main itself reads and decodes",
            ["--workers", "0", "--work-ms", "8"],
            ["data_loading"]
        ),
        torch!(
            "torch-host",
            "host code in the main loop",
            ["--workers", "1", "--work-ms", "1", "--host-ms", "40"],
            ["host_code"]
        ),
        torch!(
            "torch-healthy",
            "compute-bound: batches are ready before the GPU needs them",
            ["--workers", "2", "--work-ms", "2", "--compute-ms", "60"],
            ["compute"]
        ),
        torch!(
            "torch-lock",
            "other threads of main hold Python's global lock when main wants to go on",
            ["--workers", "1", "--work-ms", "1", "--host-ms", "5", "--lock-threads", "1", "--work", "python"],
            ["host_code"],
            LOCK
        ),
    ]
}
