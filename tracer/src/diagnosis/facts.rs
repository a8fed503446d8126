//! The numbers that evidence quotes and advice depends on, computed once from timeline and attribution.

use crate::attribution::calls::{self, CallKind};
use crate::attribution::{self, Attribution, Cause, Role, Totals};
use crate::events::{BlockOp, FileRef, FileType, ImageId, Syscall};
use crate::recording::Header;
use crate::timeline::{Interval, ThreadLine, Timeline, WakeKind};
use crate::units::{DevId, MonoNs, Nanos, Tid};
use rustc_hash::FxHashMap;
use std::collections::HashMap;

/// Everything that a verdict is made from.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The timeline.
    pub tl: &'a Timeline,
    /// Its attribution.
    pub at: &'a Attribution,
    /// Header of the recording.
    pub header: &'a Header,
    /// Share of the machine's CPU time that was idle, 0 to 1, and number of CPUs; absent without host samples.
    pub cpu_free: Option<(f64, u32)>,
    /// Sums over its intervals, samples and requests.
    pub(super) sums: &'a Sums,
    /// Waits of threads for storage.
    pub storage: &'a StorageWaits,
    /// Requests that the disks completed, by device and operation.
    pub requests: &'a HashMap<(DevId, BlockOp), Requests>,
}

/// What diagnosis needs to know of intervals, samples and requests: gathered part by part.
#[derive(Debug, Default)]
pub struct Sums {
    /// Only what happens in this time is a wait for the GPU.
    active: Option<(MonoNs, MonoNs)>,
    storage: StorageWaits,
    requests: HashMap<(DevId, BlockOp), Requests>,
    /// Time off the CPU, by line.
    pub(super) threads: Vec<OffCpuTime>,
    /// Samples by role and image.
    images: FxHashMap<(Role, ImageId), u64>,
}

/// How a thread spent its time off the CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OffCpuTime {
    pub(super) run_queue: Nanos,
    pub(super) blocked: Nanos,
    /// Of that, on storage.
    pub(super) storage: Nanos,
    /// Of that, in waits that may be for the GPU: on its device files, or without another thread, storage or a socket
    /// behind them.
    pub(super) on_gpu: Nanos,
    /// Samples in libcuda.
    pub(super) in_libcuda: u64,
}

impl Sums {
    /// Nothing yet, of a recording in which GPUs were active in this time, if any was.
    pub fn of(active: Option<(MonoNs, MonoNs)>) -> Sums {
        Sums { active, ..Sums::default() }
    }

    fn is_active(&self, t: MonoNs) -> bool {
        self.active.is_none_or(|(from, to)| (from..=to).contains(&t))
    }

    /// Adds what belongs to a part of a recording, or all of a whole one.
    pub fn add(&mut self, tl: &Timeline, roles: &attribution::Roles) {
        self.threads.resize(tl.threads.len(), OffCpuTime::default());
        for (ix, line) in tl.lines() {
            let role = roles.of(ix);
            let mut sum = self.threads.get(ix.0 as usize).copied().unwrap_or_default();
            for i in tl.own_intervals(line) {
                sum.run_queue += i.run_queue();
                sum.blocked += i.blocked();
                if role != Role::Other && i.is_uninterruptible() && self.storage.add(tl, i) {
                    sum.storage += i.blocked();
                } else if self.is_active(i.off) && may_be_for_gpu(tl, i) {
                    sum.on_gpu += i.blocked();
                }
            }
            for s in tl.own_samples(line) {
                let in_libcuda = tl.images.get(&s.image).is_some_and(|path| attribution::roles::is_libcuda(path));
                sum.in_libcuda += u64::from(in_libcuda && self.is_active(s.time));
                *self.images.entry((role, s.image)).or_default() += 1;
            }
            if let Some(t) = self.threads.get_mut(ix.0 as usize) {
                *t = sum;
            }
        }
        for b in tl.own_blocks() {
            let r = self.requests.entry((b.dev, b.op)).or_default();
            r.count += 1;
            r.bytes += u64::from(b.bytes);
            r.total += b.total();
        }
    }
}

