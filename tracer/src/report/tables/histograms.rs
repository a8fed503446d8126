//! Latencies and durations as histograms.

use super::devices::device_name;
use super::distribution::Distribution;
use super::waits::{BlockActivity, WaitKind, is_yield, wait_kind};
use super::{Roles, devices::operation_name};
use crate::events::{BlockOp, GpuWindow, SleepState};
use crate::gpu::{Activity, BusyInterval, GpuActivity};
use crate::host::BlockDevice;
use crate::report::HistogramSummary;
use crate::timeline::{Interval, Timeline};
use crate::units::{DevId, MonoNs, Nanos};
use std::collections::BTreeMap;

/// All histograms of the report, in a fixed order; none without values.
pub fn histograms(
    timeline: &Timeline,
    roles: &Roles<'_>,
    disks: &[BlockDevice],
    gpus: &[GpuActivity],
) -> Vec<HistogramSummary> {
    let mut out = Vec::new();
    block_requests(timeline, disks, &mut out);
    by_role(timeline, roles, &mut out);
    file_opens(timeline, &mut out);
    for gpu in gpus {
        stretches(gpu, &mut out);
    }
    out
}

/// Time of block requests: in all, in the queue, in the device.
fn block_requests(timeline: &Timeline, disks: &[BlockDevice], out: &mut Vec<HistogramSummary>) {
    let mut by_kind: BTreeMap<(DevId, BlockOp), [Distribution; 3]> = BTreeMap::new();
    for b in &timeline.blocks {
        let [all, queue, device] =
            by_kind.entry((b.dev, b.op)).or_insert_with(|| std::array::from_fn(|_| Distribution::new()));
        all.add(b.total());
        device.add(b.device());
        // Where the start is not known, there is no queue time to tell.
        if b.start.is_some() {
            queue.add(b.queue());
        }
    }
    for (n, name) in ["block_io_latency", "block_io_queue", "block_io_device"].into_iter().enumerate() {
        for ((dev, op), times) in &by_kind {
            let labels = [("device", &*device_name(disks, *dev)), ("operation", operation_name(*op))];
            out.extend(times[n].summary(name, &labels));
        }
    }
}

/// Times of threads of one role.
struct OfRole {
    blocked_read: Distribution,
    run_queue: Distribution,
    on_cpu: Distribution,
}

fn by_role(timeline: &Timeline, roles: &Roles<'_>, out: &mut Vec<HistogramSummary>) {
    let blocks = BlockActivity::new(timeline);
    let mut by_role: BTreeMap<&str, OfRole> = BTreeMap::new();
    for (ix, line) in timeline.lines() {
        let role = by_role.entry(roles(ix)).or_insert_with(|| OfRole {
            blocked_read: Distribution::new(),
            run_queue: Distribution::new(),
            on_cpu: Distribution::new(),
        });
        let mut ran_since: Option<MonoNs> = None;
        for i in &line.intervals {
            if let Some(since) = ran_since {
                role.on_cpu.add(i.off.since(since));
            }
            // After a wait that had not ended, nothing ran.
            ran_since = (!i.pending).then_some(i.on);
            if was_runnable(i) {
                role.run_queue.add(i.run_queue());
            }
            if matches!(wait_kind(timeline, &blocks, i), WaitKind::Read | WaitKind::PageFault) {
                role.blocked_read.add(i.blocked());
            }
        }
    }
    for (role, times) in &by_role {
        out.extend(times.blocked_read.summary("blocked_read", &[("role", role)]));
    }
    for (role, times) in &by_role {
        out.extend(times.run_queue.summary("run_queue", &[("role", role)]));
    }
    for (role, times) in &by_role {
        out.extend(times.on_cpu.summary("on_cpu_burst", &[("role", role)]));
    }
}

/// Whether the whole of a run-queue time was seen, and was one: a thread that yields is not kept from a CPU.
fn was_runnable(i: &Interval) -> bool {
    let began_unseen = i.seeded && i.state == SleepState::Preempted;
    !i.pending && !began_unseen && !is_yield(i)
}

fn file_opens(timeline: &Timeline, out: &mut Vec<HistogramSummary>) {
    let mut opens = Distribution::new();
    for outcome in timeline.opens.iter().filter_map(|o| o.outcome) {
        opens.add(outcome.latency);
    }
    out.extend(opens.summary("file_open", &[]));
}

/// Lengths of the busy and idle stretches of a GPU. From utilization windows they are known in steps of a window: a window
/// without any utilization is idle, any other busy.
fn stretches(gpu: &GpuActivity, out: &mut Vec<HistogramSummary>) {
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
        let gpu = |activity| GpuActivity { gpu: GpuIndex(1), name: String::new(), source: GpuSource::Trace, activity };
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
