//! The state of the target at the attach: which threads there are, and what those that wait are waiting for. Without it a
//! wait in progress would only be known once it ended, and not what it was.

use super::proc::{self, Stat};
use super::targets::TargetMap;
use super::{RawState, now};
use crate::events::{Syscall, TaskEvent, TaskWhat};
use crate::units::{Pid, Tid};
use aya::maps::{HashMap as BpfHashMap, MapData, MapError};
use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::{ffi::CString, fs, path::Path};
use tracer_ebpf::{
    EPOLL_PWAIT, EPOLL_WAIT, FLAG_SEEDED, FileId, Kind, NO_SYSCALL, OffCpu, OffCpuFile, POLL, PPOLL, State, waits_on_fd,
};

/// `BPF_NOEXIST`: never overwrite what the kernel has written meanwhile.
const NO_EXIST: u64 = 1;
/// A tree that still grows behind our back after so many walks is followed by the fork program alone.
const MAX_WALKS: usize = 100;

/// What was found when the target was marked.
pub struct Found {
    /// One event for every thread, main threads first within their process.
    pub threads: Vec<TaskEvent>,
    /// Threads whose ids are beyond the map.
    pub out_of_range: u64,
}

/// Marks all threads of a process and of its descendants. The fork program must be attached: it marks the children of
/// marked threads, and the walk is repeated until it finds nothing unmarked, so that no child can slip through between.
pub fn mark_tree(targets: &TargetMap, root: Pid) -> Found {
    let mut found = Found { threads: Vec::new(), out_of_range: 0 };
    let mut passed_over = HashSet::new();
    for _ in 0..MAX_WALKS {
        let mut news = false;
        for pid in descendants(root, &parents(), Pid(std::process::id())) {
            for tid in proc::threads(pid) {
                if targets.contains(tid) || passed_over.contains(&tid) {
                    continue;
                }
                news = true;
                if !targets.insert(tid) {
                    found.out_of_range += 1;
                    passed_over.insert(tid);
                    continue;
                }
                // From here on the exit program unmarks it, unless its exit has been reported already: a mark on a dead
                // id would one day trace a stranger.
                match proc::stat(pid, tid) {
                    Some(stat) if !stat.is_exiting() => {
                        let Stat { comm, parent, .. } = stat;
                        let what = TaskWhat::Found { parent };
                        found.threads.push(TaskEvent { time: now(), tid, pid, what, comm });
                    }
                    _ => {
                        targets.remove(tid);
                        passed_over.insert(tid);
                    }
                }
            }
        }
        if !news {
            break;
        }
    }
    found
}

/// Parent of every process.
fn parents() -> HashMap<Pid, Pid> {
    proc::processes().into_iter().filter_map(|p| Some((p, proc::stat(p, p.main_thread())?.parent))).collect()
}

/// A process and all processes below it, parents first. gpustall itself may be among them, if the target is the shell or
/// notebook that started it; it and what is below it stay out, or it would trace its own work.
fn descendants(root: Pid, parents: &HashMap<Pid, Pid>, own: Pid) -> Vec<Pid> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for (child, parent) in parents {
        children.entry(*parent).or_default().push(*child);
    }
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(pid) = tree.get(next) {
        // Taken out, so that a table read while ids were reused cannot make a loop.
        let mut below = children.remove(pid).unwrap_or_default();
        below.retain(|p| *p != own);
        below.sort_unstable();
        tree.extend(below);
        next += 1;
    }
    tree
}

