//! The sweep: a recording from its end to its start, part by part, each part a timeline of its own.

use super::lines::push_interval;
use super::recorded::{Indexed, Recorded};
use super::survey::Rows;
use super::{Interval, LAST, Moment, ThreadIx, Timeline};
use crate::events::{BlockRequest, Event, FileOpen};
use crate::recording::{Damage, Trailer};
use crate::units::{MonoNs, Nanos};
use std::ops::Range;

/// So much more than what is asked for is known before and after it: what explains a moment may lie a little beside it.
pub const MARGIN: Nanos = Nanos::from_millis(100);

/// So many intervals are read for the sake of a gap's beginning however small the parts are.
const FEW: usize = 8_192;

/// A recording that is read from its end.
#[derive(Debug)]
pub struct Sweep {
    recorded: Recorded,
    /// Intervals that make up a part.
    most: usize,
    /// Blocks of the index that were not read yet.
    left: usize,
    /// Start of the part that was given last.
    reached: MonoNs,
    begun: bool,
    held: Held,
    /// Memory for the next part.
    spare: Held,
    rows: Rows,
}

/// Events that were read and belong to this part or an earlier one.
#[derive(Debug, Default)]
struct Held {
    /// By line; each sorted.
    intervals: Vec<Vec<Interval>>,
    samples: Vec<Vec<Moment>>,
    blocks: Vec<BlockRequest>,
}

/// What is left of a recording that was swept.
#[derive(Debug)]
pub struct Ending {
    /// What is known of the whole recording.
    pub timeline: Timeline,
    /// Its last block, if it was ended cleanly.
    pub trailer: Option<Trailer>,
    /// What is wrong with the file.
    pub damage: Damage,
}

impl Sweep {
    pub(super) fn new(recorded: Recorded, most: usize) -> Sweep {
        let lines = recorded.timeline.threads.len();
        let held = || Held { intervals: vec![Vec::new(); lines], samples: vec![Vec::new(); lines], blocks: Vec::new() };
        let left = recorded.index.len();
        let rows = Rows::default();
        Sweep { recorded, most: most.max(1), left, reached: LAST, begun: false, held: held(), spare: held(), rows }
    }

    /// The next part, going back in time; `None` when the start of the recording was reached. `need` says from when on
    /// everything should be known to explain what ends in a part; for its sake as many intervals more
    /// are read as make up a part, and [`Timeline::known_from`] says what came of it.
    pub fn next_part(&mut self, need: impl FnOnce(&Range<MonoNs>) -> MonoNs) -> Option<&Timeline> {
        if self.begun && self.reached == MonoNs(0) {
            return None;
        }
        self.begun = true;
        let end = self.reached;
        self.held.cut(end);
        let read = self.left;
        let mut count = self.held.len();
        while self.left > 0 && (count < self.most || self.known_from() >= end) {
            count += self.step_back();
        }
        let own = self.known_from()..end;
        let wanted = need(&own).min(own.start) - MARGIN;
        let mut more = 0;
        while self.left > 0 && self.known_from() > wanted && more < self.most.max(FEW) {
            more += self.step_back();
        }
        let known_from = self.known_from();
        self.read(self.left..read);
        self.reached = own.start;
        let timeline = &mut self.recorded.timeline;
        (timeline.own, timeline.known_from) = (own, known_from);
        self.arrange();
        Some(&self.recorded.timeline)
    }

    /// Ends the sweep.
    pub fn finish(mut self) -> Ending {
        let timeline = &mut self.recorded.timeline;
        for line in &mut timeline.threads {
            (line.intervals, line.samples) = (Vec::new(), Vec::new());
        }
        (timeline.blocks, timeline.opens) = (Vec::new(), Vec::new());
        timeline.blocked_paths.clear();
        let Recorded { timeline, trailer, damage, .. } = self.recorded;
        Ending { timeline, trailer, damage }
    }

    /// All that ends at this time or later was read.
    fn known_from(&self) -> MonoNs {
        match self.left.checked_sub(1).and_then(|n| self.recorded.index.get(n)) {
            Some(next) => next.last + Nanos(1),
            None => MonoNs(0),
        }
    }

    fn step_back(&mut self) -> usize {
        self.left = self.left.saturating_sub(1);
        self.recorded.index.get(self.left).map_or(0, |e| e.count)
    }

