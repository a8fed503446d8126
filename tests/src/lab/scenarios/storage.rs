//! Disks, file systems, memory and the network, each alone and the likely pairs.

use super::python;
use crate::lab::holds::{
    All, BusyCpus, CheckpointsOnSlowDisk, DataOnSlowDisk, DataOnSlowShare, FewRequests, LimitedDisk, ShortOfMemory,
    SlowServer, Slowness, no_fuse, no_limits, no_slow_disk, no_swap,
};
use crate::lab::scenario::{Free, Hold, Parts, Scenario};
use crate::swap::CompressedSwap;
use anyhow::Result;
use std::path::Path;
use std::time::Duration;

/// Without workers, main's own work between its reads is part of preparing the data.
const ALONE: &[(&str, Parts)] = &[HOST_PREPARES];
const HOST_PREPARES: (&str, Parts) = ("host", ["preprocessing", "cpu_starved", "unlogged"]);
const SHARE_ALONE: &[(&str, Parts)] = &[HOST_PREPARES, SHARE[0]];
const SWAPPED_ALONE: &[(&str, Parts)] = &[HOST_PREPARES, SWAPPED[0]];
const SERVED_ALONE: &[(&str, Parts)] = &[HOST_PREPARES, SERVED[0]];
/// Reads of a file system in user space are waits for `network_storage`.
const SHARE: &[(&str, Parts)] = &[("read", ["preprocessing", "cpu_starved", "network_storage"])];
/// Look-ups in a table that is in swap wait for memory.
const SWAPPED: &[(&str, Parts)] = &[("read", ["preprocessing", "cpu_starved", "memory"])];
/// Pages in compressed memory come back by CPU work of the fault itself, which looks for room as well.
const COMPRESSED: &[(&str, Parts)] = &[("read", ["memory", "cpu_starved", "memory"])];
/// Reads from a server.
const SERVED: &[(&str, Parts)] = &[("read", ["preprocessing", "cpu_starved", "network"])];

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn reads(each: u64) -> Slowness {
    Slowness { read: ms(each), write: Duration::ZERO, names: Duration::ZERO }
}

const SLOW_SHARE: Slowness = Slowness { read: ms(5), write: Duration::ZERO, names: ms(2) };
const SLOW_WRITES: Slowness = Slowness { read: Duration::ZERO, write: ms(20), names: Duration::ZERO };

/// Few KB a file, found by listing.
const TREE: [&str; 10] = ["--read", "tree", "--file-kb", "4", "--files", "3000", "--batch", "4", "--compute-ms", "5"];
/// The same when the files are there; nothing is in the page cache, and each is read once.
const TREE_MADE: [&str; 13] = [
    "--read", "tree", "--file-kb", "4", "--files", "3000", "--batch", "4", "--compute-ms", "5", "--made", "--cold-epochs",
    "0",
];

/// Name, what it is about, workload and its arguments, hold, rows, verdicts, what may be missing.
macro_rules! job {
    ($name:literal, $about:literal, $script:literal, $args:expr, $hold:expr, $rows:expr, $verdict:expr, $missing:expr) => {
        Scenario {
            name: $name,
            about: $about,
            job: || python($script, &$args),
            hold: $hold,
            rows: $rows,
            verdict: &$verdict,
            missing: $missing,
        }
    };
}

fn boxed(hold: impl Hold + 'static) -> Result<Box<dyn Hold>> {
    Ok(Box::new(hold))
}

fn none() -> Option<String> {
    None
}

/// Every scenario of this file.
pub fn scenarios() -> Vec<Scenario> {
    [disks(), shares(), memory(), network(), pairs()].into_iter().flatten().collect()
}

