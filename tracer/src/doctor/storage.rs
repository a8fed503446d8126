//! Which file systems, and which disks under them, hold the files of the target.

use crate::host::{self, BlockDevice, FsKind, HostError, Mount, MountEntry};
use crate::units::{DevId, Pid};
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use std::path::{Path, PathBuf};

/// One file system that the target uses.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageUse {
    /// The mount.
    pub mount: Mount,
    /// Its kind, where known.
    pub kind: Option<FsKind>,
    /// How many of its files the target has open; its working directories count too.
    pub files: usize,
    /// One of them.
    pub example: PathBuf,
    /// Whole disks under it, by name; empty where there are none or they cannot be told.
    pub disks: Vec<String>,
}

/// Looks at no more than this many processes and descriptors of each: a sample is enough to tell where data lies.
const PROCESSES: usize = 64;
const DESCRIPTORS: usize = 512;

/// File systems that hold working directories and open regular files of `pids`, most used first. Fails only when the
/// first process cannot be looked at.
pub fn uses_of(pids: &[Pid]) -> Result<Vec<StorageUse>, HostError> {
    let Some(first) = pids.first() else { return Ok(Vec::new()) };
    // Workers see what their parent sees.
    let mounts = host::mount_entries(*first)?;
    let own_mounts = host::mount_entries(Pid(std::process::id()))?;
    let devices = host::block_devices();
    let files: Vec<(FileAt, PathBuf)> = pids.iter().take(PROCESSES).flat_map(|pid| files_of(*pid)).collect();
    let by_mount = group_by_mount(&files, &mounts);
    Ok(by_mount
        .into_iter()
        .map(|(entry, files, example)| StorageUse {
            kind: host::fs_kind(&entry.mount.fs_type),
            disks: disks_of(entry, &own_mounts, &devices, &host::block_members),
            mount: entry.mount.clone(),
            files,
            example,
        })
        .collect())
}

/// Where a file lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileAt {
    /// Its mount, from Linux 5.8.
    mount: Option<u64>,
    dev: DevId,
}

fn files_of(pid: Pid) -> Vec<(FileAt, PathBuf)> {
    let root = PathBuf::from(format!("/proc/{pid}"));
    let mut found: Vec<_> = look_at(&root.join("cwd"), FileType::Directory).into_iter().collect();
    if let Ok(descriptors) = std::fs::read_dir(root.join("fd")) {
        let links = descriptors.filter_map(|e| Some(e.ok()?.path())).take(DESCRIPTORS);
        found.extend(links.filter_map(|link| look_at(&link, FileType::RegularFile)));
    }
    found
}

/// Follows a link of /proc to a file of the wanted type.
fn look_at(link: &Path, wanted: FileType) -> Option<(FileAt, PathBuf)> {
    // Without a round trip to a server, which may hang.
    let flags = AtFlags::STATX_DONT_SYNC;
    let stat = statx(CWD, link, flags, StatxFlags::TYPE | StatxFlags::MNT_ID).ok()?;
    if FileType::from_raw_mode(stat.stx_mode.into()) != wanted {
        return None;
    }
    let known = stat.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    let at = FileAt {
        mount: known.then_some(stat.stx_mnt_id),
        dev: DevId { major: stat.stx_dev_major, minor: stat.stx_dev_minor },
    };
    Some((at, std::fs::read_link(link).ok()?))
}

/// Mounts that hold at least one of the files, with their number and the first of them; most files first.
fn group_by_mount<'a>(files: &[(FileAt, PathBuf)], mounts: &'a [MountEntry]) -> Vec<(&'a MountEntry, usize, PathBuf)> {
    let mut groups: Vec<(&MountEntry, usize, PathBuf)> = Vec::new();
    for (at, path) in files {
        let by_id = at.mount.and_then(|id| mounts.iter().find(|m| m.id == id));
        let Some(mount) = by_id.or_else(|| mounts.iter().find(|m| m.mount.dev == at.dev)) else { continue };
        match groups.iter_mut().find(|(m, ..)| m.id == mount.id) {
            Some((_, count, _)) => *count += 1,
            None => groups.push((mount, 1, path.clone())),
        }
    }
    groups.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.2.cmp(&b.2)));
    groups
}

