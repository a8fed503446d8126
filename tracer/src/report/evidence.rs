//! The GPU evidence of a report: what was recorded, or the traces that the person gave.

use super::from_file::Options;
use crate::attribution::roles;
use crate::events::{FileOpen, FileRef, FileType, GpuWindow, ImageId};
use crate::gpu::{self, Activity, Doubt, GpuActivity, GpuSource, RecordingClocks, TraceError};
use crate::recording::Header;
use crate::timeline::{Interval, Moment, Provisional, Recorded, ThreadIx, Timeline, Witness};
use crate::units::{GpuIndex, MonoNs, Nanos, Pid};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Evidence and what a reader must know of it, one sentence each.
pub(super) struct Evidence {
    pub activity: Vec<GpuActivity>,
    pub notes: Vec<String>,
    /// There is evidence, but all of it lies outside the part that is looked at: from when to when.
    pub elsewhere: Option<(MonoNs, MonoNs)>,
}

/// Finds the evidence that `options` ask for.
pub(super) fn find(
    recorded: &Recorded,
    in_driver: &InDriver,
    header: &Header,
    options: &Options,
) -> Result<Evidence, TraceError> {
    let tl = recorded.timeline();
    if options.gpu_trace.is_empty() {
        return Ok(of_recording(tl, in_driver, header));
    }
    let clocks = RecordingClocks {
        start: header.started,
        end: recorded.trailer.as_ref().map(|t| t.ended),
        span: (header.started.mono, recorded.end),
    };
    let mut notes = Vec::new();
    let mut traces = Vec::new();
    for path in &options.gpu_trace {
        let trace = gpu::read_trace(path, &clocks)?;
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let named = |n: &String| if options.gpu_trace.len() > 1 { format!("{file}: {n}") } else { n.clone() };
        notes.extend(trace.notes.iter().map(named));
        traces.push(trace);
    }
    let mut activity = gpu::merge_traces(traces);
    if options.simulated {
        for g in &mut activity {
            g.source = GpuSource::Simulated;
            g.name = "simulated GPU".into();
        }
        notes.clear();
    }
    notes.extend(activity.iter().filter_map(holes_told));
    notes.extend(renumber(tl, &mut activity));
    let elsewhere = range(&activity).filter(|(from, to)| *to <= tl.span.0 || *from >= tl.span.1);
    if elsewhere.is_some() {
        activity.clear();
    }
    Ok(Evidence { activity, notes, elsewhere })
}

/// What is not known between traces of one GPU.
fn holes_told(g: &GpuActivity) -> Option<String> {
    let unknown: Nanos = g.holes.iter().map(|(from, to)| to.since(*from)).sum();
    (!g.holes.is_empty()).then(|| {
        format!(
            "Between its traces nothing is known of GPU {} for {:.3} s: that is counted neither as busy nor as idle.",
            g.gpu,
            unknown.secs()
        )
    })
}

/// From when to when traces tell of GPUs.
fn range(activity: &[GpuActivity]) -> Option<(MonoNs, MonoNs)> {
    let lists =
        || activity.iter().filter_map(|g| if let Activity::Intervals(l) = &g.activity { Some(l) } else { None });
    let first = lists().filter_map(|l| l.first()).map(|i| i.start).min()?;
    Some((first, lists().filter_map(|l| l.last()).map(|i| i.end).max()?))
}

/// A process counts the devices that it may see (`CUDA_VISIBLE_DEVICES`), NVML counts all: where trace and job have one GPU each, it
/// is the same one.
fn renumber(tl: &Timeline, activity: &mut [GpuActivity]) -> Option<String> {
    let [only] = activity else { return None };
    let of_job = |pid: Pid| tl.threads.iter().any(|t| t.pid == pid);
    let on: BTreeSet<GpuIndex> = tl.gpu_processes.iter().filter(|p| of_job(p.pid)).map(|p| p.gpu).collect();
    let gpu = *on.first().filter(|gpu| on.len() == 1 && **gpu != only.gpu)?;
    let note = format!("The trace's device {} is GPU {gpu} of this machine: the job uses no other.", only.gpu);
    only.gpu = gpu;
    Some(note)
}

fn of_recording(tl: &Timeline, in_driver: &InDriver, header: &Header) -> Evidence {
    let mut activity = gpu::windows_to_activity(&tl.gpus, &tl.gpu_windows);
    let mut notes = Vec::new();
    activity.retain_mut(|g| match &mut g.activity {
        Activity::Windows(windows) => trust(tl, in_driver, header.sample_hz, g.gpu, windows, &mut notes),
        Activity::Intervals(_) => true,
    });
    let elsewhere = tl.gpu_told.filter(|_| tl.gpu_windows.is_empty());
    if activity.is_empty() && notes.is_empty() && elsewhere.is_none() {
        notes.push(header.gpu_note.clone().unwrap_or_else(|| "No GPU was watched while recording.".into()));
    }
    Evidence { activity, notes, elsewhere }
}

