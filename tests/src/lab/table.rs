//! What is done decides the cause: the table of docs/lab.md.

use super::scenario::Parts;
use super::score::NO_REQUEST;

/// Time that the account does not cover.
pub const UNLOGGED: &str = "unlogged";

const TABLE: &[(&str, Parts)] = &[
    ("read", ["preprocessing", "cpu_starved", "disk"]),
    ("decode", ["preprocessing", "cpu_starved", UNLOGGED]),
    ("host", ["host_code", "cpu_starved", UNLOGGED]),
    ("sleep", ["host_code", "cpu_starved", "sleep"]),
    ("driver", ["gpu_driver", "cpu_starved", "gpu_driver"]),
    ("checkpoint", ["checkpoint", "checkpoint", "checkpoint"]),
    ("startup", ["worker_startup", "worker_startup", "worker_startup"]),
    ("pin", ["pin_memory", "cpu_starved", "pin_memory"]),
    ("handover", ["ipc", "cpu_starved", "ipc"]),
    ("fetch", ["pin_memory", "cpu_starved", "ipc"]),
    ("receive", ["host_code", "cpu_starved", "ipc"]),
    ("recv", ["preprocessing", "cpu_starved", "network"]),
    ("idle", [UNLOGGED, "cpu_starved", NO_REQUEST]),
];

/// The causes of the three parts of an entry that does `doing`; rows of the scenario come first.
pub fn parts(rows: &[(&'static str, Parts)], doing: &str) -> Option<Parts> {
    rows.iter().chain(TABLE).find(|(name, _)| *name == doing).map(|(_, parts)| *parts)
}

/// The cause of running inside the kernel while doing `doing`, where the scenario's rows tell it apart: the first part of the
/// row "`doing` in the kernel".
pub fn running_in_kernel(rows: &[(&'static str, Parts)], doing: &str) -> Option<&'static str> {
    rows.iter().find(|(name, _)| name.strip_suffix(" in the kernel") == Some(doing)).map(|(_, [running, ..])| *running)
}

/// The cause of run-queue time outside any entry: what the scenario's rows say of `wait`, else `cpu_starved`.
pub fn waiting_for_a_cpu(rows: &[(&'static str, Parts)]) -> &'static str {
    rows.iter().find(|(name, _)| *name == "wait").map_or("cpu_starved", |(_, [_, queue, _])| queue)
}
