//! The busy file, read while a workload appends to it.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Changes older than this before the newest are forgotten: no sample in the buffer reaches back so far.
const KEEP_NS: u64 = 120_000_000_000;

#[derive(Deserialize)]
struct Line {
    t_ns: u64,
    gpu: u32,
    busy: bool,
    pid: Option<u32>,
}

/// When one GPU was busy: its changes, sorted by time.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    changes: VecDeque<(u64, bool)>,
    /// State before the first change kept.
    before: bool,
}

impl Timeline {
    fn add(&mut self, t: u64, busy: bool) {
        // Nearly always at the end; writers in several threads may be out of order by a little.
        let at = self.changes.partition_point(|c| c.0 <= t);
        self.changes.insert(at, (t, busy));
        let newest = self.changes.back().map_or(0, |c| c.0);
        while self.changes.len() > 1 && self.changes[0].0.saturating_add(KEEP_NS) < newest {
            if let Some((_, state)) = self.changes.pop_front() {
                self.before = state;
            }
        }
    }

    /// Busy time between two moments, ns.
    pub(crate) fn busy(&self, from: u64, to: u64) -> u64 {
        let first = self.changes.partition_point(|c| c.0 <= from);
        let mut state = if first == 0 { self.before } else { self.changes[first - 1].1 };
        let (mut at, mut busy) = (from, 0);
        for &(t, next) in self.changes.range(first..) {
            let t = t.min(to);
            if state {
                busy += t.saturating_sub(at);
            }
            (at, state) = (t, next);
            if t >= to {
                return busy;
            }
        }
        if state { busy + to.saturating_sub(at) } else { busy }
    }
}

/// The file, and what has been read of it.
#[derive(Debug, Default)]
pub(crate) struct BusyFile {
    path: Option<PathBuf>,
    offset: u64,
    /// A line whose end is not written yet.
    torn: Vec<u8>,
    gpus: BTreeMap<u32, Timeline>,
    pids: BTreeMap<u32, BTreeSet<u32>>,
}

impl BusyFile {
    pub(crate) fn new(path: Option<PathBuf>) -> BusyFile {
        BusyFile { path, ..BusyFile::default() }
    }

    /// Reads what was appended since the last call. A file that is not there (yet) is an idle GPU.
    pub(crate) fn update(&mut self) {
        let Some(path) = self.path.clone() else { return };
        let Some(bytes) = self.read_new(&path) else { return };
        self.torn.extend_from_slice(&bytes);
        let whole = self.torn.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
        let lines: Vec<u8> = self.torn.drain(..whole).collect();
        for line in lines.split(|b| *b == b'\n') {
            // A driver does not complain about its input; gpustall's own reader of this format does.
            if let Ok(Line { t_ns, gpu, busy, pid }) = serde_json::from_slice(line) {
                self.gpus.entry(gpu).or_default().add(t_ns, busy);
                self.pids.entry(gpu).or_default().extend(pid);
            }
        }
    }

    fn read_new(&mut self, path: &Path) -> Option<Vec<u8>> {
        let mut file = File::open(path).ok()?;
        if file.metadata().ok()?.len() < self.offset {
            // Written anew.
            *self = BusyFile::new(self.path.take());
        }
        file.seek(SeekFrom::Start(self.offset)).ok()?;
        let mut bytes = Vec::new();
        self.offset += file.read_to_end(&mut bytes).ok()? as u64;
        Some(bytes)
    }

    /// Processes that the file names for a GPU.
    pub(crate) fn pids(&self, gpu: u32) -> impl Iterator<Item = u32> + '_ {
        self.pids.get(&gpu).into_iter().flatten().copied()
    }

    /// Busy time of a GPU between two moments of CLOCK_MONOTONIC, ns.
    pub(crate) fn busy(&self, gpu: u32, from: u64, to: u64) -> u64 {
        self.gpus.get(&gpu).map_or(0, |t| t.busy(from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn busy_time_of_any_span_is_exact() {
        let mut t = Timeline::default();
        for (at, busy) in [(300, true), (100, true), (200, false), (350, true), (400, false)] {
            t.add(at, busy);
        }
        let cases =
            [((0, 100), 0), ((0, 150), 50), ((120, 130), 10), ((150, 350), 100), ((0, 1_000), 200), ((500, 600), 0)];
        for ((from, to), expected) in cases {
            assert_eq!(t.busy(from, to), expected, "{from}..{to}");
        }
        t.add(1_000, true);
        assert_eq!(t.busy(900, 1_500), 500, "busy until told otherwise");
    }

    #[test]
    fn old_changes_are_forgotten_and_their_state_is_not() {
        let mut t = Timeline::default();
        t.add(0, true);
        t.add(10, false);
        t.add(20, true);
        for i in 1..=10 {
            t.add(20 + i * KEEP_NS, true);
        }
        assert!(t.changes.len() <= 3, "{t:?}");
        assert_eq!(t.busy(9 * KEEP_NS, 9 * KEEP_NS + 5), 5);
    }

    #[test]
    fn lines_are_read_once_and_torn_ones_when_whole() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut busy = BusyFile::new(Some(file.path().to_owned()));
        let mut append = |text: &str, busy: &mut BusyFile| {
            file.write_all(text.as_bytes()).unwrap();
            busy.update();
        };
        append("{\"t_ns\": 100, \"gpu\": 0, \"busy\": true}\n{\"t_ns\": 20", &mut busy);
        assert_eq!(busy.busy(0, 0, 1_000), 900);
        append("0, \"gpu\": 0, \"busy\": false}\nnonsense\n", &mut busy);
        assert_eq!(busy.busy(0, 0, 1_000), 100);
        assert_eq!(busy.busy(1, 0, 1_000), 0);
        file.as_file().set_len(0).unwrap();
        busy.update();
        assert_eq!(busy.busy(0, 0, 1_000), 0);
    }

    #[test]
    fn a_missing_file_is_idle() {
        let mut busy = BusyFile::new(Some(PathBuf::from("/nowhere/busy")));
        busy.update();
        assert_eq!(busy.busy(0, 0, 1_000), 0);
    }
}
