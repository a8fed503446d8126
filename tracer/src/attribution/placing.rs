//! Placing the idle time of a window: it is known how long the GPU was idle in it, not when.

use super::Cause;
use super::calls::{self, CallKind};
use super::roles::{Role, Roles};
use super::segment::{Segment, What};
use crate::timeline::Timeline;
use crate::units::Nanos;

const SURE: u8 = 0;

const LEAST_CERTAIN: u8 = 3;

/// Distributes a window's idle time over its segments, most certain kind first, and gives the part that went to the sure kind.
/// A window says how long the GPU was idle, not when.
pub(super) fn spend(tl: &Timeline, roles: &Roles, segments: &mut [Segment], idle: Nanos) -> Nanos {
    let mut left = idle;
    let mut sure = Nanos::ZERO;
    let doubts: Vec<u8> =
        segments.iter().zip(beside_driver(segments)).map(|(s, beside)| doubt(tl, roles, s, beside)).collect();
    for class in SURE..=LEAST_CERTAIN {
        let members: Vec<usize> = (0..).zip(&doubts).filter(|(_, d)| **d == class).map(|(n, _)| n).collect();
        let total: Nanos = members.iter().filter_map(|i| segments.get(*i)).map(Segment::length).sum();
        let spent = total.0.min(left.0);
        let mut given = 0;
        let mut seen = 0u64;
        for i in members {
            let Some(s) = segments.get_mut(i) else { continue };
            // Cumulative shares, so that the parts add up to the nanosecond.
            seen += s.length().0;
            let upto =
                if total.0 == 0 { 0 } else { (u128::from(spent) * u128::from(seen) / u128::from(total.0)) as u64 };
            s.idle = Nanos(upto - given);
            given = upto;
        }
        left -= Nanos(spent);
        if class == SURE {
            sure = Nanos(spent);
        }
    }
    sure
}

/// How doubtful it is that the GPU was idle during a segment: 0 is sure. `beside_driver`: its thread was in the GPU driver
/// just before or after it.
fn doubt(tl: &Timeline, roles: &Roles, s: &Segment, beside_driver: bool) -> u8 {
    let Some((ix, line)) = s.thread.and_then(|ix| Some((ix, tl.thread(ix)?))) else { return LEAST_CERTAIN };
    match s.cause {
        // In the driver, or in a wait that nothing explains: probably waiting for the GPU's own work.
        Cause::GpuDriver | Cause::Unknown => LEAST_CERTAIN,
        _ if line.pid != roles.feeder_pid => SURE,
        // A wait with a time-out that nobody ended: synchronising with the GPU looks the same where the driver blocks.
        Cause::Sleep => match s.what {
            What::Blocked(w) if calls::kind(w.syscall) == CallKind::Sleep => 2,
            _ => LEAST_CERTAIN,
        },
        // Preempted while it waited for the GPU: the GPU went on working.
        Cause::CpuStarved | Cause::CpuThrottled if beside_driver => LEAST_CERTAIN,
        Cause::HostCode => match roles.of(ix) {
            Role::Feeder => 1,
            // Threads that drive the GPU beside the feeder, such as the backward pass.
            _ => 2,
        },
        _ => SURE,
    }
}

/// For each segment whether its thread was in the GPU driver just before or after it.
fn beside_driver(segments: &[Segment]) -> Vec<bool> {
    // A preempted thread may be switched in and out again before it is sampled: look past its own short pieces.
    let own = |a: &Segment, b: &Segment| {
        a.thread == b.thread && a.cause != Cause::Preprocessing && b.cause != Cause::Preprocessing
    };
    let mut beside = Vec::with_capacity(segments.len());
    for stretch in segments.chunk_by(own) {
        let driver = stretch.iter().any(|s| s.cause == Cause::GpuDriver);
        beside.resize(beside.len() + stretch.len(), driver);
    }
    beside
}
