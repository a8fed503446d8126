//! Reads a job's own account: its truth log and its busy file (docs/lab.md).

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

/// A stretch of time, ns of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its first instant.
    pub start: u64,
    /// The first instant after it.
    pub end: u64,
}

impl Span {
    /// From `start` to `end`; nothing if that is backwards.
    pub fn new(start: u64, end: u64) -> Option<Span> {
        (start < end).then_some(Span { start, end })
    }

    /// Its length in ns.
    pub fn len(self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether it has no length.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// What both have in common.
    pub fn and(self, other: Span) -> Option<Span> {
        Span::new(self.start.max(other.start), self.end.min(other.end))
    }
}

/// What one thread did, or waited for, over some time.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The thread.
    pub tid: u32,
    /// What it did: a row of the scorer's table, or [`Entry::WAIT`].
    pub doing: String,
    /// For which item; with a wait for no thread, the item that was waited for.
    pub item: Option<String>,
    /// With a wait: the thread that was waited for, whatever it did.
    pub thread: Option<u32>,
    /// When.
    pub span: Span,
    /// Time on a CPU, ns.
    pub cpu_ns: u64,
    /// Of that, inside the kernel, where the job tells it.
    pub kernel_ns: u64,
    /// Time runnable without a CPU, ns.
    pub delay_ns: u64,
    /// How often it gave its CPU away to wait, where the job tells it.
    pub blocks: Option<u64>,
}

impl Entry {
    /// `doing` of a wait for other threads.
    pub const WAIT: &str = "wait";

    /// Whether the thread waited for other threads.
    pub fn is_wait(&self) -> bool {
        self.doing == Entry::WAIT
    }
}

/// All that a job says of itself.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Entries of each thread in order of time.
    threads: HashMap<u32, Vec<Entry>>,
    /// Entries that did something for an item, or waited for a thread on its way, in order of their end.
    items: HashMap<String, Vec<Entry>>,
    /// Since when which thread feeds a GPU, in order of time.
    feeders: BTreeMap<u32, Vec<(u64, u32)>>,
    /// When each GPU was busy, in order of time.
    busy: BTreeMap<u32, Vec<Span>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Feeder {
        feeder: u32,
        #[serde(default)]
        gpu: u32,
        t_ns: u64,
    },
    Entry {
        tid: u32,
        doing: String,
        #[serde(default)]
        item: Option<String>,
        #[serde(default)]
        thread: Option<u32>,
        start_ns: u64,
        end_ns: u64,
        #[serde(default)]
        cpu_ns: u64,
        #[serde(default)]
        kernel_ns: u64,
        #[serde(default)]
        delay_ns: u64,
        #[serde(default)]
        blocks: Option<u64>,
    },
}

#[derive(Deserialize)]
struct Change {
    t_ns: u64,
    #[serde(default)]
    gpu: u32,
    busy: bool,
}

impl Account {
    /// Reads a job's two files.
    ///
    /// # Errors
    /// If one cannot be read, or says what an account cannot say.
    pub fn read(busy: &Path, truth: &Path) -> Result<Account> {
        let text = |path: &Path| fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()));
        Account::parse(&text(busy)?, &text(truth)?)
    }

    /// Reads the texts of a busy file and a truth log.
    ///
    /// # Errors
    /// If a line cannot be understood, or entries of a thread overlap.
    pub fn parse(busy: &str, truth: &str) -> Result<Account> {
        let mut account = Account { busy: busy_spans(busy)?, ..Account::default() };
        for line in truth.lines() {
            let parsed = serde_json::from_str(line).with_context(|| format!("bad line in the truth log: {line}"))?;
            match parsed {
                Line::Feeder { feeder, gpu, t_ns } => account.feeders.entry(gpu).or_default().push((t_ns, feeder)),
                Line::Entry { tid, doing, item, thread, start_ns, end_ns, cpu_ns, kernel_ns, delay_ns, blocks } => {
                    ensure!(start_ns <= end_ns, "an entry of the truth log ends before it starts: {line}");
                    if let Some(span) = Span::new(start_ns, end_ns) {
                        let entry = Entry { tid, doing, item, thread, span, cpu_ns, kernel_ns, delay_ns, blocks };
                        account.threads.entry(tid).or_default().push(entry);
                    }
                }
            }
        }
        account.feeders.values_mut().for_each(|f| f.sort_unstable());
        account.order()?;
        Ok(account)
    }

    fn order(&mut self) -> Result<()> {
        for entries in self.threads.values_mut() {
            entries.sort_by_key(|e| e.span.start);
            for (a, b) in entries.iter().zip(entries.iter().skip(1)) {
                ensure!(a.span.end <= b.span.start, "entries of thread {} overlap: {a:?} and {b:?}", a.tid);
            }
        }
        for entry in self.threads.values().flatten().filter(|e| !e.is_wait() || e.thread.is_some()) {
            if let Some(item) = &entry.item {
                self.items.entry(item.clone()).or_default().push(entry.clone());
            }
        }
        self.items.values_mut().for_each(|e| e.sort_by_key(|e| (e.span.end, e.span.start)));
        Ok(())
    }

    /// When each GPU was busy.
    pub fn busy(&self) -> &BTreeMap<u32, Vec<Span>> {
        &self.busy
    }

    /// The thread that gives a GPU its work at a time.
    pub fn feeder(&self, gpu: u32, at: u64) -> Option<u32> {
        let feeders = self.feeders.get(&gpu)?;
        let next = feeders.partition_point(|(t, _)| *t <= at);
        feeders.get(next.checked_sub(1)?).map(|(_, tid)| *tid)
    }

    /// Entries of a thread that overlap a time, in order.
    pub fn of_thread(&self, tid: u32, within: Span) -> &[Entry] {
        let entries = self.threads.get(&tid).map_or(&[][..], Vec::as_slice);
        let from = entries.partition_point(|e| e.span.end <= within.start);
        let to = entries.partition_point(|e| e.span.start < within.end);
        entries.get(from..to).unwrap_or_default()
    }

    /// Entries that did something for an item, in order of their end.
    pub fn of_item(&self, item: &str) -> &[Entry] {
        self.items.get(item).map_or(&[], Vec::as_slice)
    }
}

fn busy_spans(text: &str) -> Result<BTreeMap<u32, Vec<Span>>> {
    let (mut spans, mut since) = (BTreeMap::<u32, Vec<Span>>::new(), HashMap::new());
    let mut last = HashMap::new();
    for line in text.lines() {
        let change: Change =
            serde_json::from_str(line).with_context(|| format!("bad line in the busy file: {line}"))?;
        let before = last.insert(change.gpu, change.t_ns).unwrap_or(0);
        ensure!(before <= change.t_ns, "the busy file goes back in time at {line}");
        match (since.remove(&change.gpu), change.busy) {
            (None, true) => {
                since.insert(change.gpu, change.t_ns);
            }
            (Some(start), false) => {
                let end = change.t_ns;
                spans.entry(change.gpu).or_default().extend(Span::new(start, end));
            }
            _ => bail!("the busy file repeats a state at {line}"),
        }
    }
    Ok(spans)
}
