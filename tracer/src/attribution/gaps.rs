//! Idle time of one GPU: from busy intervals or utilization windows to explained gaps.

use super::Cause;
use super::roles::{Role, Roles};
use super::segment::{NoRecord, Segment, What};
use super::startup;
use super::totals::{OpenGap, Totals};
use super::walk::Walker;
use crate::events::GpuWindow;
use crate::gpu::{Activity, BusyInterval};
use crate::timeline::{MARGIN, Timeline};
use crate::units::{GpuIndex, MonoNs, Nanos};

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
    /// Idle time that is sure to lie where it was placed: all of it between exact intervals; with windows, that of windows
    /// without any work, and that spent on waits in which a GPU has nothing to do.
    pub certain: Nanos,
}

/// Gaps between a checkpoint's pieces that still belong to it: pickling between two writes.
const CHECKPOINT_PAUSE: Nanos = Nanos::from_millis(100);

/// How much of a gap may be explained before its segments are summed up: only gaps that are much longer than a part of
/// the recording have so many.
const MOST_SEGMENTS: usize = 200_000;

/// What is to be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A gap: idle from start to end.
    Gap,
    /// A window: idle for a part of it.
    Window,
    /// The life of the feeder, for want of evidence about a GPU.
    Life,
}

/// A stretch of time with idle time in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) kind: Kind,
    pub(super) start: MonoNs,
    pub(super) end: MonoNs,
    pub(super) idle: Nanos,
}

/// The stretches of one GPU, from the last to the first.
#[derive(Debug)]
pub(super) struct Stretches {
    span: (MonoNs, MonoNs),
    /// Those from the first to here, by index of the activity, are left.
    left: std::ops::Range<usize>,
}

impl Stretches {
    /// Of an activity, whose idle time is to be explained inside `span`; and how long the GPU was busy and idle.
    pub(super) fn new(activity: &Activity, span: (MonoNs, MonoNs)) -> (Stretches, Usage) {
        let mut s = Stretches { span, left: 0..0 };
        let usage = match activity {
            Activity::Intervals(busy) => s.of_intervals(busy),
            Activity::Windows(windows) => s.of_windows(windows),
        };
        (s, usage)
    }

