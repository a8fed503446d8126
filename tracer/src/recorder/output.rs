//! The file that a recording goes to, and what recording cost.

use crate::recording::WriteError;
use crate::units::{Nanos, Pid};
use std::path::{Path, PathBuf};

/// Name of a recording where none was given: `gpustall-python3-4711-20260131-142530.gpustall`.
pub fn default_name(pid: Pid) -> PathBuf {
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name(comm.trim(), pid, &jiff::ZonedDateTime::now())
}

/// The same for a command that is not started yet.
pub fn name_for_command(command: &str) -> PathBuf {
    let base = command.rsplit('/').next().unwrap_or(command);
    name(base, Pid(std::process::id()), &jiff::ZonedDateTime::now())
}

fn name(comm: &str, pid: Pid, now: &jiff::ZonedDateTime) -> PathBuf {
    let plain: String =
        comm.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect();
    PathBuf::from(format!("gpustall-{plain}-{pid}-{}.gpustall", now.strftime("%Y%m%d-%H%M%S")))
}

/// Says early that the file exists or is a folder, before anything is attached.
pub fn check(path: &Path, overwrite: bool) -> Result<(), WriteError> {
    if path.is_dir() {
        return Err(WriteError::IsFolder { path: path.to_owned() });
    }
    // Opening a pipe would wait for a reader; a recording can only be kept in a file.
    let special = path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir());
    if special && path != Path::new("/dev/null") {
        return Err(WriteError::NotAFile { path: path.to_owned() });
    }
    if !overwrite && path.symlink_metadata().is_ok() {
        return Err(WriteError::Exists { path: path.to_owned() });
    }
    Ok(())
}

/// What this process has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnUsage {
    /// CPU time.
    pub cpu: Nanos,
    /// Peak resident memory, bytes.
    pub peak_rss: u64,
}

/// What this process has used so far.
pub fn own_usage() -> OwnUsage {
    // SAFETY: `rusage` is plain old data, for which zeros are valid, and getrusage only writes to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) != 0 {
            return OwnUsage::default();
        }
        usage
    };
    let time = |t: libc::timeval| Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1_000);
    OwnUsage { cpu: time(usage.ru_utime) + time(usage.ru_stime), peak_rss: usage.ru_maxrss as u64 * 1024 }
}

/// A recording made with sudo belongs to the person who called sudo, who will want to read and delete it.
pub fn give_to_caller(path: &Path) {
    let id = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    // A device such as /dev/null stays root's.
    if is_file(path)
        && let (Some(uid), Some(gid)) = (id("SUDO_UID"), id("SUDO_GID"))
    {
        // A file system without owners is no reason to fail.
        let _ = std::os::unix::fs::chown(path, Some(uid), Some(gid));
    }
}

/// Removes a recording that was given up; devices and pipes stay.
pub fn remove(path: &Path) {
    if is_file(path) {
        // What cannot be removed is only in the way, and the next try says so.
        let _ = std::fs::remove_file(path);
    }
}

fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_name_tells_target_and_time_and_is_safe_in_a_shell() {
        let now: jiff::ZonedDateTime = "2026-01-31T14:25:30[UTC]".parse().unwrap();
        assert_eq!(name("python3", Pid(7), &now), PathBuf::from("gpustall-python3-7-20260131-142530.gpustall"));
        assert_eq!(name("a b/$c", Pid(7), &now), PathBuf::from("gpustall-a_b__c-7-20260131-142530.gpustall"));
    }
}
