//! GPU traces that a person brings along: what kind a file is, and exact busy intervals from each kind.

mod align;
mod busy;
mod chrome;
mod nsight;
mod work;

pub use align::RecordingClocks;
pub use busy::{busy_line, check_overlap};

use super::clock::StampClock;
use super::error::TraceError;
use super::evidence::{Activity, BusyInterval, GpuActivity, GpuSource};
use crate::units::GpuIndex;
use align::Base;
use flate2::read::MultiGzDecoder;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{BufReader, Cursor, ErrorKind, Read};
use std::path::Path;
use work::TraceWork;

/// What a file is is seen in so many of its first bytes.
const HEAD: usize = 64 * 1024;

/// A kind of GPU trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// A busy file.
    Busy,
    /// A Chrome trace of PyTorch's profiler.
    Chrome,
    /// An SQLite export of Nsight Systems.
    Nsight,
}

impl TraceKind {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            TraceKind::Busy => "busy file",
            TraceKind::Chrome => "PyTorch profiler trace",
            TraceKind::Nsight => "Nsight Systems export",
        }
    }
}

/// A GPU trace, read and placed in the recording.
#[derive(Clone, Debug)]
pub struct ImportedTrace {
    /// What kind it was.
    pub kind: TraceKind,
    /// One entry per GPU in it.
    pub activity: Vec<GpuActivity>,
    /// What a reader must know of it, one sentence each: kind, clock, what was left out.
    pub notes: Vec<String>,
}

/// Reads a GPU trace of any kind, which is told by its content, and places it in a recording.
///
/// The file is read once and never held in memory: that grows with the number of idle times in it only.
pub fn read_trace(path: &Path, clocks: &RecordingClocks) -> Result<ImportedTrace, TraceError> {
    let unreadable = |why| TraceError::Unreadable { path: path.to_owned(), why };
    let mut file = File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.is_dir() {
        return Err(TraceError::Directory { path: path.to_owned() });
    }
    let head = read_head(&mut file).map_err(unreadable)?;
    match kind_of(&head) {
        Content::Gzip => {
            let mut packed = MultiGzDecoder::new(BufReader::with_capacity(HEAD, Cursor::new(head).chain(file)));
            // What comes before damage counts; what is read next tells of the damage itself.
            let head = match read_head(&mut packed) {
                Ok(head) => head,
                Err(e) if matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidInput) => {
                    return Err(TraceError::DamagedGzip { path: path.to_owned() });
                }
                Err(e) => return Err(unreadable(e)),
            };
            match kind_of(&head) {
                Content::Sqlite => Err(TraceError::PackedSqlite { path: path.to_owned() }),
                Content::Gzip => Err(TraceError::Foreign { path: path.to_owned() }),
                content => read_text(content, head, packed, path, clocks),
            }
        }
        Content::Sqlite => from_nsight(nsight::read(path)?, path, clocks),
        content => read_text(content, head, file, path, clocks),
    }
}

/// Several traces as one, as of several processes that each wrote their own: work on the same GPU is merged. Between traces that tell
/// of a GPU at different times nothing is known of it.
pub fn merge_traces(traces: Vec<ImportedTrace>) -> Vec<GpuActivity> {
    let mut all: BTreeMap<GpuIndex, GpuActivity> = BTreeMap::new();
    let mut told: BTreeMap<GpuIndex, Vec<BusyInterval>> = BTreeMap::new();
    for trace in traces {
        let range = told_by(&trace.activity);
        for g in trace.activity {
            told.entry(g.gpu).or_default().extend(range);
            match all.entry(g.gpu) {
                Entry::Vacant(place) => drop(place.insert(g)),
                Entry::Occupied(mut known) => join(known.get_mut(), g),
            }
        }
    }
    for (gpu, mut ranges) in told {
        unite(&mut ranges);
        if let Some(g) = all.get_mut(&gpu) {
            let between = ranges.iter().zip(ranges.iter().skip(1)).map(|(a, b)| (a.end, b.start));
            g.holes = between.collect();
        }
    }
    all.into_values().collect()
}

/// From when to when a trace tells of its GPUs.
fn told_by(activity: &[GpuActivity]) -> Option<BusyInterval> {
    let lists =
        || activity.iter().filter_map(|a| if let Activity::Intervals(l) = &a.activity { Some(l) } else { None });
    let start = lists().filter_map(|l| l.first()).map(|i| i.start).min()?;
    Some(BusyInterval { start, end: lists().filter_map(|l| l.last()).map(|i| i.end).max()? })
}

fn join(a: &mut GpuActivity, b: GpuActivity) {
    let (Activity::Intervals(all), Activity::Intervals(more)) = (&mut a.activity, b.activity) else { return };
    all.extend(more);
    unite(all);
    a.pids.extend(b.pids);
    a.pids.sort_unstable();
    a.pids.dedup();
    if a.name.is_empty() {
        a.name = b.name;
    }
}

