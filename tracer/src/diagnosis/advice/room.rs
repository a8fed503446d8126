//! Whether more workers would help, and how many.

use super::Pace;
use crate::attribution::{Cause, Role, Totals};
use crate::diagnosis::facts::Facts;
use crate::units::Nanos;

/// CPUs count as free when at least this share of those that the job may use is idle: fewer are what kernel threads and a
/// changing load leave over.
const CPUS_FREE: f64 = 0.1;
/// So much of one CPU is worth another worker: main and the rest of the machine take a little of the last one.
const WORTH_A_WORKER: f64 = 0.75;
/// From this share of the idle time on, waits for storage or memory are a limit that more workers would only press on.
const STORAGE_LIMITS: f64 = 0.2;

/// What decides it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Room {
    /// Workers that there are.
    pub workers: usize,
    /// CPUs that were free for the job, where that is known.
    pub free: Option<f64>,
    /// CPUs that the job may use.
    pub allowed: f64,
    /// Share of the idle time that went by in waits for storage or memory.
    pub on_storage: f64,
    /// Workers that could keep up with the GPU, where that is known.
    pub enough: Option<usize>,
}

impl Room {
    pub(super) fn of(f: &Facts<'_>, totals: &Totals, pace: Pace) -> Room {
        let on_storage: Nanos =
            [Cause::Disk, Cause::NetworkStorage, Cause::Memory].into_iter().map(|c| totals.of(c)).sum();
        let workers = f.workers();
        Room {
            workers,
            free: f.cpus_to_have(),
            allowed: f.cpus_allowed(),
            on_storage: on_storage.share_of(totals.idle),
            enough: enough(f, totals, workers, pace),
        }
    }

    /// Storage or memory is the limit, or would soon be.
    pub fn storage_limits(&self) -> bool {
        self.on_storage >= STORAGE_LIMITS
    }

    /// How many workers more there is room and use for.
    pub fn more(&self) -> Option<usize> {
        let free = self.free?;
        if self.storage_limits() || free < WORTH_A_WORKER || free < CPUS_FREE * self.allowed {
            return None;
        }
        let room = (free + 1.0 - WORTH_A_WORKER).floor() as usize;
        let useful = self.enough.map_or(room, |n| n.saturating_sub(self.workers).max(1));
        Some(room.min(useful))
    }
}

/// So many workers do all of the workers' work in the shortest time that the run could take. Without workers, it is the feeder
/// that does it.
fn enough(f: &Facts<'_>, totals: &Totals, workers: usize, pace: Pace) -> Option<usize> {
    let work = match f.worker_time() {
        Some(t) => workers as f64 * (t.ran + t.storage) * pace.span.secs(),
        None => {
            let own = |d: &crate::attribution::Detail| d.cause == Cause::Preprocessing && d.role == Role::Feeder;
            totals.details.iter().filter(|(d, _)| own(d)).map(|(_, n)| n.secs()).sum()
        }
    };
    (pace.shortest > Nanos::ZERO).then(|| (work / pace.shortest.secs()).ceil() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMY: Room = Room { workers: 2, free: Some(6.0), allowed: 8.0, on_storage: 0.0, enough: None };

    #[test]
    fn there_is_room_where_cpus_are_free() {
        assert_eq!(ROOMY.more(), Some(6));
        assert_eq!(Room { free: Some(2.8), ..ROOMY }.more(), Some(3), "the last needs not all of a CPU");
        assert_eq!(Room { free: Some(0.7), allowed: 2.0, ..ROOMY }.more(), None);
        assert_eq!(Room { free: Some(2.0), allowed: 64.0, ..ROOMY }.more(), None, "2 of 64 is noise");
        assert_eq!(Room { free: Some(15.9), allowed: 64.0, ..ROOMY }.more(), Some(16));
        assert_eq!(Room { free: None, ..ROOMY }.more(), None, "nobody looked");
    }

    #[test]
    fn storage_that_limits_leaves_no_room() {
        assert_eq!(Room { on_storage: 0.21, ..ROOMY }.more(), None);
        assert_eq!(Room { on_storage: 0.1, ..ROOMY }.more(), Some(6));
    }

    #[test]
    fn no_more_than_are_useful() {
        assert_eq!(Room { enough: Some(4), ..ROOMY }.more(), Some(2));
        assert_eq!(Room { enough: Some(40), ..ROOMY }.more(), Some(6));
        // They should keep up, by what they do on average, and do not.
        assert_eq!(Room { enough: Some(2), ..ROOMY }.more(), Some(1));
    }
}
