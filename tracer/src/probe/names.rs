//! Names of threads outside the target that wake its threads or take their CPU.

use super::proc;
use super::targets::TargetMap;
use crate::events::{OffCpu, SleepState, ThreadName, Waker};
use crate::units::{MonoNs, Nanos, Pid, Tid};
use std::collections::{HashMap, HashSet};
use std::fs;

/// Look-ups in one round: each reads three files, about 30 µs, so that a storm of short-lived strangers costs a bounded
/// share of the time.
const MAX_LOOKUPS: usize = 64;
/// Ids are reused, so names are looked up again after this long.
const FRESH: Nanos = Nanos(30_000_000_000);
/// Longest command line kept, in bytes.
const COMMAND_MAX: usize = 200;

/// Which names have been reported, and which are to be looked up.
#[derive(Default)]
pub struct Names {
    seen: HashSet<Tid>,
    wanted: Vec<Tid>,
    reported: HashMap<Tid, (Pid, String)>,
    forgot: MonoNs,
}

impl Names {
    /// Takes note of the strangers in an interval.
    pub fn note(&mut self, o: &OffCpu, targets: &TargetMap) {
        if let Some(Waker::Thread { tid, .. } | Waker::KernelThread { tid }) = o.wakeup.map(|w| w.by) {
            self.want(tid, targets);
        }
        if o.state == SleepState::Preempted {
            self.want(o.next_tid, targets);
        }
        self.want(o.prev_tid, targets);
    }

    fn want(&mut self, tid: Tid, targets: &TargetMap) {
        // The idle task is no thread.
        if tid != Tid(0) && !targets.contains(tid) && self.seen.insert(tid) {
            self.wanted.push(tid);
        }
    }

    /// Looks up what is wanted and passes on what is new.
    pub fn report(&mut self, now: MonoNs, sink: &mut dyn FnMut(ThreadName)) {
        if now.since(self.forgot) > FRESH {
            self.seen.clear();
            self.forgot = now;
        }
        let first = self.wanted.len().saturating_sub(MAX_LOOKUPS);
        for tid in self.wanted.drain(first..) {
            // One that is gone already keeps its number for a name.
            let Some(name) = look_up(tid) else { continue };
            let key = (name.pid, name.comm.clone());
            if self.reported.get(&tid) != Some(&key) {
                self.reported.insert(tid, key);
                sink(name);
            }
        }
    }
}

/// Name of a thread, from /proc.
pub fn look_up(tid: Tid) -> Option<ThreadName> {
    let text = |file: &str| fs::read(format!("/proc/{tid}/{file}")).ok();
    let comm = String::from_utf8_lossy(text("comm")?.trim_ascii_end()).into_owned();
    let status = String::from_utf8_lossy(&text("status")?).into_owned();
    let pid = Pid(proc::status_field(&status, "Tgid")?.parse().ok()?);
    Some(ThreadName { tid, pid, comm, command: command(&text("cmdline").unwrap_or_default()) })
}

/// Command line with blanks between the words, cut to [`COMMAND_MAX`] bytes.
fn command(cmdline: &[u8]) -> String {
    let words = cmdline.split(|b| *b == 0).filter(|w| !w.is_empty());
    let mut line = words.map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ");
    line.truncate(line.floor_char_boundary(COMMAND_MAX));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_joined_and_cut() {
        assert_eq!(command(b"python3\0train.py\0--lr\x000.1\0"), "python3 train.py --lr 0.1");
        assert_eq!(command(b""), "");
        let long = "é".repeat(150);
        assert_eq!(command(long.as_bytes()).len(), 200);
        let odd = format!("x{long}");
        assert_eq!(command(odd.as_bytes()).len(), 199);
    }

    #[test]
    fn a_thread_of_this_process_is_found() {
        let name = look_up(Tid(std::process::id())).unwrap();
        assert_eq!(name.pid, Pid(std::process::id()));
        assert!(name.command.contains("gpustall"));
        assert_eq!(look_up(Tid(u32::MAX)), None);
    }
}