/// Sorts intervals, and makes one of those that meet.
fn unite(all: &mut Vec<BusyInterval>) {
    all.sort_unstable_by_key(|i| i.start);
    all.dedup_by(|next, kept| {
        let joins = next.start <= kept.end;
        if joins {
            kept.end = kept.end.max(next.end);
        }
        joins
    });
}

fn read_text(
    content: Content,
    mut head: Vec<u8>,
    rest: impl Read,
    path: &Path,
    clocks: &RecordingClocks,
) -> Result<ImportedTrace, TraceError> {
    if head.starts_with(BOM) {
        head.drain(..BOM.len());
    }
    let stream = Cursor::new(head).chain(rest);
    match content {
        Content::Empty => Err(TraceError::Empty { path: path.to_owned() }),
        Content::Chrome => from_chrome(chrome::read(stream, path)?, path, clocks),
        Content::Busy => {
            let (activity, cut) = busy::read(path, BufReader::new(stream), clocks.span.1)?;
            check_overlap(&activity, clocks.span.0, clocks.span.1)?;
            let mut notes = vec!["GPU activity comes from a busy file.".to_owned()];
            notes.extend(cut);
            Ok(ImportedTrace { kind: TraceKind::Busy, activity, notes })
        }
        Content::Gzip | Content::Sqlite | Content::Foreign => Err(TraceError::Foreign { path: path.to_owned() }),
    }
}

/// The first bytes of a stream; fewer only at its end.
fn read_head(stream: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    match stream.take(HEAD as u64).read_to_end(&mut head) {
        // A short stream that is cut off: what there is of it is judged.
        Err(e) if head.is_empty() => Err(e),
        _ => Ok(head),
    }
}

/// What a file's first bytes say that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Empty,
    Gzip,
    Sqlite,
    Chrome,
    Busy,
    Foreign,
}

/// A wall clock that shows less counts from something else than 1970.
const YEAR_1973_NS: i128 = 100_000_000_000_000_000;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// Keys that a Chrome trace has near its beginning, and a busy file never.
const CHROME_KEYS: [&[u8]; 4] = [b"\"traceEvents\"", b"\"schemaVersion\"", b"\"deviceProperties\"", b"\"ph\""];

fn kind_of(head: &[u8]) -> Content {
    if head.starts_with(b"\x1f\x8b") {
        return Content::Gzip;
    }
    if head.starts_with(b"SQLite format 3\0") {
        return Content::Sqlite;
    }
    let text = head.strip_prefix(BOM).unwrap_or(head).trim_ascii_start();
    let first_line = text.split(|b| *b == b'\n').next().unwrap_or(text);
    let has_chrome_key = |bytes: &[u8]| CHROME_KEYS.iter().any(|key| memchr::memmem::find(bytes, key).is_some());
    match text.first() {
        None => Content::Empty,
        // A whole object in one line is a busy line, unless it is a whole trace.
        Some(b'{') if !has_chrome_key(first_line) && serde_json::from_slice::<Object>(first_line).is_ok() => {
            Content::Busy
        }
        Some(b'{') if has_chrome_key(text) => Content::Chrome,
        Some(b'[') if matches!(text.get(1..).map(|t| t.trim_ascii_start().first()), Some(Some(b'{' | b']'))) => {
            Content::Chrome
        }
        _ if first_line.contains(&0) || std::str::from_utf8(first_line).is_err_and(|e| e.error_len().is_some()) => {
            Content::Foreign
        }
        // Its reader says what is wrong with which line.
        _ => Content::Busy,
    }
}

type Object = serde_json::Map<String, serde_json::Value>;

fn from_chrome(t: chrome::ChromeTrace, path: &Path, clocks: &RecordingClocks) -> Result<ImportedTrace, TraceError> {
    let bases = ways(t.base_ns.map(|ns| Base { ns, clock: StampClock::Epoch }).into_iter().collect());
    if t.work.is_empty() {
        return Err(TraceError::NoGpuWork { path: path.to_owned(), events: t.events, absurd: t.work.absurd });
    }
    placed(TraceKind::Chrome, t.work, &bases, clocks)
}

fn from_nsight(t: nsight::NsightExport, path: &Path, clocks: &RecordingClocks) -> Result<ImportedTrace, TraceError> {
    if t.work.is_empty() {
        return Err(TraceError::NoCuda { path: path.to_owned(), nsight: true });
    }
    let mut told: Vec<Base> = t.utc_ns.map(|ns| Base { ns, clock: StampClock::Epoch }).into_iter().collect();
    if let Some(ns) = t.system_ns {
        told.extend([StampClock::Boot, StampClock::Mono].map(|clock| Base { ns, clock }));
    }
    placed(TraceKind::Nsight, t.work, &ways(told), clocks)
}

