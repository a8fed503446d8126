//! Wording shared by summary, evidence and advice.

use crate::attribution::{Cause, Role};
use crate::events::{Syscall, syscalls};
use crate::units::Pid;

pub use crate::numbers::{bytes, percent, rate, seconds};

/// Who a role is, as the subject of a sentence.
pub fn who(role: Role) -> &'static str {
    match role {
        Role::Feeder => "the thread that feeds the GPU",
        Role::Worker => "workers",
        Role::PinMemory => "the pin-memory thread",
        Role::Ipc => "threads that carry batches between processes",
        Role::Helper => "other threads of the training process",
        Role::Other => "other processes of the job",
    }
}

/// What a cause means, as the predicate to [`who`].
pub fn did(cause: Cause) -> &'static str {
    match cause {
        Cause::Disk => "waited for disk",
        Cause::NetworkStorage => "waited for a network or user-space file system",
        Cause::CpuStarved => "could run but had no CPU",
        Cause::CpuThrottled => "could run but had used up their CPU quota",
        Cause::Preprocessing => "were decoding or transforming the input",
        Cause::HostCode => "ran code of its own while the GPU had nothing to do",
        Cause::PinMemory => "copied batches to pinned memory",
        Cause::Ipc => "moved batches between processes",
        Cause::Checkpoint => "wrote a checkpoint",
        Cause::WorkerStartup => "were starting up",
        Cause::Memory => "waited for memory",
        Cause::Network => "waited for the network",
        Cause::GpuDriver => "waited inside the GPU driver",
        Cause::Sleep => "slept",
        Cause::OtherProcess => "waited for a process outside the job",
        Cause::Unknown => "waited for something that could not be told",
    }
}

/// What a thread was blocked in, as people write it: `read()`, `page faults (mmap)`.
pub fn call_name(nr: i16) -> String {
    match syscalls::name(Syscall(nr)) {
        Some(name) => format!("{name}()"),
        None if nr < 0 => "page faults (mmap)".into(),
        None => format!("system call {nr}"),
    }
}

/// `process 42`, `processes 42 and 43`, `processes 42, 43, 44, 45, 46 and 3 more`.
pub fn processes(pids: &[Pid]) -> String {
    let noun = if pids.len() == 1 { "process" } else { "processes" };
    format!("{noun} {}", listed(&pids.iter().map(Pid::to_string).collect::<Vec<_>>()))
}

/// A list in words; five of it at most.
pub fn listed(items: &[String]) -> String {
    const MOST: usize = 5;
    match items {
        [] => "none".into(),
        [only] => only.clone(),
        [first @ .., last] if items.len() <= MOST => format!("{} and {last}", first.join(", ")),
        _ => format!("{} and {} more", items.get(..MOST).unwrap_or(items).join(", "), items.len() - MOST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_listed_as_people_do() {
        let said = |n: u32| processes(&(1..=n).map(Pid).collect::<Vec<_>>());
        assert_eq!(said(1), "process 1");
        assert_eq!(said(3), "processes 1, 2 and 3");
        assert_eq!(said(5), "processes 1, 2, 3, 4 and 5");
        assert_eq!(said(7), "processes 1, 2, 3, 4, 5 and 2 more");
        assert_eq!(said(0), "processes none");
    }
}