/// Writes the state of every thread that waits. Threads that run, or have been seen by the kernel programs since they were
/// marked, are left alone.
pub fn seed_waits(state: &mut BpfHashMap<MapData, u32, RawState>, threads: &[TaskEvent]) -> Result<(), MapError> {
    for t in threads {
        let Some(wait) = wait(t.pid, t.tid) else { continue };
        match state.insert(t.tid.0, RawState(State { record: wait, sb: 0, fault: 0 }), NO_EXIST) {
            Ok(()) => {}
            Err(MapError::SyscallError(e)) if e.io_error.raw_os_error() == Some(libc::EEXIST) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The wait that a thread is in.
fn wait(pid: Pid, tid: Tid) -> Option<OffCpuFile> {
    // Before the look, so that a wait that begins after it is not predated.
    let since = now();
    let state = match proc::stat(pid, tid)?.state {
        b'S' => 1,
        b'D' => 2,
        b'T' => 4,
        b't' => 8,
        _ => return None,
    };
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    let (syscall, args) = proc::parse_syscall(&text)?;
    let file = wait_file(pid, tid, syscall, args[0]);
    // As the kernel programs have it.
    let arg0 = match syscall.0 {
        POLL => args[2] as i32 as u64,
        EPOLL_WAIT | EPOLL_PWAIT => args[3] as i32 as u64,
        _ => args[0],
    };
    let off = OffCpu {
        kind: if file.is_some() { Kind::OffCpuFile } else { Kind::OffCpu } as u32,
        tid: tid.0,
        pid: pid.0,
        flags: FLAG_SEEDED,
        off_ns: since.0,
        arg0,
        syscall: syscall.0,
        waker_syscall: NO_SYSCALL,
        state,
        ..OffCpu::default()
    };
    Some(OffCpuFile { off, file: file.unwrap_or_default() })
}

/// The file that a system call waits on.
fn wait_file(pid: Pid, tid: Tid, syscall: Syscall, arg0: u64) -> Option<FileId> {
    let fd = match syscall.0 {
        POLL | PPOLL => {
            let mut fd = [0; 4];
            fs::File::open(format!("/proc/{pid}/mem")).ok()?.read_exact_at(&mut fd, arg0).ok()?;
            u32::from_ne_bytes(fd)
        }
        nr if waits_on_fd(nr) => arg0 as u32,
        _ => return None,
    };
    file_id(Path::new(&format!("/proc/{pid}/task/{tid}/fd/{fd}")))
}

/// Identity of an open file, as the kernel programs read it. On file systems that give every subvolume a device of its own
/// (btrfs) the device differs from theirs.
fn file_id(path: &Path) -> Option<FileId> {
    let meta = fs::metadata(path).ok()?;
    let c_path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut fs_info = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: a valid path and room for the answer, which is only read if the call succeeded.
    let magic = unsafe {
        if libc::statfs(c_path.as_ptr(), fs_info.as_mut_ptr()) != 0 {
            return None;
        }
        fs_info.assume_init().f_type as u32
    };
    let kernel = |dev: u64| libc::major(dev) << 20 | libc::minor(dev);
    let (dev, rdev) = (kernel(meta.dev()), kernel(meta.rdev()));
    Some(FileId { ino: meta.ino(), dev, rdev, magic, mode: meta.mode() as u16, pad: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found_through_all_generations() {
        let parents = [(1, 0), (5, 1), (9, 5), (7, 5), (8, 9), (6, 1)].map(|(c, p)| (Pid(c), Pid(p))).into();
        assert_eq!(descendants(Pid(5), &parents, Pid(0)), [5, 7, 9, 8].map(Pid));
        assert_eq!(descendants(Pid(5), &parents, Pid(9)), [5, 7].map(Pid), "without the tracer");
        assert_eq!(descendants(Pid(8), &parents, Pid(0)), [Pid(8)]);
    }

    #[test]
    fn a_table_with_a_loop_ends() {
        let parents = [(2, 3), (3, 2)].map(|(c, p)| (Pid(c), Pid(p))).into();
        assert_eq!(descendants(Pid(2), &parents, Pid(0)), [2, 3, 2].map(Pid));
    }

    #[test]
    fn the_identity_of_an_open_file_is_that_of_stat() {
        let file = tempfile::tempfile().unwrap();
        use std::os::fd::AsRawFd;
        let id = file_id(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd()))).unwrap();
        assert_eq!(id.ino, file.metadata().unwrap().ino());
        assert_eq!(id.mode & 0o170_000, 0o100_000);
        assert_ne!(id.magic, 0);
    }
}
