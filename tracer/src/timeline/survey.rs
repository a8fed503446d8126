//! The survey: every interval and sample of a recording seen once, in the order of the file, to learn which threads there
//! are and what only the whole recording tells.

use super::lines::{self, owner};
use super::{FileIx, Interval, Moment, ThreadIx, ThreadLine, WakeKind};
use crate::events::{FileOpen, FileRef, OffCpu, TaskEvent};
use crate::recording::Shared;
use crate::units::{MonoNs, Pid, Tid};
use rustc_hash::FxHashMap;
use std::collections::HashMap;

/// Sees a recording go by once, before any part of its timeline is there. Threads have provisional numbers until
/// [`Witness::renumber`].
pub trait Witness {
    /// A file was opened, or a call on a path blocked.
    fn open(&mut self, open: &FileOpen);
    /// A thread was off the CPU. `file` is what the interval refers to, `waker` the line of the waking thread.
    fn interval(&mut self, line: Provisional, interval: &Interval, file: Option<&FileRef>, waker: Option<Provisional>);
    /// A thread was seen running.
    fn sample(&mut self, line: Provisional, sample: &Moment, file: Option<&FileRef>);
    /// All was seen: line number `n` is now called `now[n]`; `None` for threads that are not of the target.
    fn renumber(&mut self, now: &[Option<ThreadIx>]);
}

impl<A: Witness, B: Witness> Witness for (A, B) {
    fn open(&mut self, open: &FileOpen) {
        self.0.open(open);
        self.1.open(open);
    }

    #[inline]
    fn interval(&mut self, line: Provisional, i: &Interval, file: Option<&FileRef>, waker: Option<Provisional>) {
        self.0.interval(line, i, file, waker);
        self.1.interval(line, i, file, waker);
    }

    fn sample(&mut self, line: Provisional, sample: &Moment, file: Option<&FileRef>) {
        self.0.sample(line, sample, file);
        self.1.sample(line, sample, file);
    }

    fn renumber(&mut self, now: &[Option<ThreadIx>]) {
        self.0.renumber(now);
        self.1.renumber(now);
    }
}

/// A line during the survey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provisional {
    /// Its number.
    pub ix: ThreadIx,
    /// Its process.
    pub pid: Pid,
}

/// Files by number.
#[derive(Debug, Default)]
pub(super) struct Files {
    pub(super) list: Vec<FileRef>,
    ix: FxHashMap<FileRef, FileIx>,
}

impl Files {
    pub(super) fn intern(&mut self, file: Option<FileRef>) -> FileIx {
        let Some(file) = file else { return FileIx(0) };
        *self.ix.entry(file).or_insert_with(|| {
            self.list.push(file);
            FileIx(self.list.len() as u32)
        })
    }

    pub(super) fn get(&self, ix: FileIx) -> Option<&FileRef> {
        self.list.get((ix.0 as usize).checked_sub(1)?)
    }
}

/// Where the lines of a thread id are.
#[derive(Clone, Debug)]
struct Slot {
    /// Number of the first; the others follow it.
    first: u32,
    /// Births of its lines, in order.
    births: Vec<MonoNs>,
    /// A thread of the target, not only one that woke some.
    known: bool,
}

/// The lines of a recording, by thread id.
#[derive(Debug, Default)]
pub(super) struct Threads {
    slots: FxHashMap<Tid, u32>,
    by_slot: Vec<Slot>,
    pub(super) lines: Vec<ThreadLine>,
    /// First and last moment that intervals tell of each line.
    seen: Vec<Option<(MonoNs, MonoNs)>>,
    span: (MonoNs, MonoNs),
}

/// A thread id whose lines were looked up.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotIx(u32);

impl Threads {
    /// The lines that task events tell of.
    pub(super) fn new(tasks: HashMap<Tid, Vec<TaskEvent>>, span: (MonoNs, MonoNs)) -> Threads {
        let mut t = Threads { span, ..Threads::default() };
        for (tid, tasks) in tasks {
            let pid = tasks.first().map_or(Pid(tid.0), |t| t.pid);
            t.add(tid, lines::from_tasks(tid, pid, tasks, None, span), true);
        }
        t
    }

    fn add(&mut self, tid: Tid, lines: Vec<ThreadLine>, known: bool) -> SlotIx {
        let births = lines.iter().map(|l| l.born).collect();
        let slot = self.by_slot.len() as u32;
        self.by_slot.push(Slot { first: self.lines.len() as u32, births, known });
        self.slots.insert(tid, slot);
        self.seen.resize(self.lines.len() + lines.len(), None);
        self.lines.extend(lines);
        SlotIx(slot)
    }

    fn find(&mut self, tid: Tid, pid: Pid, known: bool) -> SlotIx {
        if let Some(slot) = self.slots.get(&tid) {
            if known && let Some(s) = self.by_slot.get_mut(*slot as usize).filter(|s| !s.known) {
                // Until now it was only known to wake others.
                s.known = true;
                if let Some(line) = self.lines.get_mut(s.first as usize) {
                    line.pid = pid;
                }
            }
            return SlotIx(*slot);
        }
        let lines = lines::from_tasks(tid, pid, Vec::new(), None, self.span);
        self.add(tid, lines, known)
    }

    /// The lines of a thread of the target.
    pub(super) fn of(&mut self, tid: Tid, pid: Pid) -> SlotIx {
        self.find(tid, pid, true)
    }

