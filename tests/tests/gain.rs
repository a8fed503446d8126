//! Advice that is followed helps, and by no more than the report said: each job runs as it is and as it is after doing what the
//! report advises.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use gpustall_tests::lab::holds::{Ahead, LimitedDisk};
use gpustall_tests::lab::run::{self, Outcome};
use gpustall_tests::lab::scenario::{Free, Hold, Scenario};
use gpustall_tests::lab::scenarios::python;
use serde_json::Value;
use std::path::Path;

const SECONDS: f64 = 4.0;
/// Rates of a few seconds differ by so much from run to run on a shared machine.
const NOISE: f64 = 0.05;

type Lay = fn(&Path) -> anyhow::Result<Box<dyn Hold>>;

fn free(_: &Path) -> anyhow::Result<Box<dyn Hold>> {
    Ok(Ahead::with(Box::new(Free)))
}

fn limited(scratch: &Path) -> anyhow::Result<Box<dyn Hold>> {
    Ok(Ahead::with(LimitedDisk::operations(scratch, 120)?))
}

fn ran(job: fn() -> anyhow::Result<Vec<String>>, hold: Lay) -> Outcome {
    let scenario = Scenario { name: "gain", about: "", job, hold, rows: &[], verdict: &[], missing: || None };
    run::run(&scenario, SECONDS, None).unwrap()
}

fn loader(args: &str) -> anyhow::Result<Vec<String>> {
    python("loader.py", &args.split(' ').collect::<Vec<_>>())
}

/// Steps a second from the first to the last busy moment.
fn rate(report: &Value) -> f64 {
    let gpu = &report["gpus"][0];
    let span = gpu["active_to_s"].as_f64().unwrap() - gpu["active_from_s"].as_f64().unwrap();
    gpu["gap_count"].as_f64().unwrap() / span
}

/// The first job is mended as its report advises; the gain must be there, and lie within the bound.
fn helps(before: &Outcome, after: &Outcome, advice: &str) {
    let verdict = &before.exact["verdict"];
    let told = verdict["advice"].to_string();
    assert!(told.contains(advice), "{advice:?} is not among {told}");
    let bound = verdict["speedup_bound"].as_f64().unwrap();
    let gain = rate(&after.exact) / rate(&before.exact);
    println!("at most {bound:.2} times faster, measured {gain:.2}: {}", verdict["summary"]);
    assert!(gain > 1.1, "{gain:.2} times as fast; {}", after.exact["verdict"]["summary"]);
    assert!(gain <= bound * (1.0 + NOISE), "{gain:.2} times as fast, at most {bound:.2} were told");
}

#[test]
fn lifting_the_limit_of_a_disk() {
    let job = || loader("--read files --work-ms 2 --compute-ms 10");
    helps(&ran(job, limited), &ran(job, free), "limit");
}

#[test]
fn more_workers_where_a_cpu_is_free() {
    let before = ran(|| loader("--read files --cold-epochs 0 --workers 1 --work-ms 5 --compute-ms 10"), free);
    let after = ran(|| loader("--read files --cold-epochs 0 --workers 2 --work-ms 5 --compute-ms 10"), free);
    helps(&before, &after, "num_workers from 1 to 2");
}

#[test]
fn workers_where_there_were_none() {
    let before = ran(|| loader("--read files --cold-epochs 0 --workers 0 --work-ms 5 --compute-ms 15"), free);
    let after = ran(|| loader("--read files --cold-epochs 0 --workers 1 --work-ms 5 --compute-ms 15"), free);
    helps(&before, &after, "num_workers=");
}

#[test]
fn fewer_checkpoints() {
    let before =
        ran(|| loader("--read files --cold-epochs 0 --compute-ms 10 --checkpoint-every 4 --checkpoint-mb 32"), free);
    let after =
        ran(|| loader("--read files --cold-epochs 0 --compute-ms 10 --checkpoint-every 40 --checkpoint-mb 32"), free);
    helps(&before, &after, "less often");
}

#[test]
fn workers_that_stay() {
    let before = ran(
        || {
            python(
                "torch_loader.py",
                &["--workers", "2", "--work-ms", "1", "--epoch", "6", "--compute-ms", "8", "--new-workers"],
            )
        },
        free,
    );
    let after = ran(
        || python("torch_loader.py", &["--workers", "2", "--work-ms", "1", "--epoch", "6", "--compute-ms", "8"]),
        free,
    );
    helps(&before, &after, "persistent_workers=True");
}
