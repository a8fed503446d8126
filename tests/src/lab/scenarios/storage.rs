//! Disks, file systems, memory and the network, each alone and the likely pairs.

use super::python;
use crate::lab::holds::{
    Ahead, All, BusyCpus, CheckpointsElsewhere, DataOnSlowDisk, DataOnSlowShare, FewRequests, LimitedDisk,
    ShortOfMemory, SlowServer, Slowness, no_fuse, no_limits, no_slow_disk, no_swap, no_uring,
};
use crate::lab::nfs::{DataOnNfs, no_nfs};
use crate::lab::paged_out::PagedOut;
use crate::lab::scenario::{Free, Hold, Parts, Scenario};
use crate::swap::CompressedSwap;
use anyhow::Result;
use std::path::Path;
use std::time::Duration;

/// Without workers, main's own work between its reads is part of preparing the data.
const ALONE: &[(&str, Parts)] = &[HOST_PREPARES];
const HOST_PREPARES: (&str, Parts) = ("host", ["preprocessing", "cpu_starved", "unlogged"]);
const SHARE_ALONE: &[(&str, Parts)] = &[HOST_PREPARES, SHARE[0]];
const SWAPPED_ALONE: &[(&str, Parts)] = &[("host", ["preprocessing", "cpu_starved", "memory"]), SWAPPED[0], SWAPPED[1]];
const SERVED_ALONE: &[(&str, Parts)] = &[HOST_PREPARES, SERVED[0]];
/// Reads of a file system in user space are waits for `network_storage`.
const SHARE: &[(&str, Parts)] = &[("read", ["preprocessing", "cpu_starved", "network_storage"])];
/// Look-ups in a table that is in swap wait for memory, and so may all that a worker does: whatever it has not used for long is in
/// swap, whoever puts pages away holds its address space meanwhile, and it blocks for nothing else. Pages in compressed memory come
/// back by CPU work of the fault itself, inside the kernel.
const SWAPPED: &[(&str, Parts)] = &[
    ("read", ["preprocessing", "cpu_starved", "memory"]),
    ("decode", ["preprocessing", "cpu_starved", "memory"]),
    ("handover", ["ipc", "cpu_starved", "memory"]),
    // None makes system calls to speak of: in the kernel they fault, and look for room.
    ("read in the kernel", ["memory", "cpu_starved", "memory"]),
    ("handover in the kernel", ["memory", "cpu_starved", "memory"]),
    ("decode in the kernel", ["memory", "cpu_starved", "memory"]),
];
/// Reads from a server.
const SERVED: &[(&str, Parts)] = &[("read", ["preprocessing", "cpu_starved", "network"])];
/// Reads of what another process makes.
const PRODUCED: &[(&str, Parts)] = &[("read", ["preprocessing", "cpu_starved", "other_process"])];
/// The same without workers.
const PRODUCED_ALONE: &[(&str, Parts)] = &[("host", ["preprocessing", "cpu_starved", "other_process"]), PRODUCED[0]];

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn reads(each: u64) -> Slowness {
    Slowness { read: ms(each), write: Duration::ZERO, names: Duration::ZERO }
}

const SLOW_SHARE: Slowness = Slowness { read: ms(5), write: Duration::ZERO, names: ms(2) };
const SLOW_BOTH: Slowness = Slowness { read: ms(5), write: ms(15), names: Duration::ZERO };
const SLOW_WRITES: Slowness = Slowness { read: Duration::ZERO, write: ms(20), names: Duration::ZERO };

/// Few KB a file, found by listing.
const TREE: &str = "--read tree --file-kb 4 --files 3000 --compute-ms 5";
/// The same when the files are there; nothing is in the page cache, and each is read once.
const TREE_MADE: &str = "--read tree --file-kb 4 --files 3000 --compute-ms 5 --made --cold-epochs 0";

