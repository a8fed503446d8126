//! The scorer: lays a job's own account over the gaps of its GPUs (docs/lab.md). It shares no code with the tracer.

use super::account::{Account, Entry, Span};
use super::scenario::Parts;
use super::table::{self, UNLOGGED};
use anyhow::{Context, Result};
use std::collections::BTreeMap;

/// True cause of the idle time of a server that nobody asked for anything. Reports tell it as `network`, with the verdict `no_work`.
pub const NO_REQUEST: &str = "no_request";

/// Nanoseconds by cause.
pub type Causes = BTreeMap<&'static str, f64>;

/// A time without work for a GPU, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Gap {
    /// The GPU's index.
    pub gpu: u32,
    /// When.
    pub span: Span,
    /// They sum to its length.
    pub causes: Causes,
}

/// The truth about a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// Busy time of all GPUs, ns.
    pub busy_ns: f64,
    /// Gaps of all GPUs.
    pub gaps: Vec<Gap>,
    /// Idle time of all GPUs by cause.
    pub causes: Causes,
}

impl Score {
    /// Idle time of all GPUs, ns.
    pub fn idle_ns(&self) -> f64 {
        self.gaps.iter().map(|gap| gap.span.len() as f64).sum()
    }

    /// Idle time over all time from the first to the last busy moment.
    pub fn idle_share(&self) -> f64 {
        let idle = self.idle_ns();
        if idle > 0.0 { idle / (idle + self.busy_ns) } else { 0.0 }
    }

    /// Share of a cause in the idle time.
    pub fn share(&self, cause: &str) -> f64 {
        let idle = self.idle_ns();
        if idle > 0.0 { self.causes.get(cause).copied().unwrap_or(0.0) / idle } else { 0.0 }
    }
}

/// Scores an account; `rows` replace those of the table.
///
/// # Errors
/// If something is done for which the table has no row, or a gap has no feeder.
pub fn score(account: &Account, rows: &[(&'static str, Parts)]) -> Result<Score> {
    let mut score = Score::default();
    for (&gpu, busy) in account.busy() {
        score.busy_ns += busy.iter().map(|span| span.len() as f64).sum::<f64>();
        for (before, after) in busy.iter().zip(busy.iter().skip(1)) {
            let Some(span) = Span::new(before.end, after.start) else { continue };
            let feeder =
                account.feeder(gpu, span.end).with_context(|| format!("no thread feeds GPU {gpu} at {}", span.end))?;
            let mut walk = Walk { account, rows, causes: Causes::new(), waiters: Vec::new() };
            for left in walk.thread(feeder, span)? {
                walk.add(UNLOGGED, left.len() as f64);
            }
            for (cause, ns) in &walk.causes {
                *score.causes.entry(cause).or_default() += ns;
            }
            score.gaps.push(Gap { gpu, span, causes: walk.causes });
        }
    }
    Ok(score)
}

struct Walk<'a> {
    account: &'a Account,
    rows: &'a [(&'static str, Parts)],
    causes: Causes,
    /// Threads whose waits are being explained: they did nothing for what they wait for.
    waiters: Vec<u32>,
}

impl<'a> Walk<'a> {
    fn add(&mut self, cause: &'static str, ns: f64) {
        if ns > 0.0 {
            *self.causes.entry(cause).or_default() += ns;
        }
    }

    /// Explains a time by the entries of a thread; gives back what they do not cover.
    fn thread(&mut self, tid: u32, within: Span) -> Result<Vec<Span>> {
        let mut left = Vec::new();
        let mut from = within.start;
        for entry in self.account.of_thread(tid, within) {
            let Some(part) = entry.span.and(within) else { continue };
            left.extend(Span::new(from, part.start));
            self.entry(entry, part)?;
            from = part.end;
        }
        left.extend(Span::new(from, within.end));
        Ok(left)
    }

    /// Explains a part of an entry.
    fn entry(&mut self, entry: &'a Entry, part: Span) -> Result<()> {
        if entry.is_wait() {
            return self.wait(entry, part);
        }
        let causes = table::parts(self.rows, &entry.doing)
            .with_context(|| format!("the scorer's table has no row {:?}", entry.doing))?;
        // Only their sums are known, so they are spread evenly.
        let (wall, here) = (entry.span.len() as f64, part.len() as f64);
        let mut running = (entry.cpu_ns as f64 / wall).min(1.0);
        let queue = (entry.delay_ns as f64 / wall).min(1.0 - running);
        if entry.blocks == Some(0) {
            // It never gave its CPU away: what no clock of the thread counts, the hypervisor had taken from it.
            running = 1.0 - queue;
        }
        let in_kernel = table::running_in_kernel(self.rows, &entry.doing).map_or(0.0, |cause| {
            let share = (entry.kernel_ns as f64 / wall).min(running);
            self.add(cause, share * here);
            share
        });
        for (cause, share) in causes.into_iter().zip([running - in_kernel, queue, 1.0 - running - queue]) {
            self.add(cause, share * here);
        }
        Ok(())
    }

