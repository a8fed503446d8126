//! Sums over explained gaps: what the report and the diagnosis need, without keeping every gap.

use super::Cause;
use super::gaps::ExplainedGap;
use super::roles::{Role, Roles};
use super::segment::{NoRecord, Segment, What};
use crate::events::{FileRef, Syscall};
use crate::timeline::{ThreadIx, Timeline};
use crate::units::{Nanos, Tid};
use std::collections::{BTreeMap, HashMap};

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

/// Sums over gaps.
#[derive(Debug, Default)]
pub struct Totals {
    /// Idle time.
    pub idle: Nanos,
    /// Idle time by cause.
    pub causes: BTreeMap<Cause, Nanos>,
    /// Idle time by detail.
    pub details: HashMap<Detail, Nanos>,
    /// Idle time by thread.
    pub threads: HashMap<ThreadIx, Nanos>,
    /// Idle time in which a thread was blocked on this file.
    pub files: HashMap<FileRef, Nanos>,
    /// Gaps by their main roles and causes.
    pub groups: HashMap<Vec<(Role, Cause)>, Group>,
    /// The longest gaps, longest first.
    pub longest: Vec<ExplainedGap>,
    /// Idle time of the shortest gap kept.
    floor: Nanos,
}

impl Totals {
    /// Adds a gap.
    pub fn add(&mut self, tl: &Timeline, roles: &Roles, gap: ExplainedGap) {
        self.idle += gap.idle;
        for s in &gap.segments {
            *self.causes.entry(s.cause).or_default() += s.idle;
            *self.details.entry(detail(tl, roles, s)).or_default() += s.idle;
            if let Some(ix) = s.thread {
                *self.threads.entry(ix).or_default() += s.idle;
            }
            if let Some(file) = blocked_file(tl, s) {
                *self.files.entry(*file).or_default() += s.idle;
            }
        }
        let group = self.groups.entry(main_causes(roles, &gap)).or_default();
        group.count += 1;
        group.idle += gap.idle;
        if self.longest.len() < KEPT_GAPS * 2 || gap.idle > self.floor {
            self.longest.push(gap);
            if self.longest.len() > KEPT_GAPS * 4 {
                self.trim();
            }
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
pub fn blocked_file<'a>(tl: &'a Timeline, s: &Segment) -> Option<&'a FileRef> {
    let What::Blocked { interval } = s.what else { return None };
    tl.file(tl.thread(s.thread?)?.intervals.get(interval as usize)?.file)
}

fn detail(tl: &Timeline, roles: &Roles, s: &Segment) -> Detail {
    let role = s.thread.map_or(Role::Other, |ix| roles.of(ix));
    let mut d = Detail { cause: s.cause, role, syscall: None, competitor: None, no_record: None };
    match s.what {
        What::Ran => {}
        What::WaitedForCpu { by } => d.competitor = Some(by),
        What::Blocked { interval } => {
            let i = s.thread.and_then(|ix| tl.thread(ix)).and_then(|t| t.intervals.get(interval as usize));
            d.syscall = i.map(|i| i.syscall);
        }
        What::NoRecord(why) => d.no_record = Some(why),
    }
    d
}

/// Roles and causes that make up a tenth of a gap or more, largest first.
fn main_causes(roles: &Roles, gap: &ExplainedGap) -> Vec<(Role, Cause)> {
    let mut sums: BTreeMap<(Role, Cause), Nanos> = BTreeMap::new();
    for s in &gap.segments {
        let role = s.thread.map_or(Role::Other, |ix| roles.of(ix));
        *sums.entry((role, s.cause)).or_default() += s.idle;
    }
    let mut v: Vec<_> = sums.into_iter().filter(|(_, n)| n.share_of(gap.idle) >= 0.1).collect();
    v.sort_by_key(|(k, n)| (std::cmp::Reverse(*n), *k));
    v.into_iter().map(|(k, _)| k).collect()
}