/// A wait that may be one for the GPU: on a device file, or one that nothing but a time-out or an interrupt ended.
fn may_be_for_gpu(tl: &Timeline, i: &Interval) -> bool {
    match tl.file(i.file).map(FileRef::file_type) {
        Some(FileType::CharDevice) => true,
        Some(_) => false,
        None => matches!(i.wake_kind, WakeKind::Interrupt | WakeKind::None) && !i.is_uninterruptible(),
    }
}

/// Waits of one kind of thread for storage.
#[derive(Debug, Default)]
pub struct StorageWaits {
    /// How often threads waited.
    pub count: u64,
    /// How long, summed over threads.
    pub blocked: Nanos,
    /// The same by system call.
    pub by_call: FewSums<i16>,
    /// The same by device of the file system; page faults and path calls have none.
    pub by_dev: FewSums<DevId>,
}

/// Number and sum by a key that takes few values: faster than hashing each.
#[derive(Debug)]
pub struct FewSums<K>(Vec<(K, (u64, Nanos))>);

impl<K> Default for FewSums<K> {
    fn default() -> Self {
        FewSums(Vec::new())
    }
}

impl<K: PartialEq> FewSums<K> {
    fn add(&mut self, key: K, n: Nanos) {
        match self.0.iter_mut().find(|(k, _)| *k == key) {
            Some((_, sum)) => {
                sum.0 += 1;
                sum.1 += n;
            }
            None => self.0.push((key, (1, n))),
        }
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &(u64, Nanos))> {
        self.0.iter().map(|(k, sum)| (k, sum))
    }
}

impl StorageWaits {
    /// Adds an uninterruptible wait, if it was one for storage, and says whether it was.
    fn add(&mut self, tl: &Timeline, i: &Interval) -> bool {
        let file = tl.file(i.file);
        let on_storage = i.iowait
            || file.is_some_and(|f| matches!(f.file_type(), FileType::Regular | FileType::Directory))
            || calls::kind(i.syscall) == CallKind::Path;
        if !on_storage {
            return false;
        }
        self.count += 1;
        self.blocked += i.blocked();
        self.by_call.add(i.syscall.0, i.blocked());
        if let Some(f) = file {
            let dev = if f.file_type() == FileType::BlockDevice { f.rdev } else { f.dev };
            self.by_dev.add(dev, i.blocked());
        }
        true
    }
}

/// Shares of the workers' time, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerTime {
    /// They ran.
    pub ran: f64,
    /// They could run but had no CPU.
    pub queued: f64,
    /// They were blocked.
    pub blocked: f64,
    /// Of that, on storage.
    pub storage: f64,
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requests {
    /// How many.
    pub count: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Time in queue and device, summed.
    pub total: Nanos,
}