/// What is done with the hold, else the job goes before others; name, what it is about; workload and its arguments; hold; rows => verdicts, unless something is missing.
macro_rules! job {
    ($name:literal: $about:literal, $script:ident $args:expr, $hold:expr, $rows:expr => $verdict:expr, unless $missing:expr) => {
        job!(|hold| Ahead::with(hold), $name: $about, $script $args, $hold, $rows => $verdict, unless $missing)
    };
    ($wrap:expr, $name:literal: $about:literal, $script:ident $args:expr, $hold:expr, $rows:expr => $verdict:expr, unless $missing:expr) => {
        Scenario {
            name: $name,
            about: $about,
            job: || job(concat!(stringify!($script), ".py"), $args),
            hold: |scratch| {
                let hold: fn(&Path) -> Result<Box<dyn Hold>> = $hold;
                let wrap: fn(Box<dyn Hold>) -> Box<dyn Hold> = $wrap;
                Ok(wrap(hold(scratch)?))
            },
            rows: $rows,
            verdict: &$verdict,
            at_least_s: 0.0,
            missing: $missing,
        }
    };
}

fn job(script: &str, args: &str) -> Result<Vec<String>> {
    python(script, &args.split_whitespace().collect::<Vec<_>>())
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
        job! {
            "disk-operations": "a limit on reads a second, cold files",
            loader "--read files --compute-ms 10",
            |s| LimitedDisk::operations(s, 100),
            &[] => ["storage_io"], unless no_limits
        },
        job! {
            "disk-bandwidth": "a limit on bytes a second, large reads one behind the other",
            loader "--read sequential --files 64 --file-kb 1024 --batch 1 --compute-ms 10",
            |s| LimitedDisk::bandwidth(s, 20 << 20),
            &[] => ["storage_io"], unless no_limits
        },
        job! {
            "disk-slow": "a slow disk, cold files",
            loader "--read files --compute-ms 5",
            |_| boxed(DataOnSlowDisk::new(64, reads(5))?),
            &[] => ["storage_io"], unless no_slow_disk
        },
        job! {
            "disk-small-files": "thousands of small files on a slow disk: look-ups and listings block as well",
            loader TREE_MADE,
            |_| boxed(DataOnSlowDisk::new(64, reads(5))?.with_cold_data(&job("loader.py", TREE)?)?),
            &[] => ["storage_io"], unless no_slow_disk
        },
        job! {
            "disk-mmap": "random reads through a mapping: page faults",
            loader "--read mmap --file-kb 32 --compute-ms 10",
            |s| LimitedDisk::operations(s, 400),
            &[] => ["storage_io"], unless no_limits
        },
        job! {
            "disk-direct": "reads past the page cache",
            loader "--read direct --compute-ms 10",
            |s| LimitedDisk::operations(s, 100),
            &[] => ["storage_io"], unless no_limits
        },
        job! {
            "disk-aio": "asynchronous reads, waited for in io_getevents",
            loader "--read aio --compute-ms 10",
            |s| LimitedDisk::operations(s, 200),
            &[] => ["storage_io"], unless no_limits
        },
        job! {
            "disk-uring": "asynchronous reads, waited for in io_uring_enter",
            loader "--read uring --compute-ms 10",
            |s| LimitedDisk::operations(s, 200),
            &[] => ["storage_io"], unless no_uring
        },
        job! {
            "disk-main": "no workers: main itself reads cold files",
            loader "--read files --workers 0 --compute-ms 10",
            |s| LimitedDisk::operations(s, 100),
            ALONE => ["storage_io"], unless no_limits
        },
        job! {
            "disk-main-mmap": "no workers: main itself faults",
            loader "--read mmap --file-kb 32 --workers 0 --compute-ms 10",
            |s| LimitedDisk::operations(s, 400),
            ALONE => ["storage_io"], unless no_limits
        },
        job! {
            "disk-cold-then-warm": "the first epoch reads from a limited disk, later ones from the page cache",
            loader "--read files --files 320 --cold-epochs 1 --work-ms 1 --compute-ms 5",
            |s| LimitedDisk::operations(s, 150),
            &[] => ["storage_io"], unless no_limits
        },
        job! {
            "checkpoint-slow-disk": "periodic checkpoints with fsync to a slow disk, while reads are fine",
            loader "--read files --cold-epochs 0 --checkpoint-every 20 --checkpoint-mb 4 --checkpoint-dir checkpoints --compute-ms 10",
            |s| boxed(CheckpointsElsewhere::new(s, DataOnSlowDisk::new(64, SLOW_WRITES)?)?),
            &[] => ["checkpoint"], unless no_slow_disk
        },
        job! {
            "checkpoint-same-disk": "cold files and frequent checkpoints on the same slow disk",
            loader "--read files --files 200 --compute-ms 10 --checkpoint-every 10 --checkpoint-mb 2",
            |_| boxed(DataOnSlowDisk::new(96, SLOW_BOTH)?),
            &[] => ["checkpoint"], unless no_slow_disk
        },
        job! {
            "checkpoint-share": "periodic checkpoints to a slow file system in user space, while reads are fine",
            loader "--read files --cold-epochs 0 --checkpoint-every 20 --checkpoint-mb 2 --checkpoint-dir checkpoints --compute-ms 10",
            |s| boxed(CheckpointsElsewhere::new(s, DataOnSlowShare::new(SLOW_WRITES)?)?),
            &[] => ["checkpoint"], unless no_fuse
        },
        job! {
            "checkpoint-large": "large checkpoints with fsync and rename to the machine's disk",
            loader "--read files --cold-epochs 0 --checkpoint-every 10 --checkpoint-mb 48 --compute-ms 10",
            |_| boxed(Free),
            &[] => ["checkpoint"], unless none
        },
    ]
}

