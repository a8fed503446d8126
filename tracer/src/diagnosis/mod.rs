//! Diagnosis: from causes to a verdict with evidence and advice.

mod advice;
mod bottleneck;
mod bound;
mod cpu_use;
mod evidence;
mod facts;
mod ranks;
mod verdict;
mod words;

pub use bottleneck::Bottleneck;
pub use evidence::device_name;
pub use facts::{Facts, Sums};
pub use ranks::{WaitedFor, waited_for};
pub use verdict::Verdict;
pub use words::{listed, processes};

use crate::attribution::{Attribution, Cause, Feeding, GpuAttribution, Totals};
use crate::events::GpuState;
use crate::gpu::is_throttled;
use crate::recording::Header;
use crate::timeline::Timeline;
use crate::units::{MonoNs, Nanos, Pid};
use words::{did, percent, seconds, who};

/// Below this idle share the GPU itself is the limit.
const COMPUTE_BOUND: f64 = 0.10;
/// From this share of samples with throttled clocks on, a busy GPU is called slowed.
const HELD_DOWN: f64 = 0.20;
/// From this mean memory utilization (percent) on, a busy GPU is called bound by its memory.
const MEMORY_BOUND: f64 = 80.0;

/// The answers of a recording.
#[derive(Debug)]
pub struct Diagnosis {
    /// Over all GPUs.
    pub overall: Verdict,
    /// One per GPU, in the order of the attribution.
    pub gpus: Vec<Verdict>,
}

/// Judges a recording, whose intervals, samples and requests are in `sums`. `elsewhere`: from when to when there is GPU evidence,
/// if none of it is in the part that is judged.
pub fn diagnose(
    tl: &Timeline,
    at: &Attribution,
    sums: &Sums,
    header: &Header,
    elsewhere: Option<(MonoNs, MonoNs)>,
) -> Diagnosis {
    let facts = Facts::gather(tl, at, sums, header);
    let gpus: Vec<Verdict> = at.gpus.iter().map(|g| of_gpu(&facts, g)).collect();
    // What holds up another job is no answer for this one.
    let of_job = || at.gpus.iter().zip(&gpus).filter(|(g, _)| g.feeding.is_of_job());
    let overall = match (gpus.as_slice(), of_job().collect::<Vec<_>>().as_slice()) {
        ([], _) => without_gpu(&facts, elsewhere.map(|e| [tl.span, e].map(|(from, to)| part(header, from, to)))),
        ([only], _) | ([only, ..], []) => only.clone(),
        (_, [(_, only)]) => (*only).clone(),
        (_, judged) => over_all(&facts, at, judged),
    };
    Diagnosis { overall, gpus }
}

/// Which bottleneck a cause belongs to.
pub fn bottleneck_of(cause: Cause) -> Bottleneck {
    match cause {
        // Memory that is short is fetched back from a disk.
        Cause::Disk | Cause::NetworkStorage | Cause::Memory => Bottleneck::StorageIo,
        Cause::CpuStarved | Cause::CpuThrottled => Bottleneck::CpuStarvation,
        Cause::Preprocessing | Cause::PinMemory | Cause::Ipc => Bottleneck::DataLoading,
        Cause::HostCode | Cause::Sleep | Cause::GpuDriver => Bottleneck::HostCode,
        Cause::Checkpoint => Bottleneck::Checkpoint,
        Cause::WorkerStartup => Bottleneck::WorkerStartup,
        Cause::Network | Cause::OtherProcess => Bottleneck::Communication,
        Cause::Unknown => Bottleneck::None,
    }
}

fn of_gpu(f: &Facts<'_>, g: &GpuAttribution) -> Verdict {
    let span = g.usage.busy + g.usage.idle;
    let gpu = format!("GPU {}", g.gpu.gpu);
    if span == Nanos::ZERO {
        return Verdict {
            bottleneck: Bottleneck::NoWork,
            cause: None,
            share: 0.0,
            summary: format!("{gpu} did no work during the {} of the recording.", seconds(f.seconds())),
            evidence: Vec::new(),
            advice: vec!["Record while the training loop is running.".into()],
            speedup_bound: None,
        };
    }
    let subject = format!("{gpu} was");
    if let Feeding::NotRecorded { told } = &g.feeding {
        return of_another_job(&subject, span, g.usage.idle, told);
    }
    let mut verdict = judge(f, &subject, span, g.usage.idle, &g.totals);
    if let Some(sentence) = ranks::sentence(f.at, g) {
        verdict.evidence.insert(0, sentence);
    }
    if verdict.bottleneck == Bottleneck::Compute {
        limits_of_gpu(f, g, &mut verdict);
    }
    verdict
}