/// The ways in which a trace may tell time, the likeliest first: what it says itself, then the plain wall clock. Only a trace that
/// says nothing may be on a clock that starts with the machine: small numbers would fit by chance.
fn ways(told: Vec<Base>) -> Vec<Base> {
    let plain = |clock| Base { ns: 0, clock };
    let mut all = told;
    let says_nothing = all.is_empty();
    all.push(plain(StampClock::Epoch));
    if says_nothing {
        all.extend([plain(StampClock::Boot), plain(StampClock::Mono)]);
    }
    all
}

/// Places the work of a profiler's trace in a recording.
fn placed(
    kind: TraceKind,
    mut work: TraceWork,
    bases: &[Base],
    clocks: &RecordingClocks,
) -> Result<ImportedTrace, TraceError> {
    let mut notes = Vec::new();
    let devices = work.finish();
    let first = devices.values().filter_map(|s| s.first()).map(|s| s.start).min();
    let last = devices.values().filter_map(|s| s.last()).map(|s| s.end).max();
    let (Some(first), Some(last), Some(told)) = (first, last, bases.first()) else { return Err(TraceError::NeverBusy) };
    let Some(place) = align::place(first, last, bases, clocks) else {
        return Err(apart(first, last, *told, work.cut.is_some(), clocks));
    };
    let activity: Vec<GpuActivity> = devices
        .into_iter()
        .map(|(device, spans)| {
            let inside = spans.into_iter().filter_map(|s| {
                let (start, end) = (place.to_mono(s.start)?, place.to_mono(s.end)?);
                (start < end).then_some(BusyInterval { start, end })
            });
            GpuActivity {
                gpu: GpuIndex(device),
                name: work.names.remove(&device).unwrap_or_default(),
                source: GpuSource::Trace,
                pids: work.pids.get(&device).into_iter().flatten().copied().collect(),
                holes: Vec::new(),
                activity: Activity::Intervals(inside.collect()),
            }
        })
        .collect();
    notes.push(format!(
        "GPU activity comes from a {}: {} kernels, copies and memsets, stamped by the {} clock.",
        kind.name(),
        work.used,
        clock_name(place.base.clock)
    ));
    notes.extend(work.cut);
    if work.absurd > 0 {
        notes.push(format!(
            "{} of the trace's events on GPUs made no sense (no time, a negative or endless duration) and were left out.",
            work.absurd
        ));
    }
    if place.step_ns != 0 {
        notes.push(format!(
            "The {} clock was set by {:.3} s while recording: the trace's place in the recording is doubtful.",
            clock_name(place.base.clock),
            place.step_ns as f64 / 1e9
        ));
    }
    notes.extend(coverage(&activity, clocks));
    Ok(ImportedTrace { kind, activity, notes })
}

fn clock_name(clock: StampClock) -> &'static str {
    match clock {
        StampClock::Epoch => "wall",
        StampClock::Boot => "boot",
        StampClock::Mono => "monotonic",
    }
}

/// A profiler often runs for a few steps only.
fn coverage(activity: &[GpuActivity], clocks: &RecordingClocks) -> Option<String> {
    let told = told_by(activity)?;
    let (first, last) = (told.start.max(clocks.span.0), told.end.min(clocks.span.1));
    let (start, length) = (clocks.start.mono, clocks.span.1.since(clocks.span.0));
    (last.since(first).share_of(length) < 0.9).then(|| {
        format!(
            "The trace tells of {:.3} s to {:.3} s of the recording; nothing is known of the GPU before and after.",
            first.since(start).secs(),
            last.since(start).secs()
        )
    })
}

/// The refusal of a trace of another time, both ranges in the terms of what the trace says.
fn apart(first: i64, last: i64, told: Base, cut: bool, clocks: &RecordingClocks) -> TraceError {
    let trace = (i128::from(first) + i128::from(told.ns), i128::from(last) + i128::from(told.ns));
    let recording = align::span_on(told.clock, clocks);
    let wall =
        |ns: i128| jiff::Timestamp::from_nanosecond(ns).map_or_else(|_| format!("{ns} ns"), |t| format!("{t:.3}"));
    TraceError::NoOverlapWall {
        trace: (wall(trace.0), wall(trace.1)),
        recording: (wall(recording.0), wall(recording.1)),
        hint: match told.ns == 0 && trace.1 < YEAR_1973_NS {
            true if cut => "the trace is cut off before it says when it began: write it again",
            true => "the trace does not say when it began: write or export it with a newer version of the profiler",
            false => "give the trace of the same run",
        },
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
