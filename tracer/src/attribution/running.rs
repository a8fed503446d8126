//! The cause of a time in which a thread ran, refined by what samples saw it doing.

use super::calls::{self, CallKind};
use super::roles::{self, Role, Roles};
use super::{Cause, Surroundings};
use crate::events::{ImageId, Syscall};
use crate::timeline::{Moment, ThreadIx, ThreadLine, Timeline};
use crate::units::{MonoNs, Nanos};
use std::collections::HashSet;

/// A sample speaks for at most this long on either side: two periods of the slowest rate that is offered (100 Hz).
const REACH: Nanos = Nanos::from_millis(20);

/// Decides the causes of running time.
#[derive(Debug)]
pub struct Running {
    cuda: HashSet<ImageId>,
}

impl Running {
    /// For the images of this timeline.
    pub fn new(tl: &Timeline) -> Running {
        let cuda = tl.images.iter().filter(|(_, path)| roles::is_libcuda(path)).map(|(id, _)| *id).collect();
        Running { cuda }
    }

    /// Cause of running time by the thread's role alone.
    pub fn by_role(roles: &Roles, ix: ThreadIx) -> Cause {
        match roles.of(ix) {
            Role::Feeder if roles.feeder_loads_data => Cause::Preprocessing,
            // A command that the training process runs and waits for is its own code, too.
            Role::Feeder | Role::Helper | Role::Other => Cause::HostCode,
            Role::Worker => Cause::Preprocessing,
            Role::PinMemory => Cause::PinMemory,
            Role::Ipc => Cause::Ipc,
        }
    }

    /// Splits `[from, to]`, in which the thread ran, into stretches with one cause each, latest first.
    pub fn split(
        &self,
        tl: &Timeline,
        roles: &Roles,
        around: &Surroundings,
        ix: ThreadIx,
        (from, to): (MonoNs, MonoNs),
        trusted: Option<(MonoNs, MonoNs)>,
    ) -> Vec<(MonoNs, MonoNs, Cause)> {
        let plain = Running::by_role(roles, ix);
        let Some(line) = tl.thread(ix) else { return vec![(from, to, plain)] };
        let swapping = around.swapping(from, to);
        if line.pid != roles.feeder_pid && !swapping {
            return vec![(from, to, plain)];
        }
        let (first, last) = trusted.unwrap_or((MonoNs(0), MonoNs(u64::MAX)));
        let near = line.samples_in((from - REACH).max(first), (to + REACH).min(last));
        if near.iter().all(|s| self.special(roles, line, s, swapping).is_none()) {
            return vec![(from, to, plain)];
        }
        // Each sample speaks for the time up to half-way to its neighbours.
        let mut out: Vec<(MonoNs, MonoNs, Cause)> = Vec::new();
        let mut end = to;
        for (k, s) in near.iter().enumerate().rev() {
            let start = match k.checked_sub(1).and_then(|p| near.get(p)) {
                Some(previous) => MonoNs(previous.time.0.midpoint(s.time.0)),
                None => from,
            };
            let start = start.max(from);
            if start >= end {
                continue;
            }
            let cause = self.special(roles, line, s, swapping).unwrap_or(plain);
            match out.last_mut() {
                Some(last) if last.2 == cause => last.0 = start,
                _ => out.push((start, end, cause)),
            }
            end = start;
            if end <= from {
                break;
            }
        }
        if end > from {
            out.push((from, end, plain));
        }
        out
    }

    /// What a sample says beyond the thread's role.
    fn special(&self, roles: &Roles, line: &ThreadLine, s: &Moment, swapping: bool) -> Option<Cause> {
        // Compressed swap (zram, zswap) blocks nobody: pages are fetched back, and others put away, inside the fault.
        if swapping && s.syscall == Syscall::FAULT {
            return Some(Cause::Memory);
        }
        if line.pid != roles.feeder_pid {
            return None;
        }
        let on_file = roles.checkpoints.contains(&s.file);
        match calls::kind(s.syscall) {
            CallKind::Write | CallKind::Sync if on_file => Some(Cause::Checkpoint),
            CallKind::PageFault if self.cuda.contains(&s.image) => Some(Cause::GpuDriver),
            _ => None,
        }
    }
}
