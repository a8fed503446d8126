//! Idle time of one GPU: from busy intervals or utilization windows to explained gaps.

use super::Cause;
use super::roles::{Role, Roles};
use super::segment::{NoRecord, Segment, What};
use super::startup;
use super::walk::Walker;
use crate::events::GpuWindow;
use crate::gpu::{Activity, BusyInterval, GpuActivity};
use crate::timeline::Timeline;
use crate::units::{GpuIndex, MonoNs, Nanos};

/// One gap, or one window with idle time, and what explains it.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainedGap {
    /// Which GPU.
    pub gpu: GpuIndex,
    /// Start.
    pub start: MonoNs,
    /// End.
    pub end: MonoNs,
    /// Idle time inside it: its whole length for an exact gap.
    pub idle: Nanos,
    /// Segments in order of time; their `idle` sums to the gap's.
    pub segments: Vec<Segment>,
}

/// How long a GPU was busy and idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// First busy moment.
    pub from: MonoNs,
    /// Last busy moment.
    pub to: MonoNs,
    /// Busy time between them.
    pub busy: Nanos,
    /// Idle time between them.
    pub idle: Nanos,
    /// Idle time of the recording before the first busy moment.
    pub before: Nanos,
    /// Idle time of the recording after the last busy moment.
    pub after: Nanos,
    /// Number of gaps, or of windows with idle time.
    pub gaps: u64,
}

/// Gaps between a checkpoint's pieces that still belong to it: pickling between two writes.
const CHECKPOINT_PAUSE: Nanos = Nanos::from_millis(100);

/// Explains every gap of one GPU and hands it to `each`, in order of time.
pub fn explain(
    tl: &Timeline,
    roles: &Roles,
    walker: &Walker<'_>,
    gpu: &GpuActivity,
    each: &mut dyn FnMut(ExplainedGap),
) -> Usage {
    match &gpu.activity {
        Activity::Intervals(busy) => explain_intervals(tl, roles, walker, gpu.gpu, busy, each),
        Activity::Windows(windows) => explain_windows(tl, roles, walker, gpu.gpu, windows, each),
    }
}

fn explain_intervals(
    tl: &Timeline,
    roles: &Roles,
    walker: &Walker<'_>,
    gpu: GpuIndex,
    busy: &[BusyInterval],
    each: &mut dyn FnMut(ExplainedGap),
) -> Usage {
    let (start, end) = tl.span;
    let mut usage = Usage::default();
    let clipped = busy.iter().filter(|b| b.end > start && b.start < end).map(|b| (b.start.max(start), b.end.min(end)));
    let mut last_end: Option<MonoNs> = None;
    for (from, to) in clipped {
        match last_end {
            None => {
                usage.from = from;
                usage.before = from.since(start);
            }
            Some(idle_from) if from > idle_from => {
                let mut segments = walker.explain(roles.feeder, idle_from, from);
                startup::apply(&mut segments, &roles.startups);
                join_checkpoints(tl, roles, &mut segments);
                let idle = from.since(idle_from);
                usage.idle += idle;
                usage.gaps += 1;
                each(ExplainedGap { gpu, start: idle_from, end: from, idle, segments });
            }
            Some(_) => {}
        }
        usage.busy += to.since(from.max(last_end.unwrap_or(from)));
        last_end = Some(last_end.map_or(to, |l| l.max(to)));
    }
    match last_end {
        Some(to) => {
            usage.to = to;
            usage.after = end.since(to);
        }
        None => usage.before = end.since(start),
    }
    usage
}

