//! Does the advice help? A job as it is, and as it is after doing what its report advises: the same work for the same time, one
//! run behind the other. The gain must be there, and no larger than the report told.

use super::holds::{Ahead, BusyCpus, CpuQuota, DataOnSlowDisk, DataOnSlowShare, LimitedDisk, Slowness};
use super::run::{self, Outcome};
use super::scenario::{Free, Hold, Scenario};
use super::scenarios::{no_torch, python};
use crate::lab::holds::{no_fuse, no_limits, no_slow_disk};
use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// Rates of runs of a few seconds differ by so much, as a share, from one to the next on a machine that does nothing else.
pub const NOISE: f64 = 0.03;
/// Less than this is no gain.
pub const GAIN: f64 = 1.05;

/// One form of a job.
type Form = (fn() -> Result<Vec<String>>, fn(&Path) -> Result<Box<dyn Hold>>);

/// A job and its mending.
pub struct Pair {
    /// Its name.
    pub name: &'static str,
    /// What is done about it.
    pub mending: &'static str,
    /// As it is.
    pub before: Form,
    /// As it is then.
    pub after: Form,
    /// Words of the advice that name this mending.
    pub advice: &'static str,
    /// Cause that the report of the job as it is must name.
    pub cause: &'static str,
    /// Why this machine cannot run it, if it cannot.
    pub missing: fn() -> Option<String>,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Mended {
    /// Name of the pair.
    pub name: String,
    /// How many times faster the report says that it can be at most.
    pub told: f64,
    /// How many times faster it became, at the same time of the GPU for each batch.
    pub measured: f64,
    /// Batches a second, before and after.
    pub rates: [f64; 2],
    /// What is wrong, one sentence each.
    pub failures: Vec<String>,
}

impl fmt::Display for Mended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Mended { name, told, measured, rates: [before, after], .. }, right) = (self, self.failures.is_empty());
        let word = if right { "right" } else { "WRONG" };
        write!(f, "{name:<26}{told:>8.2}{measured:>10.2}{before:>10.1}{after:>10.1}  {word}")?;
        self.failures.iter().try_for_each(|failure| write!(f, "\n    {failure}"))
    }
}

/// Column heads for [`Mended`].
pub fn head() -> String {
    format!("{:<26}{:>8}{:>10}{:>10}{:>10}", "job", "at most", "measured", "before/s", "after/s")
}

/// Runs both forms of a job for so many seconds each. Their files are copied to `before` and `after` in `keep`.
///
/// # Errors
/// If a run does not work, or a report lacks what its schema promises.
pub fn run(pair: &Pair, seconds: f64, keep: Option<&Path>) -> Result<Mended> {
    let ran = |(job, hold): Form, folder: &str| -> Result<Outcome> {
        let scenario = Scenario {
            name: pair.name,
            about: pair.mending,
            job,
            hold,
            rows: &[],
            verdict: &[],
            at_least_s: 0.0,
            missing: || None,
        };
        run::run(&scenario, seconds, keep.map(|keep| keep.join(folder)).as_deref())
    };
    let (before, after) = (ran(pair.before, "before")?, ran(pair.after, "after")?);
    let verdict = &before.exact["verdict"];
    let told = verdict["speedup_bound"].as_f64().unwrap_or(1.0);
    let (was, is) = (Batch::of(&before)?, Batch::of(&after)?);
    let rates = [1.0 / was.length, 1.0 / is.length];
    let measured = was.length / is.with_gpu_time_of(&was).length;
    let mut failures = Vec::new();
    let advice = verdict["advice"].to_string();
    if !advice.contains(pair.advice) {
        failures.push(format!("{:?} is not advised: {advice}", pair.advice));
    }
    if verdict["cause"] != pair.cause {
        failures.push(format!("the cause is told as {} ({})", verdict["cause"], verdict["summary"]));
    }
    if measured < GAIN {
        failures.push(format!("nothing was gained; now {}", after.exact["verdict"]["summary"]));
    }
    if measured > told * (1.0 + NOISE) {
        failures.push(format!(
            "{measured:.2} times as fast, and at most {told:.2} was told; now {}",
            after.exact["verdict"]["summary"]
        ));
    }
    Ok(Mended { name: pair.name.to_owned(), told, measured, rates, failures })
}

/// What a batch took on average, seconds: by the job's own busy times, which the tracer did not measure. A busy time is a batch.
#[derive(Clone, Copy, Debug)]
struct Batch {
    /// From one to the next.
    length: f64,
    /// The GPU worked on it.
    gpu: f64,
}

impl Batch {
    fn of(outcome: &Outcome) -> Result<Batch> {
        let gpus = outcome.exact["gpus"].as_array().context("the report has no GPUs")?;
        let number = |key: &str| gpus.first().and_then(|gpu| gpu[key].as_f64()).with_context(|| format!("no {key}"));
        let span = number("active_to_s")? - number("active_from_s")?;
        let gaps = outcome.score.gaps.len() as f64;
        // One busy time more than gaps.
        Ok(Batch { length: span / gaps, gpu: number("busy_s")? / (gaps + 1.0) })
    }

    /// The same, had the GPU worked as long on each batch as in another run. No mending makes the GPU faster, but the simulated one is
    /// a thread of the job: it is done later where that gets its CPU later.
    fn with_gpu_time_of(self, other: &Batch) -> Batch {
        Batch { length: self.length - self.gpu + other.gpu, gpu: other.gpu }
    }
}

fn loader(args: &str) -> Result<Vec<String>> {
    python("loader.py", &args.split_whitespace().collect::<Vec<_>>())
}

