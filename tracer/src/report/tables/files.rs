//! Files and directories that threads waited on.

use super::distribution::Distribution;
use super::waits::WaitKind;
use crate::events::{FileOpen, FileRef};
use crate::report::{HistogramSummary, PathWait};
use crate::timeline::{FileIx, Interval, Moment, Provisional, ThreadIx, ThreadLine, Timeline, Witness};
use crate::units::Nanos;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Name of the line for waits on memory-mapped files: a page fault does not say which.
pub const PAGE_FAULTS: &str = "page faults (mmap)";
/// Files, and directories, in the report.
const MOST: usize = 200;
/// A directory with more directories below it than this stands for all of them.
const MOST_SIBLINGS: usize = 16;

/// Files and their directories, longest wait first.
pub struct PathTables {
    /// One row per file.
    pub files: Vec<PathWait>,
    /// One row per directory; `/data/train/*` stands for many directories below `/data/train`.
    pub directories: Vec<PathWait>,
}

/// Waits and opens of one path.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    blocked: Nanos,
    waits: u64,
    opens: u64,
    open_time: Nanos,
    files: u64,
}

impl Tally {
    fn wait(&mut self, blocked: Nanos) {
        self.blocked += blocked;
        self.waits += 1;
    }

    fn merge(&mut self, other: &Tally) {
        self.blocked += other.blocked;
        self.waits += other.waits;
        self.opens += other.opens;
        self.open_time += other.open_time;
        self.files += other.files;
    }

    fn row(&self, path: String) -> PathWait {
        PathWait {
            path,
            blocked_s: self.blocked.secs(),
            waits: self.waits,
            opens: self.opens,
            mean_open_ms: (self.opens > 0).then(|| self.open_time.millis() / self.opens as f64),
            files: self.files,
        }
    }
}

/// Opens of a recording by path, and their latency.
#[derive(Debug, Default)]
pub struct Opens {
    by_path: FxHashMap<String, (u64, Nanos)>,
    latency: Distribution,
}

impl Opens {
    /// Of a whole timeline.
    pub fn of(tl: &Timeline) -> Opens {
        let mut opens = Opens::default();
        tl.opens.iter().for_each(|o| opens.open(o));
        opens
    }

    pub(super) fn histogram(&self, out: &mut Vec<HistogramSummary>) {
        out.extend(self.latency.summary("file_open", &[]));
    }
}

impl Witness for Opens {
    fn open(&mut self, open: &FileOpen) {
        let Some(outcome) = open.outcome else { return };
        self.latency.add(outcome.latency);
        if !self.by_path.contains_key(&open.path) {
            self.by_path.insert(open.path.clone(), (0, Nanos::ZERO));
        }
        if let Some((count, time)) = self.by_path.get_mut(&open.path) {
            *count += 1;
            *time += outcome.latency;
        }
    }

    fn interval(&mut self, _: Provisional, _: &Interval, _: Option<&FileRef>, _: Option<Provisional>) {}

    fn sample(&mut self, _: Provisional, _: &Moment, _: Option<&FileRef>) {}

    fn renumber(&mut self, _: &[Option<ThreadIx>]) {}
}

/// Storage waits of all threads: by file, by path where the call names none, and those in page faults.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// By the file's index: no text is hashed for each interval.
    by_file: Vec<Tally>,
    by_path: FxHashMap<String, Tally>,
    faults: Tally,
}

impl Waits {
    /// Adds a wait for storage.
    pub(super) fn add(&mut self, tl: &Timeline, line: &ThreadLine, i: &Interval, kind: WaitKind) {
        if i.file != FileIx::default() {
            let ix = i.file.0 as usize;
            if self.by_file.len() <= ix {
                self.by_file.resize(ix + 1, Tally::default());
            }
            if let Some(tally) = self.by_file.get_mut(ix) {
                tally.wait(i.blocked());
            }
        } else if kind == WaitKind::PageFault {
            self.faults.wait(i.blocked());
        } else if let Some(path) = tl.blocked_path(line, i) {
            match self.by_path.get_mut(path) {
                Some(tally) => tally.wait(i.blocked()),
                None => self.by_path.entry(path.to_owned()).or_default().wait(i.blocked()),
            }
        }
    }
}

