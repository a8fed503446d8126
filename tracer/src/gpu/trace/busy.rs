//! Busy files: one JSON object a line at each change of a GPU's state, described in docs/gpu-evidence.md.

use crate::gpu::{Activity, BusyInterval, GpuActivity, GpuSource, TraceError};
use crate::units::{GpuIndex, MonoNs, Pid};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
use std::io::{BufRead, Read as _};
use std::path::Path;

/// A longer line is no busy line; reading on would only fill memory.
const LONGEST_LINE: u64 = 64 * 1024;

/// Later than this (146 years), no CLOCK_MONOTONIC of a living machine is.
const LATEST_NS: u64 = 1 << 62;

/// Beyond this, a time is the wall clock's: ten years of uptime against 1980.
const LOOKS_LIKE_EPOCH_S: f64 = 315_360_000.0;

/// One line of a busy file, newline included. Append it with a single `write`, so that a reader sees whole lines.
pub fn busy_line(t: MonoNs, gpu: GpuIndex, busy: bool) -> String {
    format!("{{\"t_ns\": {t}, \"gpu\": {gpu}, \"busy\": {busy}}}\n", t = t.0)
}

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Change {
    t: MonoNs,
    busy: bool,
}

/// Reads a busy file into exact intervals, one entry per GPU in it; with a sentence where it is cut off.
///
/// Lines may be out of order and repeat a state. An interval that is open at the end lasts until `recording_end`, or until
/// the last time in the file where that is later. A last line without its newline is ignored unless it is whole: the
/// writer was stopped while writing it.
pub(super) fn read(
    path: &Path,
    file: impl BufRead,
    recording_end: MonoNs,
) -> Result<(Vec<GpuActivity>, Option<String>), TraceError> {
    let (changes, cut) = read_changes(path, file)?;
    let cut =
        cut.then(|| "The busy file is cut off or damaged where it was packed: what comes before is used.".to_owned());
    Ok((activities(changes, recording_end, path)?, cut))
}

type Changes = BTreeMap<GpuIndex, OfGpu>;

/// What a file says of one GPU.
#[derive(Debug, Default)]
struct OfGpu {
    changes: Vec<Change>,
    pids: BTreeSet<Pid>,
}

/// All changes, and whether the stream broke off.
fn read_changes(path: &Path, mut file: impl BufRead) -> Result<(Changes, bool), TraceError> {
    let mut changes = Changes::new();
    let mut bytes = Vec::new();
    let mut cut = false;
    for line in 1.. {
        bytes.clear();
        let read = file.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes);
        match read {
            Ok(0) => break,
            Ok(_) => {}
            // A gzip stream that ends early or is damaged: its whole lines count.
            Err(e) if matches!(e.kind(), UnexpectedEof | InvalidInput | InvalidData) && !changes.is_empty() => {
                cut = true;
                if serde_json::from_slice::<Map<String, Value>>(&bytes).is_err() {
                    break;
                }
            }
            Err(why) => return Err(TraceError::Unreadable { path: path.to_owned(), why }),
        }
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice::<Value>(&bytes) {
            Ok(Value::Object(fields)) => {
                let (gpu, change, pid) = parse(&fields).map_err(|(field, problem)| TraceError::Field {
                    path: path.to_owned(),
                    line,
                    field,
                    problem,
                })?;
                let of = changes.entry(gpu).or_default();
                of.changes.push(change);
                of.pids.extend(pid);
            }
            // Torn: the writer was stopped in the middle of it.
            Err(e) if e.is_eof() && !bytes.ends_with(b"\n") && !changes.is_empty() => break,
            _ => return Err(TraceError::NotJson { path: path.to_owned(), line }),
        }
        if cut {
            break;
        }
    }
    if changes.is_empty() { Err(TraceError::Empty { path: path.to_owned() }) } else { Ok((changes, cut)) }
}