    fn of_intervals(&mut self, busy: &[BusyInterval]) -> Usage {
        let (start, end) = self.span;
        let mut usage = Usage::default();
        let mut last_end: Option<MonoNs> = None;
        for (n, b) in busy.iter().enumerate().filter(|(_, b)| b.end > start && b.start < end) {
            let (from, to) = (b.start.max(start), b.end.min(end));
            match last_end {
                None => {
                    usage.from = from;
                    usage.before = from.since(start);
                    self.left = n + 1..n + 1;
                }
                Some(idle_from) if from > idle_from => {
                    usage.idle += from.since(idle_from);
                    usage.gaps += 1;
                }
                Some(_) => {}
            }
            self.left.end = n + 1;
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

    fn of_windows(&mut self, windows: &[GpuWindow]) -> Usage {
        let (start, end) = self.span;
        let mut usage = Usage::default();
        let inside = |w: &GpuWindow| w.end > start && w.start < end && w.end > w.start;
        let works = |w: &GpuWindow| inside(w) && w.utilization > 0.0;
        let (Some(first), Some(last)) = (windows.iter().position(works), windows.iter().rposition(works)) else {
            usage.before = end.since(start);
            return usage;
        };
        self.left = first..last + 1;
        for (n, w) in windows.iter().enumerate().filter(|(_, w)| inside(w)) {
            let (from, to) = (w.start.max(start), w.end.min(end));
            if n < first {
                usage.before += to.since(from);
                continue;
            }
            if n > last {
                usage.after += to.since(from);
                continue;
            }
            if n == first {
                usage.from = from;
            }
            usage.to = to;
            let idle = idle_in(w, from, to);
            usage.busy += to.since(from) - idle;
            usage.idle += idle;
            usage.gaps += u64::from(idle > Nanos::ZERO);
        }
        usage
    }

    /// The next stretch, going back in time.
    pub(super) fn next_back(&mut self, activity: &Activity) -> Option<Stretch> {
        let (start, end) = self.span;
        while let Some(n) = self.left.next_back() {
            let found = match activity {
                Activity::Intervals(busy) => gap_before(busy, n).map(|(from, to)| {
                    let (from, to) = (from.max(start), to.min(end));
                    Stretch { kind: Kind::Gap, start: from, end: to, idle: to.since(from) }
                }),
                Activity::Windows(windows) => windows.get(n).map(|w| {
                    let (from, to) = (w.start.max(start), w.end.min(end));
                    let idle = if to > from { idle_in(w, from, to) } else { Nanos::ZERO };
                    Stretch { kind: Kind::Window, start: from, end: to, idle }
                }),
            };
            if let Some(stretch) = found.filter(|s| s.idle > Nanos::ZERO) {
                return Some(stretch);
            }
        }
        None
    }

    /// Start of the first stretch that is left and ends after `t`.
    pub(super) fn start_of_first_after(&self, activity: &Activity, t: MonoNs) -> Option<MonoNs> {
        match activity {
            Activity::Intervals(busy) => {
                let n = busy.partition_point(|b| b.start <= t).max(self.left.start);
                if n < self.left.end { gap_before(busy, n).map(|(from, _)| from) } else { None }
            }
            Activity::Windows(windows) => {
                let n = windows.partition_point(|w| w.end <= t).max(self.left.start);
                if n < self.left.end { windows.get(n).map(|w| w.start) } else { None }
            }
        }
    }
}

/// From the end of the busy interval before number `n` to its start.
fn gap_before(busy: &[BusyInterval], n: usize) -> Option<(MonoNs, MonoNs)> {
    let (before, after) = (busy.get(n.checked_sub(1)?)?, busy.get(n)?);
    Some((before.end, after.start))
}

/// Idle time that a window owes for its part `[from, to]`.
fn idle_in(w: &GpuWindow, from: MonoNs, to: MonoNs) -> Nanos {
    let length = to.since(from);
    length - Nanos((length.0 as f64 * f64::from(w.utilization.clamp(0.0, 100.0)) / 100.0).round() as u64)
}

/// A stretch that is being explained.
#[derive(Debug)]
pub(super) struct Pending {
    stretch: Stretch,
    /// It is explained from here to its end.
    reached: MonoNs,
    /// Latest first.
    segments: Vec<Segment>,
    gap: OpenGap,
}

impl Pending {
    /// Begins with a stretch of a GPU.
    pub(super) fn new(stretch: Stretch, gpu: GpuIndex, totals: &mut Totals) -> Pending {
        let gap = totals.open(gpu, stretch.start, stretch.end, stretch.idle);
        Pending { stretch, reached: stretch.end, segments: Vec::new(), gap }
    }

    /// Start of the stretch.
    pub(super) fn start(&self) -> MonoNs {
        self.stretch.start
    }

    /// Nothing of it lies in this part of the recording.
    fn lies_before(&self, tl: &Timeline) -> bool {
        self.reached <= tl.own.start && tl.own.start > MonoNs(0)
    }

    /// Explains as much as this part of the recording can; `None` when all is explained and summed up.
    pub(super) fn explain(
        mut self,
        tl: &Timeline,
        roles: &Roles,
        walker: &Walker<'_>,
        totals: &mut Totals,
    ) -> Option<Pending> {
        if self.lies_before(tl) {
            return Some(self);
        }
        let Stretch { kind, start, idle, .. } = self.stretch;
        // A wait is explained by what lies a little before it, too.
        let known = if tl.known_from == MonoNs(0) { start } else { (tl.known_from + MARGIN).min(tl.own.start) };
        let (from, enough) = if start >= known { (start, start) } else { (known, tl.own.start) };
        self.reached = walker.explain_back(roles.feeder, from, self.reached, enough, &mut self.segments);
        let done = self.reached <= start;
        if done || (kind != Kind::Window && self.segments.len() > MOST_SEGMENTS) {
            self.segments.reverse();
            if kind != Kind::Life {
                startup::apply(&mut self.segments, &roles.startups);
                join_checkpoints(tl, roles, &mut self.segments);
            }
            totals.certain += match kind {
                // Idle all the time: there is nothing to place.
                Kind::Window if idle == self.stretch.end.since(start) => idle,
                Kind::Window => spend(tl, roles, &mut self.segments, idle),
                Kind::Gap | Kind::Life => self.segments.iter().map(|s| s.idle).sum(),
            };
            totals.add(tl, roles, &mut self.gap, &self.segments);
            self.segments.clear();
        }
        if !done {
            return Some(self);
        }
        totals.close(self.gap);
        None
    }
}

/// Distributes a window's idle time over its segments, most certain kind first, and gives the part that went to the sure kind.
/// A window says how long the GPU was idle, not when.
fn spend(tl: &Timeline, roles: &Roles, segments: &mut [Segment], idle: Nanos) -> Nanos {
    let mut left = idle;
    let mut sure = Nanos::ZERO;
    for class in SURE..=LEAST_CERTAIN {
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
        if class == SURE {
            sure = Nanos(spent);
        }
    }
    sure
}

const SURE: u8 = 0;

const LEAST_CERTAIN: u8 = 3;

/// How doubtful it is that the GPU was idle during a segment: 0 is sure.
fn doubt(tl: &Timeline, roles: &Roles, segments: &[Segment], n: usize) -> u8 {
    let Some(s) = segments.get(n) else { return LEAST_CERTAIN };
    let Some((ix, line)) = s.thread.and_then(|ix| Some((ix, tl.thread(ix)?))) else { return LEAST_CERTAIN };
    match s.cause {
        // In the driver, or in a wait that nothing explains: probably waiting for the GPU's own work.
        Cause::GpuDriver | Cause::Unknown => LEAST_CERTAIN,
        _ if line.pid != roles.feeder_pid => SURE,
        // Preempted while it waited for the GPU: the GPU went on working.
        Cause::CpuStarved | Cause::CpuThrottled if beside_driver(segments, n) => LEAST_CERTAIN,
        Cause::HostCode => match roles.of(ix) {
            Role::Feeder => 1,
            // Threads that drive the GPU beside the feeder, such as the backward pass.
            _ => 2,
        },
        _ => SURE,
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
