//! Tracefs, in which the tracepoints of system calls have their numbers. Containers and small machines often have none mounted.

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::io;

/// Where the loader looks for tracefs.
pub(super) const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Where it is mounted for this process, out of `/proc/self/mounts`.
pub(super) fn mounted(mounts: &str) -> Option<&'static str> {
    let mounted = |place: &&str| {
        mounts.lines().any(|line| {
            let mut fields = line.split(' ').skip(1);
            fields.next() == Some(place) && fields.next() == Some("tracefs")
        })
    };
    PLACES.into_iter().find(mounted)
}

/// Does work that needs tracefs. Where it is not mounted, a thread mounts it for itself alone and does the work: nobody else sees
/// the mount, and it is gone with the thread. What the work attaches belongs to the process, and stays.
///
/// If it cannot be mounted, the work fails as it would have without this.
pub(super) fn with<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    if mounted(&mounts).is_some() {
        return work();
    }
    let privately = || {
        match mount_for_this_thread() {
            Ok(()) => log::debug!("tracefs is not mounted; a thread mounted it for itself"),
            Err(error) => log::debug!("tracefs is not mounted, and cannot be: {error}"),
        }
        work()
    };
    std::thread::scope(|scope| match scope.spawn(privately).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Mounts tracefs in a mount namespace that only the calling thread is in. Needs `CAP_SYS_ADMIN`.
fn mount_for_this_thread() -> io::Result<()> {
    // SAFETY: a thread's file descriptors stay shared; it gets working directory, root and mounts of its own.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS)? };
    // What others mount and unmount still shows here, but nothing of this shows there.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("nodev", PLACES[0], "tracefs", flags, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_tracefs_where_it_is_looked_for_counts() {
        assert_eq!(mounted("sysfs /sys sysfs rw 0 0\nnodev /sys/kernel/tracing tracefs rw 0 0\n"), Some(PLACES[0]));
        assert_eq!(mounted("t /sys/kernel/debug/tracing tracefs rw 0 0\n"), Some(PLACES[1]));
        assert_eq!(mounted("t /mnt tracefs rw 0 0\ntracefs /sys/kernel/tracing tmpfs rw 0 0\n"), None);
    }
}
