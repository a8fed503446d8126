//! CPUs: too little of them, taken by others, or well used; and the training loop itself.

use super::{program, python};
use crate::lab::holds::{Ahead, BusyCpus, CpuQuota, LimitedDisk, no_limits};
use crate::lab::scenario::{Free, Hold, Parts, Scenario};
use anyhow::Result;
use std::path::Path;
use std::time::Duration;

/// A quota holds back whoever is runnable, whatever it does.
const THROTTLED: &[(&str, Parts)] = &[
    ("read", ["preprocessing", "cpu_throttled", "disk"]),
    ("decode", ["preprocessing", "cpu_throttled", "preprocessing"]),
    ("handover", ["ipc", "cpu_throttled", "ipc"]),
    ("host", ["host_code", "cpu_throttled", "unlogged"]),
    ("wait", ["host_code", "cpu_throttled", "unlogged"]),
];

/// Main prepares the data itself; it blocks for nothing but the lock, and the other thread's code is the job's own.
const LOCK: &[(&str, Parts)] = &[
    ("read", ["preprocessing", "cpu_starved", "host_code"]),
    ("decode", ["preprocessing", "cpu_starved", "host_code"]),
    ("host", ["preprocessing", "cpu_starved", "host_code"]),
];

/// Threads of a pool block for nothing but Python's global lock, now and then, and whoever holds it decodes as well.
const POOL_LOCK: &[(&str, Parts)] = &[("decode", ["preprocessing", "cpu_starved", "preprocessing"])];

/// Whoever blocks waits for the lock, and all that hold it prepare data.
const LOADER_LOCK: &[(&str, Parts)] = &[
    ("decode", ["preprocessing", "cpu_starved", "preprocessing"]),
    ("read", ["preprocessing", "cpu_starved", "preprocessing"]),
    ("handover", ["ipc", "cpu_starved", "preprocessing"]),
    ("host", ["host_code", "cpu_starved", "preprocessing"]),
];

/// Samples come from the page cache.
const WARM: [&str; 4] = ["--read", "files", "--cold-epochs", "0"];

fn loader(args: &str) -> Result<Vec<String>> {
    python("loader.py", &WARM.into_iter().chain(args.split_whitespace()).collect::<Vec<_>>())
}

/// The job and all its processes stay on one CPU.
fn on_one_cpu(args: &str) -> Result<Vec<String>> {
    Ok(["taskset", "--cpu-list", "0"].into_iter().map(str::to_owned).chain(loader(args)?).collect())
}

fn ahead(_: &Path) -> Result<Box<dyn Hold>> {
    Ok(Ahead::with(Box::new(Free)))
}

fn free(_: &Path) -> Result<Box<dyn Hold>> {
    Ok(Box::new(Free))
}

fn half_a_cpu(_: &Path) -> Result<Box<dyn Hold>> {
    Ok(Box::new(CpuQuota::new(Duration::from_millis(25), Duration::from_millis(50))))
}

fn competitors(_: &Path) -> Result<Box<dyn Hold>> {
    Ok(Box::new(BusyCpus::default()))
}

fn none() -> Option<String> {
    None
}

