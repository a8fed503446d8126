//! Who hands data to the process that feeds the GPU. Told by wake-ups that come again and again: one alone may be chance, such as
//! a futex in shared memory, a lock of the kernel or a command that was run once.

use super::evidence::Evidence;
use crate::timeline::{ThreadIx, ThreadLine, Timeline};
use crate::units::{MonoNs, Nanos, Pid};
use std::collections::{HashMap, HashSet};

/// Fewer wake-ups than this say nothing where others wake, too.
const FEW: u64 = 3;
/// A carrier makes at least this part of its process's deliveries. Small, since descriptors of shared memory are handed over one
/// by one by a thread of their own: it delivers tens of times for each batch of the thread that carries the batch itself.
const PART_OF_PROCESS: u64 = 50;
/// How much larger the part of the deliveries of a carrier is than its part of its process's running time. A thread that computes
/// has it the other way round.
const MORE_THAN_IT_RUNS: f64 = 1.25;
/// A carrier that was seen to deliver a few times ran no longer for each: a worker that lives for one epoch has no time to deliver
/// often (measured: 3 to 5 ms each), and a thread that computes runs on and on (measured: 0.7 s and more).
const RUNS_FOR_EACH: Nanos = Nanos::from_millis(20);
/// A process with few deliveries is no worker where another made at least so many in the time that this one lived. Many, since
/// what is counted is uneven: only who delivers while the feeder waits wakes it (measured: 1 by one worker, 37 by its twin).
const SO_MANY_OF_ANOTHER: u128 = 500;
/// What hands over the data of others gets at least this part of all that they deliver.
const PART_OF_RECEIVED: u64 = 10;

/// What a process delivers.
#[derive(Clone, Copy, Debug, Default)]
struct OfProcess {
    deliveries: u64,
    /// Time that its threads ran, together.
    running: Nanos,
    /// Time from its first thread's birth to its last thread's end.
    life: Nanos,
}

/// Wake-ups of the threads of the process that feeds the GPU.
#[derive(Debug)]
pub(super) struct Deliveries {
    /// Of each thread of another process, how often it woke one of the feeder's process.
    by_thread: HashMap<ThreadIx, u64>,
    /// The processes that deliver regularly.
    by_process: HashMap<Pid, OfProcess>,
    /// Of each thread of the feeder's process, how often threads of other processes woke it.
    received: HashMap<ThreadIx, u64>,
    /// And how often it woke the feeder itself.
    woke_feeder: HashMap<ThreadIx, u64>,
}

impl Deliveries {
    /// Counts them. `peers` feed other GPUs: what they send is no data. `few_are_chance`: with hardly a delivery in the whole
    /// recording, nobody is taken to deliver, since the feeder was seen loading data itself. `named` tells threads whose name
    /// says that they are workers.
    pub fn of(
        tl: &Timeline,
        evidence: &Evidence,
        (feeder_pid, feeder): (Pid, Option<ThreadIx>),
        peers: &HashSet<Pid>,
        few_are_chance: bool,
        named: impl Fn(&ThreadLine) -> bool,
    ) -> Deliveries {
        let mut out = Deliveries {
            by_thread: HashMap::new(),
            by_process: HashMap::new(),
            received: HashMap::new(),
            woke_feeder: HashMap::new(),
        };
        for ((from, to), n) in &evidence.wakes {
            let (Some(a), Some(b)) = (tl.thread(*from), tl.thread(*to)) else { continue };
            if b.pid != feeder_pid {
                continue;
            }
            if a.pid == feeder_pid {
                if Some(*to) == feeder {
                    *out.woke_feeder.entry(*from).or_default() += n;
                }
            } else if !peers.contains(&a.pid) {
                *out.by_thread.entry(*from).or_default() += n;
                *out.received.entry(*to).or_default() += n;
                out.by_process.entry(a.pid).or_default().deliveries += n;
            }
        }
        let mut lives: HashMap<Pid, (MonoNs, MonoNs)> = HashMap::new();
        let mut workers = HashSet::new();
        for (ix, line) in tl.lines() {
            let Some(process) = out.by_process.get_mut(&line.pid) else { continue };
            process.running += running(evidence, ix, line);
            let life = lives.entry(line.pid).or_insert((line.born, line.died));
            *life = (life.0.min(line.born), life.1.max(line.died));
            process.life = life.1.since(life.0);
            if named(line) {
                workers.insert(line.pid);
            }
        }
        let all: u64 = out.by_process.values().map(|p| p.deliveries).sum();
        let busiest = out.by_process.values().copied().max_by_key(|p| (p.deliveries, p.life)).unwrap_or_default();
        let chance = few_are_chance && all < FEW;
        out.by_process.retain(|pid, p| workers.contains(pid) || (!chance && delivers(*p, busiest)));
        out
    }

    /// Whether a process delivers to the feeder's process.
    pub fn from(&self, pid: Pid) -> bool {
        self.by_process.contains_key(&pid)
    }

    /// Whether a thread of a process that delivers carries what others of that process prepare.
    pub fn carries(&self, evidence: &Evidence, ix: ThreadIx, line: &ThreadLine) -> bool {
        let (Some(n), Some(process)) = (self.by_thread.get(&ix).copied(), self.by_process.get(&line.pid)) else {
            return false;
        };
        let runs = running(evidence, ix, line);
        if n * 2 > process.deliveries {
            return true;
        }
        if n < FEW {
            return runs.0 <= n * RUNS_FOR_EACH.0;
        }
        let part = n as f64 / process.deliveries.max(1) as f64;
        n * PART_OF_PROCESS >= process.deliveries && part >= runs.share_of(process.running) * MORE_THAN_IT_RUNS
    }

    /// Whether a thread of the feeder's process wakes the feeder regularly.
    pub fn wakes_feeder(&self, ix: ThreadIx) -> bool {
        let n = self.woke_feeder.get(&ix).copied().unwrap_or(0);
        n >= FEW || n * 2 > self.woke_feeder.values().sum()
    }

    /// Whether a thread of the feeder's process gets what other processes deliver.
    pub fn receives(&self, ix: ThreadIx) -> bool {
        let n = self.received.get(&ix).copied().unwrap_or(0);
        n >= FEW && n * PART_OF_RECEIVED >= self.received.values().sum()
    }
}

/// Whether a process delivers often enough, or others do not so much more often that its deliveries are chance.
fn delivers(p: OfProcess, busiest: OfProcess) -> bool {
    let expected = u128::from(busiest.deliveries) * u128::from(p.life.0);
    p.deliveries >= FEW || expected < SO_MANY_OF_ANOTHER * u128::from(busiest.life.0)
}

fn running(evidence: &Evidence, ix: ThreadIx, line: &ThreadLine) -> Nanos {
    line.alive() - evidence.thread(ix).map_or(Nanos::ZERO, |t| t.off_cpu)
}
