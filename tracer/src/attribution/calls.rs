//! What kind of wait a system call is (x86-64 numbers, `arch/x86/entry/syscalls/syscall_64.tbl`).

use crate::events::Syscall;

/// Kind of a system call, as far as waiting in it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// None: a page fault, or user code.
    PageFault,
    /// Reads from a descriptor.
    Read,
    /// Writes to a descriptor.
    Write,
    /// Makes written data durable.
    Sync,
    /// Works on paths or directories: open, stat, getdents, unlink …
    Path,
    /// Waits for several descriptors: poll, select, epoll.
    Poll,
    /// Waits for a lock or a condition.
    Futex,
    /// Sleeps for a time.
    Sleep,
    /// Waits for asynchronous disk I/O.
    AsyncIo,
    /// Works on a socket.
    Socket,
    /// Asks a driver.
    Ioctl,
    /// Changes the address space.
    MemoryMap,
    /// Waits for a child process.
    WaitChild,
    /// Gives the CPU away.
    Yield,
    /// Anything else.
    Other,
}

/// Kind of a system call.
pub fn kind(call: Syscall) -> CallKind {
    match call.0 {
        ..0 => CallKind::PageFault,
        // read, pread64, readv, preadv, preadv2, readahead, sendfile, splice, copy_file_range
        0 | 17 | 19 | 295 | 327 | 187 | 40 | 275 | 326 => CallKind::Read,
        // write, pwrite64, writev, pwritev, pwritev2, ftruncate, fallocate
        1 | 18 | 20 | 296 | 328 | 77 | 285 => CallKind::Write,
        // fsync, fdatasync, sync, sync_file_range, syncfs, msync
        74 | 75 | 162 | 277 | 306 | 26 => CallKind::Sync,
        // open, stat, fstat, lstat, access, getdents, getcwd, truncate, rename, mkdir, rmdir, creat, link, unlink,
        // symlink, readlink, chmod, execve, getdents64, openat, mkdirat, newfstatat, unlinkat, renameat, faccessat,
        // close, renameat2, execveat, statx, openat2, faccessat2
        2..=6 | 21 | 59 | 76 | 78..=80 | 82..=90 | 217 | 257 | 258 | 262..=269 | 316 | 322 | 332 | 437 | 439 => {
            CallKind::Path
        }
        // poll, select, pselect6, ppoll, epoll_wait, epoll_pwait, epoll_pwait2
        7 | 23 | 270 | 271 | 232 | 281 | 441 => CallKind::Poll,
        // futex, futex_waitv, futex_wait
        202 | 449 | 455 => CallKind::Futex,
        // nanosleep, clock_nanosleep, pause
        35 | 230 | 34 => CallKind::Sleep,
        // io_getevents, io_pgetevents, io_uring_enter
        208 | 333 | 426 => CallKind::AsyncIo,
        // connect, accept, sendto, recvfrom, sendmsg, recvmsg, accept4, recvmmsg, sendmmsg
        42..=47 | 288 | 299 | 307 => CallKind::Socket,
        16 => CallKind::Ioctl,
        // mmap, mprotect, munmap, brk, mremap, madvise
        9..=12 | 25 | 28 => CallKind::MemoryMap,
        // wait4, waitid
        61 | 247 => CallKind::WaitChild,
        24 => CallKind::Yield,
        _ => CallKind::Other,
    }
}
