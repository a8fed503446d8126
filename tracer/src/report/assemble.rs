//! The report from timeline, attribution and diagnosis: a pure function.

use super::{
    CauseShare, ChainLink, Gap, GapGroup, GpuReport, RecordingInfo, Report, SCHEMA, TargetInfo, feeding, tables,
};
use crate::attribution::{Attribution, GpuAttribution, Link, LongGap, NoRecord, Totals, Usage, What};
use crate::diagnosis::{self, Diagnosis, Verdict};
use crate::events::{GpuState, LossKind, syscalls};
use crate::gpu::{self, Activity, GpuSource};
use crate::recording::{Damage, Header, Trailer};
use crate::timeline::Timeline;
use crate::units::{MonoNs, Nanos, WallNs};
use std::collections::BTreeSet;

/// Everything that a report is made from.
#[derive(Debug)]
pub struct Parts<'a> {
    /// Header of the recording.
    pub header: &'a Header,
    /// Its last block.
    pub trailer: Option<&'a Trailer>,
    /// What is wrong with the file.
    pub damage: &'a Damage,
    /// Size of the file, bytes.
    pub file_bytes: u64,
    /// What is known of it as a whole.
    pub timeline: &'a Timeline,
    /// Its intervals, samples, requests and opens, summed up.
    pub tables: tables::Tables,
    /// Causes.
    pub attribution: &'a Attribution,
    /// Answers.
    pub diagnosis: &'a Diagnosis,
    /// Further remarks, such as why there is no GPU evidence.
    pub notes: Vec<String>,
}

/// Makes the report.
pub fn assemble(p: &Parts<'_>) -> Report {
    let (tl, at) = (p.timeline, p.attribution);
    let activity: Vec<_> = at.gpus.iter().map(|g| &g.gpu).collect();
    let paths = p.tables.paths(tl);
    let lost: u64 = tl.lost().values().sum();
    Report {
        schema: SCHEMA.into(),
        recording: RecordingInfo {
            duration_s: tl.duration().secs(),
            host: p.header.host.clone(),
            kernel: p.header.kernel.clone(),
            target: TargetInfo { pid: p.header.target.pid.0, command: p.header.target.command.clone() },
            started_at: rfc3339(p.header.started.wall),
            started_mono_ns: p.header.started.mono.0,
            lost_events: lost,
            complete: p.trailer.is_some() && p.damage.is_none(),
        },
        gpus: gpus(p),
        causes: shares(&at.totals),
        verdict: p.diagnosis.overall.clone(),
        gaps: at.totals.longest.iter().map(|g| gap(p, g)).collect(),
        gap_groups: groups(&at.totals),
        histograms: p.tables.histograms(&p.header.disks, &activity),
        threads: p.tables.threads(tl),
        files: paths.files,
        directories: paths.directories,
        devices: p.tables.devices(tl, &p.header.disks),
        competitors: p.tables.competitors(tl),
        hot_images: p.tables.hot_images(tl),
        overhead: tables::overhead(tl, p.tables.intervals(), p.trailer.map(|t| &t.cost), p.file_bytes),
        notes: notes(p),
    }
}

fn rfc3339(wall: WallNs) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(wall.0)).map_or_else(|_| "unknown".into(), |t| t.to_string())
}

fn since(p: &Parts<'_>, t: MonoNs) -> f64 {
    t.since(p.header.started.mono).secs()
}

fn shares(totals: &Totals) -> Vec<CauseShare> {
    let share = |(cause, n): (_, Nanos)| CauseShare { cause, seconds: n.secs(), share: n.share_of(totals.idle) };
    totals.ranked().into_iter().map(share).collect()
}

fn gpus(p: &Parts<'_>) -> Vec<GpuReport> {
    if p.attribution.gpus.is_empty() {
        return Vec::new();
    }
    let verdicts = p.diagnosis.gpus.iter();
    p.attribution.gpus.iter().zip(verdicts).map(|(g, verdict)| one_gpu(p, g, verdict)).collect()
}

fn one_gpu(p: &Parts<'_>, g: &GpuAttribution, verdict: &Verdict) -> GpuReport {
    let tl = p.timeline;
    let u = &g.usage;
    let of_target: BTreeSet<_> = tl.threads.iter().map(|t| t.pid).collect();
    // Clocks and the PCIe link idle down by design; only states under load say something.
    let under_load = |s: &GpuState| {
        let at = tl.gpu_windows.partition_point(|w| (w.gpu, w.end) < (s.gpu, s.time));
        tl.gpu_windows.get(at).is_some_and(|w| w.gpu == s.gpu && w.start <= s.time && w.utilization >= 50.0)
    };
    let device = tl.gpus.iter().find(|d| d.gpu == g.gpu.gpu);
    let state = device.map(|d| {
        gpu::state_sentences(d, &tl.gpu_states, &tl.gpu_processes, under_load, |pid| of_target.contains(&pid))
    });
    GpuReport {
        index: g.gpu.gpu.0,
        name: g.gpu.name.clone(),
        source: match g.gpu.source {
            GpuSource::Nvml => "nvml",
            GpuSource::Trace => "trace",
            GpuSource::Cuda => "cuda",
            GpuSource::Simulated => "simulated",
        }
        .into(),
        evidence: match g.gpu.activity {
            Activity::Intervals(_) => "intervals",
            Activity::Windows(_) => "windows",
        }
        .into(),
        active_from_s: since(p, u.from),
        active_to_s: since(p, u.to),
        busy_s: u.busy.secs(),
        idle_s: u.idle.secs(),
        idle_share: u.idle.share_of(u.busy + u.idle),
        certain_share: certain_share(u),
        of_job: g.feeding.is_of_job(),
        waited_for: diagnosis::waited_for(p.attribution, g),
        before_s: u.before.secs(),
        after_s: u.after.secs(),
        gap_count: u.gaps,
        causes: shares(&g.totals),
        verdict: verdict.clone(),
        state: state.unwrap_or_default(),
    }
}