impl<'a> Facts<'a> {
    /// From a whole recording, whose intervals, samples and requests are in `sums`.
    pub fn gather(tl: &'a Timeline, at: &'a Attribution, sums: &'a Sums, header: &'a Header) -> Facts<'a> {
        Facts { tl, at, header, cpu_free: cpu_free(tl), sums, storage: &sums.storage, requests: &sums.requests }
    }

    /// Length of the recording in seconds, never zero.
    pub fn seconds(&self) -> f64 {
        self.tl.duration().secs().max(1e-9)
    }

    /// Number of workers at work at the same time: the most that were alive at any birth of one.
    pub fn workers(&self) -> usize {
        let workers: Vec<&ThreadLine> = self
            .tl
            .lines()
            .filter(|(ix, t)| self.at.roles.of(*ix) == Role::Worker && self.counts_as_worker(t))
            .map(|(_, t)| t)
            .collect();
        workers
            .iter()
            .map(|w| workers.iter().filter(|o| o.born <= w.born && o.died > w.born).count())
            .max()
            .unwrap_or(0)
    }

    /// Whether the process that feeds the GPU is a server, and a wait for the network of a thread with this role is one for
    /// requests: it listens for connections as no rank of a distributed job (those are left out where listeners are looked for),
    /// feeds the only GPU, no workers fetch data for it, and it mostly waits for whoever comes: to accept a connection, or for
    /// several descriptors. One that waits to receive from a single connection waits for the one at its other end.
    pub fn serves_requests(&self, role: Role, totals: &Totals) -> bool {
        // accept, accept4
        const ACCEPT: [i16; 2] = [43, 288];
        let for_anybody = |call: Syscall| ACCEPT.contains(&call.0) || calls::kind(call) == CallKind::Poll;
        let waits = || totals.details.iter().filter(|(d, _)| d.cause == Cause::Network);
        let all: Nanos = waits().map(|(_, n)| *n).sum();
        let anybody: Nanos = waits().filter(|(d, _)| d.syscall.is_some_and(for_anybody)).map(|(_, n)| *n).sum();
        let feeder = self.at.roles.feeder_pid;
        matches!(role, Role::Feeder | Role::Helper)
            && !self.at.roles.of_any(Role::Worker)
            && self.tl.host.iter().any(|h| h.listeners.as_ref().is_some_and(|l| l.contains(&feeder)))
            && !self.at.gpus.iter().any(|g| g.feeding.is_of_job() && g.roles.feeder_pid != feeder)
            && anybody.0 * 2 > all.0
    }

    /// Helper threads inside a worker process are not workers of their own.
    pub(super) fn counts_as_worker(&self, t: &ThreadLine) -> bool {
        t.is_main() || t.pid == self.at.roles.feeder_pid
    }

    /// What the workers spent their time on; `None` without workers.
    pub fn worker_time(&self) -> Option<WorkerTime> {
        let (mut alive, mut off) = (Nanos::ZERO, OffCpuTime::default());
        for (ix, t) in self.tl.lines() {
            if self.at.roles.of(ix) != Role::Worker || !self.counts_as_worker(t) {
                continue;
            }
            alive += t.alive();
            if let Some(t) = self.sums.threads.get(ix.0 as usize) {
                off.run_queue += t.run_queue;
                off.blocked += t.blocked;
                off.storage += t.storage;
            }
        }
        if alive == Nanos::ZERO {
            return None;
        }
        let (queued, blocked) = (off.run_queue.share_of(alive), off.blocked.share_of(alive));
        let ran = (1.0 - queued - blocked).max(0.0);
        Some(WorkerTime { ran, queued, blocked, storage: off.storage.share_of(alive) })
    }

    /// CPUs that the job could have had besides those it used: free ones of the machine, inside its affinity and its quota. Absent
    /// without host samples.
    pub fn cpus_to_have(&self) -> Option<f64> {
        let (free, cpus) = self.cpu_free?;
        let of_machine = free * f64::from(cpus);
        let limits = &self.header.limits;
        let affinity = Some(limits.allowed_cpus.len()).filter(|n| *n > 0 && *n < cpus as usize).map(|n| n as f64);
        let bound = [affinity, limits.quota_cpus].into_iter().flatten().reduce(f64::min);
        let Some(bound) = bound else { return Some(of_machine) };
        let ran: Nanos = self
            .tl
            .threads
            .iter()
            .zip(&self.sums.threads)
            .map(|(line, off)| line.alive() - off.run_queue - off.blocked)
            .sum();
        Some((bound - ran.secs() / self.seconds()).clamp(0.0, of_machine))
    }

    /// The role that most of a cause's idle time belongs to.
    pub fn main_role(&self, totals: &Totals, cause: Cause) -> Role {
        let mut by: HashMap<Role, Nanos> = HashMap::new();
        for (d, n) in totals.details.iter().filter(|(d, _)| d.cause == cause) {
            *by.entry(d.role).or_default() += *n;
        }
        by.into_iter().max_by_key(|(r, n)| (*n, std::cmp::Reverse(*r))).map_or(Role::Other, |(r, _)| r)
    }

    /// Threads outside the target that ended waits of a cause, by idle time that these cost.
    pub fn outsiders(&self, totals: &Totals, cause: Cause) -> Vec<(Tid, Nanos)> {
        ranked(totals.details.iter().filter(|(d, _)| d.cause == cause).filter_map(|(d, n)| Some((d.outsider?, *n))))
    }

    /// Threads that had the CPU while threads waited for it, by idle time that this cost.
    pub fn competitors(&self, totals: &Totals) -> Vec<(Tid, Nanos)> {
        ranked(totals.details.iter().filter_map(|(d, n)| Some((d.competitor.filter(|t| t.0 != 0)?, *n))))
    }

    /// Directory with most idle time of `causes` behind it, a pattern for its files, and the share of that time.
    pub fn main_directory(&self, totals: &Totals) -> Option<(String, f64)> {
        let mut by: HashMap<String, Nanos> = HashMap::new();
        let mut all = Nanos::ZERO;
        for (file, n) in &totals.files {
            if !matches!(file.file_type(), FileType::Regular | FileType::Directory) {
                continue;
            }
            all += *n;
            if let Some(path) = self.tl.path_of(file) {
                *by.entry(pattern(path)).or_default() += *n;
            }
        }
        let (dir, n) = by.into_iter().max_by(|a, b| a.1.cmp(&b.1).then(b.0.cmp(&a.0)))?;
        (n > Nanos::ZERO).then(|| (dir, n.share_of(all)))
    }

    /// The block device behind the file system that threads waited for most: its number and name.
    pub fn main_device(&self) -> Option<DevId> {
        self.storage
            .by_dev
            .iter()
            .max_by_key(|(d, (_, n))| (*n, std::cmp::Reverse((d.major, d.minor))))
            .map(|(d, _)| *d)
    }

    /// Threads waited much longer for storage than the device worked on it: something held requests back before they
    /// reached it. Mean wait and mean time in queue and device.
    pub fn held_back(&self, disk: DevId, op: BlockOp) -> Option<(Nanos, Nanos)> {
        let r = self.requests.get(&(disk, op))?;
        let device = Nanos(r.total.0 / r.count.max(1));
        let waited = Nanos(self.storage.blocked.0 / self.storage.count.max(1));
        (waited.0 > 3 * device.0 && waited > Nanos::from_millis(1)).then_some((waited, device))
    }

    /// Libraries in which workers spent their CPU time: file name and share of samples, largest first.
    pub fn hot_images(&self, role: Role) -> Vec<(String, f64)> {
        let mut by: HashMap<&str, u64> = HashMap::new();
        let mut all = 0u64;
        for ((_, image), n) in self.sums.images.iter().filter(|((of, _), _)| *of == role) {
            all += n;
            let image = self.tl.images.get(image).map_or("unknown code", |p| p.rsplit('/').next().unwrap_or(p));
            *by.entry(image).or_default() += n;
        }
        let mut v: Vec<_> = by.into_iter().map(|(i, n)| (i.to_owned(), n as f64 / all.max(1) as f64)).collect();
        v.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        v
    }
}

