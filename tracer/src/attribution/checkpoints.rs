//! Which files are checkpoints: a log that the training loop appends to is not one.

use super::evidence::Evidence;
use crate::timeline::{FileIx, Timeline};
use crate::units::{Nanos, Pid};
use std::collections::{HashMap, HashSet};

/// So much time inside writes to a file that was not seen to be created or synced still makes it a checkpoint: opens are
/// recorded in bursts, so that the creating one may have been missed.
const HEAVY: Nanos = Nanos::from_millis(200);

/// Files that the process `pid` creates and writes, or makes durable, or writes for long.
pub fn find(tl: &Timeline, evidence: &Evidence, pid: Pid) -> HashSet<FileIx> {
    let mut written: HashMap<FileIx, Nanos> = HashMap::new();
    let mut synced = HashSet::new();
    for (ix, _) in tl.lines().filter(|(_, t)| t.pid == pid) {
        let Some(of) = evidence.thread(ix) else { continue };
        for (file, time) in &of.written {
            *written.entry(*file).or_default() += *time;
        }
        synced.extend(&of.synced);
    }
    let is_created = |file: FileIx| {
        let path = tl.file(file).and_then(|f| tl.path_of(f));
        path.is_some_and(|path| evidence.created.contains(&(pid, path.to_owned())))
    };
    let by_writing =
        written.into_iter().filter(|(file, time)| *time >= HEAVY || is_created(*file)).map(|(file, _)| file);
    by_writing.chain(synced).collect()
}
