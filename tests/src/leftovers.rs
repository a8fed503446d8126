//! What killed processes of the tests left behind: swap, mounts, loop devices and folders in /var/tmp. Found by the pid in
//! the name of their folder, and removed.

use crate::loopdev::{SCRATCH, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const FOLDERS: &str = "/var/tmp";

/// Removes what processes left that are gone. What cannot be removed is told on standard error.
pub fn clear() {
    // Top down: swap and mounts lie on loop devices, whose files may lie in mounts themselves.
    let loops = loop_devices();
    for (device, _) in loops.iter().filter(|(_, file)| is_orphan(file)) {
        if swaps().contains(device) {
            told(Command::new("swapoff").arg(device));
        }
    }
    unmount_orphans(|source| !source.starts_with("gpustall-slow"));
    for (device, _) in loops.iter().filter(|(_, file)| is_orphan(file)) {
        told(Command::new("losetup").arg("--detach").arg(device));
    }
    unmount_orphans(|_| true);
    for entry in fs::read_dir(FOLDERS).into_iter().flatten().filter_map(Result::ok) {
        if is_orphan(&entry.path())
            && let Err(error) = fs::remove_dir_all(entry.path())
        {
            eprintln!("cannot remove {}: {error}", entry.path().display());
        }
    }
}

fn told(command: &mut Command) {
    if let Err(error) = run(command) {
        eprintln!("{error:#}");
    }
}

/// Whether a path lies in a folder of a process of the tests that is gone.
fn is_orphan(path: &Path) -> bool {
    owner(path).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

fn owner(path: &Path) -> Option<u32> {
    let folder = path.strip_prefix(FOLDERS).ok()?.components().next()?;
    folder.as_os_str().to_str()?.strip_prefix(SCRATCH)?.split('-').next()?.parse().ok()
}

/// Loop devices and the files under them.
fn loop_devices() -> Vec<(PathBuf, PathBuf)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().filter_map(Result::ok) {
        if let Ok(file) = fs::read_to_string(entry.path().join("loop/backing_file")) {
            found.push((Path::new("/dev").join(entry.file_name()), PathBuf::from(file.trim())));
        }
    }
    found
}

fn swaps() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    text.lines().skip(1).filter_map(|line| line.split_whitespace().next().map(PathBuf::from)).collect()
}

fn unmount_orphans(which: impl Fn(&str) -> bool) {
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for line in text.lines().rev() {
        let mut fields = line.split(' ');
        if let (Some(source), Some(point)) = (fields.next(), fields.next())
            && which(source)
            && is_orphan(Path::new(point))
        {
            told(Command::new("umount").arg(point));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_read_from_the_folder() {
        assert_eq!(owner(Path::new("/var/tmp/gpustall-scratch-123-abc/image")), Some(123));
        assert_eq!(owner(Path::new("/var/tmp/gpustall-scratch-123-abc")), Some(123));
        assert_eq!(owner(Path::new("/var/tmp/other-123-abc")), None);
        assert_eq!(owner(Path::new("/tmp/gpustall-scratch-123-abc")), None);
        assert_eq!(owner(Path::new("/var/tmp/gpustall-scratch-x-abc")), None);
    }

    #[test]
    fn a_living_process_has_no_orphans() {
        let own = format!("{FOLDERS}/{SCRATCH}{}-abc", std::process::id());
        assert!(!is_orphan(Path::new(&own)));
        // Above the largest pid that Linux gives.
        assert!(is_orphan(Path::new(&format!("{FOLDERS}/{SCRATCH}4194305-abc"))));
    }
}
