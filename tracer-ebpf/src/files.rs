//! Paths: of calls that block, of all opens while their probe is attached, and of files that threads block on.

use crate::kernel::{current_call_number, file_id, offset, probe, user_register};
use crate::maps::{NO_WAKEUP, RARE, count};
use crate::target::is_target;
use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::{
    bpf_ktime_get_ns, bpf_probe_read_kernel_str, bpf_probe_read_user_str, bpf_ringbuf_output,
};
use aya_ebpf::helpers::{bpf_get_current_pid_tgid, bpf_probe_read_kernel, bpf_probe_read_user};
use aya_ebpf::macros::{fentry, fexit, map, tracepoint};
use aya_ebpf::maps::{LruHashMap, PerCpuArray};
use aya_ebpf::programs::{FEntryContext, FExitContext, TracePointContext};
use core::mem::{MaybeUninit, offset_of};
use tracer_ebpf::{Counter, FileId, FileOpen, FilePath, Kind, OPEN_BLOCKED, PART_MAX, PATH_MAX, PATH_PARTS};

/// An open under way.
#[derive(Clone, Copy)]
#[repr(C)]
struct Opening {
    start_ns: u64,
    path: u64,
    flags: u64,
}

/// Opens under way, by thread. Least recently used ones give way, since a thread that is killed inside its open never
/// comes to the end of it.
#[map]
static OPENS: LruHashMap<u32, Opening> = LruHashMap::with_max_entries(4096, 0);

/// Which files have been named already.
#[map]
static NAMED: LruHashMap<FileKey, u8> = LruHashMap::with_max_entries(8192, 0);

/// Room for one record where the kernel switches tasks: there nothing else can come in between on this CPU.
#[map]
static BLOCKED: PerCpuArray<FileOpen> = PerCpuArray::with_max_entries(1, 0);

/// Key of [`NAMED`]. The file's inode number may be used again after its deletion; then the older name stays.
#[derive(Clone, Copy)]
#[repr(C)]
struct FileKey {
    ino: u64,
    dev: u64,
}

const S_IFMT: u16 = 0o170_000;
const S_IFREG: u16 = 0o100_000;
const S_IFDIR: u16 = 0o040_000;

/// Bytes of a [`FileOpen`] before its path.
const HEAD: usize = offset_of!(FileOpen, path);

/// Which argument of a system call is a path; bit sets over the call numbers.
struct PathCalls {
    first: [u64; 8],
    second: [u64; 8],
}

/// Calls that look up a path and may wait for the disk doing so.
static PATH_CALLS: PathCalls = PathCalls {
    first: bits(&[
        2, 4, 6, 21, // open stat lstat access
        59, 76, 80, 82, // execve truncate chdir rename
        83, 84, 85, 86, 87, // mkdir rmdir creat link unlink
        89, 90, 92, 132, 133, 137, // readlink chmod chown utime mknod statfs
        161, 188, 189, 191, 192, 194, 195,
        235, // chroot setxattr lsetxattr getxattr lgetxattr listxattr llistxattr utimes
    ]),
    second: bits(&[
        254, 257, 258, 260, // inotify_add_watch openat mkdirat fchownat
        262, 263, 264, 265, // newfstatat unlinkat renameat linkat
        267, 268, 269, 280, // readlinkat fchmodat faccessat utimensat
        303, 316, 322, 332, // name_to_handle_at renameat2 execveat statx
        428, 437, 439, // open_tree openat2 faccessat2
    ]),
};

const fn bits(calls: &[u16]) -> [u64; 8] {
    let mut set = [0; 8];
    let mut i = 0;
    while i < calls.len() {
        set[calls[i] as usize / 64] |= 1 << (calls[i] % 64);
        i += 1;
    }
    set
}

#[inline(always)]
fn has(set: *const [u64; 8], nr: i16) -> bool {
    let nr = nr as u16 as usize;
    // SAFETY: the mask keeps the index inside; a volatile load keeps the table out of the instructions.
    let word = unsafe { set.cast::<u64>().add(nr / 64 & 7).read_volatile() };
    nr < 512 && word >> (nr % 64) & 1 != 0
}

