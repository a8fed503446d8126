//! The GPU evidence of a report: what was recorded, or the traces that the person gave.

use super::from_file::Options;
use crate::attribution::roles;
use crate::events::{FileType, GpuWindow, ImageId};
use crate::gpu::{self, Activity, Doubt, GpuActivity, GpuSource, RecordingClocks, TraceError};
use crate::recording::{Header, Trailer};
use crate::timeline::{ThreadLine, Timeline};
use crate::units::{GpuIndex, MonoNs, Nanos, Pid};
use std::collections::{BTreeSet, HashSet};

/// Evidence and what a reader must know of it, one sentence each.
pub(super) struct Evidence {
    pub activity: Vec<GpuActivity>,
    pub notes: Vec<String>,
}

/// Finds the evidence that `options` ask for.
pub(super) fn find(
    tl: &Timeline,
    header: &Header,
    trailer: Option<&Trailer>,
    options: &Options,
) -> Result<Evidence, TraceError> {
    if options.gpu_trace.is_empty() {
        return Ok(recorded(tl, header));
    }
    let clocks = RecordingClocks { start: header.started, end: trailer.map(|t| t.ended), span: tl.span };
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
    notes.extend(renumber(tl, &mut activity));
    Ok(Evidence { activity, notes })
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

fn recorded(tl: &Timeline, header: &Header) -> Evidence {
    let mut activity = gpu::windows_to_activity(&tl.gpus, &tl.gpu_windows);
    let mut notes = Vec::new();
    activity.retain_mut(|g| match &mut g.activity {
        Activity::Windows(windows) => trust(tl, header.sample_hz, g.gpu, windows, &mut notes),
        Activity::Intervals(_) => true,
    });
    if activity.is_empty() && notes.is_empty() {
        notes.push(header.gpu_note.clone().unwrap_or_else(|| "No GPU was watched while recording.".into()));
    }
    Evidence { activity, notes }
}

/// Judges the windows of one GPU by what its feeder did, and moves them where they lag; `false` if they say nothing.
fn trust(tl: &Timeline, sample_hz: u32, gpu: GpuIndex, windows: &mut Vec<GpuWindow>, notes: &mut Vec<String>) -> bool {
    let (in_driver, on_gpu) = driver_times(tl, sample_hz, gpu);
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
    if let Some(found) = gpu::lag::estimate(windows, &in_driver, tl.span) {
        gpu::lag::shift(windows, found.lag);
        notes.push(format!(
            "The utilization of GPU {gpu} lagged {} behind its feeder (give or take {}; they agree to {:.2} at this lag, to {:.2} without): its windows were moved back by that.",
            found.lag, found.give_or_take, found.agreement.0, found.agreement.1
        ));
    }
    true
}

/// When the thread that feeds a GPU was in the driver, sorted: in libcuda by its samples, or blocked on the driver's device. And
/// whether a process of the job holds a context on that GPU.
fn driver_times(tl: &Timeline, sample_hz: u32, gpu: GpuIndex) -> (Vec<(MonoNs, MonoNs)>, bool) {
    let on_gpu: Vec<Pid> = tl.gpu_processes.iter().filter(|p| p.gpu == gpu).map(|p| p.pid).collect();
    let cuda: HashSet<ImageId> =
        tl.images.iter().filter(|(_, path)| roles::is_libcuda(path)).map(|(id, _)| *id).collect();
    let has_context = tl.threads.iter().any(|t| on_gpu.contains(&t.pid));
    let feeds = |t: &&ThreadLine| !has_context || on_gpu.contains(&t.pid);
    let seen = |t: &ThreadLine| t.samples.iter().filter(|s| cuda.contains(&s.image)).count();
    let Some(feeder) = tl.threads.iter().filter(feeds).max_by_key(|t| seen(t)).filter(|t| seen(t) > 0) else {
        return (Vec::new(), has_context);
    };
    // A sample speaks for the time around it, up to one and a half periods.
    let reach = Nanos(1_500_000_000 / u64::from(sample_hz.max(1)));
    let sampled = feeder.samples.iter().enumerate().filter(|(_, s)| cuda.contains(&s.image)).map(|(n, s)| {
        let before = n.checked_sub(1).and_then(|p| feeder.samples.get(p));
        let from = before.map_or(s.time - reach, |p| MonoNs(p.time.0.midpoint(s.time.0)).max(s.time - reach));
        let to = feeder
            .samples
            .get(n + 1)
            .map_or(s.time + reach, |p| MonoNs(s.time.0.midpoint(p.time.0)).min(s.time + reach));
        (from, to)
    });
    let blocked = feeder.intervals.iter().filter(|i| {
        tl.file(i.file).is_some_and(|f| {
            f.file_type() == FileType::CharDevice && tl.path_of(f).is_some_and(|p| p.contains("/nvidia"))
        })
    });
    let mut all: Vec<(MonoNs, MonoNs)> = sampled.chain(blocked.map(|i| (i.off, i.on))).collect();
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

    fn busy(gpu: u32) -> GpuActivity {
        let activity = Activity::Intervals(vec![BusyInterval { start: MonoNs(1), end: MonoNs(2) }]);
        GpuActivity { gpu: GpuIndex(gpu), name: String::new(), source: GpuSource::Trace, activity }
    }

    #[test]
    fn driver_times_are_those_of_the_thread_that_feeds_the_gpu() {
        let tl = timeline();
        let at = |ms: u64| MonoNs(ms * MS);
        assert_eq!(driver_times(&tl, HZ, GpuIndex(1)), (vec![(at(98), at(198)), (at(298), at(3_398))], true));
        assert_eq!(driver_times(&tl, HZ, GpuIndex(2)), (vec![], true));
        // Nobody is known to be on it: the job's feeder is taken, and nothing is said of a context.
        assert_eq!(driver_times(&tl, HZ, GpuIndex(5)).0.len(), 2);
        assert!(!driver_times(&tl, HZ, GpuIndex(5)).1);
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
        assert!(!trust(&tl, HZ, GpuIndex(1), &mut zero, &mut notes));
        assert!(notes[0].contains("was in its driver for 3.2 s") && notes[0].contains("--gpu-trace"), "{notes:?}");
        notes.clear();
        assert!(
            trust(&tl, HZ, GpuIndex(2), &mut zero, &mut notes) && trust(&tl, HZ, GpuIndex(5), &mut zero, &mut notes)
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
