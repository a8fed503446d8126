//! Which process gives a GPU its work at a time: a job may be started again, and training and evaluation may be processes that take
//! turns.

use super::evidence::Evidence;
use super::roles::{self, Roles};
use crate::timeline::Timeline;
use crate::units::{MonoNs, Pid};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// So many processes of a GPU take turns at most: those most seen in libcuda.
const MOST: usize = 8;

/// The processes that feed one GPU, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Turns {
    /// The one that feeds it most comes first.
    pub pids: Vec<Pid>,
    /// From when on another than before feeds it, in order of time, by its place in `pids`; until the first it is the first process.
    pub since: Vec<(MonoNs, usize)>,
}

impl Turns {
    /// One process, all the time.
    pub fn one(pid: Pid) -> Turns {
        Turns { pids: vec![pid], since: Vec::new() }
    }

    /// Whose turn it is, by its place in `pids`.
    pub fn at(&self, t: MonoNs) -> usize {
        let next = self.since.partition_point(|(since, _)| *since <= t);
        next.checked_sub(1).and_then(|n| self.since.get(n)).map_or(0, |(_, ix)| *ix)
    }
}

/// Finds the turns of the processes that are known to hold a context on a GPU. At each time it is the turn of the one most seen in
/// libcuda around it; where none is, of the one before as long as it lives. A process that was never seen there has a turn only while
/// no other is alive.
pub(super) fn find(tl: &Timeline, evidence: &Evidence, pids: &[Pid]) -> Turns {
    let usual = roles::feeder_process(tl, evidence, pids);
    let seen = seen_by_stretch(tl, evidence, pids);
    let mut sums: HashMap<Pid, u64> = HashMap::new();
    for counts in seen.values() {
        counts.iter().for_each(|(pid, n)| *sums.entry(*pid).or_default() += n);
    }
    let lives = lives(tl, pids);
    let mut order: Vec<Pid> = lives.keys().copied().filter(|pid| *pid != usual).collect();
    order.sort_by_key(|pid| (std::cmp::Reverse(sums.get(pid).copied().unwrap_or(0)), *pid));
    order.insert(0, usual);
    order.truncate(MOST);
    if order.len() == 1 {
        return Turns::one(usual);
    }
    let alive = |pid: &Pid, t: MonoNs| lives.get(pid).is_some_and(|(born, died)| (*born..=*died).contains(&t));
    let mut times: BTreeSet<MonoNs> = seen.keys().map(|stretch| evidence.scale.start(*stretch)).collect();
    for (born, died) in lives.values() {
        times.extend([*born, MonoNs(died.0.saturating_add(1))]);
    }
    let (mut since, mut now) = (Vec::new(), 0);
    for t in times {
        let counts = seen.get(&evidence.scale.stretch(t));
        let most = order
            .iter()
            .enumerate()
            .filter_map(|(ix, pid)| Some((ix, *counts?.get(pid)?)).filter(|_| alive(pid, t)))
            .max_by_key(|(ix, n)| (*n, *ix == now, std::cmp::Reverse(*ix)));
        let still = || order.get(now).is_some_and(|pid| alive(pid, t)).then_some(now);
        let other = || order.iter().position(|pid| alive(pid, t));
        let next = most.map(|(ix, _)| ix).or_else(still).or_else(other).unwrap_or(now);
        if next != now {
            since.push((t, next));
            now = next;
        }
    }
    let turns = Turns { pids: order, since };
    turns.without_idlers()
}

impl Turns {
    /// Leaves out processes that never have a turn.
    fn without_idlers(self) -> Turns {
        let used: BTreeSet<usize> = std::iter::once(0).chain(self.since.iter().map(|(_, ix)| *ix)).collect();
        let place: HashMap<usize, usize> = used.iter().enumerate().map(|(new, old)| (*old, new)).collect();
        let pids = used.iter().filter_map(|ix| self.pids.get(*ix).copied()).collect();
        let since = self.since.iter().filter_map(|(t, ix)| Some((*t, *place.get(ix)?))).collect();
        Turns { pids, since }
    }
}

/// Samples in libcuda of each process around each stretch of time: with its neighbours, since a sample or two decide nothing.
fn seen_by_stretch(tl: &Timeline, evidence: &Evidence, pids: &[Pid]) -> BTreeMap<u64, HashMap<Pid, u64>> {
    let mut seen: BTreeMap<u64, HashMap<Pid, u64>> = BTreeMap::new();
    for (ix, line) in tl.lines().filter(|(_, t)| pids.contains(&t.pid)) {
        for (stretch, n) in evidence.libcuda_by_stretch(tl, ix) {
            for around in stretch.saturating_sub(1)..=stretch + 1 {
                *seen.entry(around).or_default().entry(line.pid).or_default() += n;
            }
        }
    }
    seen
}

/// From when to when processes lived.
fn lives(tl: &Timeline, pids: &[Pid]) -> HashMap<Pid, (MonoNs, MonoNs)> {
    let mut lives: HashMap<Pid, (MonoNs, MonoNs)> = HashMap::new();
    for (_, t) in tl.lines().filter(|(_, t)| pids.contains(&t.pid)) {
        let life = lives.entry(t.pid).or_insert((t.born, t.died));
        *life = (life.0.min(t.born), life.1.max(t.died));
    }
    lives
}

/// The roles of threads in each of the turns.
#[derive(Debug)]
pub(super) struct OfTurns {
    turns: Turns,
    /// Of each of its processes, but for the first.
    others: Vec<Roles>,
}

impl OfTurns {
    /// `roles` of the processes in their order, the first of which is kept elsewhere.
    pub fn new(turns: Turns, others: Vec<Roles>) -> OfTurns {
        OfTurns { turns, others }
    }

    /// The roles when the process feeds the GPU whose turn it is; `first` are those of the first.
    pub fn at<'a>(&'a self, first: &'a Roles, t: MonoNs) -> &'a Roles {
        let others = self.turns.at(t).checked_sub(1).and_then(|n| self.others.get(n));
        others.unwrap_or(first)
    }
}
