//! PyTorch's DataLoader: start methods, numbers of workers, epochs, the pin-memory thread, the main loop itself.

use super::{no_torch, python};
use crate::lab::holds::Ahead;
use crate::lab::scenario::{Free, Scenario};

const SCRIPT: &str = "torch_loader.py";

/// One row for each; `$args` are those of the workload.
macro_rules! torch {
    ($name:literal, $about:literal, $args:expr, $verdict:expr) => {
        Scenario {
            name: $name,
            about: $about,
            job: || python(SCRIPT, &$args),
            hold: |_| Ok(Ahead::with(Box::new(Free))),
            rows: &[],
            verdict: &$verdict,
            at_least_s: 0.0,
            missing: no_torch,
        }
    };
}

pub fn scenarios() -> Vec<Scenario> {
    vec![
        torch!(
            "torch-fork",
            "one forked worker decodes for longer than the GPU computes",
            ["--workers", "1", "--work-ms", "10"],
            ["data_loading"]
        ),
        torch!(
            "torch-spawn",
            "one spawned worker decodes for longer than the GPU computes",
            ["--workers", "1", "--work-ms", "10", "--start-method", "spawn"],
            ["data_loading"]
        ),
        torch!(
            "torch-forkserver",
            "one worker below a fork server decodes for longer than the GPU computes",
            ["--workers", "1", "--work-ms", "10", "--start-method", "forkserver"],
            ["data_loading"]
        ),
        torch!(
            "torch-many-workers",
            "six workers on two CPUs take them from each other and from main",
            ["--workers", "6", "--work-ms", "16", "--compute-ms", "10"],
            ["cpu_starvation"]
        ),
        torch!(
            "torch-main",
            "no workers: main itself reads and decodes",
            ["--workers", "0", "--work-ms", "8"],
            ["data_loading"]
        ),
        torch!(
            "torch-new-workers",
            "workers are started anew for each short epoch",
            ["--workers", "2", "--work-ms", "1", "--epoch", "6", "--new-workers", "--compute-ms", "8"],
            ["worker_startup"]
        ),
        torch!(
            "torch-slow-worker",
            "batches come in order, and one of the workers takes six times as long as the others",
            ["--workers", "2", "--work-ms", "3", "--slow-worker", "6", "--compute-ms", "15"],
            ["data_loading"]
        ),
        torch!(
            "torch-pin",
            "with a pin-memory thread that only passes batches on",
            ["--workers", "1", "--work-ms", "10", "--pin"],
            ["data_loading"]
        ),
        torch!(
            "torch-pin-slow",
            "copying to page-locked memory takes longer than anything else",
            ["--workers", "1", "--work-ms", "1", "--pin", "--pin-ms", "35", "--file-kb", "256"],
            ["data_loading"]
        ),
        torch!(
            "torch-backward",
            "a second thread drives the GPU for the backward pass; main's own code comes between",
            ["--workers", "1", "--work-ms", "1", "--host-ms", "25", "--backward-ms", "15", "--compute-ms", "10"],
            ["host_code"]
        ),
        torch!(
            "torch-host",
            "host code in the main loop",
            ["--workers", "1", "--work-ms", "1", "--host-ms", "40"],
            ["host_code"]
        ),
        torch!(
            "torch-checkpoint",
            "a checkpoint with torch.save and fsync every few steps",
            ["--workers", "1", "--work-ms", "1", "--checkpoint-every", "8", "--checkpoint-mb", "96"],
            ["checkpoint"]
        ),
        torch!(
            "torch-healthy",
            "compute-bound: batches are ready before the GPU needs them",
            ["--workers", "2", "--work-ms", "2", "--compute-ms", "60"],
            ["compute"]
        ),
    ]
}
