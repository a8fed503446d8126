//! Building a timeline from events in any order.

use super::{FileIx, Interval, Moment, ThreadIx, ThreadLine, Timeline, WakeKind};
use crate::events::{Event, FileRef, OffCpu, SleepState, Syscall, TaskEvent, TaskWhat, Waker};
use crate::units::{MonoNs, Pid, Tid};
use std::collections::HashMap;

/// Collects events and arranges them.
#[derive(Debug, Default)]
pub struct TimelineBuilder {
    out: Timeline,
    file_ix: HashMap<FileRef, FileIx>,
    raw: HashMap<Tid, Raw>,
    last_seen: MonoNs,
}

/// What is known of one thread id, before it is split into lines.
#[derive(Debug, Default)]
struct Raw {
    pid: Pid,
    comm: Option<String>,
    intervals: Vec<Interval>,
    samples: Vec<Moment>,
    tasks: Vec<TaskEvent>,
}

impl TimelineBuilder {
    /// A recording of `target` that began at `start`.
    pub fn new(target: Pid, start: MonoNs) -> TimelineBuilder {
        let mut b = TimelineBuilder::default();
        b.out.target = target;
        b.out.span.0 = start;
        b.last_seen = start;
        b
    }

    /// Adds an event; order does not matter.
    pub fn push(&mut self, event: Event) {
        match event {
            Event::OffCpu(o) => self.push_off_cpu(&o),
            Event::CpuSample(s) => {
                self.saw(s.time);
                let file = self.intern(s.file);
                let raw = self.raw(s.tid, s.pid);
                raw.samples.push(Moment { time: s.time, syscall: s.syscall, image: s.image, file });
            }
            Event::Block(b) => {
                self.saw(b.complete);
                self.out.blocks.push(b);
            }
            Event::Open(o) => {
                self.saw(o.time);
                self.out.opens.push(o);
            }
            Event::NamedFile(n) => {
                self.out.paths.insert((n.file.dev, n.file.ino), n.path);
            }
            Event::ImageName(i) => {
                self.out.images.insert(i.id, i.path);
            }
            Event::Task(t) => {
                self.saw(t.time);
                self.raw(t.tid, t.pid).tasks.push(t);
            }
            Event::ThreadName(n) => match self.raw.get_mut(&n.tid) {
                Some(raw) => raw.comm = Some(n.comm),
                None => {
                    self.out.outsiders.insert(n.tid, n);
                }
            },
            Event::GpuDevice(d) => self.out.gpus.push(d),
            Event::GpuWindow(w) => self.out.gpu_windows.push(w),
            Event::GpuState(s) => self.out.gpu_states.push(s),
            Event::GpuProcess(p) => self.out.gpu_processes.push(p),
            Event::Host(h) => {
                self.saw(h.time);
                self.out.host.push(h);
            }
            Event::Loss(l) => self.out.losses.push(l),
        }
    }

    /// Adds an off-CPU interval.
    pub fn push_off_cpu(&mut self, o: &OffCpu) {
        self.saw(o.on);
        let file = self.intern(o.file);
        let (wake_kind, waker, waker_pid, waker_syscall) = match o.wakeup.map(|w| w.by) {
            None => (WakeKind::None, Tid(0), Pid(0), Syscall::NONE),
            Some(Waker::Interrupt) => (WakeKind::Interrupt, Tid(0), Pid(0), Syscall::NONE),
            Some(Waker::KernelThread { tid }) => (WakeKind::KernelThread, tid, Pid(tid.0), Syscall::NONE),
            Some(Waker::Thread { tid, pid, syscall }) => (WakeKind::Thread, tid, pid, syscall),
        };
        let interval = Interval {
            off: o.off,
            wake: o.blocked_until(),
            on: o.on,
            arg0: o.arg0,
            waker,
            waker_pid,
            next: o.next_tid,
            prev: o.prev_tid,
            file,
            syscall: o.syscall,
            waker_syscall,
            wake_kind,
            state: o.state,
            iowait: o.iowait,
            seeded: o.seeded,
            pending: o.pending,
        };
        self.raw(o.tid, o.pid).intervals.push(interval);
    }

    /// Arranges what was pushed; `end` is the end of the recording, or `None` for the last moment seen.
    pub fn finish(mut self, end: Option<MonoNs>) -> Timeline {
        let (start, last) = (self.out.span.0, self.last_seen);
        let end = end.unwrap_or(last).max(start);
        self.out.span.1 = end;
        let mut raws: Vec<(Tid, Raw)> = self.raw.drain().collect();
        raws.sort_by_key(|(tid, _)| *tid);
        for (tid, raw) in raws {
            // A thread of the target is not an outsider, even if it was named before it was known.
            let named = self.out.outsiders.remove(&tid).map(|n| n.comm);
            for line in split(tid, raw, named, (start, end), &mut self.out.contradictions) {
                let ix = ThreadIx(self.out.threads.len() as u32);
                self.out.by_tid.entry(tid).or_default().push(ix);
                self.out.threads.push(line);
            }
        }
        let out = &mut self.out;
        out.blocks.sort_by_key(|b| b.complete);
        out.opens.sort_by_key(|o| o.time);
        out.host.sort_by_key(|h| h.time);
        out.gpu_windows.sort_by_key(|w| (w.gpu, w.start));
        out.gpu_states.sort_by_key(|s| s.time);
        for (i, o) in out.opens.iter().enumerate() {
            if o.outcome.is_none() {
                out.blocked_paths.insert((o.tid, o.time), i);
            }
        }
        self.out
    }

