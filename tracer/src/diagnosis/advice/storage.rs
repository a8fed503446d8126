//! Storage and memory: a disk, a share, swap.

use crate::attribution::calls::{self, CallKind};
use crate::attribution::{Cause, Totals};
use crate::diagnosis::evidence::{device_name, device_words, whole_disk};
use crate::diagnosis::facts::Facts;
use crate::diagnosis::words::{bytes, percent};
use crate::events::{BlockOp, Syscall};
use crate::host::IoLimit;
use crate::units::Nanos;

/// Requests below this many bytes are small: a disk spends more time on finding them than on reading.
const SMALL: u64 = 512 << 10;
/// From this share of the waits on, looking files up is what takes the time.
const LOOK_UPS: f64 = 0.3;

/// Threads waited for a disk.
#[derive(Clone, Debug, Default)]
pub struct OnDisk {
    /// Name and kind of the disk, where it is known.
    pub disk: Option<String>,
    /// Control group that limits reads of it, and how.
    pub limit: Option<(String, String)>,
    /// Requests wait longer than the disk takes for them.
    pub held_back: bool,
    /// It has platters.
    pub rotational: bool,
    /// Mean length of a read, bytes.
    pub mean_read: Option<u64>,
    /// Bytes read from it in the recording.
    pub read: u64,
    /// Memory that is left for the page cache, bytes.
    pub memory: Option<u64>,
    /// Share of the waits for storage in calls on paths: open, stat, listings.
    pub look_ups: f64,
    /// The files, as a pattern.
    pub files: Option<String>,
}

impl OnDisk {
    pub(super) fn of(f: &Facts<'_>, totals: &Totals) -> OnDisk {
        let disk = f.main_device().map(|d| whole_disk(f, d));
        // One on writes alone holds up no reads.
        let on_reads = |l: &&IoLimit| l.read_bps.is_some() || l.read_iops.is_some();
        let limit = disk.and_then(|d| f.header.limits.io.iter().filter(on_reads).find(|l| l.dev == d));
        let reads = disk.and_then(|d| f.requests.get(&(d, BlockOp::Read)));
        OnDisk {
            disk: disk.map(|d| device_words(f, d)),
            limit: limit.map(|l| {
                let mut parts = Vec::new();
                parts.extend(l.read_iops.map(|n| format!("{n} reads a second")));
                parts.extend(l.read_bps.map(|n| format!("{} a second", bytes(n as f64))));
                (l.group.clone(), parts.join(" and "))
            }),
            held_back: disk.is_some_and(|d| f.held_back(d, BlockOp::Read).is_some()),
            rotational: disk.is_some_and(|d| f.header.disks.iter().any(|b| b.dev == d && b.kind() == "rotational")),
            mean_read: reads.map(|r| r.bytes / r.count.max(1)),
            read: reads.map_or(0, |r| r.bytes),
            memory: room_in_memory(f),
            look_ups: look_ups(f),
            files: f.main_directory(totals).map(|(pattern, _)| pattern),
        }
    }
}

/// Memory for the page cache: what the machine has, and no more than the job's own limit.
fn room_in_memory(f: &Facts<'_>) -> Option<u64> {
    let available = f.tl.host_inside().last()?.memory_available;
    Some(available.min(f.header.limits.memory_limit.unwrap_or(u64::MAX)))
}

fn look_ups(f: &Facts<'_>) -> f64 {
    let on_paths = f.storage.by_call.iter().filter(|(nr, _)| calls::kind(Syscall(**nr)) == CallKind::Path);
    on_paths.map(|(_, (_, n))| *n).sum::<Nanos>().share_of(f.storage.blocked)
}

/// Advice for [`OnDisk`].
pub fn disk(d: &OnDisk) -> Vec<String> {
    let mut out = Vec::new();
    let disk = d.disk.as_deref().unwrap_or("the disk");
    let held_back = d.held_back && d.limit.is_none();
    if let Some((group, limit)) = &d.limit {
        out.push(format!(
            "Raise or lift the I/O limit that control group {group} sets on {disk} (io.max, blkio.throttle.*, now {limit})."
        ));
    }
    if held_back {
        out.push(format!("Find what holds the reads back before {disk}, and lift it: io.max or blkio.throttle.* of the workers' control group, or a limit of the cloud volume."));
    }
    let files = d.files.as_deref().unwrap_or("the files");
    if d.look_ups >= LOOK_UPS {
        out.push(format!(
            "Pack {files} into shards (WebDataset, TFRecord, Parquet): {} of the waits for storage were for finding files (open, stat, listings), which shards need once.",
            percent(d.look_ups)
        ));
    } else if let Some(mean) = d.mean_read.filter(|n| *n < SMALL) {
        out.push(format!("Read in larger pieces: pack {files} into shards (WebDataset, TFRecord, Parquet) and read them sequentially; a read was {} on average.", bytes(mean as f64)));
    }
    if d.rotational {
        out.push(format!("Move the data from {disk} to an SSD or NVMe drive: random reads on a hard disk are limited to some hundred a second."));
    } else if d.limit.is_none() && !held_back {
        out.push(format!("Move the data from {disk} to a faster drive (local NVMe)."));
    }
    match d.memory {
        Some(memory) if d.read > 0 && d.read < memory => out.push(format!(
            "If the data set is smaller than {}, which is the memory that was left, read it once before training (cat, vmtouch -t) or copy it to /dev/shm: later epochs then read from memory.",
            bytes(memory as f64)
        )),
        Some(memory) if d.read >= memory => out.push(format!(
            "The page cache cannot hold the data: {} were read, and {} of memory were left.",
            bytes(d.read as f64),
            bytes(memory as f64)
        )),
        _ => {}
    }
    out.push("More workers would not help while the disk is the limit.".into());
    out
}