fn disks() -> Vec<Scenario> {
    vec![
        job!("disk-operations", "a limit on reads a second, cold files", "loader.py", ["--read", "files", "--compute-ms", "10"], |s| LimitedDisk::operations(s, 100), &[], ["storage_io"], no_limits),
        job!("disk-bandwidth", "a limit on bytes a second, large reads one behind the other", "loader.py", ["--read", "sequential", "--files", "64", "--file-kb", "1024", "--batch", "1", "--compute-ms", "10"], |s| LimitedDisk::bandwidth(s, 20 << 20), &[], ["storage_io"], no_limits),
        job!("disk-slow", "a slow disk, cold files", "loader.py", ["--read", "files", "--compute-ms", "5"], |_| boxed(DataOnSlowDisk::new(64, reads(5))?), &[], ["storage_io"], no_slow_disk),
        job!("disk-small-files", "thousands of small files on a slow disk: look-ups and listings block as well", "loader.py", TREE_MADE, |_| boxed(DataOnSlowDisk::new(64, reads(5))?.with_cold_data(&python("loader.py", &TREE)?)?), &[], ["storage_io"], no_slow_disk),
        job!("disk-mmap", "random reads through a mapping: page faults", "loader.py", ["--read", "mmap", "--file-kb", "32", "--compute-ms", "10"], |s| LimitedDisk::operations(s, 400), &[], ["storage_io"], no_limits),
        job!("disk-direct", "reads past the page cache", "loader.py", ["--read", "direct", "--compute-ms", "10"], |s| LimitedDisk::operations(s, 100), &[], ["storage_io"], no_limits),
        job!("disk-aio", "asynchronous reads, waited for in io_getevents", "loader.py", ["--read", "aio", "--compute-ms", "10"], |s| LimitedDisk::operations(s, 200), &[], ["storage_io"], no_limits),
        job!("disk-main", "no workers: main itself reads cold files", "loader.py", ["--read", "files", "--workers", "0", "--compute-ms", "10"], |s| LimitedDisk::operations(s, 100), ALONE, ["storage_io"], no_limits),
        job!("disk-main-mmap", "no workers: main itself faults", "loader.py", ["--read", "mmap", "--file-kb", "32", "--workers", "0", "--compute-ms", "10"], |s| LimitedDisk::operations(s, 400), ALONE, ["storage_io"], no_limits),
        job!("disk-cold-then-warm", "the first epoch reads from a limited disk, later ones from the page cache", "loader.py", ["--read", "files", "--files", "200", "--cold-epochs", "2", "--work-ms", "1", "--compute-ms", "5"], |s| LimitedDisk::operations(s, 150), &[], ["storage_io"], no_limits),
        job!("checkpoint-slow-disk", "periodic checkpoints with fsync to a slow disk, while reads are fine", "loader.py", ["--read", "files", "--cold-epochs", "0", "--checkpoint-every", "20", "--checkpoint-mb", "4", "--checkpoint-dir", "checkpoints"], |s| boxed(CheckpointsOnSlowDisk::new(s, SLOW_WRITES)?), &[], ["checkpoint"], no_slow_disk),
        job!("checkpoint-large", "large checkpoints with fsync and rename to the machine's disk", "loader.py", ["--read", "files", "--cold-epochs", "0", "--checkpoint-every", "10", "--checkpoint-mb", "48"], |_| boxed(Free), &[], ["checkpoint"], none),
    ]
}

fn shares() -> Vec<Scenario> {
    vec![
        job!("share", "a slow file system in user space: reads, look-ups and opens", "loader.py", ["--read", "files", "--compute-ms", "5"], |_| boxed(DataOnSlowShare::new(SLOW_SHARE)?), SHARE, ["storage_io"], no_fuse),
        job!("share-mmap", "page faults on a slow file system in user space", "loader.py", ["--read", "mmap", "--file-kb", "32", "--compute-ms", "10"], |_| boxed(DataOnSlowShare::new(SLOW_SHARE)?), SHARE, ["storage_io"], no_fuse),
        job!("share-direct", "reads past the page cache from a slow file system in user space", "loader.py", ["--read", "direct", "--compute-ms", "4"], |_| boxed(DataOnSlowShare::new(SLOW_SHARE)?), SHARE, ["storage_io"], no_fuse),
        job!("share-main", "no workers: main itself reads from a slow file system in user space", "loader.py", ["--read", "files", "--workers", "0", "--compute-ms", "10"], |_| boxed(DataOnSlowShare::new(SLOW_SHARE)?), SHARE_ALONE, ["storage_io"], no_fuse),
    ]
}