/// Storage waits by the path behind them, with the opens of the same paths. Files that were only opened count towards
/// their directories.
pub(super) fn tables(tl: &Timeline, waits: &Waits, opens: &Opens) -> PathTables {
    let mut by_path: HashMap<&str, Tally> = waits.by_path.iter().map(|(path, tally)| (&**path, *tally)).collect();
    // Files that the recording names no path for, by what is known of them.
    let mut unnamed: Vec<(String, Tally)> = Vec::new();
    for (ix, tally) in waits.by_file.iter().enumerate().filter(|(_, t)| t.waits > 0) {
        let Some(file) = tl.file(FileIx(ix as u32)) else { continue };
        match tl.path_of(file) {
            Some(path) => by_path.entry(path).or_default().merge(tally),
            None => {
                let name = format!("inode {} on device {}", file.ino, file.dev);
                unnamed.push((name, Tally { files: 1, ..*tally }));
            }
        }
    }
    for (path, (count, time)) in &opens.by_path {
        let tally = by_path.entry(path).or_default();
        tally.opens += count;
        tally.open_time += *time;
    }
    for tally in by_path.values_mut() {
        tally.files = 1;
    }
    let directories = directories(&by_path);
    let waited = by_path.iter().filter(|(_, t)| t.waits > 0).map(|(p, t)| (*p, t));
    let unnamed = unnamed.iter().map(|(p, t)| (p.as_str(), t));
    let faults_row = Some((PAGE_FAULTS, &waits.faults)).filter(|(_, faults)| faults.waits > 0);
    PathTables {
        files: rows(waited.chain(unnamed).chain(faults_row)),
        directories: rows(directories.iter().map(|(p, t)| (p.as_str(), t))),
    }
}

/// Longest waits first, then longest in opens.
fn rows<'a>(tallies: impl Iterator<Item = (&'a str, &'a Tally)>) -> Vec<PathWait> {
    let mut all: Vec<(&str, &Tally)> = tallies.collect();
    let order = |(path, t): &(&'a str, &Tally)| (std::cmp::Reverse((t.blocked, t.open_time)), *path);
    if all.len() > MOST {
        all.select_nth_unstable_by_key(MOST, order);
        all.truncate(MOST);
    }
    all.sort_unstable_by_key(order);
    all.into_iter().map(|(path, t)| t.row(path.to_owned())).collect()
}

/// Tallies of the directories, with many siblings told as one.
fn directories(by_path: &HashMap<&str, Tally>) -> BTreeMap<String, Tally> {
    let mut dirs: BTreeMap<String, Tally> = BTreeMap::new();
    let mut direct: HashMap<&str, Tally> = HashMap::new();
    for (path, tally) in by_path {
        direct.entry(parent(path)).or_default().merge(tally);
    }
    for (dir, tally) in direct {
        dirs.insert(dir.to_owned(), tally);
    }
    // From the deepest level up: a crowd that became one line can be part of a crowd itself.
    let deepest = dirs.keys().map(|d| depth(d)).max().unwrap_or(0);
    for level in (1..=deepest).rev() {
        let crowds = crowds(&dirs, level);
        if crowds.is_empty() {
            continue;
        }
        let mut merged: BTreeMap<String, Tally> = BTreeMap::new();
        dirs.retain(|dir, tally| {
            let above = parent(plain(dir));
            let inside = depth(dir) == level && crowds.contains(above);
            if inside {
                let star = if above == "/" { "/*".to_owned() } else { format!("{above}/*") };
                merged.entry(star).or_default().merge(tally);
            }
            !inside
        });
        for (star, tally) in merged {
            dirs.entry(star).or_default().merge(&tally);
        }
    }
    dirs
}

/// Directories with too many directories of this level right below them.
fn crowds(dirs: &BTreeMap<String, Tally>, level: usize) -> HashSet<String> {
    let mut children: HashMap<&str, HashSet<&str>> = HashMap::new();
    for dir in dirs.keys().filter(|d| depth(d) == level) {
        let dir = plain(dir);
        children.entry(parent(dir)).or_default().insert(dir);
    }
    let crowded = children.into_iter().filter(|(_, below)| below.len() > MOST_SIBLINGS);
    crowded.map(|(dir, _)| dir.to_owned()).collect()
}

/// How many directories lie above this one; 0 for the root and for `.`.
fn depth(dir: &str) -> usize {
    match plain(dir) {
        "/" | "." => 0,
        dir => dir.matches('/').count() + usize::from(!dir.starts_with('/')),
    }
}