fn shares() -> Vec<Scenario> {
    vec![
        job! {
            "share": "a slow file system in user space: reads, look-ups and opens",
            loader "--read files --compute-ms 5",
            |_| boxed(DataOnSlowShare::new(SLOW_SHARE)?),
            SHARE => ["storage_io"], unless no_fuse
        },
        job! {
            "share-mmap": "page faults on a slow file system in user space",
            loader "--read mmap --file-kb 32 --compute-ms 10",
            |_| boxed(DataOnSlowShare::new(SLOW_SHARE)?),
            SHARE => ["storage_io"], unless no_fuse
        },
        job! {
            "share-small-files": "small files on a slow file system in user space: listings and look-ups wait as well",
            loader "--read tree --file-kb 4 --files 300 --compute-ms 5",
            |_| boxed(DataOnSlowShare::new(SLOW_SHARE)?),
            SHARE => ["storage_io"], unless no_fuse
        },
        job! {
            "share-direct": "reads past the page cache from a slow file system in user space",
            loader "--read direct --batch 8 --compute-ms 4",
            |_| boxed(DataOnSlowShare::new(SLOW_SHARE)?),
            SHARE => ["storage_io"], unless no_fuse
        },
        job! {
            "nfs": "a share over NFS, whose server is behind a slow link",
            loader "--read files --compute-ms 5",
            |_| boxed(DataOnNfs::new(ms(5))?),
            SHARE => ["storage_io"], unless no_nfs
        },
        job! {
            "share-main": "no workers: main itself reads from a slow file system in user space",
            loader "--read files --workers 0 --compute-ms 10",
            |_| boxed(DataOnSlowShare::new(SLOW_SHARE)?),
            SHARE_ALONE => ["storage_io"], unless no_fuse
        },
    ]
}

fn memory() -> Vec<Scenario> {
    vec![
        // Waits of up to 100 ms: one that the kernel did not trace is 3 % of three seconds.
        Scenario {
            at_least_s: 6.0,
            ..job! {
                "swap": "tables larger than the memory limit of the workers; swap on a slow disk",
                loader "--read table --table-mb 96 --file-kb 8 --join group --compute-ms 5",
                |s| ShortOfMemory::with_slow_swap(s, 96),
                SWAPPED => ["storage_io"], unless no_swap
            }
        },
        Scenario {
            at_least_s: 6.0,
            ..job! {
                "swap-main": "no workers: main's own table is larger than its memory limit",
                loader "--read table --table-mb 160 --file-kb 8 --join group --compute-ms 5 --workers 0",
                |s| ShortOfMemory::with_slow_swap(s, 96),
                SWAPPED_ALONE => ["storage_io"], unless no_swap
            }
        },
        Scenario {
            at_least_s: 12.0,
            ..job! {
                "swap-compressed": "a table whose pages go to compressed memory all the time",
                loader "--read table --table-mb 176 --file-kb 3072 --workers 1 --compute-ms 5",
                |_| boxed(PagedOut::new(176 << 20)?),
                SWAPPED => ["storage_io"], unless CompressedSwap::missing
            }
        },
    ]
}

