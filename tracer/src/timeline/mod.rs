//! The timeline: what a recording says, arranged by thread and sorted by time, ready to be walked backwards. A small one is
//! built whole ([`TimelineBuilder`]); a recording is surveyed once and then swept from its end, part by part
//! ([`Recorded`]), in memory that does not grow with its length.

mod build;
mod interval;
mod lines;
mod recorded;
mod survey;
mod sweep;
#[cfg(test)]
mod tests;
mod thread;

pub use build::TimelineBuilder;
pub use interval::{FileIx, Interval, WakeKind};
pub use recorded::Recorded;
pub use survey::{Provisional, Witness};
pub use sweep::{Ending, MARGIN, Sweep};
pub use thread::{Moment, ThreadIx, ThreadLine};

use crate::events::{
    BlockRequest, FileOpen, FileRef, GpuDevice, GpuProcess, GpuState, GpuWindow, HostSample, ImageId, Loss, ThreadName,
};
use crate::units::{DevId, MonoNs, Nanos, Pid, Tid};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// A recording arranged by thread, or a part of one: then everything that is small is there for the whole recording, and
/// intervals, samples, requests and paths of blocked calls only for what `own` and `known_from` say.
#[derive(Debug, Default)]
pub struct Timeline {
    /// First and last moment of the recording.
    pub span: (MonoNs, MonoNs),
    /// What ends in this time belongs to this part and to no other: the parts of a recording follow each other.
    pub own: Range<MonoNs>,
    /// From here to the end of `own` nothing is missing; at most the start of `own`.
    pub known_from: MonoNs,
    /// The process that was attached to.
    pub target: Pid,
    /// Threads of the target; a thread id that was used twice has two lines.
    pub threads: Vec<ThreadLine>,
    /// Lines of each thread id, by birth.
    by_tid: HashMap<Tid, Vec<ThreadIx>>,
    /// Files that intervals and samples refer to; [`FileIx`] counts from 1.
    files: Vec<FileRef>,
    /// Paths of files, by device and inode.
    pub paths: HashMap<(DevId, u64), String>,
    /// From one sample of a running thread to the next; 0 if there are none, or it is not known.
    pub sample_period: Nanos,
    /// Mapped files that samples refer to.
    pub images: HashMap<ImageId, String>,
    /// Names of threads outside the target.
    pub outsiders: HashMap<Tid, ThreadName>,
    /// Block requests, by completion.
    pub blocks: Vec<BlockRequest>,
    /// File opens and blocked path calls, by start.
    pub opens: Vec<FileOpen>,
    /// Paths of blocked path calls, by thread and start of the off-CPU interval.
    pub blocked_paths: HashMap<(Tid, MonoNs), usize>,
    /// Host samples of the whole recording, by time.
    pub host: Vec<HostSample>,
    /// GPUs watched.
    pub gpus: Vec<GpuDevice>,
    /// NVML windows, by start.
    pub gpu_windows: Vec<GpuWindow>,
    /// From when to when NVML windows tell of GPUs, in the whole recording: more than `gpu_windows` where that is of a part.
    pub gpu_told: Option<(MonoNs, MonoNs)>,
    /// NVML states, by time.
    pub gpu_states: Vec<GpuState>,
    /// Processes seen on GPUs.
    pub gpu_processes: Vec<GpuProcess>,
    /// What was lost while recording.
    pub losses: Vec<Loss>,
    /// Intervals that contradicted others of their thread and were cut or left out.
    pub contradictions: u64,
}

/// End of time.
const LAST: MonoNs = MonoNs(u64::MAX);

impl Timeline {
    /// Notes that a window tells of a GPU.
    fn tells_of_gpu(&mut self, w: &GpuWindow) {
        let told = self.gpu_told.get_or_insert((w.start, w.end));
        *told = (told.0.min(w.start), told.1.max(w.end));
    }

    /// Length of the recording.
    pub fn duration(&self) -> Nanos {
        self.span.1.since(self.span.0)
    }