/// Idle time is placed in windows of this length.
const POOLED: Nanos = Nanos::from_millis(500);

/// Judges the windows of one GPU by what its feeder did, and moves them where they lag; `false` if they say nothing.
fn trust(
    tl: &Timeline,
    seen: &InDriver,
    sample_hz: u32,
    gpu: GpuIndex,
    windows: &mut Vec<GpuWindow>,
    notes: &mut Vec<String>,
) -> bool {
    let (in_driver, on_gpu) = seen.of_feeder(tl, sample_hz, gpu);
    let sum: Nanos = in_driver.iter().map(|(from, to)| to.since(*from)).sum();
    match gpu::doubt(windows, on_gpu.then_some(sum)) {
        Some(Doubt::Silent { in_driver }) => {
            notes.push(format!(
                "GPU {gpu} was told to be 0 % busy at all times, though the job was in its driver for {in_driver}: this driver seems not to tell utilization, so nothing is known of this GPU; give a profiler's trace with --gpu-trace."
            ));
            return false;
        }
        Some(Doubt::Frozen { percent }) => notes.push(format!(
            "GPU {gpu} was told to be exactly {percent} % busy at all times, which looks as if the driver's counter stands still: its idle time is doubtful."
        )),
        None => {}
    }
    let known = seen.until(tl.span.1);
    if let Some(found) = gpu::lag::estimate(windows, &in_driver, (tl.span.0, known)) {
        gpu::lag::shift(windows, found.lag);
        notes.push(format!(
            "The utilization of GPU {gpu} lagged {} behind its feeder (give or take {}; they agree to {:.2} at this lag, to {:.2} without): its windows were moved back by that.",
            found.lag, found.give_or_take, found.agreement.0, found.agreement.1
        ));
    }
    // What comes before the first work of the job and after the last is no idle time of a training. A time in the driver is known
    // to be inside; beyond it the work went on for about as long as the window's utilization says.
    let edge = |n: Option<usize>, probable: fn(&[GpuWindow], usize) -> Option<MonoNs>| {
        n.and_then(|n| Some((*windows.get(n)?, probable(windows, n))))
    };
    let first = edge(windows.iter().position(|w| w.utilization > 0.0), gpu::probable_begin);
    let last = edge(windows.iter().rposition(|w| w.utilization > 0.0), gpu::probable_end);
    if let Some((first, probable)) = first {
        let entered = in_driver.first().map(|(entered, _)| *entered).filter(|t| *t < first.end);
        if let Some(t) = entered.into_iter().chain(probable).min() {
            gpu::begin_work(windows, t);
        }
    }
    if let Some((last, probable)) = last {
        let left = in_driver.last().map(|(_, left)| *left).filter(|t| known == tl.span.1 && *t > last.start);
        if let Some(t) = left.into_iter().chain(probable).max() {
            gpu::end_work(windows, t);
        }
    }
    gpu::pool(windows, POOLED);
    true
}

/// When threads may have been in the GPU's driver: gathered while a recording goes by, since which image is libcuda and which
/// file the driver's is known in the end only. Of long recordings the beginning is enough.
#[derive(Debug, Default)]
pub(super) struct InDriver {
    samples: Vec<(ThreadIx, MonoNs, ImageId)>,
    devices: Vec<(ThreadIx, MonoNs, MonoNs, FileRef)>,
}

/// Samples and waits that are kept: 24 MiB at most, eight minutes of ten busy threads.
const MOST_KEPT: usize = 1 << 20;

impl Witness for InDriver {
    fn open(&mut self, _: &FileOpen) {}

    #[inline]
    fn interval(&mut self, line: Provisional, i: &Interval, file: Option<&FileRef>, _: Option<Provisional>) {
        if let Some(file) = file.filter(|f| f.file_type() == FileType::CharDevice)
            && self.devices.len() < MOST_KEPT / 2
        {
            self.devices.push((line.ix, i.off, i.on, *file));
        }
    }

    fn sample(&mut self, line: Provisional, s: &Moment, _: Option<&FileRef>) {
        if self.samples.len() < MOST_KEPT {
            self.samples.push((line.ix, s.time, s.image));
        }
    }

