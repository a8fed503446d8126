//! What each thread is to the training: who feeds the GPU, who works for the feeder.

use super::checkpoints;
use super::deliveries::Deliveries;
use super::evidence::Evidence;
use super::scale::Scale;
use super::startup::{self, Life};
use crate::timeline::{FileIx, ThreadIx, ThreadLine, Timeline};
use crate::units::{MonoNs, Nanos, Pid};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Role of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Gives the GPU its work.
    Feeder,
    /// Prepares batches.
    Worker,
    /// Copies batches to pinned memory.
    PinMemory,
    /// Carries batches between processes: queue feeder threads, descriptor servers.
    Ipc,
    /// Another thread of the process that feeds the GPU.
    Helper,
    /// Anything else in the target.
    Other,
}

impl Role {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Role::Feeder => "feeder",
            Role::Worker => "worker",
            Role::PinMemory => "pin_memory",
            Role::Ipc => "ipc",
            Role::Helper => "helper",
            Role::Other => "other",
        }
    }
}

/// Roles of all threads of a timeline.
#[derive(Clone, Debug)]
pub struct Roles {
    of: Vec<Role>,
    /// For each thread, the process that feeds a GPU and that it works for; it may be its own.
    works_for: Vec<Option<Pid>>,
    first_delivery: Vec<Option<MonoNs>>,
    /// The thread that gives the GPU its work, over the whole recording.
    pub feeder: Option<ThreadIx>,
    /// Stretches of time in which another thread was seen in libcuda more often, in order.
    feeders: Vec<(u64, ThreadIx)>,
    scale: Scale,
    /// Its process; 0 if it was not recorded.
    pub feeder_pid: Pid,
    /// Which process gives the GPU its work is told, and it was not recorded.
    pub feeder_missing: bool,
    /// The feeder reads and decodes the data itself, since there are no workers.
    pub feeder_loads_data: bool,
    /// The same for the feeders of other GPUs.
    peers_that_load: Vec<ThreadIx>,
    /// Running threads were sampled.
    pub sampled: bool,
    /// Times in which workers were being started.
    pub startups: Vec<(MonoNs, MonoNs)>,
    /// Files that the feeder's process writes checkpoints to.
    pub checkpoints: HashSet<FileIx>,
    /// Their paths.
    pub checkpoint_paths: HashSet<String>,
    /// When they were opened to be written anew, sorted, as far as that is known.
    pub checkpoint_opens: Vec<MonoNs>,
}

impl Roles {
    /// Of a GPU that works for no recorded process.
    pub fn of_nobody(tl: &Timeline) -> Roles {
        let n = tl.threads.len();
        Roles {
            of: vec![Role::Other; n],
            works_for: vec![None; n],
            first_delivery: vec![None; n],
            feeder: None,
            feeders: Vec::new(),
            scale: Scale::default(),
            feeder_pid: Pid(0),
            feeder_missing: true,
            feeder_loads_data: false,
            peers_that_load: Vec::new(),
            sampled: false,
            startups: Vec::new(),
            checkpoints: HashSet::new(),
            checkpoint_paths: HashSet::new(),
            checkpoint_opens: Vec::new(),
        }
    }

    /// Role of a thread.
    pub fn of(&self, ix: ThreadIx) -> Role {
        self.of.get(ix.0 as usize).copied().unwrap_or(Role::Other)
    }

    /// First time that the process of a worker born inside the recording delivered to the feeder's process. `None` for
    /// threads that are no such workers.
    pub fn first_delivery(&self, ix: ThreadIx) -> Option<MonoNs> {
        self.first_delivery.get(ix.0 as usize).copied().flatten()
    }

    /// Takes over what threads are to another GPU, where they were nothing to this one.
    pub fn add(&mut self, other: &Roles) {
        for (mine, theirs) in self.of.iter_mut().zip(&other.of) {
            if *mine == Role::Other || *theirs == Role::Feeder {
                *mine = *theirs;
            }
        }
        for (mine, theirs) in self.works_for.iter_mut().zip(&other.works_for) {
            *mine = mine.or(*theirs);
        }
        self.peers_that_load.extend(other.feeder.filter(|_| other.feeder_loads_data));
        self.peers_that_load.extend(&other.peers_that_load);
    }

    /// The process that feeds a GPU and that a thread works for.
    pub fn works_for(&self, ix: ThreadIx) -> Option<Pid> {
        self.works_for.get(ix.0 as usize).copied().flatten()
    }