/// Without idle time nothing was placed that could be wrong.
fn certain_share(u: &Usage) -> f64 {
    if u.idle == Nanos::ZERO { 1.0 } else { u.certain.share_of(u.idle) }
}

fn groups(totals: &Totals) -> Vec<GapGroup> {
    let mut out: Vec<GapGroup> = totals
        .groups
        .iter()
        .filter_map(|(key, g)| {
            let words: Vec<String> =
                key.iter().map(|(role, cause)| format!("{}: {}", role.name(), cause.name())).collect();
            Some(GapGroup { chain: words.join(", "), count: g.count, seconds: g.idle.secs(), cause: key.first()?.1 })
        })
        .collect();
    out.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then(a.chain.cmp(&b.chain)));
    out
}

fn gap(p: &Parts<'_>, g: &LongGap) -> Gap {
    Gap {
        gpu: g.gpu.0,
        start_s: since(p, g.start),
        end_s: since(p, g.end),
        cause: g.cause,
        chain: g.chain.iter().map(|l| link(p, l)).collect(),
    }
}

fn link(p: &Parts<'_>, l: &Link) -> ChainLink {
    let s = &l.segment;
    let line = s.thread.and_then(|ix| p.timeline.thread(ix));
    ChainLink {
        start_s: since(p, s.start),
        end_s: since(p, s.end),
        tid: line.map_or(0, |t| t.tid.0),
        role: s.thread.map_or("none", |ix| p.attribution.roles.of(ix).name()).into(),
        cause: s.cause,
        what: what(p, l),
    }
}

fn what(p: &Parts<'_>, l: &Link) -> String {
    let tl = p.timeline;
    match l.segment.what {
        What::Ran => "ran".into(),
        What::WaitedForCpu { by } if by.0 == 0 => "could run but had no CPU".into(),
        What::WaitedForCpu { by } => match tl.name_of(by, l.segment.start) {
            Some(name) => format!("could run, but {name} (thread {by}) had the CPU"),
            None => format!("could run, but thread {by} had the CPU"),
        },
        What::Blocked(wait) => {
            let state = if wait.uninterruptible { " (D state)" } else { "" };
            let path = tl.file(wait.file).map_or(l.path.as_deref(), |f| tl.path_of(f));
            let on = path.map_or(String::new(), |path| format!(" on {path}"));
            let outside = l.segment.cause.is_ended_outside() && wait.waker.0 != 0;
            let by = match tl.name_of(wait.waker, l.segment.end).filter(|_| outside) {
                Some(name) => format!(" until {name} (thread {}) ended it", wait.waker),
                None => String::new(),
            };
            format!("blocked in {}{on}{state}{by}", syscalls::wait_name(wait.syscall))
        }
        What::NoRecord(why) => match why {
            NoRecord::NotAlive => "the thread did not exist",
            NoRecord::TooDeep => "the chain of wakers is too long to follow",
            NoRecord::NotPlaced => "the evidence does not say when",
            NoRecord::Untraced => "the kernel did not trace that the thread left its CPU",
            NoRecord::NoFeeder => "no thread of the target was recorded",
            NoRecord::OtherJob => "the process that feeds this GPU was not recorded",
        }
        .into(),
    }
}

fn notes(p: &Parts<'_>) -> Vec<String> {
    let mut out = feeding::sentences(p.timeline, &p.attribution.gpus);
    out.extend_from_slice(&p.notes);
    out.extend(p.damage.sentences());
    for probe in &p.header.probes {
        if let Some(failure) = &probe.failure {
            out.push(format!("The probe on {} was not attached: {failure}", probe.name));
        }
    }
    out.extend(losses(p.timeline, p.tables.intervals()));
    if p.timeline.contradictions > 0 {
        out.push(format!(
            "{} intervals contradicted others of their thread and were cut or left out.",
            p.timeline.contradictions
        ));
    }
    let windows: Vec<&GpuAttribution> =
        p.attribution.gpus.iter().filter(|g| matches!(g.gpu.activity, Activity::Windows(_))).collect();
    if !windows.is_empty() {
        out.push(
            "GPU activity is known as NVML utilization over windows of about 1/6 s: how long the GPU was idle is known, when inside a window is not; causes are assigned most certain first.".into(),
        );
    }
    for g in windows.iter().filter(|g| g.usage.idle > Nanos::ZERO) {
        out.push(format!(
            "GPU {}: {:.0} % of its idle time certainly lies where it is placed, in windows without any work or in waits during which a GPU has nothing to do; the rest is placed by likelihood.",
            g.gpu.gpu.0,
            100.0 * certain_share(&g.usage)
        ));
    }
    out
}

/// What was lost, in words: an interval whose end the kernel did not trace is another thing than a full ring.
fn losses(tl: &Timeline, intervals: u64) -> Vec<String> {
    let mut lost = tl.lost();
    let mut out = Vec::new();
    if let Some(n) = lost.remove(&LossKind::BadInterval).filter(|n| *n > 0) {
        out.push(format!(
            "{n} of {} off-CPU intervals were left out: the kernel traced the thread's leaving the CPU but not its return.",
            intervals + n
        ));
    }
    let total: u64 = lost.values().sum();
    if total > 0 {
        out.push(format!(
            "{total} events were lost while recording, beside {intervals} intervals that were not: times of waits are too low, and causes may be unknown."
        ));
    }
    out
}
