//! Building a timeline from events in any order.

use super::lines::{self, owner, push_interval};
use super::{FileIx, Interval, LAST, Moment, ThreadIx, ThreadLine, Timeline};
use crate::events::{Event, FileRef, OffCpu, TaskEvent};
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
        b.out.own = MonoNs(0)..LAST;
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
            Event::GpuWindow(w) => {
                self.out.tells_of_gpu(&w);
                self.out.gpu_windows.push(w);
            }
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
        let interval = Interval::of(o, file);
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
    raw.intervals.sort_by_key(|i| (i.off, i.on));
    raw.samples.sort_by_key(|s| s.time);
    let mut lines = lines::from_tasks(tid, raw.pid, raw.tasks, raw.comm.or(named), span);
    let births: Vec<MonoNs> = lines.iter().map(|l| l.born).collect();
    for i in raw.intervals {
        if let Some(l) = lines.get_mut(owner(&births, i.off)) {
            match i.within(span) {
                Ok(Some(i)) => *bad += u64::from(push_interval(&mut l.intervals, i)),
                Ok(None) => {}
                Err(()) => *bad += 1,
            }
        }
    }
    for s in raw.samples {
        if let Some(l) = lines.get_mut(owner(&births, s.time)) {
            l.samples.push(s);
        }
    }
    for l in &mut lines {
        let seen = l.intervals.first().zip(l.intervals.last()).map(|(first, last)| (first.off, last.on));
        lines::stretch(l, seen);
    }
    lines
}