/// Writes the path of a call that is about to block. For the program on `sched_switch` alone, with the thread that leaves
/// as the current one, and only when it goes to sleep.
#[inline(never)]
pub fn blocked_path(tid: u32, pid: u32, off_ns: u64, nr: i32) -> i32 {
    let path = if has(&raw const PATH_CALLS.second, nr as i16) {
        user_register(offset!(regs_si))
    } else if has(&raw const PATH_CALLS.first, nr as i16) {
        user_register(offset!(regs_di))
    } else {
        return 0;
    };
    let Some(open) = BLOCKED.get_ptr_mut(0) else { return 0 };
    // SAFETY: the value is this CPU's own, and nothing else runs on it during a task switch.
    unsafe {
        (*open).kind = Kind::FileOpen as u32;
        (*open).tid = tid;
        (*open).pid = pid;
        (*open).flags = OPEN_BLOCKED;
        (*open).time_ns = off_ns;
        (*open).latency_ns = 0;
        (*open).result = 0;
        (*open).open_flags = 0;
        (*open).syscall = nr as i16;
        (*open).pad = 0;
        write(open, path);
    }
    0
}

/// Reads the path and writes as much of the record as is used. Nothing is written for an empty path (the call works on a
/// descriptor) or for one that cannot be read (its page is not in memory).
///
/// # Safety
/// `open` must be valid, with all but the path and its length filled in.
#[inline(always)]
unsafe fn write(open: *mut FileOpen, path: u64) {
    // SAFETY: `open` is valid; the helpers check the address of the path and the ring.
    unsafe {
        let to = (&raw mut (*open).path).cast();
        let n = bpf_probe_read_user_str(to, PATH_MAX as u32, path as *const _);
        if n <= 1 || n > PATH_MAX as i64 {
            return;
        }
        (*open).path_len = (n - 1) as u16;
        let size = HEAD as u64 + (n as u64 - 1);
        let ring = (&raw const RARE).cast_mut().cast();
        if bpf_ringbuf_output(ring, open.cast(), size, NO_WAKEUP) != 0 {
            count(Counter::FileDropped);
        }
    }
}

/// Writes the names of a file and its directories, the first time it is seen. Regular files and directories only.
#[inline(always)]
pub fn name_once(file: *const u8, id: &FileId, pid: u32, fd: u32) {
    let kind = id.mode & S_IFMT;
    if kind != S_IFREG && kind != S_IFDIR {
        return;
    }
    let key = FileKey { ino: id.ino, dev: id.dev as u64 };
    if NAMED.get_ptr(key).is_none() {
        write_names(file as u64, pid, fd);
    }
}

/// The rare part of [`name_once`], with a stack frame of its own.
#[inline(never)]
fn write_names(file: u64, pid: u32, fd: u32) -> i32 {
    let file = file as *const u8;
    let Some(mut entry) = RARE.reserve::<FilePath>(0) else {
        count(Counter::FileDropped);
        return 0;
    };
    let record = entry.as_mut_ptr();
    let id = file_id(file);
    let mut dentry = probe::<u64>(file, offset!(file_dentry)) as *const u8;
    // SAFETY: the record was reserved whole; the helpers check the addresses.
    unsafe {
        (*record).kind = Kind::FilePath as u32;
        (*record).file = id;
        (*record).pid = pid;
        (*record).fd = fd;
        let mut parts = 0;
        for i in 0..PATH_PARTS {
            let parent = probe::<u64>(dentry, offset!(dentry_parent)) as *const u8;
            // The root of a file system is its own parent.
            if parent.is_null() || parent == dentry {
                break;
            }
            let name = probe::<u64>(dentry, offset!(dentry_name)) as *const u8;
            let to = (&raw mut (*record).names[i]).cast();
            if bpf_probe_read_kernel_str(to, PART_MAX as u32, name.cast()) <= 0 {
                break;
            }
            parts += 1;
            dentry = parent;
        }
        (*record).parts = parts;
    }
    entry.submit(NO_WAKEUP);
    let _ = NAMED.insert(FileKey { ino: id.ino, dev: id.dev as u64 }, 1, 0);
    0
}

/// Distance of the first argument and of the result from the start of a system call tracepoint's context.
const ARGUMENTS: usize = 16;

