//! Which files are checkpoints (a log that the training loop appends to is not one), and what belongs to writing one.

use super::Cause;
use super::evidence::Evidence;
use super::roles::Roles;
use super::segment::{Segment, What, cut};
use crate::timeline::{FileIx, Timeline};
use crate::units::{MonoNs, Nanos, Pid};
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
    let created: HashSet<&str> = created_by(evidence, pid).map(|(path, _)| name(path)).collect();
    let is_created =
        |file: FileIx| tl.file(file).and_then(|f| tl.path_of(f)).is_some_and(|path| created.contains(name(path)));
    let by_writing =
        written.into_iter().filter(|(file, time)| *time >= HEAVY || is_created(*file)).map(|(file, _)| file);
    by_writing.chain(synced).collect()
}

/// What a process opened so that it was created, and when.
fn created_by(evidence: &Evidence, pid: Pid) -> impl Iterator<Item = (&str, &Vec<MonoNs>)> {
    evidence.created.iter().filter(move |((by, _), _)| *by == pid).map(|((_, path), times)| (path.as_str(), times))
}

/// The last part of a path. A program may open a file by a relative path or through symbolic links, so that only this is the same
/// as in the path that the kernel knows it by.
fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Paths of checkpoint files, also as the process gave them, and when they were opened to be written anew, as far as that is
/// known.
pub fn opened(tl: &Timeline, evidence: &Evidence, pid: Pid, files: &HashSet<FileIx>) -> (HashSet<String>, Vec<MonoNs>) {
    let mut paths: HashSet<String> =
        files.iter().filter_map(|ix| tl.path_of(tl.file(*ix)?)).map(str::to_owned).collect();
    let names: HashSet<String> = paths.iter().map(|path| name(path).to_owned()).collect();
    let mut times = Vec::new();
    for (path, at) in created_by(evidence, pid).filter(|(path, _)| names.contains(name(path))) {
        paths.insert(path.to_owned());
        times.extend(at);
    }
    times.sort_unstable();
    (paths, times)
}

/// Pauses between the pieces of one checkpoint: pickling between two writes.
const PAUSE: Nanos = Nanos::from_millis(100);

/// Gives all that the feeder's process does between the first and the last write of a checkpoint to the checkpoint, and the
/// calls that put it in its place: a new name, the old file's end.
pub(super) fn join(tl: &Timeline, roles: &Roles, segments: &mut Vec<Segment>) {
    begin_at_opens(tl, roles, segments);
    let of_feeder = |s: &Segment| s.thread.and_then(|ix| tl.thread(ix)).is_some_and(|t| t.pid == roles.feeder_pid);
    let mut n = 0;
    while n < segments.len() {
        if segments.get(n).is_none_or(|s| s.cause != Cause::Checkpoint) {
            n += 1;
            continue;
        }
        // From here as far as pieces follow each other closely.
        let (mut last, mut pause) = (n, Nanos::ZERO);
        for (k, s) in segments.iter().enumerate().skip(n + 1) {
            if !of_feeder(s) || is_step(s) || pause > PAUSE {
                break;
            }
            if s.cause == Cause::Checkpoint || puts_in_place(s) {
                (last, pause) = (k, Nanos::ZERO);
            } else {
                pause += s.length();
            }
        }
        for s in segments.get_mut(n..=last).into_iter().flatten() {
            s.cause = Cause::Checkpoint;
        }
        n = last + 1;
    }
}