/// A directory without the mark that it stands for those below it.
fn plain(dir: &str) -> &str {
    match dir.strip_suffix("/*") {
        Some("") => "/",
        Some(plain) => plain,
        None => dir,
    }
}

/// Directory of a path; `.` for a bare name, the root for itself.
fn parent(path: &str) -> &str {
    let path = match path.trim_end_matches('/') {
        "" if !path.is_empty() => return "/",
        trimmed => trimmed,
    };
    match path.rfind('/') {
        Some(0) => "/",
        Some(at) => path.get(..at).unwrap_or(path),
        None => ".",
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::*;
    use super::*;
    use crate::events::{Event, FileOpen, SleepState, Syscall};
    use crate::units::Tid;

    #[test]
    fn waits_and_opens_meet_at_the_path() {
        let mut fault = blocked(10, 600, 605, 605, -1, SleepState::Uninterruptible);
        fault.iowait = true;
        let mut slow_open = blocked(10, 700, 730, 730, 257, SleepState::Uninterruptible);
        slow_open.iowait = true;
        let path_of_open = FileOpen {
            time: at(700),
            tid: Tid(10),
            pid: TARGET,
            syscall: Syscall(257),
            path: "/data/b".into(),
            outcome: None,
        };
        let tables = paths(&timeline([
            named(7, "/data/a"),
            Event::OffCpu(disk_read(10, 0, 100, 100, 7)),
            Event::OffCpu(disk_read(11, 0, 50, 60, 7)),
            Event::OffCpu(disk_read(10, 200, 220, 220, 8)),
            Event::OffCpu(fault),
            Event::OffCpu(slow_open),
            Event::Open(path_of_open),
            Event::OffCpu(blocked(10, 800, 900, 900, 202, SleepState::Interruptible)),
            open("/data/a", 2),
            open("/data/a", 4),
            open("/data/only-opened", 6),
        ]));
        let seen: Vec<(&str, f64, u64, u64, Option<f64>)> =
            tables.files.iter().map(|f| (&*f.path, f.blocked_s, f.waits, f.opens, f.mean_open_ms)).collect();
        assert_eq!(
            seen,
            [
                ("/data/a", 0.15, 2, 2, Some(3.0)),
                ("/data/b", 0.03, 1, 0, None),
                ("inode 8 on device 254:1", 0.02, 1, 0, None),
                (PAGE_FAULTS, 0.005, 1, 0, None),
            ]
        );
        let dirs: Vec<(&str, f64, u64, u64, u64)> =
            tables.directories.iter().map(|d| (&*d.path, d.blocked_s, d.waits, d.opens, d.files)).collect();
        assert_eq!(dirs, [("/data", 0.18, 3, 3, 3)]);
    }

    #[test]
    fn many_directories_read_as_their_common_ancestor() {
        let mut events = Vec::new();
        for class in 0..40u64 {
            events.push(named(class + 1, &format!("/data/train/n{class:04}/img.jpg")));
            events.push(Event::OffCpu(disk_read(10, class * 10, class * 10 + 5, class * 10 + 5, class + 1)));
        }
        events.push(named(1_000, "/data/index"));
        events.push(Event::OffCpu(disk_read(10, 900, 910, 910, 1_000)));
        let dirs = paths(&timeline(events)).directories;
        let seen: Vec<(&str, f64, u64)> = dirs.iter().map(|d| (&*d.path, d.blocked_s, d.files)).collect();
        assert_eq!(seen, [("/data/train/*", 0.2, 40), ("/data", 0.01, 1)]);
    }

    #[test]
    fn nested_crowds_are_told_as_one() {
        let by_path: Vec<String> = (0..20).flat_map(|a| (0..20).map(move |b| format!("/d/{a}/{b}/f"))).collect();
        let tally = Tally { waits: 1, files: 1, ..Tally::default() };
        let dirs = directories(&by_path.iter().map(|p| (p.as_str(), tally)).collect());
        assert_eq!(dirs.keys().collect::<Vec<_>>(), ["/d/*"]);
        assert_eq!(dirs["/d/*"].waits, 400);
    }

    #[test]
    fn parents_of_odd_paths() {
        for (path, dir) in [("/a/b", "/a"), ("/a", "/"), ("/", "/"), ("a", "."), ("", "."), ("a/b/", "a"), ("//", "/")]
        {
            assert_eq!(parent(path), dir, "{path:?}");
        }
    }
}
