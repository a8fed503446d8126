//! The few lines of /proc that seeding and naming need.

use crate::events::Syscall;
use crate::units::{Pid, Tid};
use std::fs;

/// `PF_EXITING` and `PF_KTHREAD` (`linux/sched.h`), as in field 9 of `stat`.
const PF_EXITING: u32 = 0x4;
const PF_KTHREAD: u32 = 0x0020_0000;

/// What `stat` says about a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Name.
    pub comm: String,
    /// State letter.
    pub state: u8,
    /// Parent process.
    pub parent: Pid,
    /// `PF_*`.
    flags: u32,
}

impl Stat {
    /// Whether the thread is on its way out, past the point where its exit is reported or close to it.
    pub fn is_exiting(&self) -> bool {
        self.flags & PF_EXITING != 0 || matches!(self.state, b'Z' | b'X')
    }

    /// Whether it is a kernel thread.
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }
}

/// Parses `/proc/PID/stat`. The name may hold blanks and brackets, so it ends at the last closing one.
pub fn parse_stat(text: &str) -> Option<Stat> {
    let (open, close) = (text.find('(')?, text.rfind(')')?);
    let comm = text.get(open + 1..close)?.to_owned();
    let mut fields = text.get(close + 1..)?.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let parent = Pid(fields.next()?.parse().ok()?);
    let flags = fields.nth(4)?.parse().ok()?;
    Some(Stat { comm, state, parent, flags })
}

/// What `syscall` says about a thread that waits: call number and its six arguments; `None` while it runs.
pub fn parse_syscall(text: &str) -> Option<(Syscall, [u64; 6])> {
    let mut words = text.split_ascii_whitespace();
    let nr: i64 = words.next()?.parse().ok()?;
    let mut args = [0; 6];
    if nr < 0 {
        return Some((Syscall::NONE, args));
    }
    for arg in &mut args {
        *arg = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some((Syscall(i16::try_from(nr).ok()?), args))
}

/// Value of a field of `/proc/PID/status`.
pub fn status_field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// `stat` of a thread; `None` if it is gone.
pub fn stat(pid: Pid, tid: Tid) -> Option<Stat> {
    // Names are bytes, not text.
    let bytes = fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    parse_stat(&String::from_utf8_lossy(&bytes))
}

/// Threads of a process; empty if it is gone.
pub fn threads(pid: Pid) -> Vec<Tid> {
    numbers(&format!("/proc/{pid}/task")).map(Tid).collect()
}

/// All processes.
pub fn processes() -> Vec<Pid> {
    numbers("/proc").map(Pid).collect()
}

fn numbers(dir: &str) -> impl Iterator<Item = u32> {
    fs::read_dir(dir).into_iter().flatten().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok())
}

/// Highest process id plus one.
pub fn pid_max() -> Option<u32> {
    fs::read_to_string("/proc/sys/kernel/pid_max").ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_splits_at_the_last_bracket() {
        let s = parse_stat("7 (a) b (c)) D 3 7 7 0 -1 4194564 11 0 0").unwrap();
        assert_eq!((s.comm.as_str(), s.state, s.parent), ("a) b (c)", b'D', Pid(3)));
        assert!(s.is_exiting() && !s.is_kernel_thread());
        assert!(parse_stat("2 (kthreadd) S 0 0 0 0 -1 2129984 0").unwrap().is_kernel_thread());
    }

    #[test]
    fn stat_that_is_cut_is_none() {
        for text in ["", "7", "7 (x", "7 (x)", "7 (x) S", "7 (x) S 1 1 1 0", ") (", "7 (x) S y 1 1 0 -1 0"] {
            assert_eq!(parse_stat(text), None, "{text:?}");
        }
    }

    #[test]
    fn syscall_lines_parse() {
        let read = parse_syscall("0 0x5 0x7f00 0x10 0x0 0x0 0x0 0x7ffd 0x7f12\n");
        assert_eq!(read, Some((Syscall(0), [5, 0x7f00, 0x10, 0, 0, 0])));
        assert_eq!(parse_syscall("-1 0x7ffd 0x7f12\n"), Some((Syscall::NONE, [0; 6])));
        assert_eq!(parse_syscall("running\n"), None);
        assert_eq!(parse_syscall(""), None);
        assert_eq!(parse_syscall("202"), None);
    }

    #[test]
    fn status_fields_are_found_by_whole_name() {
        let text = "Name:\tpython3\nTgid:\t12\nNSpid:\t12\t1\n";
        assert_eq!(status_field(text, "Tgid"), Some("12"));
        assert_eq!(status_field(text, "NSpid"), Some("12\t1"));
        assert_eq!(status_field(text, "NS"), None);
    }
}
