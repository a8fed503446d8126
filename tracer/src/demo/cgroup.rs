//! Holds back a disk for the workers alone, by the I/O limits of cgroup v1 (`blkio.throttle.*`) or v2 (`io.max`).

use super::disk;
use crate::units::DevId;
use procfs::process::MountInfo;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A cgroup whose members read slowly.
#[derive(Debug)]
pub struct Throttle {
    /// The cgroup; a process joins by writing to `cgroup.procs` in it.
    pub dir: PathBuf,
    /// The file system's top directory, if `io` was switched on there for this and is to be switched off again.
    pub switched_on: Option<PathBuf>,
    /// Version of cgroups used.
    pub version: u8,
}

/// Makes cgroup `name`, whose members may read so many times a second from each of `disks`. The error says in half a
/// sentence why it cannot be had.
pub fn hold_back(name: &str, disks: &[DevId], iops: u32) -> Result<Throttle, String> {
    if disks.is_empty() {
        return Err("no disk was found to limit".to_owned());
    }
    let mounts = disk::mounts();
    let mut reasons = Vec::new();
    for (version, top) in hierarchies(&mounts) {
        match limited_group(version, &top, name, disks, iops) {
            Ok(throttle) => return Ok(throttle),
            Err(e) => reasons.push(format!("cgroup v{version}: {e}")),
        }
    }
    if reasons.is_empty() { Err("no cgroup I/O controller is mounted".to_owned()) } else { Err(reasons.join("; ")) }
}

/// Mounted hierarchies that can limit I/O.
fn hierarchies(mounts: &[MountInfo]) -> Vec<(u8, PathBuf)> {
    let version = |mount: &MountInfo| match mount.fs_type.as_str() {
        "cgroup" if mount.super_options.contains_key("blkio") => Some(1),
        "cgroup2" => Some(2),
        _ => None,
    };
    mounts.iter().filter_map(|mount| Some((version(mount)?, mount.mount_point.clone()))).collect()
}

fn limited_group(version: u8, top: &Path, name: &str, disks: &[DevId], iops: u32) -> io::Result<Throttle> {
    let switched_on = if version == 2 { switch_on_io(top)? } else { None };
    let throttle = Throttle { dir: top.join(name), switched_on, version };
    let limit = || -> io::Result<()> {
        fs::create_dir(&throttle.dir)?;
        for disk in disks {
            let (file, line) = limit_line(version, *disk, iops);
            fs::write(throttle.dir.join(file), line)?;
        }
        Ok(())
    };
    limit().inspect_err(|_| remove(&throttle.dir, throttle.switched_on.as_deref()))?;
    Ok(throttle)
}

/// File and line that set the limit.
fn limit_line(version: u8, disk: DevId, iops: u32) -> (&'static str, String) {
    match version {
        1 => ("blkio.throttle.read_iops_device", format!("{disk} {iops}")),
        _ => ("io.max", format!("{disk} riops={iops}")),
    }
}

/// Lets children of the top directory have I/O limits; gives the directory if that was not so before.
fn switch_on_io(top: &Path) -> io::Result<Option<PathBuf>> {
    let has_io = |file: &str| -> io::Result<bool> {
        Ok(fs::read_to_string(top.join(file))?.split_ascii_whitespace().any(|controller| controller == "io"))
    };
    if !has_io("cgroup.controllers")? {
        return Err(io::Error::other("it has no io controller"));
    }
    if has_io("cgroup.subtree_control")? {
        return Ok(None);
    }
    fs::write(top.join("cgroup.subtree_control"), "+io")?;
    Ok(Some(top.to_owned()))
}

/// Undoes [`hold_back`]: ends what is still in the cgroup (its members are the demo's own) and removes it.
pub fn remove(dir: &Path, switched_on: Option<&Path>) {
    for _ in 0..200 {
        match fs::remove_dir(dir) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {}
            _ => break,
        }
        for pid in members(dir) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        // A dying process leaves its cgroup a little later.
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    if let Some(top) = switched_on {
        // Refused, rightly, if someone else has come to use it.
        let _ = fs::write(top.join("cgroup.subtree_control"), "-io");
    }
}

fn members(dir: &Path) -> Vec<rustix::process::Pid> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| rustix::process::Pid::from_raw(line.trim().parse().ok()?)).collect()
}

/// Puts the calling process into the cgroup.
pub fn join(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("cgroup.procs"), "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: DevId = DevId { major: 254, minor: 0 };

    #[test]
    fn limits_are_written_as_each_version_wants_them() {
        assert_eq!(limit_line(1, DISK, 100), ("blkio.throttle.read_iops_device", "254:0 100".to_owned()));
        assert_eq!(limit_line(2, DISK, 100), ("io.max", "254:0 riops=100".to_owned()));
    }

    #[test]
    fn io_is_switched_on_once_and_only_where_it_exists() {
        let top = tempfile::tempdir().unwrap();
        let file = |name: &str| top.path().join(name);
        fs::write(file("cgroup.controllers"), "cpu memory\n").unwrap();
        fs::write(file("cgroup.subtree_control"), "\n").unwrap();
        assert!(switch_on_io(top.path()).unwrap_err().to_string().contains("no io controller"));
        fs::write(file("cgroup.controllers"), "cpu io memory\n").unwrap();
        assert_eq!(switch_on_io(top.path()).unwrap(), Some(top.path().to_owned()));
        assert_eq!(fs::read_to_string(file("cgroup.subtree_control")).unwrap(), "+io");
        fs::write(file("cgroup.subtree_control"), "cpu io\n").unwrap();
        assert_eq!(switch_on_io(top.path()).unwrap(), None);
    }

    #[test]
    fn without_a_disk_there_is_nothing_to_hold_back() {
        assert!(hold_back("gpustall-test-never", &[], 100).unwrap_err().contains("no disk"));
    }
}
