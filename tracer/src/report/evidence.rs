//! The GPU evidence of a report: what was recorded, or the trace that the person gave.

use super::from_file::Options;
use crate::attribution::roles;
use crate::events::{FileType, GpuWindow, ImageId};
use crate::gpu::{self, Activity, Doubt, GpuActivity, GpuSource, RecordingClocks, TraceError};
use crate::recording::{Header, Trailer};
use crate::timeline::{ThreadLine, Timeline};
use crate::units::{GpuIndex, MonoNs, Nanos, Pid};
use std::collections::HashSet;

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
    match &options.gpu_trace {
        None => Ok(recorded(tl, header)),
        Some(path) => {
            let clocks = RecordingClocks { start: header.started, end: trailer.map(|t| t.ended), span: tl.span };
            let mut trace = gpu::read_trace(path, &clocks)?;
            if options.simulated {
                for g in &mut trace.activity {
                    g.source = GpuSource::Simulated;
                    g.name = "simulated GPU".into();
                }
                trace.notes.clear();
            }
            Ok(Evidence { activity: trace.activity, notes: trace.notes })
        }
    }
}

fn recorded(tl: &Timeline, header: &Header) -> Evidence {
    let mut activity = gpu::windows_to_activity(&tl.gpus, &tl.gpu_windows);
    let mut notes = Vec::new();
    activity.retain_mut(|g| match &mut g.activity {
        Activity::Windows(windows) => trust(tl, header.sample_hz, g.gpu, windows, &mut notes),
        Activity::Intervals(_) => true,
    });
    if activity.is_empty() {
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