/// Threads waited for a network or user-space file system.
#[derive(Clone, Debug, Default)]
pub struct OnShare {
    /// Its source, type and mount point, where these are known.
    pub mount: Option<(String, String, String)>,
    /// The process of this machine that serves it: name and thread.
    pub server: Option<(String, u32)>,
    /// Share of the waits for storage in calls on paths.
    pub look_ups: f64,
}

impl OnShare {
    pub(super) fn of(f: &Facts<'_>, totals: &Totals) -> OnShare {
        let server = f.outsiders(totals, Cause::NetworkStorage).first().map(|(tid, _)| *tid);
        let mount = f.main_device().and_then(|dev| f.header.mounts.iter().find(|m| m.dev == dev));
        OnShare {
            mount: mount.map(|m| (m.source.clone(), m.fs_type.clone(), m.point.clone())),
            server: server.and_then(|tid| Some((f.tl.name_of(tid, f.tl.span.1)?.to_owned(), tid.0))),
            look_ups: look_ups(f),
        }
    }
}

/// Advice for [`OnShare`].
pub fn share(s: &OnShare) -> Vec<String> {
    let mut out = Vec::new();
    let from =
        s.mount.as_ref().map_or(String::new(), |(source, kind, point)| format!(" from {point} ({kind}, {source})"));
    out.push(format!(
        "Copy the data{from} to a local disk before training, or cache it there; every small read pays a round trip."
    ));
    let look_ups = if s.look_ups >= LOOK_UPS {
        format!(": {} of the waits were for finding files (open, stat, listings)", percent(s.look_ups))
    } else {
        " so that one round trip fetches many samples".into()
    };
    out.push(format!("Pack small files into large ones (WebDataset, TFRecord, Parquet){look_ups}."));
    if let Some((name, tid)) = &s.server {
        out.push(format!("See what {name} (thread {tid}), which serves this file system on this machine, waits for; its own cache or read-ahead may be too small."));
    }
    match s.mount.as_ref().map(|(_, kind, _)| kind.as_str()) {
        Some(kind) if kind.starts_with("nfs") => out.push("If it has to stay on NFS: mount with a larger rsize and with nconnect, and with noatime and a longer actimeo where files do not change.".into()),
        Some("ceph" | "lustre" | "beegfs" | "gpfs") => out.push("If it has to stay there: stripe large files over several servers, and raise the client's read-ahead.".into()),
        _ => {}
    }
    out
}

/// Memory was short.
#[derive(Clone, Debug, Default)]
pub struct Short {
    /// Share of the time that threads ran: bringing pages back from compressed memory is CPU work.
    pub ran: f64,
    /// Pages were swapped in.
    pub swapped: bool,
    /// Limit of the control group, bytes.
    pub limit: Option<u64>,
    /// Memory that the machine had left, bytes.
    pub available: Option<u64>,
    /// Workers.
    pub workers: usize,
}

impl Short {
    pub(super) fn of(f: &Facts<'_>, totals: &Totals) -> Short {
        let of_memory = || totals.details.iter().filter(|(d, _)| d.cause == Cause::Memory);
        let ran: Nanos = of_memory().filter(|(d, _)| d.syscall.is_none()).map(|(_, n)| *n).sum();
        let host = f.tl.host_inside();
        Short {
            ran: ran.share_of(totals.of(Cause::Memory)),
            swapped: matches!(host, [first, .., last] if last.swapped_in > first.swapped_in),
            limit: f.header.limits.memory_limit,
            available: host.last().map(|h| h.memory_available),
            workers: f.workers(),
        }
    }
}

/// Advice for [`Short`].
pub fn memory(s: &Short) -> Vec<String> {
    let mut out = Vec::new();
    let less = if s.workers > 0 { "use fewer workers and a smaller prefetch_factor" } else { "keep less in it" };
    let why = if s.swapped {
        "pages had to be fetched back from swap"
    } else {
        "pages had to be reclaimed before there were new ones"
    };
    match (s.limit, s.available) {
        (Some(limit), Some(available)) if available > limit / 4 => out.push(format!(
            "Raise the memory limit of the job's control group (memory.max, docker --memory, Kubernetes limits.memory): it is {}, and the machine had {} left. Or {less}: {why}.",
            bytes(limit as f64),
            bytes(available as f64)
        )),
        (_, Some(available)) => out.push(format!("Give the job more memory, or {less}: {why}, and the machine had {} left.", bytes(available as f64))),
        (_, None) => out.push(format!("Give the job more memory, or {less}: {why}.")),
    }
    if s.workers > 0 {
        out.push("Let workers share what they only read: a NumPy array or a memory map made before they are forked, in place of Python lists and dicts, of which each worker comes to hold a copy.".into());
    }
    if s.swapped && s.ran >= 0.5 {
        out.push(format!("Swap is compressed memory (zram, zswap): {} of this time is CPU time for unpacking, which a faster disk would not shorten.", percent(s.ran)));
    } else if s.swapped {
        out.push("Until then, swap to compressed memory (zram) or a faster disk; swapoff -a only where all fits into memory, since else processes are killed.".into());
    }
    out
}