fn parse(fields: &Map<String, Value>) -> Result<(GpuIndex, Change, Option<Pid>), (&'static str, &'static str)> {
    let t = match fields.get("t_ns") {
        None => Err("is missing; it is the time in nanoseconds of CLOCK_MONOTONIC"),
        Some(v) => match (v.as_u64(), v.as_i64(), v.as_f64()) {
            (Some(t), ..) if t <= LATEST_NS => Ok(MonoNs(t)),
            (Some(_), ..) => Err("is too large to be a time in nanoseconds of CLOCK_MONOTONIC"),
            (None, Some(_), _) => Err("is negative; it is the time in nanoseconds of CLOCK_MONOTONIC"),
            (None, None, Some(t)) if t.abs() > LATEST_NS as f64 => {
                Err("is too large to be a time in nanoseconds of CLOCK_MONOTONIC")
            }
            _ => Err("must be a whole number: the time in nanoseconds of CLOCK_MONOTONIC"),
        },
    }
    .map_err(|problem| ("t_ns", problem))?;
    let gpu = match fields.get("gpu") {
        None => Err("is missing; it is the index of the GPU, from 0"),
        Some(v) => match v.as_u64().and_then(|g| u32::try_from(g).ok()) {
            Some(g) => Ok(GpuIndex(g)),
            None => Err("must be the index of the GPU: a whole number from 0"),
        },
    }
    .map_err(|problem| ("gpu", problem))?;
    let busy = match fields.get("busy") {
        Some(Value::Bool(b)) => Ok(*b),
        Some(_) => Err("must be true or false"),
        None => Err("is missing; it is true or false"),
    }
    .map_err(|problem| ("busy", problem))?;
    let pid = match fields.get("pid") {
        None => Ok(None),
        Some(v) => match v.as_u64().and_then(|p| u32::try_from(p).ok()) {
            Some(pid) => Ok(Some(Pid(pid))),
            None => Err("must be the id of the process that gives the GPU its work"),
        },
    }
    .map_err(|problem| ("pid", problem))?;
    Ok((gpu, Change { t, busy }, pid))
}

fn activities(changes: Changes, recording_end: MonoNs, path: &Path) -> Result<Vec<GpuActivity>, TraceError> {
    let last = changes.values().flat_map(|of| &of.changes).map(|c| c.t).max();
    let Some(last) = last else { return Err(TraceError::Empty { path: path.to_owned() }) };
    let end = recording_end.max(last);
    let all: Vec<GpuActivity> = changes
        .into_iter()
        .map(|(gpu, of)| GpuActivity {
            gpu,
            name: String::new(),
            source: GpuSource::Trace,
            pids: of.pids.into_iter().collect(),
            holes: Vec::new(),
            activity: Activity::Intervals(intervals(of.changes, end)),
        })
        .collect();
    Ok(all)
}

/// Sorted intervals that do not touch: two that meet are one.
fn intervals(mut changes: Vec<Change>, end: MonoNs) -> Vec<BusyInterval> {
    // Stable: of several lines of one time, the last written wins.
    changes.sort_by_key(|c| c.t);
    let mut list: Vec<BusyInterval> = Vec::new();
    let mut since = None;
    let mut push = |start: MonoNs, end: MonoNs| match list.last_mut() {
        Some(last) if last.end >= start => last.end = last.end.max(end),
        _ if start < end => list.push(BusyInterval { start, end }),
        _ => {}
    };
    for c in changes {
        match (since, c.busy) {
            (None, true) => since = Some(c.t),
            (Some(start), false) => {
                push(start, c.t);
                since = None;
            }
            _ => {}
        }
    }
    if let Some(start) = since {
        push(start, end);
    }
    list
}

/// Refuses activity that has nothing to do with a recording from `start` to `end`.
pub fn check_overlap(activity: &[GpuActivity], start: MonoNs, end: MonoNs) -> Result<(), TraceError> {
    let spans = || activity.iter().flat_map(spans_of);
    let (Some(first), Some(last)) = (spans().map(|s| s.0).min(), spans().map(|s| s.1).max()) else {
        return Err(TraceError::NeverBusy);
    };
    if first < end && last > start {
        return Ok(());
    }
    let secs = |t: MonoNs| t.0 as f64 / 1e9;
    let hint = if secs(first) > LOOKS_LIKE_EPOCH_S {
        "the trace looks like wall-clock time; write t_ns from CLOCK_MONOTONIC"
    } else {
        "give the trace of the same run, on the same machine, without a reboot in between"
    };
    Err(TraceError::NoOverlap { trace: (secs(first), secs(last)), recording: (secs(start), secs(end)), hint })
}

fn spans_of(activity: &GpuActivity) -> Option<(MonoNs, MonoNs)> {
    match &activity.activity {
        Activity::Intervals(list) => Some((list.first()?.start, list.last()?.end)),
        Activity::Windows(list) => Some((list.first()?.start, list.last()?.end)),
    }
}

#[cfg(test)]
#[path = "busy_tests.rs"]
mod tests;
