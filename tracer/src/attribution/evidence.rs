//! What roles are decided by: sums over the whole recording that are gathered while it goes by once, in any order.

use super::blocked;
use super::calls::{self, CallKind};
use super::roles::is_libcuda;
use super::scale::Scale;
use crate::events::{FileOpen, FileRef, FileType, ImageId};
use crate::timeline::{FileIx, Interval, Moment, Provisional, ThreadIx, Timeline, WakeKind, Witness};
use crate::units::{MonoNs, Nanos, Pid, Tid};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::hash_map::Entry;

/// Time that a sample stands for at the usual rate.
const SAMPLE: Nanos = Nanos::from_millis(5);
/// Times of creating one path that are kept.
const MOST_OPENS: usize = 10_000;
/// Paths that are kept: a job that creates a file for each sample has more, none of which is a checkpoint.
const MOST_PATHS: usize = 20_000;
/// `O_CREAT` (`asm-generic/fcntl.h`).
const O_CREAT: u32 = 0o100;
/// `O_APPEND`: of a log, which is no checkpoint.
const O_APPEND: u32 = 0o2000;

/// What a recording tells of the roles of its threads.
#[derive(Debug, Default)]
pub struct Evidence {
    threads: Vec<OfThread>,
    /// Of the stretches in which samples in libcuda are counted.
    pub(super) scale: Scale,
    /// Wake-ups by (waker's line, woken line).
    pub(super) wakes: FxHashMap<(ThreadIx, ThreadIx), u64>,
    /// First wake-up by a thread (its line) of a thread of another process.
    pub(super) first: FxHashMap<(ThreadIx, Pid), MonoNs>,
    /// Opens of data for reading, by thread id.
    pub(super) data_opens: FxHashMap<Tid, u64>,
    /// Paths that a process opened so that they were created, and when.
    pub(super) created: FxHashMap<(Pid, String), Vec<MonoNs>>,
}

/// The same of one thread.
#[derive(Clone, Debug, Default)]
pub(super) struct OfThread {
    /// Time off the CPU, and of that in a wait for a child process.
    pub(super) off_cpu: Nanos,
    pub(super) wait_child: Nanos,
    /// Uninterruptible waits in a read or a page fault.
    pub(super) waits_to_read: u64,
    /// Samples in a read of a regular file.
    pub(super) seen_reading: u64,
    /// Samples outside system calls by stretch of time and image: which of them is libcuda is known in the end.
    images: FxHashMap<(u64, ImageId), u64>,
    /// Time in writes to regular files.
    pub(super) written: FxHashMap<FileIx, Nanos>,
    /// Regular files made durable.
    pub(super) synced: FxHashSet<FileIx>,
}

impl OfThread {
    /// Counts by longer stretches from now on.
    fn coarsen(&mut self, shift: u32) {
        for ((stretch, image), n) in std::mem::take(&mut self.images) {
            *self.images.entry((stretch.checked_shr(shift).unwrap_or(0), image)).or_default() += n;
        }
    }
}

impl Evidence {
    /// Of a whole timeline.
    pub fn of(tl: &Timeline) -> Evidence {
        let mut e = Evidence::default();
        tl.opens.iter().for_each(|o| e.open(o));
        for (ix, line) in tl.lines() {
            let at = Provisional { ix, pid: line.pid };
            // Wakers repeat in runs; look each run up once.
            let mut run: Option<(Tid, Option<ThreadIx>)> = None;
            for i in &line.intervals {
                let mut waker = None;
                if i.wake_kind == WakeKind::Thread && i.waker_pid != Pid(0) {
                    waker = match run {
                        Some((tid, ix)) if tid == i.waker => ix,
                        _ => tl.thread_at(i.waker, i.wake),
                    };
                    run = Some((i.waker, waker));
                }
                let pid = |ix| tl.thread(ix).map_or(Pid(0), |t| t.pid);
                e.interval(at, i, tl.file(i.file), waker.map(|ix| Provisional { ix, pid: pid(ix) }));
            }
            for s in &line.samples {
                e.sample(at, s, tl.file(s.file));
            }
        }
        e.threads.resize(tl.threads.len(), OfThread::default());
        e
    }

    /// What is known of a thread.
    pub(super) fn thread(&self, ix: ThreadIx) -> Option<&OfThread> {
        self.threads.get(ix.0 as usize)
    }

    /// Whether there are samples of running threads at all.
    pub(super) fn has_samples(&self) -> bool {
        self.threads.iter().any(|t| !t.images.is_empty())
    }

    /// Samples of a thread in libcuda.
    pub(super) fn in_libcuda(&self, tl: &Timeline, ix: ThreadIx) -> u64 {
        self.libcuda_by_stretch(tl, ix).map(|(_, n)| n).sum()
    }