    fn saw(&mut self, t: MonoNs) {
        self.last_seen = self.last_seen.max(t);
    }

    fn raw(&mut self, tid: Tid, pid: Pid) -> &mut Raw {
        let raw = self.raw.entry(tid).or_default();
        raw.pid = pid;
        raw
    }

    fn intern(&mut self, file: Option<FileRef>) -> FileIx {
        let Some(file) = file else { return FileIx(0) };
        let files = &mut self.out.files;
        *self.file_ix.entry(file).or_insert_with(|| {
            files.push(file);
            FileIx(files.len() as u32)
        })
    }
}

/// Splits what is known of a thread id at its births into one line per thread.
fn split(tid: Tid, mut raw: Raw, named: Option<String>, span: (MonoNs, MonoNs), bad: &mut u64) -> Vec<ThreadLine> {
    raw.tasks.sort_by_key(|t| t.time);
    raw.intervals.sort_by_key(|i| (i.off, i.on));
    raw.samples.sort_by_key(|s| s.time);
    let mut lines: Vec<ThreadLine> = Vec::new();
    let line = |born: MonoNs, pid: Pid, forked: bool| ThreadLine {
        tid,
        pid,
        comm: String::new(),
        born,
        died: span.1,
        forked,
        parent: None,
        intervals: Vec::new(),
        samples: Vec::new(),
    };
    for task in raw.tasks {
        let at = task.time.max(span.0).min(span.1);
        match task.what {
            TaskWhat::Forked { parent } => {
                if let Some(open) = lines.last_mut().filter(|l| l.died > at) {
                    open.died = at;
                }
                lines.push(ThreadLine { comm: task.comm, parent: Some(parent), ..line(at, task.pid, true) });
            }
            what => {
                if lines.is_empty() {
                    lines.push(line(span.0, task.pid, false));
                }
                let Some(open) = lines.last_mut() else { continue };
                match what {
                    TaskWhat::Found { parent } => open.parent = Some(parent.main_thread()),
                    TaskWhat::Exited => open.died = at,
                    _ => {}
                }
                if !task.comm.is_empty() {
                    open.comm = task.comm;
                }
                open.pid = task.pid;
            }
        }
    }
    if lines.is_empty() {
        lines.push(line(span.0, raw.pid, false));
    }
    if let Some(name) = raw.comm.or(named)
        && let Some(last) = lines.last_mut()
    {
        last.comm = name;
    }
    let births: Vec<MonoNs> = lines.iter().map(|l| l.born).collect();
    // The line that was alive at `t`; what precedes the first birth belongs to the first line.
    let owner = |t: MonoNs| births.partition_point(|b| *b <= t).saturating_sub(1);
    for i in raw.intervals {
        if let Some(l) = lines.get_mut(owner(i.off)) {
            push_interval(l, i, span, bad);
        }
    }
    for s in raw.samples {
        if let Some(l) = lines.get_mut(owner(s.time)) {
            l.samples.push(s);
        }
    }
    // An interval may be stamped just before the fork's own event or end just after the exit's.
    for l in &mut lines {
        if let Some(first) = l.intervals.first() {
            l.born = l.born.min(first.off.max(span.0));
        }
        if let Some(last) = l.intervals.last() {
            l.died = l.died.max(last.on.min(span.1));
        }
        l.died = l.died.max(l.born);
    }
    lines
}

/// Appends an interval, cut to the span and to where its predecessor ends: a thread cannot be off the CPU twice at once.
fn push_interval(line: &mut ThreadLine, mut i: Interval, span: (MonoNs, MonoNs), bad: &mut u64) {
    if i.on < i.off || i.wake < i.off || i.wake > i.on {
        *bad += 1;
        return;
    }
    if i.on < span.0 || i.off > span.1 {
        return;
    }
    let inside = |t: MonoNs| t.max(span.0).min(span.1);
    (i.off, i.wake, i.on) = (inside(i.off), inside(i.wake), inside(i.on));
    if let Some(last) = line.intervals.last()
        && i.off < last.on
    {
        *bad += 1;
        if i.on <= last.on {
            return;
        }
        i.off = last.on;
        i.wake = i.wake.max(i.off);
    }
    // Off and on again in the same nanosecond explains nothing.
    if i.off < i.on || i.state == SleepState::New {
        line.intervals.push(i);
    }
}