/// The device that checkpoints go to, and the control group that limits writes to it.
pub(super) fn write_limit(f: &Facts<'_>, dev: crate::units::DevId) -> Option<(String, String)> {
    let disk = whole_disk(f, dev);
    let limit =
        f.header.limits.io.iter().find(|l| l.dev == disk && (l.write_bps.is_some() || l.write_iops.is_some()))?;
    Some((limit.group.clone(), device_name(f, disk)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow() -> OnDisk {
        OnDisk {
            disk: Some("nvme0n1 (solid state)".into()),
            mean_read: Some(128 << 10),
            read: 1 << 30,
            ..OnDisk::default()
        }
    }

    #[test]
    fn a_limit_is_told_with_its_numbers() {
        let limit = Some(("/job".to_owned(), "100 reads a second".to_owned()));
        let told = disk(&OnDisk { limit, held_back: true, ..slow() }).join("\n");
        assert!(
            told.starts_with("Raise or lift the I/O limit that control group /job sets on nvme0n1 (solid state)"),
            "{told}"
        );
        assert!(told.contains("now 100 reads a second"), "{told}");
        assert!(!told.contains("faster drive") && !told.contains("Find what holds"), "{told}");
        let hidden = disk(&OnDisk { held_back: true, ..slow() }).join("\n");
        assert!(hidden.starts_with("Find what holds the reads back before nvme0n1"), "{hidden}");
    }

    #[test]
    fn how_the_data_lie_decides_how_to_pack_them() {
        let told = disk(&OnDisk { look_ups: 0.6, files: Some("/data/*.jpg".into()), ..slow() }).join("\n");
        assert!(told.contains("Pack /data/*.jpg into shards") && told.contains("60 % of the waits"), "{told}");
        let small = disk(&slow()).join("\n");
        assert!(small.contains("Read in larger pieces") && small.contains("128 KiB on average"), "{small}");
        let large = disk(&OnDisk { mean_read: Some(1 << 20), ..slow() }).join("\n");
        assert!(!large.contains("shards"), "{large}");
    }

    #[test]
    fn memory_may_hold_the_data_or_not() {
        let fits = disk(&OnDisk { memory: Some(64 << 30), ..slow() }).join("\n");
        assert!(fits.contains("smaller than 64 GiB") && fits.contains("/dev/shm"), "{fits}");
        let does_not = disk(&OnDisk { memory: Some(512 << 20), ..slow() }).join("\n");
        assert!(does_not.contains("cannot hold the data: 1.0 GiB were read, and 512 MiB"), "{does_not}");
        let platters = disk(&OnDisk { rotational: true, ..slow() }).join("\n");
        assert!(platters.contains("to an SSD or NVMe drive"), "{platters}");
    }

    #[test]
    fn a_share_is_named_with_its_server() {
        let mount = Some(("fileserver:/export".to_owned(), "nfs4".to_owned(), "/data".to_owned()));
        let told = share(&OnShare { mount, server: None, look_ups: 0.4 }).join("\n");
        assert!(told.contains("from /data (nfs4, fileserver:/export)") && told.contains("nconnect"), "{told}");
        assert!(told.contains("40 % of the waits were for finding files"), "{told}");
        let server = Some(("gcsfuse".to_owned(), 77));
        let told = share(&OnShare { server, ..OnShare::default() }).join("\n");
        assert!(told.contains("what gcsfuse (thread 77)") && !told.contains("NFS"), "{told}");
    }

    #[test]
    fn the_memory_limit_is_raised_where_the_machine_has_more() {
        let s = Short { ran: 0.1, swapped: true, limit: Some(8 << 30), available: Some(100 << 30), workers: 4 };
        let told = memory(&s).join("\n");
        assert!(
            told.starts_with("Raise the memory limit")
                && told.contains("it is 8.0 GiB, and the machine had 100 GiB left"),
            "{told}"
        );
        assert!(told.contains("zram) or a faster disk"), "{told}");
        let full = memory(&Short { available: Some(1 << 28), ..s.clone() }).join("\n");
        assert!(full.starts_with("Give the job more memory, or use fewer workers"), "{full}");
        let packed = memory(&Short { ran: 0.8, ..s.clone() }).join("\n");
        assert!(packed.contains("80 % of this time is CPU time for unpacking"), "{packed}");
        let alone = memory(&Short { workers: 0, swapped: false, limit: None, ..s }).join("\n");
        assert!(!alone.contains("workers") && alone.contains("reclaimed"), "{alone}");
    }
}