    /// Explains a part of a wait by those that were waited for.
    fn wait(&mut self, wait: &'a Entry, part: Span) -> Result<()> {
        if self.waiters.contains(&wait.tid) {
            self.add(UNLOGGED, part.len() as f64);
            return Ok(());
        }
        self.waiters.push(wait.tid);
        let left = match (&wait.item, wait.thread) {
            (_, Some(tid)) => self.for_thread(wait, tid, part)?,
            (Some(item), None) => self.for_item(wait, item, part)?,
            (None, None) => vec![part],
        };
        self.waiters.pop();
        for left in left {
            self.add(UNLOGGED, left.len() as f64);
        }
        Ok(())
    }

    /// A wait for whatever a thread did; its end is the waiter's way back to a CPU.
    fn for_thread(&mut self, wait: &Entry, tid: u32, part: Span) -> Result<Vec<Span>> {
        let woken = wait.span.end.saturating_sub(wait.delay_ns).clamp(part.start, part.end);
        self.add(table::waiting_for_a_cpu(self.rows), (part.end - woken) as f64);
        match Span::new(part.start, woken) {
            Some(before) => self.thread(tid, before),
            None => Ok(Vec::new()),
        }
    }

    /// A wait for an item, from its end backwards.
    fn for_item(&mut self, wait: &Entry, item: &str, part: Span) -> Result<Vec<Span>> {
        let entries: Vec<&'a Entry> =
            self.account.of_item(item).iter().filter(|e| !self.waiters.contains(&e.tid)).collect();
        let mut left = Vec::new();
        let (mut cursor, mut last) = (part.end, None::<u32>);
        while cursor > part.start {
            let done = entries.partition_point(|e| e.span.end <= cursor);
            let before = done.checked_sub(1).and_then(|n| entries.get(n)).filter(|e| e.span.end > part.start);
            let hole = Span::new(before.map_or(part.start, |e| e.span.end), cursor);
            if let Some(hole) = hole {
                let holes = self.hole(&entries, hole, last)?;
                match last {
                    Some(_) => left.extend(holes),
                    None => left.extend(self.back_to_a_cpu(holes, wait.delay_ns)),
                }
            }
            let Some(before) = before else { break };
            if let Some(span) = before.span.and(part) {
                self.entry(before, span)?;
            }
            (cursor, last) = (before.span.start, Some(before.tid));
        }
        Ok(left)
    }

    /// Explains a time in which no entry for the item has just ended: by what else the thread did that went on with it
    /// afterwards, then by entries for the item that were still going on.
    fn hole(&mut self, entries: &[&'a Entry], hole: Span, last: Option<u32>) -> Result<Vec<Span>> {
        let mut open = match last {
            Some(tid) => self.thread(tid, hole)?,
            None => vec![hole],
        };
        let mut left = Vec::new();
        while let Some(span) = open.pop() {
            let going_on = entries.iter().filter(|e| e.span.and(span).is_some()).max_by_key(|e| e.span.start);
            let Some((entry, part)) = going_on.and_then(|e| Some((*e, e.span.and(span)?))) else {
                left.push(span);
                continue;
            };
            self.entry(entry, part)?;
            open.extend(Span::new(span.start, part.start));
            open.extend(Span::new(part.end, span.end));
        }
        Ok(left)
    }

    /// The end of a wait, when all was done: the waiter was runnable for as long as its clock says.
    fn back_to_a_cpu(&mut self, holes: Vec<Span>, delay_ns: u64) -> Vec<Span> {
        let mut delay = delay_ns;
        let mut left = Vec::new();
        for hole in holes {
            let runnable = hole.len().min(delay);
            delay -= runnable;
            self.add(table::waiting_for_a_cpu(self.rows), runnable as f64);
            left.extend(Span::new(hole.start, hole.end - runnable));
        }
        left
    }
}

#[cfg(test)]
#[path = "score_tests.rs"]
mod tests;
