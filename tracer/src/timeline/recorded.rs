//! A recording on disk: found out about once, then read part by part.

use super::survey::{self, Files, Rows, Threads};
use super::{LAST, Moment, Sweep, Timeline, Witness};
use crate::events::{Event, TaskEvent, ThreadName};
use crate::recording::{Batch, BlockRef, Damage, Fetcher, Header, Piece, ReadError, Reader, Trailer};
use crate::units::{MonoNs, Nanos, Tid};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// A hot block, and when what it holds ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Indexed {
    pub(super) block: BlockRef,
    /// Latest end of an interval, sample or request of it.
    pub(super) last: MonoNs,
    /// Events of it.
    pub(super) count: usize,
}

/// A block with paths of blocked calls, and when those began.
#[derive(Clone, Copy, Debug)]
pub(super) struct WithPaths {
    pub(super) block: BlockRef,
    pub(super) from: MonoNs,
    pub(super) to: MonoNs,
}

/// A recording that was surveyed: everything small is in memory, and it is known where the rest lies.
#[derive(Debug)]
pub struct Recorded {
    /// When the recording ended: by its last block, or else the last moment that it tells of.
    pub end: MonoNs,
    /// Its last block, if it was ended cleanly.
    pub trailer: Option<Trailer>,
    /// What is wrong with the file.
    pub damage: Damage,
    pub(super) timeline: Timeline,
    pub(super) threads: Threads,
    pub(super) files: Files,
    /// By `last`.
    pub(super) index: Vec<Indexed>,
    pub(super) paths: Vec<WithPaths>,
    /// System calls whose blocked intervals have paths.
    pub(super) path_calls: BTreeSet<i16>,
    pub(super) fetcher: Fetcher,
    /// The part of it that is used.
    part: Option<(MonoNs, MonoNs)>,
}

/// What the first look at a file finds besides the timeline's small parts.
#[derive(Debug, Default)]
struct Found {
    hot: Vec<BlockRef>,
    paths: Vec<WithPaths>,
    path_calls: BTreeSet<i16>,
    tasks: HashMap<Tid, Vec<TaskEvent>>,
    names: HashMap<Tid, ThreadName>,
    trailer: Option<Trailer>,
    last: MonoNs,
}

impl Recorded {
    /// Surveys a recording and shows all of it to `witness`. With `part`, only what happened between these moments is
    /// used; intervals and block requests that reach into it count. `path` is for the texts of errors. Fails if the file
    /// cannot be opened a second time.
    pub fn survey(
        reader: &mut Reader,
        path: &Path,
        part: Option<(MonoNs, MonoNs)>,
        witness: &mut impl Witness,
    ) -> Result<Recorded, ReadError> {
        let header: &Header = reader.header();
        let (started, target) = (header.started.mono, header.target.pid);
        let start = part.map_or(started, |(from, _)| from.max(started));
        let sample_period = Nanos(1_000_000_000_u64.checked_div(u64::from(header.sample_hz)).unwrap_or(0));
        let mut timeline = Timeline { target, sample_period, own: MonoNs(0)..LAST, ..Timeline::default() };
        let mut found = look_through(reader, part, started, &mut timeline, witness);
        let end = found.trailer.as_ref().map_or(found.last, |t| t.ended.mono);
        let until = part.map_or(end, |(_, to)| end.min(to)).max(start);
        timeline.span = (start, until);
        let fetcher = reader.fetcher().map_err(|e| ReadError::Read { path: path.to_owned(), reason: e.to_string() })?;
        let mut recorded = Recorded {
            end,
            trailer: found.trailer.take(),
            damage: reader.damage().clone(),
            threads: Threads::new(std::mem::take(&mut found.tasks), timeline.span),
            timeline,
            files: Files::default(),
            index: Vec::new(),
            paths: std::mem::take(&mut found.paths),
            path_calls: std::mem::take(&mut found.path_calls),
            fetcher,
            part,
        };
        recorded.read_hot(&found.hot, witness);
        recorded.settle(found.names, witness);
        Ok(recorded)
    }

    /// What is known of the whole recording, without intervals, samples and requests.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Reads the recording from its end, about `rows` intervals at a time.
    pub fn sweep(self, rows: usize) -> Sweep {
        Sweep::new(self, rows)
    }

    /// Whether something that lasted from `from` to `to` is used.
    pub(super) fn uses(&self) -> impl Fn(MonoNs, MonoNs) -> bool + use<> {
        let part = self.part;
        move |from, to| part.is_none_or(|(a, b)| to >= a && from <= b)
    }