fn torch(args: &str) -> Result<Vec<String>> {
    python("torch_loader.py", &args.split_whitespace().collect::<Vec<_>>())
}

fn none() -> Option<String> {
    None
}

fn ahead(_: &Path) -> Result<Box<dyn Hold>> {
    Ok(Ahead::with(Box::new(Free)))
}

fn limited(scratch: &Path) -> Result<Box<dyn Hold>> {
    Ok(Ahead::with(LimitedDisk::operations(scratch, 120)?))
}

fn boxed(hold: impl Hold + 'static) -> Result<Box<dyn Hold>> {
    Ok(Ahead::with(Box::new(hold)))
}

const SLOW: Slowness =
    Slowness { read: Duration::from_millis(5), write: Duration::ZERO, names: Duration::from_millis(2) };
const WARM_ONE: &str = "--read files --cold-epochs 0 --workers 1 --work-ms 5 --compute-ms 10";

/// Every pair.
pub fn all() -> Vec<Pair> {
    let pair = |name, mending, before, after, advice, cause| Pair {
        name,
        mending,
        before,
        after,
        advice,
        cause,
        missing: none,
    };
    vec![
        Pair {
            missing: no_limits,
            ..pair(
                "disk-limit",
                "the limit is lifted",
                (|| loader("--read files --work-ms 2 --compute-ms 10"), limited),
                (|| loader("--read files --work-ms 2 --compute-ms 10"), ahead),
                "Raise or lift the I/O limit",
                "disk",
            )
        },
        Pair {
            missing: no_limits,
            ..pair(
                "disk-page-cache",
                "the data are read once before training",
                (|| loader("--read files --work-ms 2 --compute-ms 10"), limited),
                (|| loader("--read files --work-ms 2 --compute-ms 10 --cold-epochs 0"), limited),
                "later epochs then read from memory",
                "disk",
            )
        },
        Pair {
            missing: no_slow_disk,
            ..pair(
                "disk-slow",
                "the data move to a faster disk",
                (|| loader("--read files --work-ms 1 --compute-ms 8"), |_| boxed(DataOnSlowDisk::new(64, SLOW)?)),
                (|| loader("--read files --work-ms 1 --compute-ms 8"), ahead),
                "to a faster drive",
                "disk",
            )
        },
        Pair {
            missing: no_fuse,
            ..pair(
                "share-local-copy",
                "the data move to a local disk",
                (|| loader("--read files --compute-ms 10"), |_| boxed(DataOnSlowShare::new(SLOW)?)),
                (|| loader("--read files --compute-ms 10"), ahead),
                "to a local disk before training",
                "network_storage",
            )
        },
        pair(
            "one-worker",
            "as many workers as advised",
            (|| loader(WARM_ONE), ahead),
            (|| loader("--read files --cold-epochs 0 --workers 2 --work-ms 5 --compute-ms 10"), ahead),
            "Raise num_workers from 1 to 2",
            "preprocessing",
        ),
        pair(
            "no-workers",
            "one worker",
            (|| loader("--read files --cold-epochs 0 --workers 0 --work-ms 5 --compute-ms 15"), ahead),
            (|| loader("--read files --cold-epochs 0 --workers 1 --work-ms 5 --compute-ms 15"), ahead),
            "num_workers=",
            "preprocessing",
        ),
        pair(
            "competitor",
            "the other processes are moved elsewhere",
            (
                || loader("--read files --cold-epochs 0 --work-ms 6 --compute-ms 10"),
                |_| Ok(Box::new(BusyCpus::default())),
            ),
            (|| loader("--read files --cold-epochs 0 --work-ms 6 --compute-ms 10"), ahead),
            "to other CPUs or another machine",
            "cpu_starved",
        ),
        pair(
            "quota",
            "the quota is lifted",
            (
                || loader("--read files --cold-epochs 0 --workers 2 --work-ms 6 --compute-ms 10"),
                |_| boxed(CpuQuota::new(Duration::from_millis(25), Duration::from_millis(50))),
            ),
            (|| loader("--read files --cold-epochs 0 --workers 2 --work-ms 6 --compute-ms 10"), ahead),
            "Raise the CPU quota",
            "cpu_throttled",
        ),
        pair(
            "fewer-checkpoints",
            "a tenth of the checkpoints",
            (|| loader("--read files --cold-epochs 0 --compute-ms 10 --checkpoint-every 4 --checkpoint-mb 32"), ahead),
            (|| loader("--read files --cold-epochs 0 --compute-ms 10 --checkpoint-every 40 --checkpoint-mb 32"), ahead),
            "Write checkpoints less often",
            "checkpoint",
        ),
        Pair {
            missing: no_torch,
            ..pair(
                "persistent-workers",
                "workers stay between epochs",
                (|| torch("--workers 2 --work-ms 1 --epoch 6 --compute-ms 8 --new-workers"), ahead),
                (|| torch("--workers 2 --work-ms 1 --epoch 6 --compute-ms 8"), ahead),
                "persistent_workers=True",
                "worker_startup",
            )
        },
        pair(
            "no-sleep",
            "the sleep in the loop is taken out",
            (|| loader("--read files --cold-epochs 0 --workers 1 --work-ms 1 --sleep-ms 20 --compute-ms 10"), ahead),
            (|| loader("--read files --cold-epochs 0 --workers 1 --work-ms 1 --compute-ms 10"), ahead),
            "Find the sleep or time-out in the training loop",
            "sleep",
        ),
    ]
}