    /// Reads these blocks and puts their events before those that are held.
    fn read(&mut self, blocks: Range<usize>) {
        let inside = self.recorded.uses();
        let r = &mut self.recorded;
        std::mem::swap(&mut self.held, &mut self.spare);
        for Indexed { block, .. } in r.index.get(blocks).unwrap_or_default() {
            let (threads, files) = (&mut r.threads, &mut r.files);
            let whole = if block.is_off_cpu() {
                self.rows.clear();
                let rows = &mut self.rows;
                let whole = r.fetcher.off_cpu(block, |shared, o| rows.push(threads, files, shared, o));
                if whole.is_some() {
                    for (ThreadIx(ix), i) in &rows.rows {
                        if let Some(line) = self.held.intervals.get_mut(*ix as usize) {
                            line.push(*i);
                        }
                    }
                }
                whole
            } else if block.is_samples() {
                r.fetcher.samples(block).map(|samples| {
                    for s in samples.iter().filter(|s| inside(s.time, s.time)) {
                        let slot = threads.of(s.tid, s.pid);
                        let ThreadIx(ix) = threads.at(slot, s.time);
                        let file = files.intern(s.file);
                        if let Some(line) = self.held.samples.get_mut(ix as usize) {
                            line.push(Moment { time: s.time, syscall: s.syscall, image: s.image, file });
                        }
                    }
                })
            } else {
                r.fetcher.requests(block).map(|requests| {
                    self.held.blocks.extend(requests.iter().filter(|b| inside(b.issue, b.complete)));
                })
            };
            // It was whole a moment ago: somebody changes the file.
            r.damage.undecodable_blocks += u64::from(whole.is_none());
        }
        self.held.append(&mut self.spare);
    }

    /// Makes the timeline of what is held.
    fn arrange(&mut self) {
        let tl = &mut self.recorded.timeline;
        let own = tl.own.clone();
        let belongs = |t: MonoNs| t >= own.start && (t < own.end || own.end == LAST);
        let mut contradictions = 0;
        let mut with_path: Vec<MonoNs> = Vec::new();
        for ((line, intervals), samples) in tl.threads.iter_mut().zip(&self.held.intervals).zip(&mut self.held.samples)
        {
            line.intervals.clear();
            for i in intervals {
                contradictions += u64::from(push_interval(&mut line.intervals, *i) && belongs(i.on));
            }
            if !self.recorded.path_calls.is_empty() {
                let calls = &self.recorded.path_calls;
                let paths = line.intervals.iter().filter(|i| i.file.0 == 0 && calls.contains(&i.syscall.0));
                with_path.extend(paths.map(|i| i.off));
            }
            line.samples.clear();
            line.samples.extend_from_slice(samples);
        }
        tl.contradictions += contradictions;
        tl.blocks.clone_from(&self.held.blocks);
        with_path.sort_unstable();
        self.read_paths(&with_path);
    }

    /// Reads the paths of blocked calls that began at these times.
    fn read_paths(&mut self, times: &[MonoNs]) {
        let Recorded { timeline: tl, paths, fetcher, .. } = &mut self.recorded;
        tl.opens.clear();
        tl.blocked_paths.clear();
        let needed = |from: MonoNs, to: MonoNs| {
            let first = times.partition_point(|t| *t < from);
            times.get(first).is_some_and(|t| *t <= to)
        };
        for with in paths.iter().filter(|p| needed(p.from, p.to)) {
            for event in fetcher.others(&with.block).unwrap_or_default() {
                if let Event::Open(o @ FileOpen { outcome: None, .. }) = event
                    && times.binary_search(&o.time).is_ok()
                {
                    tl.blocked_paths.insert((o.tid, o.time), tl.opens.len());
                    tl.opens.push(o);
                }
            }
        }
    }
}

impl Held {
    /// Forgets what is of no use before `end`.
    fn cut(&mut self, end: MonoNs) {
        for line in &mut self.intervals {
            line.truncate(line.partition_point(|i| i.off < end + MARGIN));
        }
        for line in &mut self.samples {
            line.truncate(line.partition_point(|s| s.time < end + MARGIN));
        }
        self.blocks.retain(|b| b.complete < end || b.start.unwrap_or(b.issue) <= end);
    }

    fn len(&self) -> usize {
        self.intervals.iter().map(Vec::len).sum::<usize>()
            + self.samples.iter().map(Vec::len).sum::<usize>()
            + self.blocks.len()
    }

    /// Puts what comes later behind, and all in order; leaves `later` empty.
    fn append(&mut self, later: &mut Held) {
        for (line, more) in self.intervals.iter_mut().zip(&mut later.intervals) {
            line.append(more);
            if !line.is_sorted_by_key(|i| (i.off, i.on)) {
                line.sort_by_key(|i| (i.off, i.on));
            }
        }
        for (line, more) in self.samples.iter_mut().zip(&mut later.samples) {
            line.append(more);
            if !line.is_sorted_by_key(|s| s.time) {
                line.sort_by_key(|s| s.time);
            }
        }
        self.blocks.append(&mut later.blocks);
        self.blocks.sort_by_key(|b| b.complete);
    }
}
