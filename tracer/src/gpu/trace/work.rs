//! What a profiler's trace says of each device, before it is known where that lies on CLOCK_MONOTONIC.

use crate::units::Pid;
use std::collections::{BTreeMap, BTreeSet};

/// Longer than a day, no kernel runs: an end that was never written, or a difference that wrapped.
const LONGEST_NS: i64 = 86_400_000_000_000;

/// More devices than any machine has; a number beyond is no device.
const DEVICES: u32 = 4096;

/// A list is tidied when it has grown to this, and then each time it has doubled.
const TIDY_FROM: usize = 1 << 16;

/// A time in which a device worked, nanoseconds of the trace's own clock; `start < end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub start: i64,
    pub end: i64,
}

/// Work of one device, all streams and processes together. Takes spans in any order; memory grows with the times between which
/// the device was idle, not with the number of kernels that overlap.
#[derive(Debug)]
struct Work {
    spans: Vec<Span>,
    tidy_at: usize,
}

impl Work {
    fn add(&mut self, span: Span) {
        // Kernels of one stream come in order: most join, or follow, the last one.
        match self.spans.last_mut() {
            Some(last) if last.start <= span.start && span.start <= last.end => last.end = last.end.max(span.end),
            _ => self.spans.push(span),
        }
        if self.spans.len() >= self.tidy_at {
            self.tidy();
            self.tidy_at = TIDY_FROM.max(self.spans.len() * 2);
        }
    }

    /// Sorts, and joins what overlaps or touches.
    fn tidy(&mut self) {
        self.spans.sort_unstable();
        self.spans.dedup_by(|next, kept| {
            let joins = next.start <= kept.end;
            if joins {
                kept.end = kept.end.max(next.end);
            }
            joins
        });
    }
}

/// GPU work of a whole trace.
#[derive(Debug, Default)]
pub(super) struct TraceWork {
    work: BTreeMap<u32, Work>,
    /// Processes that gave each device its work, where told.
    pub pids: BTreeMap<u32, BTreeSet<Pid>>,
    /// Pieces of work that were used.
    pub used: u64,
    /// Pieces of work that make no sense: negative or endless, without a time or a device.
    pub absurd: u64,
    /// Names of devices, where told.
    pub names: BTreeMap<u32, String>,
    /// The file ends in the middle, or is damaged: what that means, in one sentence.
    pub cut: Option<String>,
}

impl TraceWork {
    /// Adds one piece of work as the trace tells it; what makes no sense is only counted.
    pub fn add(&mut self, device: Option<i64>, start: Option<i64>, end: Option<i64>) {
        let device = device.and_then(|d| u32::try_from(d).ok()).filter(|d| *d < DEVICES);
        let (Some(device), Some(start), Some(end)) = (device, start, end) else {
            self.absurd += 1;
            return;
        };
        match end.checked_sub(start) {
            // Too short for the profiler's resolution.
            Some(0) => self.used += 1,
            Some(1..=LONGEST_NS) => {
                self.used += 1;
                let work = self.work.entry(device).or_insert_with(|| Work { spans: Vec::new(), tidy_at: TIDY_FROM });
                work.add(Span { start, end });
            }
            _ => self.absurd += 1,
        }
    }

    /// Notes that a process gave a device work.
    pub fn by(&mut self, device: Option<i64>, pid: Option<i64>) {
        let number = |n: Option<i64>| n.and_then(|n| u32::try_from(n).ok());
        if let (Some(device), Some(pid)) = (number(device).filter(|d| *d < DEVICES), number(pid)) {
            self.pids.entry(device).or_default().insert(Pid(pid));
        }
    }

    /// The devices that worked.
    pub fn devices(&self) -> impl Iterator<Item = u32> + '_ {
        self.work.keys().copied()
    }

    /// Notes that these processes gave all devices work.
    pub fn all_by(&mut self, pids: &BTreeSet<Pid>) {
        for device in self.work.keys().filter(|_| !pids.is_empty()) {
            self.pids.entry(*device).or_default().extend(pids);
        }
    }

    /// Whether no device worked.
    pub fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// Sorted, disjoint spans of each device.
    pub fn finish(&mut self) -> BTreeMap<u32, Vec<Span>> {
        let mut work = std::mem::take(&mut self.work);
        work.values_mut().for_each(Work::tidy);
        work.into_iter().map(|(device, w)| (device, w.spans)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(list: &[(i64, i64)]) -> Vec<(i64, i64)> {
        let mut t = TraceWork::default();
        list.iter().for_each(|(a, b)| t.add(Some(0), Some(*a), Some(*b)));
        t.finish().remove(&0).unwrap_or_default().iter().map(|s| (s.start, s.end)).collect()
    }

    #[test]
    fn streams_are_merged_and_only_idle_time_parts_spans() {
        // One stream works 0..10 and 20..30, another 5..22 and 40..50.
        assert_eq!(spans(&[(0, 10), (20, 30), (5, 22), (40, 50)]), [(0, 30), (40, 50)]);
        assert_eq!(spans(&[(40, 50), (0, 10), (10, 20)]), [(0, 20), (40, 50)]);
        assert_eq!(spans(&[(0, 100), (20, 30), (99, 101)]), [(0, 101)]);
    }

    #[test]
    fn memory_follows_idle_times_and_not_kernels() {
        let mut t = TraceWork::default();
        // Two streams a million kernels each, never idle together.
        for i in 0..1_000_000 {
            t.add(Some(0), Some(i * 10), Some(i * 10 + 6));
            t.add(Some(0), Some(i * 10 + 5), Some(i * 10 + 11));
        }
        assert!(t.work[&0].spans.capacity() <= TIDY_FROM * 4, "{}", t.work[&0].spans.capacity());
        assert_eq!(t.finish()[&0], [Span { start: 0, end: 10_000_001 }]);
    }

    #[test]
    fn what_makes_no_sense_is_counted_and_left_out() {
        let mut t = TraceWork::default();
        for (device, start, end) in [
            (Some(0), Some(10), Some(5)),
            (Some(0), None, Some(5)),
            (Some(0), Some(5), None),
            (None, Some(1), Some(2)),
            (Some(-1), Some(1), Some(2)),
            (Some(1 << 40), Some(1), Some(2)),
            (Some(0), Some(0), Some(i64::MAX)),
            (Some(0), Some(i64::MIN), Some(i64::MAX)),
        ] {
            t.add(device, start, end);
        }
        assert_eq!((t.absurd, t.used), (8, 0));
        t.add(Some(0), Some(7), Some(7));
        assert!(t.is_empty() && t.used == 1);
    }
}