    /// The line of this thread id that was alive at this time.
    #[inline]
    pub(super) fn at(&self, slot: SlotIx, t: MonoNs) -> ThreadIx {
        match self.by_slot.get(slot.0 as usize) {
            Some(s) if s.births.len() < 2 => ThreadIx(s.first),
            Some(s) => ThreadIx(s.first + owner(&s.births, t) as u32),
            None => ThreadIx(u32::MAX),
        }
    }

    fn provisional(&self, ix: ThreadIx) -> Provisional {
        Provisional { ix, pid: self.lines.get(ix.0 as usize).map_or(Pid(0), |l| l.pid) }
    }

    /// The line of a waking thread.
    fn waker(&mut self, i: &Interval) -> Option<ThreadIx> {
        if i.wake_kind != WakeKind::Thread || i.waker_pid == Pid(0) {
            return None;
        }
        let slot = self.find(i.waker, i.waker_pid, false);
        Some(self.at(slot, i.wake))
    }

    /// Orders the lines by thread id and birth and gives them their last names and their lives. Returns what each
    /// provisional number became.
    pub(super) fn settle(&mut self, mut name: impl FnMut(Tid) -> Option<String>) -> Vec<Option<ThreadIx>> {
        let mut tids: Vec<(Tid, u32)> = self.slots.iter().map(|(tid, slot)| (*tid, *slot)).collect();
        tids.sort_unstable();
        let mut now = vec![None; self.lines.len()];
        let mut old: Vec<Option<ThreadLine>> = std::mem::take(&mut self.lines).into_iter().map(Some).collect();
        for (tid, slot) in tids {
            let Some(slot) = self.by_slot.get_mut(slot as usize) else { continue };
            if !slot.known {
                self.slots.remove(&tid);
                continue;
            }
            let first = self.lines.len() as u32;
            for n in slot.first as usize..slot.first as usize + slot.births.len() {
                let Some(mut line) = old.get_mut(n).and_then(Option::take) else { continue };
                lines::stretch(&mut line, self.seen.get(n).copied().flatten());
                if let Some(entry) = now.get_mut(n) {
                    *entry = Some(ThreadIx(self.lines.len() as u32));
                }
                self.lines.push(line);
            }
            if let Some(name) = name(tid)
                && let Some(last) = self.lines.last_mut()
            {
                last.comm = name;
            }
            slot.first = first;
        }
        self.seen = Vec::new();
        now
    }
}

/// Rows of one block on their way into lines: what rows share is looked up once.
#[derive(Debug, Default)]
pub(super) struct Rows {
    threads: Vec<Option<SlotIx>>,
    files: Vec<Option<FileIx>>,
    /// Line and interval.
    pub(super) rows: Vec<(ThreadIx, Interval)>,
    /// Intervals whose times run backwards.
    pub(super) bad: u64,
}

impl Rows {
    /// Forgets the block before.
    pub(super) fn clear(&mut self) {
        self.threads.clear();
        self.files.clear();
        self.rows.clear();
        self.bad = 0;
    }

    /// Takes a row over if it lies inside the span.
    #[inline]
    pub(super) fn push(&mut self, threads: &mut Threads, files: &mut Files, shared: Shared, o: &OffCpu) {
        let slot = once(&mut self.threads, shared.thread, || threads.of(o.tid, o.pid));
        let file = once(&mut self.files, shared.file, || files.intern(o.file));
        match Interval::of(o, file).within(threads.span) {
            Ok(Some(i)) => self.rows.push((threads.at(slot, o.off), i)),
            Ok(None) => {}
            Err(()) => self.bad += 1,
        }
    }
}

/// What was found for a number, looked for the first time.
#[inline]
fn once<T: Copy>(known: &mut Vec<Option<T>>, number: usize, find: impl FnOnce() -> T) -> T {
    if let Some(Some(found)) = known.get(number) {
        return *found;
    }
    let found = find();
    if known.len() <= number {
        known.resize(number + 1, None);
    }
    if let Some(slot) = known.get_mut(number) {
        *slot = Some(found);
    }
    found
}

/// Shows a block's rows to a witness, and notes what they tell of the lives of threads. Returns the first and last end.
pub(super) fn show(
    rows: &[(ThreadIx, Interval)],
    threads: &mut Threads,
    files: &Files,
    witness: &mut impl Witness,
) -> Option<(MonoNs, MonoNs)> {
    let mut ends: Option<(MonoNs, MonoNs)> = None;
    // Wakers repeat in runs.
    let mut run: Option<(Tid, SlotIx)> = None;
    for (ix, i) in rows {
        ends = Some(ends.map_or((i.on, i.on), |(a, b)| (a.min(i.on), b.max(i.on))));
        if let Some(seen) = threads.seen.get_mut(ix.0 as usize) {
            *seen = Some(seen.map_or((i.off, i.on), |(a, b)| (a.min(i.off), b.max(i.on))));
        }
        let waker = match run {
            Some((tid, slot)) if tid == i.waker && i.wake_kind == WakeKind::Thread && i.waker_pid != Pid(0) => {
                Some(threads.at(slot, i.wake))
            }
            _ => {
                let found = threads.waker(i);
                if found.is_some() {
                    run = threads.slots.get(&i.waker).map(|slot| (i.waker, SlotIx(*slot)));
                }
                found
            }
        };
        let waker = waker.map(|ix| threads.provisional(ix));
        witness.interval(threads.provisional(*ix), i, files.get(i.file), waker);
    }
    ends
}