    /// Shows intervals and samples to the witness and notes where they end.
    fn read_hot(&mut self, hot: &[BlockRef], witness: &mut impl Witness) {
        let part = self.part;
        let outside = |b: &BlockRef| part.is_some_and(|(from, to)| b.span().1 < from || b.span().0 > to);
        let mut rows = Rows::default();
        for block in hot.iter().filter(|b| !outside(b)) {
            let entry = if block.is_off_cpu() {
                rows.clear();
                let (threads, files) = (&mut self.threads, &mut self.files);
                let whole = self.fetcher.off_cpu(block, |shared, o| {
                    if part.is_none_or(|(from, to)| o.on >= from && o.off <= to) {
                        rows.push(threads, files, shared, o);
                    }
                });
                whole.map(|()| {
                    self.timeline.contradictions += rows.bad;
                    let ends = survey::show(&rows.rows, threads, files, witness);
                    ends.map(|(_, last)| Indexed { block: *block, last, count: rows.rows.len() })
                })
            } else if block.is_samples() {
                self.read_samples(block, witness)
            } else {
                let last = block.span().1;
                Some(Some(Indexed { block: *block, last, count: block.count() }))
            };
            match entry {
                Some(entry) => self.index.extend(entry),
                None => self.damage.undecodable_blocks += 1,
            }
        }
        self.index.sort_by_key(|e| e.last);
    }

    fn read_samples(&mut self, block: &BlockRef, witness: &mut impl Witness) -> Option<Option<Indexed>> {
        let part = self.part;
        let mut entry: Option<Indexed> = None;
        for s in self.fetcher.samples(block)? {
            if part.is_some_and(|(from, to)| s.time < from || s.time > to) {
                continue;
            }
            let file = self.files.intern(s.file);
            let slot = self.threads.of(s.tid, s.pid);
            let ix = self.threads.at(slot, s.time);
            let e = entry.get_or_insert(Indexed { block: *block, last: s.time, count: 0 });
            e.last = e.last.max(s.time);
            e.count += 1;
            let moment = Moment { time: s.time, syscall: s.syscall, image: s.image, file };
            let line = survey::Provisional { ix, pid: s.pid };
            witness.sample(line, &moment, self.files.get(file));
        }
        Some(entry)
    }

    /// Fixes the numbers of the threads.
    fn settle(&mut self, mut names: HashMap<Tid, ThreadName>, witness: &mut impl Witness) {
        let now = self.threads.settle(|tid| names.remove(&tid).map(|n| n.comm));
        witness.renumber(&now);
        let timeline = &mut self.timeline;
        timeline.outsiders = names;
        timeline.files.clone_from(&self.files.list);
        timeline.set_threads(std::mem::take(&mut self.threads.lines));
    }
}

/// Reads the small families and finds the blocks of the large ones.
fn look_through(
    reader: &mut Reader,
    part: Option<(MonoNs, MonoNs)>,
    started: MonoNs,
    tl: &mut Timeline,
    witness: &mut impl Witness,
) -> Found {
    let mut found = Found { last: started, ..Found::default() };
    let inside = |from: MonoNs, to: MonoNs| part.is_none_or(|(a, b)| to >= a && from <= b);
    while let Some(piece) = reader.next_piece() {
        let (block, events) = match piece {
            Piece::Block(block) => {
                found.last = found.last.max(block.span().1);
                found.hot.push(block);
                continue;
            }
            Piece::Batch(block, Batch::Other(events)) => (block, events),
            Piece::Batch(_, Batch::Trailer(t)) => {
                found.trailer = Some(t);
                continue;
            }
            Piece::Batch(..) => continue,
        };
        let mut blocked: Option<(MonoNs, MonoNs)> = None;
        for event in events {
            if let Some(time) = time_of(&event) {
                found.last = found.last.max(time);
            }
            match event {
                Event::Open(o) if inside(o.time, o.time) => {
                    witness.open(&o);
                    if o.outcome.is_none() {
                        found.path_calls.insert(o.syscall.0);
                        blocked = Some(blocked.map_or((o.time, o.time), |(a, b)| (a.min(o.time), b.max(o.time))));
                    }
                }
                Event::Task(t) => found.tasks.entry(t.tid).or_default().push(t),
                Event::ThreadName(n) => {
                    found.names.insert(n.tid, n);
                }
                Event::GpuWindow(w) => {
                    tl.tells_of_gpu(&w);
                    if inside(w.start, w.end) {
                        tl.gpu_windows.push(w);
                    }
                }
                Event::GpuState(s) if inside(s.time, s.time) => tl.gpu_states.push(s),
                // Also those beside the part: what changed between two of them may have changed inside it.
                Event::Host(h) => tl.host.push(h),
                Event::NamedFile(n) => {
                    tl.paths.insert((n.file.dev, n.file.ino), n.path);
                }
                Event::ImageName(i) => {
                    tl.images.insert(i.id, i.path);
                }
                Event::GpuDevice(d) => tl.gpus.push(d),
                Event::GpuProcess(p) => tl.gpu_processes.push(p),
                Event::Loss(l) => tl.losses.push(l),
                _ => {}
            }
        }
        found.paths.extend(blocked.map(|(from, to)| WithPaths { block, from, to }));
    }
    tl.host.sort_by_key(|h| h.time);
    tl.gpu_windows.sort_by_key(|w| (w.gpu, w.start));
    tl.gpu_states.sort_by_key(|s| s.time);
    found
}

/// When an event of a rare family happened, where it says so by itself.
fn time_of(event: &Event) -> Option<MonoNs> {
    match event {
        Event::Task(t) => Some(t.time),
        Event::Open(o) => Some(o.time),
        Event::GpuWindow(w) => Some(w.end),
        Event::GpuState(s) => Some(s.time),
        Event::Host(h) => Some(h.time),
        _ => None,
    }
}
