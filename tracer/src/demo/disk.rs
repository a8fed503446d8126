//! Which directory holds the data set, and which disk lies under it.

use super::error::DemoError;
use crate::units::DevId;
use procfs::process::{MountInfo, Process};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A directory for the data set.
#[derive(Debug)]
pub struct Place {
    /// The directory.
    pub dir: PathBuf,
    /// The whole disk under it: cgroup I/O limits know no partitions.
    pub disk: Option<DevId>,
}

/// File systems without a disk of this machine below (`linux/magic.h`): tmpfs, ramfs, FUSE, NFS, SMB, CIFS, 9p.
const NOT_A_DISK: [u64; 7] = [0x0102_1994, 0x8584_58f6, 0x6573_5546, 0x6969, 0xfe53_4d42, 0xff53_4d42, 0x0102_1997];

/// A writable directory on a local disk with so many bytes free, if possible one whose disk is known.
pub fn find_place(needed: u64) -> Result<Place, DemoError> {
    let mut candidates: Vec<PathBuf> = Vec::new();
    candidates.extend(std::env::var_os("TMPDIR").map(PathBuf::from));
    candidates.extend(["/var/tmp", "/tmp"].map(PathBuf::from));
    candidates.extend(std::env::var_os("HOME").map(PathBuf::from));
    candidates.extend(std::env::current_dir());
    candidates.retain(|dir| usable(dir, needed));
    let mounts = mounts();
    let mut places: Vec<Place> = candidates
        .iter()
        .map(|dir| Place { dir: dir.clone(), disk: disk_under(Path::new("/sys"), dir, &mounts) })
        .collect();
    let best = places.iter().position(|place| place.disk.is_some()).unwrap_or(0);
    if places.is_empty() {
        let tried = "TMPDIR, /var/tmp, /tmp, HOME and the current directory".to_owned();
        return Err(DemoError::NoDisk { needed_mib: needed >> 20, tried });
    }
    Ok(places.swap_remove(best))
}

fn usable(dir: &Path, needed: u64) -> bool {
    let Ok(fs) = rustix::fs::statfs(dir) else { return false };
    let free = fs.f_bavail.saturating_mul(fs.f_bsize as u64);
    let writable = rustix::fs::access(dir, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok();
    writable && free > needed && !NOT_A_DISK.contains(&(fs.f_type as u64 & 0xffff_ffff))
}

/// Mounts of this process; none where /proc cannot be read.
pub fn mounts() -> Vec<MountInfo> {
    Process::myself().and_then(|me| me.mountinfo()).map(|mounts| mounts.0).unwrap_or_default()
}

fn disk_under(sys: &Path, dir: &Path, mounts: &[MountInfo]) -> Option<DevId> {
    let device = file_system_device(fs::metadata(dir).ok()?.dev());
    // btrfs gives its files anonymous numbers (major 0), but its mount names the disk.
    let device = if device.major == 0 { mounted_from(dir, mounts)? } else { device };
    whole_disk(sys, device)
}

fn file_system_device(dev: u64) -> DevId {
    DevId { major: rustix::fs::major(dev), minor: rustix::fs::minor(dev) }
}

fn mounted_from(dir: &Path, mounts: &[MountInfo]) -> Option<DevId> {
    let dir = dir.canonicalize().ok()?;
    let mount = mounts
        .iter()
        .filter(|mount| dir.starts_with(&mount.mount_point))
        // The last of several mounts on one point hides the others.
        .max_by_key(|mount| mount.mount_point.components().count())?;
    let source = mount.mount_source.as_deref().filter(|source| source.starts_with("/dev/"))?;
    Some(file_system_device(fs::metadata(source).ok()?.rdev()))
}

/// The disk that a partition belongs to, or the device itself.
fn whole_disk(sys: &Path, device: DevId) -> Option<DevId> {
    let dir = sys.join("dev/block").join(device.to_string()).canonicalize().ok()?;
    if !dir.join("partition").exists() {
        return Some(device);
    }
    parse_dev(&fs::read_to_string(dir.parent()?.join("dev")).ok()?)
}

/// All disks with hardware behind them (no loop, zram or RAM disks): what is held back where the disk under the data
/// set cannot be told, as inside a container's overlay.
pub fn all_disks(sys: &Path) -> Vec<DevId> {
    let Ok(entries) = fs::read_dir(sys.join("block")) else { return Vec::new() };
    entries
        .flatten()
        .filter(|entry| entry.path().join("device").exists())
        .filter_map(|entry| parse_dev(&fs::read_to_string(entry.path().join("dev")).ok()?))
        .collect()
}

fn parse_dev(text: &str) -> Option<DevId> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(DevId { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A sysfs with one disk (254:0, real), its partition (254:1) and a loop device (7:0).
    fn sysfs() -> tempfile::TempDir {
        let sys = tempfile::tempdir().unwrap();
        let disk = sys.path().join("devices/vda");
        fs::create_dir_all(disk.join("vda1")).unwrap();
        fs::create_dir_all(disk.join("device")).unwrap();
        fs::write(disk.join("dev"), "254:0\n").unwrap();
        fs::write(disk.join("vda1/dev"), "254:1\n").unwrap();
        fs::write(disk.join("vda1/partition"), "1\n").unwrap();
        fs::create_dir_all(sys.path().join("devices/loop0")).unwrap();
        fs::write(sys.path().join("devices/loop0/dev"), "7:0\n").unwrap();
        fs::create_dir_all(sys.path().join("dev/block")).unwrap();
        fs::create_dir_all(sys.path().join("block")).unwrap();
        for (link, to) in [
            ("dev/block/254:0", "devices/vda"),
            ("dev/block/254:1", "devices/vda/vda1"),
            ("block/vda", "devices/vda"),
            ("block/loop0", "devices/loop0"),
        ] {
            symlink(sys.path().join(to), sys.path().join(link)).unwrap();
        }
        sys
    }

    const DISK: DevId = DevId { major: 254, minor: 0 };

    #[test]
    fn a_partition_leads_to_its_disk() {
        let sys = sysfs();
        assert_eq!(whole_disk(sys.path(), DevId { major: 254, minor: 1 }), Some(DISK));
        assert_eq!(whole_disk(sys.path(), DISK), Some(DISK));
        assert_eq!(whole_disk(sys.path(), DevId { major: 9, minor: 9 }), None);
    }

    #[test]
    fn only_disks_with_hardware_count_as_disks() {
        let sys = sysfs();
        assert_eq!(all_disks(sys.path()), vec![DISK]);
    }

    #[test]
    fn a_directory_in_memory_is_not_on_a_disk() {
        assert!(!usable(Path::new("/dev/shm"), 1));
        assert!(!usable(Path::new("/proc"), 1));
    }
}
