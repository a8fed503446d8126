//! Wording shared by summary, evidence and advice.

use crate::attribution::{Cause, Role};
use crate::events::{Syscall, syscalls};

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