    /// Host samples inside the span; all there are where it has not even two.
    pub fn host_inside(&self) -> &[HostSample] {
        let from = self.host.partition_point(|h| h.time < self.span.0);
        let to = self.host.partition_point(|h| h.time <= self.span.1);
        self.host.get(from..to).filter(|inside| inside.len() >= 2).unwrap_or(&self.host)
    }

    /// The file that an interval or sample refers to.
    pub fn file(&self, ix: FileIx) -> Option<&FileRef> {
        self.files.get((ix.0 as usize).checked_sub(1)?)
    }

    /// Path of a file, where it is known.
    pub fn path_of(&self, file: &FileRef) -> Option<&str> {
        self.paths.get(&(file.dev, file.ino)).map(String::as_str)
    }

    /// Path that an interval blocked on: of the file behind its descriptor, or of its path argument.
    pub fn blocked_path(&self, thread: &ThreadLine, interval: &Interval) -> Option<&str> {
        match self.file(interval.file) {
            Some(file) => self.path_of(file),
            None => self.path_of_call(thread.tid, interval.off),
        }
    }

    /// Path argument of the call in which a thread blocked at this time.
    pub fn path_of_call(&self, tid: Tid, off: MonoNs) -> Option<&str> {
        self.blocked_paths.get(&(tid, off)).and_then(|i| self.opens.get(*i)).map(|o| &*o.path)
    }

    /// The intervals of a line that belong to this part: all of them, in a whole timeline.
    pub fn own_intervals<'a>(&self, line: &'a ThreadLine) -> &'a [Interval] {
        self.owned(&line.intervals, |i| i.on)
    }

    /// The samples of a line that belong to this part.
    pub fn own_samples<'a>(&self, line: &'a ThreadLine) -> &'a [Moment] {
        self.owned(&line.samples, |s| s.time)
    }

    /// The requests that belong to this part.
    pub fn own_blocks(&self) -> &[BlockRequest] {
        self.owned(&self.blocks, |b| b.complete)
    }

    fn owned<'a, T>(&self, sorted: &'a [T], end: impl Fn(&T) -> MonoNs) -> &'a [T] {
        let from = sorted.partition_point(|x| end(x) < self.own.start);
        let to = match self.own.end {
            LAST => sorted.len(),
            before => sorted.partition_point(|x| end(x) < before),
        };
        sorted.get(from..to).unwrap_or(&[])
    }

    /// A line by its index.
    pub fn thread(&self, ix: ThreadIx) -> Option<&ThreadLine> {
        self.threads.get(ix.0 as usize)
    }

    /// The line of the thread that had this id at this time; if none lived then, the nearest earlier one.
    pub fn thread_at(&self, tid: Tid, at: MonoNs) -> Option<ThreadIx> {
        let lines = self.by_tid.get(&tid)?;
        let after = lines.partition_point(|ix| self.thread(*ix).is_some_and(|t| t.born <= at));
        lines.get(after.saturating_sub(1)).copied()
    }

    /// Takes over all lines, by thread id and birth.
    pub(super) fn set_threads(&mut self, lines: Vec<ThreadLine>) {
        self.by_tid.clear();
        for (n, line) in lines.iter().enumerate() {
            self.by_tid.entry(line.tid).or_default().push(ThreadIx(n as u32));
        }
        self.threads = lines;
    }

    /// All lines with their indices.
    pub fn lines(&self) -> impl Iterator<Item = (ThreadIx, &ThreadLine)> {
        self.threads.iter().enumerate().map(|(i, t)| (ThreadIx(i as u32), t))
    }

    /// Events lost while recording, by kind.
    pub fn lost(&self) -> BTreeMap<crate::events::LossKind, u64> {
        let mut lost = BTreeMap::new();
        for l in &self.losses {
            *lost.entry(l.kind).or_insert(0) += l.count;
        }
        lost
    }

    /// Name of a thread, of the target or not.
    pub fn name_of(&self, tid: Tid, at: MonoNs) -> Option<&str> {
        match self.thread_at(tid, at).and_then(|ix| self.thread(ix)) {
            Some(t) => Some(&t.comm),
            None => self.outsiders.get(&tid).map(|n| &*n.comm),
        }
    }
}