    /// Whether a feeder, of this GPU or another, reads and decodes the data itself.
    pub fn loads_data(&self, ix: ThreadIx) -> bool {
        (self.feeder_loads_data && self.feeder == Some(ix)) || self.peers_that_load.contains(&ix)
    }

    /// The thread that gave the GPU its work around a time: the one most seen in libcuda then, else the one most seen in
    /// all. A training loop launches its backward pass from other threads than its forward pass.
    pub fn feeder_at(&self, t: MonoNs) -> Option<ThreadIx> {
        let stretch = self.scale.stretch(t);
        let at = self.feeders.partition_point(|(s, _)| *s < stretch);
        match self.feeders.get(at) {
            Some((s, ix)) if *s == stretch => Some(*ix),
            _ => self.feeder,
        }
    }

    /// Whether any thread has this role.
    pub fn of_any(&self, role: Role) -> bool {
        self.of.contains(&role)
    }
}

/// Decides the role of every thread. `feeder_pid` gives the GPU its work (`feeder_process` finds it); `peers` are processes that feed GPUs,
/// too: whatever they send to each other, they are no workers.
pub fn assign(timeline: &Timeline, evidence: &Evidence, feeder_pid: Pid, peers: &HashSet<Pid>) -> Roles {
    let feeder = feeder_thread(timeline, evidence, feeder_pid);
    let mut of = vec![Role::Other; timeline.threads.len()];
    let mut works_for = vec![None; timeline.threads.len()];
    let mut first_delivery = vec![None; timeline.threads.len()];
    let first_of = first_deliveries(timeline, evidence, feeder_pid);

    let feeder_reads = feeder.is_some_and(|f| loads_data(timeline, evidence, f));
    let named = |line: &ThreadLine| role_by_name(line, feeder_pid).is_some();
    let delivers = Deliveries::of(timeline, evidence, (feeder_pid, feeder), peers, feeder_reads, named);
    for (ix, line) in timeline.lines() {
        let role = if Some(ix) == feeder {
            Role::Feeder
        } else if line.pid != feeder_pid && peers.contains(&line.pid) {
            Role::Other
        } else if let Some(role) = role_by_name(line, feeder_pid) {
            role
        } else if line.pid == feeder_pid {
            role_beside_feeder(timeline, evidence, ix, line, &delivers)
        } else if delivers.from(line.pid) {
            role_in_worker(evidence, ix, line, &delivers)
        } else {
            Role::Other
        };
        if let Some(slot) = of.get_mut(ix.0 as usize) {
            *slot = role;
        }
        if let Some(slot) = works_for.get_mut(ix.0 as usize)
            && (line.pid == feeder_pid || delivers.from(line.pid))
        {
            *slot = Some(feeder_pid);
        }
        // A worker that was forked inside the recording starts up until its first delivery.
        if line.pid != feeder_pid
            && let Some(main) = main_of(timeline, line)
            && timeline.thread(main).is_some_and(|m| m.forked)
            && let Some(slot) = first_delivery.get_mut(ix.0 as usize)
        {
            *slot = first_of.get(&main).copied();
        }
    }
    let feeder_loads_data = feeder_reads && !of.contains(&Role::Worker);
    let checkpoints = checkpoints::find(timeline, evidence, feeder_pid);
    let (checkpoint_paths, checkpoint_opens) = checkpoints::opened(timeline, evidence, feeder_pid, &checkpoints);
    let end = timeline.span.1;
    let workers: Vec<Life> = timeline
        .lines()
        .filter(|(ix, t)| t.is_main() && t.pid != feeder_pid && of.get(ix.0 as usize) == Some(&Role::Worker))
        .map(|(ix, t)| Life {
            born: t.forked.then_some(t.born),
            first_delivery: first_delivery.get(ix.0 as usize).copied().flatten(),
            died: (t.died < end).then_some(t.died),
        })
        .collect();
    let startups = startup::phases(&workers);
    let feeders = feeders(timeline, evidence, feeder_pid, feeder);
    Roles {
        of,
        works_for,
        first_delivery,
        feeder,
        feeders,
        scale: evidence.scale,
        feeder_pid,
        feeder_missing: false,
        feeder_loads_data,
        peers_that_load: Vec::new(),
        sampled: evidence.has_samples(),
        startups,
        checkpoints,
        checkpoint_paths,
        checkpoint_opens,
    }
}

/// The main thread of a thread's process: it tells processes apart that had the same id one after the other.
fn main_of(tl: &Timeline, line: &ThreadLine) -> Option<ThreadIx> {
    tl.thread_at(line.pid.main_thread(), line.born)
}

