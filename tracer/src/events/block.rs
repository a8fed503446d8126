//! Block requests: what the disks were asked, by whom, and how long queue and device took.

use crate::units::{DevId, MonoNs, Nanos, Pid, Tid};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockOp {
    /// Reads sectors.
    Read,
    /// Writes sectors.
    Write,
    /// Flushes the device's write cache.
    Flush,
    /// Gives sectors back.
    Discard,
    /// Anything else (zone commands, driver commands).
    Other,
}

/// Who submitted a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Submitter {
    /// A thread of the target.
    Target {
        /// The thread.
        tid: Tid,
        /// Its process.
        pid: Pid,
    },
    /// Somebody else.
    Other {
        /// The thread.
        tid: Tid,
        /// Its process.
        pid: Pid,
    },
    /// A kernel thread: write-back, throttled or merged work, on behalf of nobody that can be told.
    KernelThread {
        /// The thread.
        tid: Tid,
    },
}

/// One block request that completed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockRequest {
    /// The device.
    pub dev: DevId,
    /// What it does.
    pub op: BlockOp,
    /// Length in bytes.
    pub bytes: u32,
    /// First sector, of 512 bytes.
    pub sector: u64,
    /// It entered the queue; `None` where the kernel does not tell.
    pub start: Option<MonoNs>,
    /// It was handed to the device.
    pub issue: MonoNs,
    /// It completed.
    pub complete: MonoNs,
    /// Who submitted it.
    pub submitter: Submitter,
}

impl BlockRequest {
    /// Time in the queue before the device got it; zero where the start is not known.
    pub fn queue(&self) -> Nanos {
        self.start.map_or(Nanos::ZERO, |s| self.issue.since(s))
    }

    /// Time in the device.
    pub fn device(&self) -> Nanos {
        self.complete.since(self.issue)
    }

    /// Queue and device together.
    pub fn total(&self) -> Nanos {
        self.queue() + self.device()
    }
}
