//! Sums over explained gaps: what the report and the diagnosis need, without keeping every gap.

use super::Cause;
use super::chain::{Chain, Link};
use super::roles::{Role, Roles};
use super::segment::{NoRecord, Segment, What};
use crate::events::{FileRef, Syscall};
use crate::timeline::{ThreadIx, Timeline};
use crate::units::{GpuIndex, MonoNs, Nanos, Tid};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Longest gaps kept whole.
const KEPT_GAPS: usize = 200;

/// What a stretch of idle time comes from, as finely as evidence is quoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Detail {
    /// The cause.
    pub cause: Cause,
    /// Role of the thread.
    pub role: Role,
    /// For a blocked thread: its system call.
    pub syscall: Option<Syscall>,
    /// For a wait that a process outside the target ended: the thread that did.
    pub outsider: Option<Tid>,
    /// For a thread without CPU: who had it.
    pub competitor: Option<Tid>,
    /// Nothing is known, for this reason.
    pub no_record: Option<NoRecord>,
}

/// Gaps that have the same main causes.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// How many gaps.
    pub count: u64,
    /// Their idle time.
    pub idle: Nanos,
}

/// One of the longest gaps.
#[derive(Clone, Debug, PartialEq)]
pub struct LongGap {
    /// Which GPU.
    pub gpu: GpuIndex,
    /// Start.
    pub start: MonoNs,
    /// End.
    pub end: MonoNs,
    /// Idle time inside it.
    pub idle: Nanos,
    /// The cause of most of it.
    pub cause: Cause,
    /// What happened in it, in order of time.
    pub chain: Vec<Link>,
}

/// A gap, or a window with idle time, whose segments are being added.
#[derive(Clone, Debug)]
pub(super) struct OpenGap {
    gpu: GpuIndex,
    start: MonoNs,
    end: MonoNs,
    idle: Nanos,
    sums: BTreeMap<(Role, Cause), Nanos>,
    /// Only for gaps that may be among the longest.
    chain: Option<Chain>,
}

/// Sums over gaps.
#[derive(Debug, Default)]
pub struct Totals {
    /// Idle time.
    pub idle: Nanos,
    /// Of that, what surely lies where it was placed.
    pub certain: Nanos,
    /// Idle time by cause.
    pub causes: BTreeMap<Cause, Nanos>,
    /// Idle time by detail.
    pub details: FxHashMap<Detail, Nanos>,
    /// Idle time by thread.
    pub threads: FxHashMap<ThreadIx, Nanos>,
    /// Idle time in which a thread was blocked on this file.
    pub files: FxHashMap<FileRef, Nanos>,
    /// Gaps by their main roles and causes.
    pub groups: FxHashMap<Vec<(Role, Cause)>, Group>,
    /// The longest gaps, longest first.
    pub longest: Vec<LongGap>,
    /// Idle time of the shortest gap kept.
    floor: Nanos,
}

impl Totals {
    /// Begins a gap with this much idle time in it.
    pub(super) fn open(&mut self, gpu: GpuIndex, start: MonoNs, end: MonoNs, idle: Nanos) -> OpenGap {
        self.idle += idle;
        let long = self.longest.len() < KEPT_GAPS || idle >= self.floor;
        OpenGap { gpu, start, end, idle, sums: BTreeMap::new(), chain: long.then(Chain::default) }
    }

    /// Adds segments of a gap, in order of time, that lie before those added so far.
    pub(super) fn add(&mut self, tl: &Timeline, roles: &Roles, gap: &mut OpenGap, segments: &[Segment]) {
        for s in segments {
            let detail = detail(roles, s);
            *self.causes.entry(s.cause).or_default() += s.idle;
            *self.details.entry(detail).or_default() += s.idle;
            *gap.sums.entry((detail.role, s.cause)).or_default() += s.idle;
            if let Some(ix) = s.thread {
                *self.threads.entry(ix).or_default() += s.idle;
            }
            if let Some(file) = blocked_file(tl, s) {
                *self.files.entry(*file).or_default() += s.idle;
            }
        }
        if let Some(chain) = &mut gap.chain {
            chain.put_before(tl, segments);
        }
    }