/// What was recorded says nothing about a GPU that works for others.
fn of_another_job(subject: &str, span: Nanos, idle: Nanos, told: &[Pid]) -> Verdict {
    let (feeds, was) = if told.len() == 1 { ("feeds", "was") } else { ("feed", "were") };
    Verdict {
        bottleneck: Bottleneck::None,
        cause: (idle > Nanos::ZERO).then_some(Cause::Unknown),
        share: if idle > Nanos::ZERO { 1.0 } else { 0.0 },
        summary: format!(
            "{subject} idle {} of {}; why cannot be told, since {}, which {feeds} it, {was} not recorded.",
            percent(idle.share_of(span)),
            seconds(span.secs()),
            words::processes(told)
        ),
        evidence: Vec::new(),
        advice: vec![
            "Record the process that feeds this GPU, or give the GPU trace of the job that was recorded.".into(),
        ],
        speedup_bound: None,
    }
}

/// A busy GPU may still be slower than it could be: its clocks held down, or its memory the limit.
fn limits_of_gpu(f: &Facts<'_>, g: &GpuAttribution, verdict: &mut Verdict) {
    let states: Vec<&GpuState> = f.tl.gpu_states.iter().filter(|s| s.gpu == g.gpu.gpu).collect();
    let throttles: Vec<bool> = states.iter().filter_map(|s| Some(is_throttled(s.throttle_reasons?))).collect();
    let throttled = throttles.iter().filter(|t| **t).count() as f64 / throttles.len().max(1) as f64;
    let memory: Vec<f64> = states.iter().filter_map(|s| Some(f64::from(s.memory_utilization?))).collect();
    let memory = memory.iter().sum::<f64>() / memory.len().max(1) as f64;
    if throttled >= HELD_DOWN {
        verdict.bottleneck = Bottleneck::GpuSlowed;
        verdict.summary.push_str(&format!(" Its clocks were held down for {} of the time.", percent(throttled)));
        verdict.advice.insert(0, "Mend what holds the clocks down first (power cap, temperature, supply); the state of the GPU below says which.".into());
    } else if memory >= MEMORY_BOUND {
        verdict.bottleneck = Bottleneck::GpuMemory;
        verdict.summary.push_str(&format!(" Its memory was read or written for {memory:.0} % of the time."));
        verdict
            .advice
            .insert(0, "Move less memory: fuse operations, use lower precision, avoid copies between layouts.".into());
    }
}

fn over_all(f: &Facts<'_>, at: &Attribution, judged: &[(&GpuAttribution, &Verdict)]) -> Verdict {
    let span: Nanos = judged.iter().map(|(g, _)| g.usage.busy + g.usage.idle).sum();
    if span == Nanos::ZERO {
        return judged.first().map_or_else(|| without_gpu(f, None), |(_, v)| (*v).clone());
    }
    let subject = format!("{} GPUs were", judged.len());
    let mut v = judge(f, &subject, span, at.totals.idle, &at.totals);
    let worst = judged.iter().map(|(g, _)| *g).max_by(|a, b| idle_share(a).total_cmp(&idle_share(b)));
    if let Some(sentence) = ranks::slowest(f, at) {
        v.evidence.insert(0, sentence);
    }
    if let Some(first) = ranks::advice(at) {
        v.advice.insert(0, first);
    }
    if let Some(w) = worst {
        v.evidence.insert(0, format!("GPU {} was idle most: {} of its time.", w.gpu.gpu, percent(idle_share(w))));
    }
    v
}

fn idle_share(g: &GpuAttribution) -> f64 {
    g.usage.idle.share_of(g.usage.busy + g.usage.idle)
}