    fn renumber(&mut self, now: &[Option<ThreadIx>]) {
        let new = |ix: ThreadIx| now.get(ix.0 as usize).copied().flatten();
        let samples = std::mem::take(&mut self.samples).into_iter();
        self.samples = samples.filter_map(|(ix, time, image)| Some((new(ix)?, time, image))).collect();
        self.samples.sort_unstable();
        let devices = std::mem::take(&mut self.devices).into_iter();
        self.devices = devices.filter_map(|(ix, off, on, file)| Some((new(ix)?, off, on, file))).collect();
    }
}

impl InDriver {
    /// When the thread that feeds a GPU was in the driver, sorted: in libcuda by its samples, or blocked on the driver's
    /// device. And whether a process of the job holds a context on that GPU.
    fn of_feeder(&self, tl: &Timeline, sample_hz: u32, gpu: GpuIndex) -> (Vec<(MonoNs, MonoNs)>, bool) {
        let on_gpu: Vec<Pid> = tl.gpu_processes.iter().filter(|p| p.gpu == gpu).map(|p| p.pid).collect();
        let cuda: HashSet<ImageId> =
            tl.images.iter().filter(|(_, path)| roles::is_libcuda(path)).map(|(id, _)| *id).collect();
        let of_job: HashSet<Pid> = tl.threads.iter().map(|t| t.pid).collect();
        let has_context = on_gpu.iter().any(|pid| of_job.contains(pid));
        let elsewhere = tl.gpu_processes.iter().any(|p| of_job.contains(&p.pid));
        if !on_gpu.is_empty() && !has_context && elsewhere {
            // It works for others: what this job did says nothing about it.
            return (Vec::new(), false);
        }
        let mut seen: HashMap<ThreadIx, u64> = HashMap::new();
        for (ix, _, _) in self.samples.iter().filter(|(_, _, image)| cuda.contains(image)) {
            if !has_context || tl.thread(*ix).is_some_and(|t| on_gpu.contains(&t.pid)) {
                *seen.entry(*ix).or_default() += 1;
            }
        }
        let Some((feeder, _)) = seen.into_iter().max_by_key(|(ix, n)| (*n, std::cmp::Reverse(*ix))) else {
            return (Vec::new(), has_context);
        };
        // A sample speaks for the time around it, up to one and a half periods.
        let reach = Nanos(1_500_000_000 / u64::from(sample_hz.max(1)));
        let own: Vec<_> = self.samples.iter().filter(|(ix, _, _)| *ix == feeder).collect();
        let half_way = |a: MonoNs, b: MonoNs| MonoNs(a.0.midpoint(b.0));
        let sampled =
            own.iter().enumerate().filter(|(_, (_, _, image))| cuda.contains(image)).map(|(n, (_, time, _))| {
                let before = n.checked_sub(1).and_then(|p| own.get(p)).map(|(_, t, _)| half_way(*t, *time));
                let after = own.get(n + 1).map(|(_, t, _)| half_way(*time, *t));
                let (earliest, latest) = (*time - reach, *time + reach);
                (before.map_or(earliest, |b| b.max(earliest)), after.map_or(latest, |a| a.min(latest)))
            });
        let of_driver = |f: &FileRef| tl.path_of(f).is_some_and(|p| p.contains("/nvidia"));
        let blocked = self.devices.iter().filter(|(ix, _, _, f)| *ix == feeder && of_driver(f));
        let mut all: Vec<(MonoNs, MonoNs)> = sampled.chain(blocked.map(|(_, off, on, _)| (*off, *on))).collect();
        all.sort_unstable();
        all.dedup_by(|next, kept| {
            let joins = next.0 <= kept.1;
            if joins {
                kept.1 = kept.1.max(next.1);
            }
            joins
        });
        (all, has_context)
    }