    /// Ends a gap.
    pub(super) fn close(&mut self, gap: OpenGap) {
        let mut causes: BTreeMap<Cause, Nanos> = BTreeMap::new();
        for ((_, cause), n) in &gap.sums {
            *causes.entry(*cause).or_default() += *n;
        }
        let most = causes.into_iter().max_by_key(|(c, n)| (*n, std::cmp::Reverse(*c)));
        let cause = most.map_or(Cause::Unknown, |(c, _)| c);
        let group = self.groups.entry(main_causes(&gap.sums, gap.idle)).or_default();
        group.count += 1;
        group.idle += gap.idle;
        let Some(chain) = gap.chain else { return };
        let OpenGap { gpu, start, end, idle, .. } = gap;
        self.longest.push(LongGap { gpu, start, end, idle, cause, chain: chain.finish() });
        if self.longest.len() >= KEPT_GAPS * 2 {
            self.trim();
        }
    }

    /// Keeps only the longest gaps; called when all have been added.
    pub fn trim(&mut self) {
        self.longest.sort_by_key(|g| (std::cmp::Reverse(g.idle), g.start));
        self.longest.truncate(KEPT_GAPS);
        self.floor = self.longest.last().map_or(Nanos::ZERO, |g| g.idle);
    }

    /// Adds the sums of another GPU.
    pub fn merge(&mut self, other: &Totals) {
        self.idle += other.idle;
        self.certain += other.certain;
        for (k, v) in &other.causes {
            *self.causes.entry(*k).or_default() += *v;
        }
        for (k, v) in &other.details {
            *self.details.entry(*k).or_default() += *v;
        }
        for (k, v) in &other.threads {
            *self.threads.entry(*k).or_default() += *v;
        }
        for (k, v) in &other.files {
            *self.files.entry(*k).or_default() += *v;
        }
        for (k, v) in &other.groups {
            let g = self.groups.entry(k.clone()).or_default();
            g.count += v.count;
            g.idle += v.idle;
        }
        self.longest.extend(other.longest.iter().cloned());
        self.trim();
    }

    /// Causes, largest first.
    pub fn ranked(&self) -> Vec<(Cause, Nanos)> {
        let mut v: Vec<(Cause, Nanos)> = self.causes.iter().filter(|(_, n)| n.0 > 0).map(|(c, n)| (*c, *n)).collect();
        v.sort_by_key(|(c, n)| (std::cmp::Reverse(*n), *c));
        v
    }

    /// Idle time of one cause.
    pub fn of(&self, cause: Cause) -> Nanos {
        self.causes.get(&cause).copied().unwrap_or_default()
    }
}

/// The file that a segment's thread was blocked on.
fn blocked_file<'a>(tl: &'a Timeline, s: &Segment) -> Option<&'a FileRef> {
    let What::Blocked(wait) = s.what else { return None };
    tl.file(wait.file)
}

fn detail(roles: &Roles, s: &Segment) -> Detail {
    let role = s.thread.map_or(Role::Other, |ix| roles.of(ix));
    let mut d = Detail { cause: s.cause, role, syscall: None, outsider: None, competitor: None, no_record: None };
    match s.what {
        What::Ran => {}
        What::WaitedForCpu { by } => d.competitor = Some(by),
        What::Blocked(wait) => {
            d.syscall = Some(wait.syscall);
            d.outsider = Some(wait.waker).filter(|w| s.cause.is_ended_outside() && w.0 != 0);
        }
        What::NoRecord(why) => d.no_record = Some(why),
    }
    d
}

/// Roles and causes that make up a tenth of a gap or more, largest first.
fn main_causes(sums: &BTreeMap<(Role, Cause), Nanos>, idle: Nanos) -> Vec<(Role, Cause)> {
    let mut v: Vec<_> = sums.iter().filter(|(_, n)| n.share_of(idle) >= 0.1).collect();
    v.sort_by_key(|(k, n)| (std::cmp::Reverse(**n), **k));
    v.into_iter().map(|(k, _)| *k).collect()
}