    /// The same by stretch of time, numbered from the epoch of the clock; a stretch may come several times.
    pub(super) fn libcuda_by_stretch<'a>(
        &'a self,
        tl: &'a Timeline,
        ix: ThreadIx,
    ) -> impl Iterator<Item = (u64, u64)> + 'a {
        let images = self.thread(ix).into_iter().flat_map(|t| &t.images);
        images
            .filter(|((_, image), _)| tl.images.get(image).is_some_and(|path| is_libcuda(path)))
            .map(|((stretch, _), n)| (*stretch, *n))
    }

    #[inline]
    fn of_thread(&mut self, ix: ThreadIx) -> Option<&mut OfThread> {
        let n = ix.0 as usize;
        if self.threads.len() <= n {
            self.threads.resize(n + 1, OfThread::default());
        }
        self.threads.get_mut(n)
    }

    /// Notes writes to regular files.
    fn file_work(&mut self, ix: ThreadIx, call: CallKind, file: (FileIx, Option<&FileRef>), time: Nanos) {
        if !matches!(call, CallKind::Write | CallKind::Sync)
            || file.1.is_none_or(|f| f.file_type() != FileType::Regular)
        {
            return;
        }
        let Some(t) = self.of_thread(ix) else { return };
        if call == CallKind::Write {
            *t.written.entry(file.0).or_default() += time;
        } else {
            t.synced.insert(file.0);
        }
    }
}

fn reads(call: CallKind) -> bool {
    call == CallKind::Read
}

impl Witness for Evidence {
    fn open(&mut self, o: &FileOpen) {
        let Some(outcome) = o.outcome.filter(|r| r.result >= 0) else { return };
        if outcome.flags & (O_CREAT | O_APPEND) == O_CREAT {
            let room = self.created.len() < MOST_PATHS;
            match self.created.entry((o.pid, o.path.clone())) {
                Entry::Vacant(new) if room => drop(new.insert(vec![o.time])),
                Entry::Occupied(mut times) if times.get().len() < MOST_OPENS => times.get_mut().push(o.time),
                _ => {}
            }
        }
        if outcome.flags & 0o3 == 0 && is_data(&o.path) {
            *self.data_opens.entry(o.tid).or_default() += 1;
        }
    }

    #[inline]
    fn interval(&mut self, line: Provisional, i: &Interval, file: Option<&FileRef>, waker: Option<Provisional>) {
        let call = calls::kind(i.syscall);
        let Some(t) = self.of_thread(line.ix) else { return };
        let off = i.on.since(i.off);
        t.off_cpu += off;
        if call == CallKind::WaitChild {
            t.wait_child += off;
        }
        if i.is_uninterruptible() && (reads(call) || i.syscall.is_none()) {
            t.waits_to_read += 1;
        }
        self.file_work(line.ix, call, (i.file, file), i.blocked());
        // A child's end wakes who waits for it, and a reader wakes who waits for room in a pipe: neither delivers anything.
        let receives = !matches!(call, CallKind::WaitChild | CallKind::Write);
        // Nor does whoever happens to free a page or a lock of the kernel that another process waits for.
        let by_chance = blocked::has_no_edge(i, i.waker_pid == line.pid);
        let Some(waker) = waker.filter(|_| receives && !by_chance) else { return };
        *self.wakes.entry((waker.ix, line.ix)).or_default() += 1;
        if i.waker_pid != line.pid {
            let first = self.first.entry((waker.ix, line.pid)).or_insert(i.wake);
            *first = (*first).min(i.wake);
        }
    }

    fn sample(&mut self, line: Provisional, s: &Moment, file: Option<&FileRef>) {
        let call = calls::kind(s.syscall);
        let coarser = self.scale.include(s.time);
        if coarser > 0 {
            self.threads.iter_mut().for_each(|t| t.coarsen(coarser));
        }
        let stretch = self.scale.stretch(s.time);
        let Some(t) = self.of_thread(line.ix) else { return };
        if reads(call) && file.is_some_and(|f| f.file_type() == FileType::Regular) {
            t.seen_reading += 1;
        }
        *t.images.entry((stretch, s.image)).or_default() += 1;
        self.file_work(line.ix, call, (s.file, file), SAMPLE);
    }

    fn renumber(&mut self, now: &[Option<ThreadIx>]) {
        let new = |ix: ThreadIx| now.get(ix.0 as usize).copied().flatten();
        let mut threads = vec![OfThread::default(); now.iter().flatten().count()];
        for (n, old) in std::mem::take(&mut self.threads).into_iter().enumerate() {
            if let Some(slot) = new(ThreadIx(n as u32)).and_then(|ix| threads.get_mut(ix.0 as usize)) {
                *slot = old;
            }
        }
        self.threads = threads;
        let wakes = std::mem::take(&mut self.wakes);
        self.wakes = wakes.into_iter().filter_map(|((a, b), n)| Some(((new(a)?, new(b)?), n))).collect();
        let first = std::mem::take(&mut self.first);
        self.first = first.into_iter().filter_map(|((a, pid), t)| Some(((new(a)?, pid), t))).collect();
    }
}

/// The path is no part of a program or of the system: data, even where the page cache holds all of it.
fn is_data(path: &str) -> bool {
    const NO_DATA: [&str; 7] = ["/proc/", "/sys/", "/dev/", "/etc/", "/usr/", "/lib", "/run/"];
    let name = path.rsplit('/').next().unwrap_or(path);
    let program = [".py", ".pyc", ".so"].iter().any(|e| name.ends_with(e)) || name.contains(".so.");
    !program && !NO_DATA.iter().any(|d| path.starts_with(d))
}