    /// Up to when it knows all.
    fn until(&self, end: MonoNs) -> MonoNs {
        if self.samples.len() < MOST_KEPT && self.devices.len() < MOST_KEPT / 2 {
            return end;
        }
        // Samples are sorted by thread first.
        let last = |times: &mut dyn Iterator<Item = MonoNs>| times.max().unwrap_or(end);
        last(&mut self.samples.iter().map(|s| s.1)).min(last(&mut self.devices.iter().map(|d| d.2))).min(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{CpuSample, Event, GpuProcess, ImageName, Syscall, TaskEvent, TaskWhat};
    use crate::gpu::BusyInterval;
    use crate::timeline::TimelineBuilder;
    use crate::units::Tid;

    const MS: u64 = 1_000_000;
    const HZ: u32 = 250;

    /// Processes 1 and 2, each on the GPU of its number; samples of process 1 every 4 ms, in libcuda from 100 to 200 ms and from
    /// 300 to 3,400 ms; none of process 2 in libcuda.
    fn timeline() -> Timeline {
        let mut b = TimelineBuilder::new(Pid(1), MonoNs(0));
        for (id, path) in [(1, "/usr/lib/libcuda.so.550"), (2, "/usr/bin/python3")] {
            b.push(Event::ImageName(ImageName { id: ImageId(id), path: path.into() }));
        }
        for n in [1, 2] {
            let what = TaskWhat::Found { parent: Pid(0) };
            b.push(Event::Task(TaskEvent { time: MonoNs(0), tid: Tid(n), pid: Pid(n), what, comm: "rank".into() }));
            let on = GpuProcess { time: MonoNs(0), gpu: GpuIndex(n), pid: Pid(n), memory_used: None };
            b.push(Event::GpuProcess(on));
            for ms in (0..4_000).step_by(4) {
                let cuda = n == 1 && ((100..200).contains(&ms) || (300..3_400).contains(&ms));
                b.push(Event::CpuSample(CpuSample {
                    time: MonoNs(ms * MS),
                    tid: Tid(n),
                    pid: Pid(n),
                    cpu: 0,
                    syscall: Syscall::NONE,
                    user_ip: 0,
                    image: ImageId(if cuda { 1 } else { 2 }),
                    file: None,
                }));
            }
        }
        b.finish(Some(MonoNs(4_000 * MS)))
    }

    fn seen(tl: &Timeline) -> InDriver {
        let samples = tl.lines().flat_map(|(ix, t)| t.samples.iter().map(move |s| (ix, s.time, s.image))).collect();
        InDriver { samples, devices: Vec::new() }
    }

    fn busy(gpu: u32) -> GpuActivity {
        let activity = Activity::Intervals(vec![BusyInterval { start: MonoNs(1), end: MonoNs(2) }]);
        GpuActivity {
            gpu: GpuIndex(gpu),
            name: String::new(),
            source: GpuSource::Trace,
            pids: Vec::new(),
            holes: Vec::new(),
            activity,
        }
    }

    #[test]
    fn driver_times_are_those_of_the_thread_that_feeds_the_gpu() {
        let tl = timeline();
        let at = |ms: u64| MonoNs(ms * MS);
        let times = |gpu| seen(&tl).of_feeder(&tl, HZ, GpuIndex(gpu));
        assert_eq!(times(1), (vec![(at(98), at(198)), (at(298), at(3_398))], true));
        assert_eq!(times(2), (vec![], true));
        // Nobody is known to be on it: the job's feeder is taken, and nothing is said of a context.
        assert_eq!(times(5).0.len(), 2);
        assert!(!times(5).1);
    }

    #[test]
    fn silent_windows_are_dropped_and_told_and_idle_ones_are_kept() {
        let tl = timeline();
        let mut zero: Vec<GpuWindow> = (0..20)
            .map(|n| GpuWindow {
                gpu: GpuIndex(0),
                start: MonoNs(n * 200 * MS),
                end: MonoNs((n + 1) * 200 * MS),
                utilization: 0.0,
            })
            .collect();
        let mut notes = Vec::new();
        let seen = seen(&tl);
        assert!(!trust(&tl, &seen, HZ, GpuIndex(1), &mut zero, &mut notes));
        assert!(notes[0].contains("was in its driver for 3.2 s") && notes[0].contains("--gpu-trace"), "{notes:?}");
        notes.clear();
        assert!(
            trust(&tl, &seen, HZ, GpuIndex(2), &mut zero, &mut notes)
                && trust(&tl, &seen, HZ, GpuIndex(5), &mut zero, &mut notes)
        );
        assert!(notes.is_empty(), "{notes:?}");
    }

    #[test]
    fn one_device_is_the_one_gpu_that_the_job_is_on() {
        let mut tl = timeline();
        assert!(renumber(&tl, &mut [busy(0)]).is_none(), "the job is on two GPUs");
        tl.gpu_processes.retain(|p| p.gpu == GpuIndex(2));
        assert!(renumber(&tl, &mut [busy(0), busy(1)]).is_none());
        assert!(renumber(&tl, &mut [busy(2)]).is_none());
        let mut one = [busy(0)];
        let note = renumber(&tl, &mut one).unwrap();
        assert_eq!(
            (one[0].gpu, note.as_str()),
            (GpuIndex(2), "The trace's device 0 is GPU 2 of this machine: the job uses no other.")
        );
    }
}
