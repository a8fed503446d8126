//! Latencies and durations as histograms.

use super::distribution::Distribution;
use super::waits::{WaitKind, is_yield};
use crate::events::{GpuWindow, SleepState};
use crate::gpu::{Activity, BusyInterval, GpuActivity};
use crate::report::HistogramSummary;
use crate::timeline::{Interval, ThreadIx};
use crate::units::{MonoNs, Nanos};
use std::collections::BTreeMap;

/// Times of threads of one role.
#[derive(Debug, Default)]
struct OfRole {
    blocked_read: Distribution,
    run_queue: Distribution,
    on_cpu: Distribution,
}

/// Times of threads by their role.
#[derive(Debug, Default)]
pub(super) struct OfRoles {
    roles: BTreeMap<&'static str, OfRole>,
    /// By line: its role, and when it left the CPU the last time that was added.
    lines: Vec<(&'static str, Option<MonoNs>)>,
}

/// One line's intervals on their way in, the latest first.
pub(super) struct OfLine<'a> {
    role: &'a mut OfRole,
    next_off: Option<&'a mut Option<MonoNs>>,
}

impl OfRoles {
    /// To add intervals of a line.
    pub(super) fn line<'a>(&'a mut self, ix: ThreadIx, role: &'static str) -> OfLine<'a> {
        let n = ix.0 as usize;
        if self.lines.len() <= n {
            self.lines.resize(n + 1, ("", None));
        }
        let next_off = self.lines.get_mut(n).map(|line| {
            line.0 = role;
            &mut line.1
        });
        OfLine { role: self.roles.entry(role).or_default(), next_off }
    }

    /// Role of a line.
    pub(super) fn of(&self, ix: ThreadIx) -> &'static str {
        self.lines.get(ix.0 as usize).map_or("", |(role, _)| role)
    }

    /// Appends the histograms.
    pub(super) fn histograms(&self, out: &mut Vec<HistogramSummary>) {
        for (role, times) in &self.roles {
            out.extend(times.blocked_read.summary("blocked_read", &[("role", role)]));
        }
        for (role, times) in &self.roles {
            out.extend(times.run_queue.summary("run_queue", &[("role", role)]));
        }
        for (role, times) in &self.roles {
            out.extend(times.on_cpu.summary("on_cpu_burst", &[("role", role)]));
        }
    }
}

impl OfLine<'_> {
    /// Adds an interval that lies before those added so far.
    #[inline]
    pub(super) fn add(&mut self, i: &Interval, kind: WaitKind) {
        // After a wait that had not ended, nothing ran.
        let next = self.next_off.as_mut().and_then(|next| next.replace(i.off));
        if let Some(off) = next.filter(|_| !i.pending) {
            self.role.on_cpu.add(off.since(i.on));
        }
        if was_runnable(i) {
            self.role.run_queue.add(i.run_queue());
        }
        if matches!(kind, WaitKind::Read | WaitKind::PageFault) {
            self.role.blocked_read.add(i.blocked());
        }
    }
}

/// Whether the whole of a run-queue time was seen, and was one: a thread that yields is not kept from a CPU.
fn was_runnable(i: &Interval) -> bool {
    let began_unseen = i.seeded && i.state == SleepState::Preempted;
    !i.pending && !began_unseen && !is_yield(i)
}

/// Lengths of the busy and idle stretches of a GPU. From utilization windows they are known in steps of a window: a window
/// without any utilization is idle, any other busy.
pub(super) fn stretches(gpu: &GpuActivity, out: &mut Vec<HistogramSummary>) {
    let (mut busy, mut idle) = (Distribution::new(), Distribution::new());
    let evidence = match &gpu.activity {
        Activity::Intervals(intervals) => {
            exact(intervals, &mut busy, &mut idle);
            "intervals"
        }
        Activity::Windows(windows) => {
            windowed(windows, &mut busy, &mut idle);
            "windows"
        }
    };
    let number = gpu.gpu.to_string();
    let labels = [("gpu", &*number), ("evidence", evidence)];
    out.extend(busy.summary("gpu_busy", &labels));
    out.extend(idle.summary("gpu_idle", &labels));
}

fn exact(intervals: &[BusyInterval], busy: &mut Distribution, idle: &mut Distribution) {
    for i in intervals {
        busy.add(i.end.since(i.start));
    }
    for pair in intervals.windows(2) {
        let gap = pair[1].start.since(pair[0].end);
        if gap > Nanos::ZERO {
            idle.add(gap);
        }
    }
}