/// Whole disks under a mount: by its device number, else by its source (btrfs and others give their own number), and for
/// overlay those under its upper directory, or its first lower one, seen in `own_mounts`.
pub(super) fn disks_of(
    entry: &MountEntry,
    own_mounts: &[MountEntry],
    devices: &[BlockDevice],
    members: &dyn Fn(&str) -> Vec<String>,
) -> Vec<String> {
    let mount = &entry.mount;
    let by_number = devices.iter().find(|d| d.dev == mount.dev);
    let by_source = || {
        let name = mount.source.strip_prefix("/dev/")?;
        let mapped = || std::fs::canonicalize(&mount.source).ok();
        devices.iter().find(|d| d.name == name).or_else(|| {
            let real = mapped()?;
            devices.iter().find(|d| real.file_name().is_some_and(|n| n == d.name.as_str()))
        })
    };
    if let Some(device) = by_number.or_else(by_source) {
        return host::whole_disks(&device.name, devices, members);
    }
    if mount.fs_type != "overlay" {
        return Vec::new();
    }
    let option = |name: &str| entry.options.iter().find_map(|o| o.strip_prefix(name));
    let layer = option("upperdir=").or_else(|| option("lowerdir=")?.split(':').next());
    // Layers are paths of whoever mounted the overlay, as a rule the container runtime on the host.
    let below = layer.and_then(|layer| {
        let holds = own_mounts.iter().filter(|m| Path::new(layer).starts_with(&m.mount.point));
        holds.max_by_key(|m| m.mount.point.len())
    });
    match below {
        Some(below) if below.mount.fs_type != "overlay" => disks_of(below, own_mounts, devices, members),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::parse_mountinfo;

    fn device(name: &str, minor: u32, disk: Option<&str>) -> BlockDevice {
        BlockDevice {
            dev: DevId { major: 8, minor },
            name: name.into(),
            disk: disk.map(str::to_owned),
            rotational: false,
            model: None,
            size_bytes: 1,
            scheduler: None,
            backing_file: None,
        }
    }

    const MOUNTS: &[u8] =
        b"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n21 20 0:40 /sub /data rw - btrfs /dev/sdb rw,subvol=/sub\n\
        22 20 0:41 / /merged rw - overlay overlay rw,lowerdir=/a:/b,upperdir=/data/up,workdir=/w\n\
        23 20 0:42 / /net rw - nfs4 server:/x rw\n24 20 0:40 / /all rw - btrfs /dev/sdb rw\n";

    fn none(_: &str) -> Vec<String> {
        Vec::new()
    }

    #[test]
    fn disks_by_number_by_source_and_through_an_overlay() {
        let devices = [device("sda", 0, None), device("sda1", 1, Some("sda")), device("sdb", 16, None)];
        let mounts = parse_mountinfo(MOUNTS);
        let disks: Vec<_> = mounts.iter().map(|m| disks_of(m, &mounts, &devices, &none)).collect();
        let expected: [&[&str]; 5] = [&["sda"], &["sdb"], &["sdb"], &[], &["sdb"]];
        assert_eq!(disks, expected);
    }

    #[test]
    fn files_are_counted_by_mount_and_by_device_on_old_kernels() {
        let mounts = parse_mountinfo(MOUNTS);
        let at = |mount, minor| FileAt { mount, dev: DevId { major: 0, minor } };
        let files = [
            (at(Some(24), 40), "/all/1".into()),
            (at(Some(23), 42), "/net/1".into()),
            (at(None, 42), "/net/2".into()),
            (at(Some(99), 77), "/elsewhere".into()),
        ];
        let groups = group_by_mount(&files, &mounts);
        let seen: Vec<_> = groups.iter().map(|(m, n, p)| (m.id, *n, p.to_str().unwrap())).collect();
        assert_eq!(seen, [(23, 2, "/net/1"), (24, 1, "/all/1")]);
    }

    #[test]
    fn an_open_file_of_this_process_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("open");
        let _open = std::fs::File::create(&path).unwrap();
        let files = files_of(Pid(std::process::id()));
        assert!(files.iter().any(|(_, p)| *p == path), "{files:?}");
    }
}
