//! The short form of the ground-truth lab: a few scenarios of each family, judged by the same marks as `cargo xtask lab`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use gpustall_tests::lab::judge::judge;
use gpustall_tests::lab::{board, run, scenarios};

/// Length of the steady phase: enough for some dozens of gaps.
const SECONDS: f64 = 4.0;

fn is_at_the_mark(name: &str) {
    let scenario = scenarios::all().into_iter().find(|s| s.name == name).unwrap();
    if let Some(why) = (scenario.missing)() {
        panic!("{name} cannot run here: {why}");
    }
    let outcome = run::run(&scenario, SECONDS, None).unwrap();
    let row = judge(&scenario, &outcome).unwrap();
    assert!(row.failures.is_empty(), "{}", board::run(&row));
}

macro_rules! at_the_mark {
    ($($test:ident: $name:literal,)*) => {
        $(
            #[test]
            fn $test() {
                is_at_the_mark($name);
            }
        )*
    };
}

at_the_mark! {
    a_limited_disk: "disk-operations",
    page_faults_on_a_slow_share: "share-mmap",
    a_checkpoint: "checkpoint-slow-disk",
    swap_on_a_slow_disk: "swap",
    a_server_without_requests: "no-requests-epoll",
    data_over_a_socket: "data-over-tcp",
    one_worker_too_few: "cpu-one-worker",
    a_cpu_quota: "cpu-quota",
    a_healthy_job: "cpu-enough-workers",
    workers_that_are_threads: "threads",
    host_code: "host-code",
    new_workers_in_every_epoch: "torch-new-workers",
    one_slow_worker: "torch-slow-worker",
    a_disk_and_checkpoints: "disk+checkpoint",
}

#[test]
fn the_slowest_rank_is_named() {
    let scenario = scenarios::all().into_iter().find(|s| s.name == "ranks").unwrap();
    let outcome = run::run(&scenario, SECONDS, None).unwrap();
    let row = judge(&scenario, &outcome).unwrap();
    assert!(row.failures.is_empty(), "{}", board::run(&row));
    for report in [&outcome.exact, &outcome.nvml] {
        let waited = &report["gpus"][0]["waited_for"];
        assert_eq!(waited[0]["gpu"], 1, "{waited}");
        assert!(waited[0]["share"].as_f64().unwrap() > 0.5, "{waited}");
        let none = &report["gpus"][1]["waited_for"];
        assert!(none[0]["share"].as_f64().unwrap_or(0.0) < 0.1, "the slow one waits for nobody: {none}");
        let told = report["verdict"]["evidence"].to_string();
        assert!(told.contains("The process of GPU 1 (") && told.contains("is the slowest"), "{told}");
    }
}
