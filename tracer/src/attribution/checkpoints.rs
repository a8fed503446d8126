//! Which files are checkpoints: a log that the training loop appends to is not one.

use super::calls::{self, CallKind};
use crate::events::FileType;
use crate::timeline::{FileIx, Timeline};
use crate::units::{Nanos, Pid};
use std::collections::{HashMap, HashSet};

/// So much time inside writes to a file that was not seen to be created or synced still makes it a checkpoint: opens are
/// recorded in bursts, so that the creating one may have been missed.
const HEAVY: Nanos = Nanos::from_millis(200);
/// Time that a sample stands for at the usual rate.
const SAMPLE: Nanos = Nanos::from_millis(5);
/// `O_CREAT` (`asm-generic/fcntl.h`).
const O_CREAT: u32 = 0o100;

/// Files that the process `pid` creates and writes, or makes durable, or writes for long.
pub fn find(tl: &Timeline, pid: Pid) -> HashSet<FileIx> {
    let mut written: HashMap<FileIx, Nanos> = HashMap::new();
    let mut synced = HashSet::new();
    let regular = |file: FileIx| tl.file(file).is_some_and(|f| f.file_type() == FileType::Regular);
    for line in tl.threads.iter().filter(|t| t.pid == pid) {
        let blocked = line.intervals.iter().map(|i| (i.syscall, i.file, i.blocked()));
        let sampled = line.samples.iter().map(|s| (s.syscall, s.file, SAMPLE));
        for (call, file, time) in blocked.chain(sampled).filter(|(_, file, _)| regular(*file)) {
            match calls::kind(call) {
                CallKind::Write => *written.entry(file).or_default() += time,
                CallKind::Sync => {
                    synced.insert(file);
                }
                _ => {}
            }
        }
    }
    let created: HashSet<&str> = tl
        .opens
        .iter()
        .filter(|o| o.pid == pid && o.outcome.is_some_and(|r| r.result >= 0 && r.flags & O_CREAT != 0))
        .map(|o| o.path.as_str())
        .collect();
    let is_created =
        |file: FileIx| tl.file(file).and_then(|f| tl.path_of(f)).is_some_and(|path| created.contains(path));
    let by_writing =
        written.into_iter().filter(|(file, time)| *time >= HEAVY || is_created(*file)).map(|(file, _)| file);
    by_writing.chain(synced).collect()
}