fn judge(f: &Facts<'_>, subject: &str, span: Nanos, idle: Nanos, totals: &Totals) -> Verdict {
    let share = idle.share_of(span);
    let opening = format!("{subject} idle {} of {}", percent(share), seconds(span.secs()));
    if share < COMPUTE_BOUND {
        return Verdict {
            bottleneck: Bottleneck::Compute,
            cause: None,
            share: 0.0,
            summary: format!("{opening}: the GPU is the limit, input and host keep up with it."),
            evidence: Vec::new(),
            advice: vec!["To go faster, make the GPU's own work cheaper: mixed precision, larger batches, fused kernels, a compiled model.".into()],
            speedup_bound: None,
        };
    }
    let Some((bottleneck, cause, time)) = main_cause(totals) else {
        return Verdict {
            bottleneck: Bottleneck::None,
            cause: None,
            share: 0.0,
            summary: format!("{opening}, and nothing is known about why."),
            evidence: Vec::new(),
            advice: advice::on(f, totals, Cause::Unknown, advice::Pace::default()),
            speedup_bound: None,
        };
    };
    let role = f.main_role(totals, cause);
    let points = time.share_of(span) * 100.0;
    if cause == Cause::Network && f.serves_requests(role, totals) {
        return Verdict {
            bottleneck: Bottleneck::NoWork,
            cause: Some(cause),
            share: time.share_of(idle),
            summary: format!("{opening}. {points:.0} points of that: no request came."),
            evidence: evidence::of(f, totals, cause),
            advice: vec![
                "Send it more requests, or let other work share the GPU: the server keeps up with what comes.".into(),
            ],
            speedup_bound: None,
        };
    }
    let run = run_without(f, totals, cause, span, span - idle);
    let pace = advice::Pace { span: run.span, shortest: run.shortest() };
    Verdict {
        bottleneck,
        cause: Some(cause),
        share: time.share_of(idle),
        summary: format!("{opening}. {points:.0} points of that: {} {}.", who(role), did(cause)),
        evidence: evidence::of(f, totals, cause),
        advice: advice::on(f, totals, cause, pace),
        speedup_bound: run.speedup(),
    }
}

/// What would be left of a run of this length if a cause went away.
fn run_without(f: &Facts<'_>, totals: &Totals, cause: Cause, span: Nanos, busy: Nanos) -> bound::Run {
    let serial = Nanos(totals.details.iter().map(|(d, n)| (bound::stays(d, cause) * n.0 as f64) as u64).sum());
    let overlaps = bound::overlaps(f.waits_for_gpu(), cause);
    let may_be_more = advice::more_workers(f, totals).is_some();
    let left = f.worker_time().map_or(0.0, |t| bound::each_worker(t, cause, may_be_more));
    bound::Run { span, busy, serial, overlaps, each_worker: Nanos((span.0 as f64 * left) as u64) }
}

/// The kind of bottleneck with most idle time, and the largest cause of that kind.
fn main_cause(totals: &Totals) -> Option<(Bottleneck, Cause, Nanos)> {
    let mut kinds: std::collections::BTreeMap<Bottleneck, Nanos> = std::collections::BTreeMap::new();
    for (cause, n) in &totals.causes {
        *kinds.entry(bottleneck_of(*cause)).or_default() += *n;
    }
    let (kind, _) = kinds.into_iter().filter(|(_, n)| n.0 > 0).max_by_key(|(k, n)| (*n, std::cmp::Reverse(*k)))?;
    let (cause, n) = totals.ranked().into_iter().find(|(c, _)| bottleneck_of(*c) == kind)?;
    Some((kind, cause, n))
}

/// Without GPU evidence nothing is known about idle time; what the main thread waited for is the next best thing.
/// `elsewhere`: the part that is judged, and the one that there is GPU evidence of.
fn without_gpu(f: &Facts<'_>, elsewhere: Option<[String; 2]>) -> Verdict {
    let totals = &f.at.main_thread;
    let mut evidence = Vec::new();
    for (cause, n) in totals.ranked().into_iter().take(4) {
        let role = f.main_role(totals, cause);
        evidence.push(format!(
            "{} of the main thread's time: {} {}.",
            percent(n.share_of(totals.idle)),
            who(role),
            did(cause)
        ));
    }
    let (no_evidence, advice) = match elsewhere {
        None => (
            "There is no GPU evidence in this recording".to_owned(),
            "Record on a machine with the NVIDIA driver, or give a trace of GPU activity with --gpu-trace.".to_owned(),
        ),
        Some([judged, evidence]) => (
            format!(
                "There is no GPU evidence in the chosen part of this recording ({judged}): it lies outside of it, from {evidence}"
            ),
            "Choose another part with --from and --to.".to_owned(),
        ),
    };
    Verdict {
        bottleneck: Bottleneck::None,
        cause: None,
        share: 0.0,
        summary: format!(
            "{no_evidence}, so idle time of the GPU is not known; below is what the main thread of the target spent its time on."
        ),
        evidence,
        advice: vec![advice],
        speedup_bound: None,
    }
}

/// A part of a recording, as `--from` and `--to` count.
fn part(header: &Header, from: MonoNs, to: MonoNs) -> String {
    let at = |t: MonoNs| seconds(t.since(header.started.mono).secs());
    format!("{} to {}", at(from), at(to))
}