/// When each other process, by its main thread, first woke a thread of the feeder's process.
fn first_deliveries(tl: &Timeline, evidence: &Evidence, feeder_pid: Pid) -> HashMap<ThreadIx, MonoNs> {
    let mut first: HashMap<ThreadIx, MonoNs> = HashMap::new();
    for ((waker, _), t) in evidence.first.iter().filter(|((_, woken), _)| *woken == feeder_pid) {
        let Some(main) = tl.thread(*waker).and_then(|line| main_of(tl, line)) else { continue };
        first.entry(main).and_modify(|f| *f = (*f).min(*t)).or_insert(*t);
    }
    first
}

/// The process that gives the GPU its work, most of the time: of those that hold a context the one most seen in libcuda, else the
/// first of them; any other seen in libcuda, or the target itself; where the target only waits for a child (a launcher, a shell),
/// that child.
pub(super) fn feeder_process(timeline: &Timeline, evidence: &Evidence, gpu_pids: &[Pid]) -> Pid {
    let seen = libcuda_by_process(timeline, evidence);
    let most = |of: &dyn Fn(&Pid) -> bool| {
        let of = seen.iter().filter(|(pid, _)| of(pid));
        of.max_by_key(|(pid, n)| (**n, std::cmp::Reverse(**pid))).map(|(pid, _)| *pid)
    };
    if let Some(pid) = most(&|pid| gpu_pids.contains(pid)) {
        return pid;
    }
    if let Some(pid) = timeline.threads.iter().map(|t| t.pid).find(|p| gpu_pids.contains(p)) {
        return pid;
    }
    if let Some(pid) = most(&|_| true) {
        return pid;
    }
    let mut pid = timeline.target;
    // A chain of launchers is short; the bound only guards against a damaged recording.
    for _ in 0..8 {
        let Some((ix, main)) = timeline.lines().find(|(_, t)| t.tid == pid.main_thread()) else { return pid };
        let waiting = evidence.thread(ix).map_or(Nanos::ZERO, |t| t.wait_child);
        if waiting.share_of(main.alive()) < 0.9 {
            return pid;
        }
        let ran = |ix, t: &ThreadLine| t.alive() - evidence.thread(ix).map_or(Nanos::ZERO, |e| e.off_cpu);
        let child = timeline
            .lines()
            .filter(|(_, t)| t.is_main() && t.tid != main.tid && parent_pid(timeline, t) == Some(pid))
            // A script that runs one short command after the other is no launcher: following it, wait by wait, explains
            // more than any of its commands.
            .filter(|(_, t)| t.alive().share_of(main.alive()) >= 0.5)
            .max_by_key(|(ix, t)| (t.alive(), ran(*ix, t)));
        match child {
            Some((_, child)) => pid = child.pid,
            None => return pid,
        }
    }
    pid
}

fn parent_pid(timeline: &Timeline, line: &ThreadLine) -> Option<Pid> {
    let parent = line.parent?;
    Some(timeline.thread_at(parent, line.born).and_then(|ix| timeline.thread(ix)).map_or(Pid(parent.0), |t| t.pid))
}

/// Whether any recorded process was seen in libcuda.
pub(super) fn seen_in_libcuda(tl: &Timeline, evidence: &Evidence) -> bool {
    tl.lines().any(|(ix, _)| evidence.in_libcuda(tl, ix) > 0)
}

/// Samples inside libcuda by process.
pub(super) fn libcuda_by_process(timeline: &Timeline, evidence: &Evidence) -> HashMap<Pid, u64> {
    let mut counts = HashMap::new();
    for (ix, line) in timeline.lines() {
        let n = evidence.in_libcuda(timeline, ix);
        if n > 0 {
            *counts.entry(line.pid).or_default() += n;
        }
    }
    counts
}

/// Whether a mapped file is the CUDA driver library, or the one that stands in for it where there is no GPU. Not its
/// neighbours libcudart and libcudnn, which also run before there is work for the GPU.
pub fn is_libcuda(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.starts_with("libcuda.so") || name.starts_with("libcuda_standin.so")
}

/// The thread of the feeder's process that drives the GPU: the one most seen in libcuda, else the main thread.
fn feeder_thread(timeline: &Timeline, evidence: &Evidence, pid: Pid) -> Option<ThreadIx> {
    let most = timeline
        .lines()
        .filter(|(_, t)| t.pid == pid)
        .max_by_key(|(ix, t)| (evidence.in_libcuda(timeline, *ix), t.is_main(), t.alive(), std::cmp::Reverse(*ix)));
    most.map(|(ix, _)| ix)
}