fn memory() -> Vec<Scenario> {
    vec![
        job!("swap", "tables larger than the memory limit of the workers; swap on a slow disk", "loader.py", ["--read", "table", "--table-mb", "96", "--file-kb", "8", "--join", "group", "--compute-ms", "5"], |s| ShortOfMemory::with_slow_swap(s, 96), SWAPPED, ["storage_io"], no_swap),
        job!("swap-main", "no workers: main's own table is larger than its memory limit", "loader.py", ["--read", "table", "--table-mb", "160", "--file-kb", "8", "--join", "group", "--compute-ms", "5", "--workers", "0"], |s| ShortOfMemory::with_slow_swap(s, 96), SWAPPED_ALONE, ["storage_io"], no_swap),
        job!("swap-compressed", "tables larger than the memory limit of the workers; swap in compressed memory", "loader.py", ["--read", "table", "--table-mb", "96", "--file-kb", "256", "--join", "group", "--compute-ms", "5"], |s| ShortOfMemory::with_compressed_swap(s, 96), COMPRESSED, ["storage_io"], CompressedSwap::missing),
    ]
}

fn network() -> Vec<Scenario> {
    vec![
        job!("data-over-tcp", "samples from a slow server over TCP", "loader.py", ["--read", "tcp", "--compute-ms", "5"], |s| boxed(SlowServer::new(s, "tcp", "10")?), SERVED, ["communication"], none),
        job!("data-over-unix", "samples from a slow server over a unix socket", "loader.py", ["--read", "unix", "--compute-ms", "5"], |s| boxed(SlowServer::new(s, "unix", "10")?), SERVED, ["communication"], none),
        job!("data-over-tcp-main", "no workers: main itself asks a slow server", "loader.py", ["--read", "tcp", "--workers", "0", "--compute-ms", "5"], |s| boxed(SlowServer::new(s, "tcp", "5")?), SERVED_ALONE, ["communication"], none),
        job!("no-requests-epoll", "an inference server that waits for requests in epoll", "inference.py", ["--wait", "epoll"], |s| boxed(FewRequests::new(s)?), &[], ["no_work"], none),
        job!("no-requests-accept", "an inference server that waits for requests in accept", "inference.py", ["--wait", "accept"], |s| boxed(FewRequests::new(s)?), &[], ["no_work"], none),
    ]
}

fn pairs() -> Vec<Scenario> {
    vec![
        job!("disk+checkpoint", "cold files on a limited disk, and checkpoints to a slow one", "loader.py", ["--read", "files", "--compute-ms", "10", "--checkpoint-every", "10", "--checkpoint-mb", "4", "--checkpoint-dir", "checkpoints"], |s| { let disk = LimitedDisk::operations(s, 200)?; boxed(All(vec![Box::new(CheckpointsOnSlowDisk::new(s, SLOW_WRITES)?), disk])) }, &[], ["storage_io", "checkpoint"], no_slow_disk),
        job!("disk+preprocessing", "cold files on a limited disk, and a transform", "loader.py", ["--read", "files", "--work-ms", "3", "--compute-ms", "5"], |s| LimitedDisk::operations(s, 120), &[], ["storage_io"], no_limits),
        job!("preprocessing+competitor", "a transform, while other processes want the CPUs", "loader.py", ["--read", "files", "--cold-epochs", "0", "--work-ms", "6"], |_| boxed(BusyCpus::default()), &[], ["cpu_starvation"], none),
        job!("share+host-code", "a slow file system in user space, and main's own work in each step", "loader.py", ["--read", "files", "--batch", "4", "--host-ms", "15", "--compute-ms", "5"], |_| boxed(DataOnSlowShare::new(Slowness { read: ms(15), write: Duration::ZERO, names: ms(5) })?), SHARE, ["storage_io"], no_fuse),
        job!("swap+preprocessing", "tables in swap, and a transform", "loader.py", ["--read", "table", "--table-mb", "96", "--file-kb", "6", "--join", "group", "--work-ms", "3", "--compute-ms", "5"], |s| ShortOfMemory::with_slow_swap(s, 96), SWAPPED, ["storage_io"], no_swap),
    ]
}