/// Argument of a system call tracepoint.
#[inline(always)]
fn argument(ctx: &TracePointContext, n: usize) -> u64 {
    // SAFETY: the context holds six arguments at most, and each program asks only for those of its own call.
    unsafe { ctx.as_ptr().cast::<u8>().add(ARGUMENTS + 8 * n).cast::<u64>().read_volatile() }
}

/// `open(path, flags, mode)`.
#[tracepoint(category = "syscalls", name = "sys_enter_open")]
pub fn enter_open(ctx: TracePointContext) -> u32 {
    if is_target(bpf_get_current_pid_tgid() as u32) {
        opening(argument(&ctx, 0), argument(&ctx, 1));
    }
    0
}

/// `openat(directory, path, flags, mode)`.
#[tracepoint(category = "syscalls", name = "sys_enter_openat")]
pub fn enter_openat(ctx: TracePointContext) -> u32 {
    if is_target(bpf_get_current_pid_tgid() as u32) {
        opening(argument(&ctx, 1), argument(&ctx, 2));
    }
    0
}

/// `openat2(directory, path, how, size)`; `how` starts with the flags (`struct open_how`).
#[tracepoint(category = "syscalls", name = "sys_enter_openat2")]
pub fn enter_openat2(ctx: TracePointContext) -> u32 {
    if is_target(bpf_get_current_pid_tgid() as u32) {
        let how = argument(&ctx, 2) as *const u64;
        // SAFETY: the helper checks the address.
        opening(argument(&ctx, 1), unsafe { bpf_probe_read_user(how) }.unwrap_or(0));
    }
    0
}

/// End of any of the three.
#[tracepoint(category = "syscalls", name = "sys_exit_openat")]
pub fn exit_open(ctx: TracePointContext) -> u32 {
    opened(argument(&ctx, 0) as i64);
    0
}

/// The kernel adds this flag to every open of a 64-bit program before its own function sees it.
const O_LARGEFILE: u64 = 0o100_000;

/// The kernel's own function behind all of them: `do_sys_openat2(directory, path, how)`, where the kernel can attach to
/// functions. Unlike a system call tracepoint this costs only those who open.
#[fentry(function = "do_sys_openat2")]
pub fn enter_do_open(ctx: FEntryContext) -> i32 {
    if is_target(bpf_get_current_pid_tgid() as u32) {
        let how: *const u64 = ctx.arg(2);
        // SAFETY: the helper checks the address.
        let flags = unsafe { bpf_probe_read_kernel(how) }.unwrap_or(0);
        opening(ctx.arg(1), flags & !O_LARGEFILE);
    }
    0
}

/// End of `do_sys_openat2`.
#[fexit(function = "do_sys_openat2")]
pub fn exit_do_open(ctx: FExitContext) -> i32 {
    opened(ctx.arg(3));
    0
}

#[inline(always)]
fn opening(path: u64, flags: u64) {
    // SAFETY: no arguments.
    let start_ns = unsafe { bpf_ktime_get_ns() };
    if OPENS.insert(bpf_get_current_pid_tgid() as u32, Opening { start_ns, path, flags }, 0).is_err() {
        count(Counter::FileDropped);
    }
}

/// The path is read here and not at the start: by now the kernel has read it too, so that its page is in memory.
#[inline(always)]
fn opened(result: i64) {
    let id = bpf_get_current_pid_tgid();
    let tid = id as u32;
    if !is_target(tid) {
        return;
    }
    let Some(opening) = OPENS.get_ptr(tid) else { return };
    // SAFETY: the value is used before it is removed, and only its own thread writes it. The record is on the stack,
    // since these programs can be preempted.
    unsafe {
        let Opening { start_ns, path, flags } = *opening;
        let mut open = MaybeUninit::<FileOpen>::uninit();
        let open = open.as_mut_ptr();
        (*open).kind = Kind::FileOpen as u32;
        (*open).tid = tid;
        (*open).pid = (id >> 32) as u32;
        (*open).flags = 0;
        (*open).time_ns = start_ns;
        (*open).latency_ns = bpf_ktime_get_ns().wrapping_sub(start_ns);
        (*open).result = result as i32;
        (*open).open_flags = flags as u32;
        (*open).syscall = current_call_number();
        (*open).pad = 0;
        write(open, path);
    }
    let _ = OPENS.remove(tid);
}