/// Gives the time from the opening of a checkpoint's file to its first write to the checkpoint, where the feeder's process did
/// nothing else but run in it: it computes what is to be written.
fn begin_at_opens(tl: &Timeline, roles: &Roles, segments: &mut Vec<Segment>) {
    let of_feeder = |s: &Segment| s.thread.and_then(|ix| tl.thread(ix)).is_some_and(|t| t.pid == roles.feeder_pid);
    let (Some(from), Some(to)) = (segments.first().map(|s| s.start), segments.last().map(|s| s.end)) else { return };
    let first = roles.checkpoint_opens.partition_point(|t| *t < from);
    for open in roles.checkpoint_opens.iter().skip(first).take_while(|t| **t < to) {
        let after = segments.iter().skip_while(|s| s.end <= *open);
        let between = after.take_while(|s| s.cause != Cause::Checkpoint);
        let (mut count, mut alone) = (0, true);
        for s in between {
            count += 1;
            alone &= of_feeder(s) && !is_step(s);
        }
        let n = segments.partition_point(|s| s.end <= *open);
        // Without a write behind it, it was none of this gap's.
        if !alone || count == 0 || n + count >= segments.len() {
            continue;
        }
        cut(segments, *open);
        let n = segments.partition_point(|s| s.end <= *open);
        for s in segments.iter_mut().skip(n).take_while(|s| s.cause != Cause::Checkpoint) {
            s.cause = Cause::Checkpoint;
        }
    }
}

/// A wait for the GPU, or one that may be: between two checkpoints the training goes on.
fn is_step(s: &Segment) -> bool {
    matches!(s.cause, Cause::GpuDriver | Cause::Sleep)
}

/// A wait in `close`, `rename`, `truncate` or `unlink`, which replace an old checkpoint by a new one.
fn puts_in_place(s: &Segment) -> bool {
    // close, truncate, ftruncate, rename, unlink, unlinkat, renameat, renameat2
    const CALLS: [i16; 8] = [3, 76, 77, 82, 87, 263, 264, 316];
    // Not only in D state: who waits for a user-space or network file system may be interrupted.
    matches!(s.what, What::Blocked(w) if CALLS.contains(&w.syscall.0))
}

#[cfg(test)]
mod tests {
    use super::super::segment::Wait;
    use super::*;
    use crate::events::{Event, Syscall, TaskEvent, TaskWhat};
    use crate::timeline::TimelineBuilder;
    use crate::units::Tid;

    #[test]
    fn renaming_belongs_to_the_checkpoint_and_a_worker_ends_it() {
        let mut b = TimelineBuilder::new(Pid(1), MonoNs(0));
        for tid in [1, 2] {
            let what = TaskWhat::Found { parent: Pid(1) };
            let found = TaskEvent { time: MonoNs(0), tid: Tid(tid), pid: Pid(tid), what, comm: "x".into() };
            b.push(Event::Task(found));
        }
        let tl = b.finish(Some(MonoNs(1_000_000_000)));
        let roles = super::super::roles::assign(&tl, &super::super::Evidence::of(&tl), tl.target, &HashSet::new());
        let blocked = |call| {
            What::Blocked(Wait {
                off: MonoNs(0),
                syscall: Syscall(call),
                file: FileIx(0),
                waker: Tid(0),
                uninterruptible: true,
            })
        };
        let mut at = 0;
        let mut segment = |tid, ms: u64, what, cause| {
            let start = MonoNs(at);
            at += ms * 1_000_000;
            let end = MonoNs(at);
            Segment { start, end, idle: end.since(start), thread: tl.thread_at(Tid(tid), start), what, cause }
        };
        let mut segments = vec![
            segment(1, 50, What::Ran, Cause::HostCode),
            segment(1, 50, blocked(1), Cause::Checkpoint),
            segment(1, 20, What::Ran, Cause::HostCode),
            segment(1, 50, blocked(74), Cause::Checkpoint),
            segment(1, 1, What::Ran, Cause::HostCode),
            segment(1, 50, blocked(82), Cause::Disk),
            segment(1, 1, What::Ran, Cause::HostCode),
            segment(2, 50, blocked(0), Cause::Disk),
            segment(1, 50, blocked(82), Cause::Disk),
        ];
        join(&tl, &roles, &mut segments);
        let said: Vec<Cause> = segments.iter().map(|s| s.cause).collect();
        use Cause::{Checkpoint, Disk, HostCode};
        let expected = [HostCode, Checkpoint, Checkpoint, Checkpoint, Checkpoint, Checkpoint, HostCode, Disk, Disk];
        assert_eq!(said, expected);
    }
}
