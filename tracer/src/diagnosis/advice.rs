//! Advice that fits the evidence.

use super::evidence::{device_words, whole_disk};
use super::facts::Facts;
use crate::attribution::{Cause, Role, Totals};
use crate::events::BlockOp;

/// CPUs count as free when at least this share of them is idle.
const CPUS_FREE: f64 = 0.25;
/// So much of one CPU is worth another worker: main and the rest of the machine take a little of the last one.
const WORTH_A_WORKER: f64 = 0.75;

/// CPUs that were free.
fn free_cpus(f: &Facts<'_>) -> f64 {
    f.cpus_to_have().unwrap_or(0.0)
}

/// Whether more workers would find CPUs to run on.
pub fn more_workers(f: &Facts<'_>) -> bool {
    f.cpu_free.is_some_and(|(free, _)| free >= CPUS_FREE) && free_cpus(f) >= WORTH_A_WORKER
}

/// What to do about a cause, most useful first.
pub fn on(f: &Facts<'_>, totals: &Totals, cause: Cause) -> Vec<String> {
    let mut out = Vec::new();
    match cause {
        Cause::Disk => disk(f, &mut out),
        Cause::NetworkStorage => {
            out.push("Copy the data to a local disk before training, or cache it there; every small read pays a round trip.".into());
            out.push("Pack small files into large ones (WebDataset, TFRecord, Parquet) so that one round trip fetches many samples.".into());
        }
        Cause::CpuStarved => {
            if let Some((tid, _)) = f.competitors(totals).first() {
                let own = f.tl.thread_at(*tid, f.tl.span.1).is_some();
                let name = f.tl.name_of(*tid, f.tl.span.1).unwrap_or("unknown");
                if own {
                    out.push("Start fewer workers or limit the thread pools inside them (torch.set_num_threads(1), OMP_NUM_THREADS=1): the job's own threads take the CPU from each other.".into());
                } else {
                    out.push(format!("Move {name} (thread {tid}) to other CPUs or another machine, or lower its priority (renice, cpu.weight)."));
                }
            }
            let allowed = f.header.limits.allowed_cpus.len() as u32;
            if allowed > 0 && allowed < f.header.cpus {
                out.push(format!("Widen the CPU affinity: the target may use {allowed} of {} CPUs.", f.header.cpus));
            }
            out.push("More workers would not help: they would share the same CPUs.".into());
        }
        Cause::CpuThrottled => {
            out.push("Raise the CPU quota of the control group (docker --cpus, Kubernetes limits.cpu), or use fewer workers and threads.".into());
        }
        Cause::Preprocessing => {
            let (n, free) = (f.workers(), free_cpus(f));
            match n {
                _ if !more_workers(f) => {
                    out.push("No CPU is free, so more workers would not help: make the work cheaper.".into());
                }
                0 => out.push(format!("Load data in workers (num_workers={:.0}): {free:.1} CPUs were free.", (free + 1.0 - WORTH_A_WORKER).floor())),
                n => out.push(format!("Raise num_workers from {n} to {}: {free:.1} CPUs were free and the disk was not the limit.", n + (free + 1.0 - WORTH_A_WORKER).floor() as usize)),
            }
            out.push("Make a sample cheaper: store images at training size, decode with a faster library (libjpeg-turbo, nvJPEG), move augmentation to the GPU (DALI, Kornia), or cache decoded samples.".into());
        }
        Cause::HostCode => {
            out.push("Take work out of the training loop: avoid .item(), logging and metrics at every step; use CUDA graphs or torch.compile to launch less.".into());
            if f.at.roles.of_any(Role::Worker) {
                out.push("Move per-batch Python code into the workers.".into());
            }
        }
        Cause::PinMemory => out.push("Make batches smaller in bytes (uint8 images, normalise on the GPU) so that copying them to pinned memory takes less time.".into()),
        Cause::Ipc => out.push("Send less between processes: uint8 instead of float32, shared memory (tensors, not numpy arrays), larger batches.".into()),
        Cause::Checkpoint => out.push("Write checkpoints from another thread (torch.distributed.checkpoint.async_save), less often, or to a faster disk.".into()),
        Cause::WorkerStartup => out.push("Keep workers alive between epochs (persistent_workers=True), and start them by fork or forkserver instead of spawn.".into()),
        Cause::Memory => out.push("Give the job more memory or use fewer workers and a smaller prefetch_factor: pages had to be fetched back or reclaimed.".into()),
        Cause::Network => out.push("See what the other end of the connection does; prefetch further ahead if it only has latency.".into()),
        Cause::GpuDriver => out.push("Look for synchronising calls (.item(), .cpu(), cudaMalloc without a caching allocator) with a CUDA profiler.".into()),
        Cause::Sleep => out.push("Find the sleep or time-out in the training loop or in the worker: nothing else was in the way.".into()),
        Cause::OtherProcess => out.push("Look at the process that the job waited for; it is named in the evidence.".into()),
        Cause::Unknown => out.push("Record again with the job's main process as target, as root, and without lost events.".into()),
    }
    out
}

fn disk(f: &Facts<'_>, out: &mut Vec<String>) {
    let device = f.main_device();
    let disk = device.map(|d| whole_disk(f, d));
    let limited = disk.and_then(|d| f.header.limits.io.iter().find(|l| l.dev == d));
    if let (Some(l), Some(d)) = (limited, disk) {
        out.push(format!("Raise or lift the I/O limit that control group {} sets on {}.", l.group, device_words(f, d)));
    }
    let held_back = disk.is_some_and(|d| f.held_back(d, BlockOp::Read).is_some());
    if held_back && limited.is_none() {
        out.push("Find what holds the reads back before the disk, and lift it: io.max or blkio.throttle.* of the workers' control group, or a limit of the cloud volume.".into());
    }
    let rotational =
        disk.is_some_and(|d| f.header.disks.iter().any(|b| b.dev == d && b.rotational && !b.name.starts_with("vd")));
    if rotational {
        out.push(
            "Move the data to an SSD or NVMe drive: random reads on a hard disk are limited to some hundred a second."
                .into(),
        );
    } else if limited.is_none() && !held_back {
        out.push("Move the data to a faster drive (local NVMe), or keep it in memory if it fits.".into());
    }
    let mean = f
        .requests
        .iter()
        .filter(|((d, op), _)| Some(*d) == disk && *op == BlockOp::Read)
        .map(|(_, r)| r.bytes / r.count.max(1))
        .next();
    if mean.is_some_and(|bytes| bytes < 512 * 1024) {
        out.push("Read in larger pieces: pack small files into shards (WebDataset, TFRecord, Parquet) and read them sequentially.".into());
    }
    out.push("More workers would not help while the disk is the limit.".into());
}

#[cfg(test)]
#[path = "advice_tests.rs"]
mod tests;
