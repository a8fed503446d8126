//! Idle time of one GPU: from busy intervals or utilization windows to explained gaps.

use super::placing::spend;
use super::roles::Roles;
use super::segment::Segment;
use super::totals::{OpenGap, Totals};
use super::walk::Walker;
use super::{checkpoints, startup};
use crate::events::GpuWindow;
use crate::gpu::{Activity, BusyInterval, GpuActivity};
use crate::timeline::{MARGIN, ThreadIx, Timeline};
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
    /// Times of which nothing is known, in order.
    holes: Vec<(MonoNs, MonoNs)>,
}

impl Stretches {
    /// Of an activity, whose idle time is to be explained inside `span`; and how long the GPU was busy and idle. A gap in which
    /// nothing is known for a while is none.
    pub(super) fn new(gpu: &GpuActivity, span: (MonoNs, MonoNs)) -> (Stretches, Usage) {
        let mut s = Stretches { span, left: 0..0, holes: gpu.holes.clone() };
        let usage = match &gpu.activity {
            Activity::Intervals(busy) => s.of_intervals(busy),
            Activity::Windows(windows) => s.of_windows(windows),
        };
        (s, usage)
    }

    /// No hole lies between these times.
    fn is_known(&self, from: MonoNs, to: MonoNs) -> bool {
        let next = self.holes.partition_point(|(_, end)| *end <= from);
        self.holes.get(next).is_none_or(|(start, _)| *start >= to)
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
                Some(idle_from) if from > idle_from && self.is_known(idle_from, from) => {
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
            if let Some(stretch) = found.filter(|s| s.idle > Nanos::ZERO && self.is_known(s.start, s.end)) {
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
    /// The thread that the walk starts on, and comes back to.
    feeder: Option<ThreadIx>,
    gap: OpenGap,
}

impl Pending {
    /// Begins with a stretch of a GPU.
    pub(super) fn new(stretch: Stretch, gpu: GpuIndex, roles: &Roles, totals: &mut Totals) -> Pending {
        let feeder = if stretch.kind == Kind::Life { roles.feeder } else { roles.feeder_at(stretch.end) };
        let gap = totals.open(gpu, stretch.start, stretch.end, stretch.idle);
        Pending { stretch, reached: stretch.end, segments: Vec::new(), feeder, gap }
    }

    /// Start of the stretch.
    pub(super) fn start(&self) -> MonoNs {
        self.stretch.start
    }

    /// End of the stretch.
    pub(super) fn end(&self) -> MonoNs {
        self.stretch.end
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
        walker: &mut Walker<'_>,
        totals: &mut Totals,
    ) -> Option<Pending> {
        if self.lies_before(tl) {
            return Some(self);
        }
        let Stretch { kind, start, idle, .. } = self.stretch;
        // A wait is explained by what lies a little before it, too.
        let known = if tl.known_from == MonoNs(0) { start } else { (tl.known_from + MARGIN).min(tl.own.start) };
        let (from, enough) = if start >= known { (start, start) } else { (known, tl.own.start) };
        // While the GPU was busy the feeder may have been in its driver; in a gap it was not on that account.
        walker.trust_samples_in = (kind == Kind::Gap).then_some((start, self.stretch.end));
        self.reached = walker.explain_back(self.feeder, from, self.reached, enough, &mut self.segments);
        let done = self.reached <= start;
        if done || (kind != Kind::Window && self.segments.len() > MOST_SEGMENTS) {
            self.segments.reverse();
            if kind != Kind::Life {
                startup::apply(&mut self.segments, &roles.startups);
                checkpoints::join(tl, roles, &mut self.segments);
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