/// Sums by thread, largest first.
fn ranked(times: impl Iterator<Item = (Tid, Nanos)>) -> Vec<(Tid, Nanos)> {
    let mut by: HashMap<Tid, Nanos> = HashMap::new();
    for (tid, n) in times {
        *by.entry(tid).or_default() += n;
    }
    let mut v: Vec<_> = by.into_iter().collect();
    v.sort_by_key(|(t, n)| (std::cmp::Reverse(*n), *t));
    v
}

fn cpu_free(tl: &Timeline) -> Option<(f64, u32)> {
    let host = tl.host_inside();
    let (first, last) = (host.first()?, host.last()?);
    let idle = last.cpu_idle - first.cpu_idle;
    let all = idle + (last.cpu_busy - first.cpu_busy);
    (all > Nanos::ZERO).then(|| (idle.share_of(all), last.cpus))
}

/// `/data/train/0001.jpg` → `/data/train/*.jpg`.
fn pattern(path: &str) -> String {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name.rsplit_once('.') {
        Some((stem, ext)) if !stem.is_empty() && ext.len() <= 8 => format!("{dir}/*.{ext}"),
        _ => format!("{dir}/*"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_directory_and_ending() {
        assert_eq!(pattern("/data/train/0001.jpg"), "/data/train/*.jpg");
        assert_eq!(pattern("/data/train/shard"), "/data/train/*");
        assert_eq!(pattern(".hidden"), "/*");
    }
}