fn explain_windows(
    tl: &Timeline,
    roles: &Roles,
    walker: &Walker<'_>,
    gpu: GpuIndex,
    windows: &[GpuWindow],
    each: &mut dyn FnMut(ExplainedGap),
) -> Usage {
    let (start, end) = tl.span;
    let inside: Vec<&GpuWindow> =
        windows.iter().filter(|w| w.end > start && w.start < end && w.end > w.start).collect();
    let mut usage = Usage::default();
    let first = inside.iter().position(|w| w.utilization > 0.0);
    let last = inside.iter().rposition(|w| w.utilization > 0.0);
    let (Some(first), Some(last)) = (first, last) else {
        usage.before = end.since(start);
        return usage;
    };
    for (n, w) in inside.iter().enumerate() {
        let (from, to) = (w.start.max(start), w.end.min(end));
        let length = to.since(from);
        if n < first {
            usage.before += length;
            continue;
        }
        if n > last {
            usage.after += length;
            continue;
        }
        if n == first {
            usage.from = from;
        }
        usage.to = to;
        let busy = Nanos((length.0 as f64 * f64::from(w.utilization.clamp(0.0, 100.0)) / 100.0).round() as u64);
        let idle = length - busy;
        usage.busy += busy;
        usage.idle += idle;
        if idle == Nanos::ZERO {
            continue;
        }
        usage.gaps += 1;
        let mut segments = walker.explain(roles.feeder, from, to);
        startup::apply(&mut segments, &roles.startups);
        join_checkpoints(tl, roles, &mut segments);
        spend(tl, roles, &mut segments, idle);
        each(ExplainedGap { gpu, start: from, end: to, idle, segments });
    }
    usage
}

/// Distributes a window's idle time over its segments, most certain kind first. A window says how long the GPU was idle,
/// not when.
fn spend(tl: &Timeline, roles: &Roles, segments: &mut [Segment], idle: Nanos) {
    let mut left = idle;
    for class in 0..=LEAST_CERTAIN {
        let members: Vec<usize> = (0..segments.len()).filter(|i| doubt(tl, roles, segments, *i) == class).collect();
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
    }
}

const LEAST_CERTAIN: u8 = 3;

/// How doubtful it is that the GPU was idle during a segment: 0 is sure.
fn doubt(tl: &Timeline, roles: &Roles, segments: &[Segment], n: usize) -> u8 {
    let Some(s) = segments.get(n) else { return LEAST_CERTAIN };
    let Some((ix, line)) = s.thread.and_then(|ix| Some((ix, tl.thread(ix)?))) else { return LEAST_CERTAIN };
    match s.cause {
        // In the driver, or in a wait that nothing explains: probably waiting for the GPU's own work.
        Cause::GpuDriver | Cause::Unknown => LEAST_CERTAIN,
        _ if line.pid != roles.feeder_pid => 0,
        // Preempted while it waited for the GPU: the GPU went on working.
        Cause::CpuStarved | Cause::CpuThrottled if beside_driver(segments, n) => LEAST_CERTAIN,
        Cause::HostCode => match roles.of(ix) {
            Role::Feeder => 1,
            // Threads that drive the GPU beside the feeder, such as the backward pass.
            _ => 2,
        },
        _ => 0,
    }
}

/// Whether the thread of a segment was in the GPU driver just before or after it.
fn beside_driver(segments: &[Segment], n: usize) -> bool {
    let thread = segments.get(n).map(|s| s.thread);
    let driver = |s: &&Segment| s.cause == Cause::GpuDriver && Some(s.thread) == thread;
    // A preempted thread may be switched in and out again before it is sampled: look past its own short pieces.
    let own = |s: &&Segment| Some(s.thread) == thread && s.cause != Cause::Preprocessing;
    let after = segments.iter().skip(n + 1).take_while(own).find(driver);
    let before = segments.get(..n).into_iter().flatten().rev().take_while(own).find(driver);
    after.or(before).is_some()
}

/// Short pieces of the feeder's own code between two writes of a checkpoint belong to the checkpoint.
fn join_checkpoints(tl: &Timeline, roles: &Roles, segments: &mut [Segment]) {
    let of_feeder = |s: &Segment| s.thread.and_then(|ix| tl.thread(ix)).is_some_and(|t| t.pid == roles.feeder_pid);
    let mut last_checkpoint: Option<usize> = None;
    for n in 0..segments.len() {
        let Some(s) = segments.get(n) else { break };
        if s.cause == Cause::Checkpoint {
            if let Some(p) = last_checkpoint
                && let Some(between) = segments.get_mut(p + 1..n)
                && between.iter().map(Segment::length).sum::<Nanos>() <= CHECKPOINT_PAUSE
            {
                for b in between.iter_mut().filter(|b| b.cause == Cause::HostCode && b.what == What::Ran) {
                    b.cause = Cause::Checkpoint;
                }
            }
            last_checkpoint = Some(n);
        } else if !of_feeder(s) && s.what != What::NoRecord(NoRecord::TooDeep) {
            last_checkpoint = None;
        }
    }
}