fn network() -> Vec<Scenario> {
    vec![
        job! {
            "data-over-tcp": "samples from a slow server over TCP",
            loader "--read tcp --compute-ms 5",
            |s| boxed(SlowServer::new(s, "tcp", "10")?),
            SERVED => ["communication"], unless none
        },
        job! {
            "data-over-unix": "samples from a slow server over a unix socket",
            loader "--read unix --compute-ms 5",
            |s| boxed(SlowServer::new(s, "unix", "10")?),
            SERVED => ["communication"], unless none
        },
        job! {
            "data-over-pipe": "samples from a slow process outside the job, over named pipes",
            loader "--read pipe --compute-ms 5",
            |s| boxed(SlowServer::new(s, "pipe", "10")?),
            PRODUCED => ["communication"], unless none
        },
        job! {
            "data-over-pipe-main": "no workers: main itself waits for a slow process outside the job",
            loader "--read pipe --workers 0 --compute-ms 5",
            |s| boxed(SlowServer::new(s, "pipe", "5")?),
            PRODUCED_ALONE => ["communication"], unless none
        },
        job! {
            "data-over-tcp-main": "no workers: main itself asks a slow server",
            loader "--read tcp --workers 0 --compute-ms 5",
            |s| boxed(SlowServer::new(s, "tcp", "5")?),
            SERVED_ALONE => ["communication"], unless none
        },
        job! {
            "no-requests-epoll": "an inference server that waits for requests in epoll",
            inference "--wait epoll --compute-ms 10",
            |s| boxed(FewRequests::new(s)?),
            &[] => ["no_work"], unless none
        },
        job! {
            "no-requests-accept": "an inference server that waits for requests in accept",
            inference "--wait accept --compute-ms 10",
            |s| boxed(FewRequests::new(s)?),
            &[] => ["no_work"], unless none
        },
    ]
}

fn pairs() -> Vec<Scenario> {
    vec![
        job! {
            "disk+checkpoint": "cold files on a limited disk, and checkpoints to a slow one",
            loader "--read files --compute-ms 10 --checkpoint-every 30 --checkpoint-mb 4 --checkpoint-dir checkpoints",
            |s| boxed(All(vec![Box::new(CheckpointsElsewhere::new(s, DataOnSlowDisk::new(64, SLOW_WRITES)?)?), LimitedDisk::operations(s, 100)?])),
            &[] => ["storage_io"], unless no_slow_disk
        },
        job! {
            "disk+preprocessing": "cold files on a limited disk, and a transform",
            loader "--read files --work-ms 3 --compute-ms 5",
            |s| LimitedDisk::operations(s, 120),
            &[] => ["storage_io"], unless no_limits
        },
        job! {
            |hold| hold, "preprocessing+competitor": "a transform, while other processes want the CPUs",
            loader "--read files --cold-epochs 0 --work-ms 6 --compute-ms 10",
            |_| boxed(BusyCpus::default()),
            &[] => ["cpu_starvation"], unless none
        },
        job! {
            "share+host-code": "a slow file system in user space, and main's own work in each step",
            loader "--read files --batch 4 --host-ms 15 --compute-ms 5",
            |_| boxed(DataOnSlowShare::new(Slowness { read: ms(15), write: Duration::ZERO, names: ms(5) })?),
            SHARE => ["storage_io"], unless no_fuse
        },
        job! {
            "swap+preprocessing": "tables in swap, and a transform",
            loader "--read table --table-mb 176 --file-kb 8 --workers 1 --join group --work-ms 2 --compute-ms 5",
            |s| ShortOfMemory::with_slow_swap(s, 96),
            SWAPPED => ["storage_io"], unless no_swap
        },
    ]
}
