//! Lines of threads: from births and ends to one line per thread, and intervals that follow each other in a line.

use super::{Interval, ThreadLine};
use crate::events::{SleepState, TaskEvent, TaskWhat};
use crate::units::{MonoNs, Pid, Tid};

/// The lines of a thread id: a new one at each birth. `pid` is its process where no event tells, `name` its last name
/// where one was told at the end of the recording.
pub(super) fn from_tasks(
    tid: Tid,
    pid: Pid,
    mut tasks: Vec<TaskEvent>,
    name: Option<String>,
    span: (MonoNs, MonoNs),
) -> Vec<ThreadLine> {
    tasks.sort_by_key(|t| t.time);
    let mut lines: Vec<ThreadLine> = Vec::new();
    let line = |born: MonoNs, pid: Pid, forked: bool| ThreadLine {
        tid,
        pid,
        comm: String::new(),
        born,
        died: span.1,
        forked,
        execed: false,
        parent: None,
        intervals: Vec::new(),
        samples: Vec::new(),
    };
    for task in tasks {
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
                    TaskWhat::Exec { .. } => open.execed = true,
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
        lines.push(line(span.0, pid, false));
    }
    if let Some(name) = name
        && let Some(last) = lines.last_mut()
    {
        last.comm = name;
    }
    lines
}

/// Index of the line that was alive at `t`; what precedes the first birth belongs to the first line.
#[inline]
pub(super) fn owner(births: &[MonoNs], t: MonoNs) -> usize {
    births.partition_point(|b| *b <= t).saturating_sub(1)
}

/// Widens a line to the first and last moment seen of it: an interval may be stamped just before the fork's own event, or
/// end just after the exit's.
pub(super) fn stretch(line: &mut ThreadLine, seen: Option<(MonoNs, MonoNs)>) {
    if let Some((first, last)) = seen {
        line.born = line.born.min(first);
        line.died = line.died.max(last);
    }
    line.died = line.died.max(line.born);
}

/// Appends an interval, cut to where its predecessor ends: a thread cannot be off the CPU twice at once. True if the two
/// contradict each other.
#[inline]
pub(super) fn push_interval(line: &mut Vec<Interval>, mut i: Interval) -> bool {
    let contradicts = line.last().filter(|last| i.off < last.on).map(|last| last.on);
    if let Some(until) = contradicts {
        if i.on <= until {
            return true;
        }
        i.off = until;
        i.wake = i.wake.max(i.off);
    }
    // Off and on again in the same nanosecond explains nothing.
    if i.off < i.on || i.state == SleepState::New {
        line.push(i);
    }
    contradicts.is_some()
}
