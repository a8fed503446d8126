//! Names of system calls. A recording holds x86-64 numbers whatever machine reads it.

use crate::events::Syscall;
use syscalls::x86_64::Sysno;

/// What a blocked thread waits for outside any system call.
pub const PAGE_FAULT: &str = "page fault";

/// Name of the system call (`read`, `futex` …); `None` outside system calls and for numbers that nobody has given out.
pub fn name(syscall: Syscall) -> Option<&'static str> {
    let number = usize::try_from(syscall.0).ok()?;
    Sysno::new(number).map(|s| s.name())
}

/// What a blocked thread waited in: the name of the call, `page fault` outside calls, `system call 999` for an unknown one.
pub fn wait_name(syscall: Syscall) -> String {
    match name(syscall) {
        Some(name) => name.to_owned(),
        None if syscall.is_none() => PAGE_FAULT.to_owned(),
        None => format!("system call {}", syscall.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_block_have_their_names() {
        let known = [
            (0, "read"),
            (1, "write"),
            (7, "poll"),
            (17, "pread64"),
            (19, "readv"),
            (35, "nanosleep"),
            (42, "connect"),
            (47, "recvmsg"),
            (61, "wait4"),
            (74, "fsync"),
            (202, "futex"),
            (208, "io_getevents"),
            (217, "getdents64"),
            (230, "clock_nanosleep"),
            (232, "epoll_wait"),
            (257, "openat"),
            (262, "newfstatat"),
            (426, "io_uring_enter"),
            (437, "openat2"),
        ];
        for (number, text) in known {
            assert_eq!(name(Syscall(number)), Some(text));
        }
    }

    #[test]
    fn numbers_without_a_name_are_still_told_apart() {
        assert_eq!(wait_name(Syscall::NONE), "page fault");
        assert_eq!(wait_name(Syscall(9_999)), "system call 9999");
        assert_eq!(wait_name(Syscall(i16::MIN)), "page fault");
    }
}
