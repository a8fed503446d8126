//! The timeline: everything a recording says, arranged by thread and sorted by time, ready to be walked backwards.

mod build;
mod interval;
mod load;
#[cfg(test)]
mod tests;
mod thread;

pub use build::TimelineBuilder;
pub use interval::{FileIx, Interval, WakeKind};
pub use load::{Loaded, load};
pub use thread::{Moment, ThreadIx, ThreadLine};

use crate::events::{
    BlockRequest, FileOpen, FileRef, GpuDevice, GpuProcess, GpuState, GpuWindow, HostSample, ImageId, Loss, ThreadName,
};
use crate::units::{DevId, MonoNs, Nanos, Pid, Tid};
use std::collections::{BTreeMap, HashMap};

/// A recording arranged by thread.
#[derive(Debug, Default)]
pub struct Timeline {
    /// First and last moment of the recording.
    pub span: (MonoNs, MonoNs),
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
    /// Host samples, by time.
    pub host: Vec<HostSample>,
    /// GPUs watched.
    pub gpus: Vec<GpuDevice>,
    /// NVML windows, by start.
    pub gpu_windows: Vec<GpuWindow>,
    /// NVML states, by time.
    pub gpu_states: Vec<GpuState>,
    /// Processes seen on GPUs.
    pub gpu_processes: Vec<GpuProcess>,
    /// What was lost while recording.
    pub losses: Vec<Loss>,
    /// Intervals that contradicted others of their thread and were cut or left out.
    pub contradictions: u64,
}

impl Timeline {
    /// Length of the recording.
    pub fn duration(&self) -> Nanos {
        self.span.1.since(self.span.0)
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
            None => {
                self.blocked_paths.get(&(thread.tid, interval.off)).and_then(|i| self.opens.get(*i)).map(|o| &*o.path)
            }
        }
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