fn windowed(windows: &[GpuWindow], busy: &mut Distribution, idle: &mut Distribution) {
    let alike = |a: &GpuWindow, b: &GpuWindow| a.end == b.start && (a.utilization > 0.0) == (b.utilization > 0.0);
    for run in windows.chunk_by(alike) {
        if let [first, ..] = run
            && let Some(last) = run.last()
        {
            let length = last.end.since(first.start);
            if first.utilization > 0.0 { busy.add(length) } else { idle.add(length) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::*;
    use super::*;
    use crate::events::Event;
    use crate::gpu::GpuSource;
    use crate::units::GpuIndex;

    const MS: u64 = 1_000_000;

    fn find<'a>(all: &'a [HistogramSummary], name: &str) -> Vec<&'a HistogramSummary> {
        all.iter().filter(|h| h.name == name).collect()
    }

    #[test]
    fn queue_and_device_time_are_apart() {
        let mut unknown = request(100, 100, 110, 1);
        unknown.start = None;
        let timeline = timeline([Event::Block(request(0, 4, 10, 1)), Event::Block(unknown)]);
        let all = histograms(&timeline, &|_| "", &[], &[]);
        let one = |name| find(&all, name)[0].clone();
        assert_eq!(one("block_io_latency").count, 2);
        assert_eq!((one("block_io_queue").count, one("block_io_queue").max), (1, 4 * MS));
        assert_eq!((one("block_io_device").mean, one("block_io_device").max), (8 * MS, 10 * MS));
        assert_eq!(one("block_io_device").labels["device"], "254:0");
        assert_eq!(one("block_io_device").labels["operation"], "read");
    }

    #[test]
    fn waits_and_bursts_are_told_by_role() {
        let timeline = timeline([
            Event::OffCpu(disk_read(10, 100, 110, 112, 7)),
            Event::OffCpu(blocked(10, 200, 210, 210, 0, SleepState::Interruptible)),
            Event::OffCpu(preempted(11, 300, 330, 99)),
            Event::OffCpu(OffCpu { pending: true, ..preempted(11, 900, 1_000, 99) }),
        ]);
        let all = histograms(&timeline, &|ix| if ix.0 == 0 { "worker" } else { "feeder" }, &[], &[]);
        let reads = find(&all, "blocked_read");
        assert_eq!((reads.len(), reads[0].count, reads[0].max), (1, 1, 10 * MS));
        assert_eq!(reads[0].labels["role"], "worker");
        let queues: Vec<(&str, u64, u64)> =
            find(&all, "run_queue").iter().map(|h| (&*h.labels["role"], h.count, h.max)).collect();
        assert_eq!(queues, [("feeder", 1, 30 * MS), ("worker", 2, 2 * MS)]);
        let bursts: Vec<(&str, u64, u64)> =
            find(&all, "on_cpu_burst").iter().map(|h| (&*h.labels["role"], h.count, h.max)).collect();
        assert_eq!(bursts, [("feeder", 1, 570 * MS), ("worker", 1, 88 * MS)]);
    }

    use crate::events::OffCpu;

    #[test]
    fn opens_are_counted_once_with_their_latency() {
        let timeline = timeline([open("/a", 2), open("/b", 4)]);
        let all = histograms(&timeline, &|_| "", &[], &[]);
        let opens = find(&all, "file_open");
        assert_eq!((opens[0].count, opens[0].mean, opens[0].max), (2, 3 * MS, 4 * MS));
    }

    #[test]
    fn gpu_stretches_from_intervals_and_from_windows() {
        let gpu = |activity| GpuActivity {
            gpu: GpuIndex(1),
            name: String::new(),
            source: GpuSource::Trace,
            pids: Vec::new(),
            holes: Vec::new(),
            activity,
        };
        let busy = |a, b| BusyInterval { start: at(a), end: at(b) };
        let window = |a, b, utilization| GpuWindow { gpu: GpuIndex(1), start: at(a), end: at(b), utilization };
        let timeline = timeline([]);
        let exact = gpu(Activity::Intervals(vec![busy(0, 10), busy(30, 40), busy(40, 60)]));
        let all = histograms(&timeline, &|_| "", &[], &[exact]);
        assert_eq!((find(&all, "gpu_busy")[0].count, find(&all, "gpu_busy")[0].max), (3, 20 * MS));
        assert_eq!((find(&all, "gpu_idle")[0].count, find(&all, "gpu_idle")[0].max), (1, 20 * MS));
        let windows = vec![window(0, 100, 50.0), window(100, 200, 1.0), window(200, 300, 0.0), window(400, 500, 0.0)];
        let all = histograms(&timeline, &|_| "", &[], &[gpu(Activity::Windows(windows))]);
        assert_eq!((find(&all, "gpu_busy")[0].count, find(&all, "gpu_busy")[0].max), (1, 200 * MS));
        assert_eq!((find(&all, "gpu_idle")[0].count, find(&all, "gpu_idle")[0].max), (2, 100 * MS));
        assert_eq!(find(&all, "gpu_idle")[0].labels["evidence"], "windows");
    }
}