/// Every scenario of this file.
pub fn scenarios() -> Vec<Scenario> {
    let scenario = |name, about, job, hold, rows, verdict| Scenario {
        name,
        about,
        job,
        hold,
        rows,
        verdict,
        at_least_s: 0.0,
        missing: none,
    };
    vec![
        scenario(
            "cpu-one-worker",
            "one worker decodes for longer than the GPU computes, and a CPU is free",
            || loader("--workers 1 --work-ms 8 --compute-ms 10"),
            ahead,
            &[],
            &["data_loading"],
        ),
        scenario(
            "cpu-enough-workers",
            "compute-bound: two workers keep ahead of the GPU",
            || loader("--workers 2 --work-ms 2 --compute-ms 40"),
            ahead,
            &[],
            &["compute"],
        ),
        scenario(
            "cpu-quota",
            "the workers have a quota of half a CPU",
            || loader("--workers 2 --work-ms 8 --compute-ms 10"),
            half_a_cpu,
            THROTTLED,
            &["cpu_starvation"],
        ),
        scenario(
            "cpu-affinity",
            "three workers share one CPU by their affinity, while another is free",
            || on_one_cpu("--workers 3 --work-ms 6 --compute-ms 10"),
            free,
            &[],
            &["cpu_starvation"],
        ),
        scenario(
            "cpu-many-workers",
            "six workers on two CPUs take them from each other",
            || loader("--workers 6 --work-ms 8 --compute-ms 8"),
            ahead,
            &[],
            &["cpu_starvation"],
        ),
        scenario(
            "competitor",
            "main and its worker have little to do, but other processes want the CPUs",
            || loader("--workers 1 --work-ms 0.5 --host-ms 15 --compute-ms 20"),
            competitors,
            &[],
            &["cpu_starvation"],
        ),
        scenario(
            "cpu-nested-pools",
            "every worker brings a pool of threads: eight threads decode on two CPUs",
            || loader("--workers 2 --decode-threads 4 --work-ms 16 --compute-ms 10"),
            ahead,
            POOL_LOCK,
            &["cpu_starvation"],
        ),
        scenario(
            "threads",
            "workers are threads of main, as in tf.data or DALI, and decode for longer than the GPU computes",
            || loader("--threads --workers 1 --work-ms 8 --compute-ms 10"),
            ahead,
            &[],
            &["data_loading"],
        ),
        scenario(
            "threads-lock",
            "workers are threads of main that decode in Python, one at a time since they hold its global lock, as they keep main from it",
            || loader("--threads --workers 2 --work python --work-ms 10 --compute-ms 10"),
            ahead,
            LOADER_LOCK,
            &["data_loading"],
        ),
        scenario(
            "rust-threads",
            "a Rust pipeline: one reader thread decodes for longer than the GPU computes",
            || Ok(vec![program("lab-pipeline")?.display().to_string()]),
            ahead,
            &[],
            &["data_loading"],
        ),
        scenario(
            "spawned-workers",
            "plain multiprocessing with spawned workers",
            || loader("--workers 1 --start-method spawn --work-ms 8 --compute-ms 10"),
            ahead,
            &[],
            &["data_loading"],
        ),
        scenario(
            "forkserver-workers",
            "plain multiprocessing with workers below a fork server",
            || loader("--workers 1 --start-method forkserver --work-ms 8 --compute-ms 10"),
            ahead,
            &[],
            &["data_loading"],
        ),
        scenario(
            "host-lock",
            "another thread of main holds Python's global lock when main, which reads and decodes itself, wants to go on",
            || loader("--workers 0 --work-ms 2 --lock-threads 1 --compute-ms 10"),
            ahead,
            LOCK,
            &["host_code"],
        ),
        scenario(
            "host-code",
            "main's own work in each step",
            || loader("--workers 1 --work-ms 1 --host-ms 30 --compute-ms 10"),
            ahead,
            &[],
            &["host_code"],
        ),
        scenario(
            "host-sleep",
            "main sleeps in each step",
            || loader("--workers 1 --work-ms 1 --sleep-ms 30 --compute-ms 10"),
            ahead,
            &[],
            &["host_code"],
        ),
        scenario(
            "gpu-driver",
            "in each step, main compiles a kernel inside the GPU's driver",
            || loader("--workers 1 --work-ms 1 --driver-ms 15 --compute-ms 10 --cuda-wait spin"),
            ahead,
            &[],
            &["host_code"],
        ),
        scenario(
            "spin-wait",
            "main spins while it waits for the GPU; one worker, which decodes for longer than the GPU computes",
            || loader("--workers 1 --work-ms 5 --compute-ms 10 --cuda-wait spin"),
            ahead,
            &[],
            &["data_loading"],
        ),
        scenario(
            "ranks",
            "two ranks, each with a GPU, meet in each step; one has more to do, and the other waits for it",
            || python("ranks.py", &["--gpus", "2", "--compute-ms", "10"]),
            ahead,
            &[],
            &["host_code"],
        ),
        Scenario {
            missing: no_limits,
            ..scenario(
                "disk+preprocessing+host-code",
                "a limited disk, with a transform and main's own work",
                || {
                    python(
                        "loader.py",
                        &"--read files --work-ms 2 --host-ms 3 --compute-ms 10".split(' ').collect::<Vec<_>>(),
                    )
                },
                |s| Ok(Ahead::with(LimitedDisk::operations(s, 100)?)),
                &[],
                &["storage_io"],
            )
        },
        scenario(
            "affinity+host-code",
            "main's own work and its workers share one CPU",
            || on_one_cpu("--workers 3 --work-ms 6 --host-ms 3 --compute-ms 10"),
            free,
            &[],
            &["cpu_starvation"],
        ),
    ]
}