/// When the last thread ended that fed a GPU, whatever process it belonged to: a job may start again.
pub(super) fn end_of_feeding(timeline: &Timeline, evidence: &Evidence, roles: &Roles) -> Option<MonoNs> {
    let feeds = |ix| Some(ix) == roles.feeder || evidence.in_libcuda(timeline, ix) > 0;
    timeline.lines().filter(|(ix, _)| feeds(*ix)).map(|(_, t)| t.died).max()
}

/// Stretches of time around which another thread of the process than `feeder` was seen in libcuda most. A stretch is judged
/// together with its neighbours: a sample or two decide nothing.
fn feeders(timeline: &Timeline, evidence: &Evidence, pid: Pid, feeder: Option<ThreadIx>) -> Vec<(u64, ThreadIx)> {
    let mut seen: BTreeMap<u64, HashMap<ThreadIx, u64>> = BTreeMap::new();
    for (ix, _) in timeline.lines().filter(|(_, t)| t.pid == pid) {
        for (stretch, n) in evidence.libcuda_by_stretch(timeline, ix) {
            for around in stretch.saturating_sub(1)..=stretch + 1 {
                *seen.entry(around).or_default().entry(ix).or_default() += n;
            }
        }
    }
    let most = |counts: HashMap<ThreadIx, u64>| {
        // The usual one, unless another was seen more often.
        counts.into_iter().max_by_key(|(ix, n)| (*n, Some(*ix) == feeder, std::cmp::Reverse(*ix)))
    };
    let of = seen.into_iter().filter_map(|(stretch, counts)| Some((stretch, most(counts)?.0)));
    of.filter(|(_, ix)| Some(*ix) != feeder).collect()
}

/// Names that frameworks give their threads; the kernel cuts them to 15 bytes.
fn role_by_name(line: &ThreadLine, feeder_pid: Pid) -> Option<Role> {
    let name = line.comm.as_str();
    if name.starts_with("pt_data_pin") {
        return Some(Role::PinMemory);
    }
    if name.starts_with("QueueFeederThr") {
        return Some(Role::Ipc);
    }
    let worker =
        ["pt_data_worker", "pt_thread_data_", "tf_data_", "grain-", "[DALI]"].iter().any(|p| name.starts_with(p));
    // Threads of a worker process inherit its name; only its main thread is the worker.
    if worker && (line.pid == feeder_pid || line.is_main()) {
        return Some(Role::Worker);
    }
    None
}

/// A thread of the feeder's own process.
fn role_beside_feeder(
    tl: &Timeline,
    evidence: &Evidence,
    ix: ThreadIx,
    line: &ThreadLine,
    delivers: &Deliveries,
) -> Role {
    // What drives the GPU too, or is the main thread of a process whose other threads drive it, prepares no data.
    let drives = evidence.in_libcuda(tl, ix) > 0;
    if !delivers.wakes_feeder(ix) || drives || line.is_main() {
        return Role::Helper;
    }
    // Hands over what other processes deliver: it is woken by them, as PyTorch's pin-memory thread is.
    if delivers.receives(ix) {
        return Role::PinMemory;
    }
    // Prepares data as a thread of the same process: it reads files.
    if loads_data(tl, evidence, ix) { Role::Worker } else { Role::Helper }
}

/// A thread of a process that delivers to the feeder's process.
fn role_in_worker(evidence: &Evidence, ix: ThreadIx, line: &ThreadLine, delivers: &Deliveries) -> Role {
    if !line.is_main() && delivers.carries(evidence, ix, line) { Role::Ipc } else { Role::Worker }
}

/// The thread was blocked on, or seen in, reads of regular files for a part of its time that is worth the name.
fn reads_files(evidence: &Evidence, ix: ThreadIx) -> bool {
    evidence.thread(ix).is_some_and(|t| t.waits_to_read + t.seen_reading > 8)
}

/// The thread reads data, or opened enough files of data, even where the page cache holds all of them.
fn loads_data(tl: &Timeline, evidence: &Evidence, ix: ThreadIx) -> bool {
    const ENOUGH: u64 = 8;
    let opens = |t: &ThreadLine| evidence.data_opens.get(&t.tid).is_some_and(|n| *n >= ENOUGH);
    reads_files(evidence, ix) || tl.thread(ix).is_some_and(opens)
}
