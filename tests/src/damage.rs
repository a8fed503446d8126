//! Recordings with the damage that real ones can have, made from whole ones with a fixed seed.

use anyhow::{Context, Result, ensure};
use gpustall::events::{Event, GpuProcess, Loss, LossKind, TaskEvent, TaskWhat, Waker, Wakeup};
use gpustall::recording::{ClockReading, Cost, Header, Reader, Trailer, Writer};
use gpustall::report::{Options, Report, of_file, to_json};
use gpustall::units::{GpuIndex, MonoNs, Nanos, Pid, Tid};
use std::collections::HashMap;
use std::path::Path;

/// What is wrong with the events of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Some events are missing.
    Dropped,
    /// The same, and the recorder knew.
    Lost,
    /// Whatever happened in some stretches of time is missing, as where a ring was full for a while, and the recorder knew.
    LostInBursts,
    /// Events come in any order.
    Shuffled,
    /// Neighbours come in the wrong order.
    Jumbled,
    /// Some events are there twice.
    Repeated,
    /// Intervals have the wakings of others.
    WakesSwapped,
    /// Wakings were not seen.
    WakesMissing,
    /// Any thread wakes any other, itself included.
    WakesInCircles,
    /// From some event on, the clock is ahead or behind.
    ClockStepped,
    /// Thread ids are given to new threads, of this or another process.
    IdsReused,
    /// Threads are gone from one moment to the next, without an end.
    Vanished,
    /// The end is missing.
    Truncated,
    /// The beginning is missing, so that it starts in the middle of waits.
    Beheaded,
    /// It started later, in the middle of waits; what threads there are is told all the same.
    StartedLater,
    /// Times that no clock gives.
    Absurd,
    /// Processes that nobody knows are on the GPU.
    StrangeProcesses,
}

/// All kinds.
pub const KINDS: [Damage; 17] = [
    Damage::Dropped,
    Damage::Lost,
    Damage::LostInBursts,
    Damage::Shuffled,
    Damage::Jumbled,
    Damage::Repeated,
    Damage::WakesSwapped,
    Damage::WakesMissing,
    Damage::WakesInCircles,
    Damage::ClockStepped,
    Damage::IdsReused,
    Damage::Vanished,
    Damage::Truncated,
    Damage::Beheaded,
    Damage::StartedLater,
    Damage::Absurd,
    Damage::StrangeProcesses,
];

impl Damage {
    /// Does it to the events of a recording, to up to a half of them.
    pub fn apply(self, events: &mut Vec<Event>, rng: &mut fastrand::Rng) {
        let (share, cut) = (rng.f64() * 0.5, rng.f64());
        self.apply_to(share, cut, events, rng);
    }

    /// Does it to such a share of the events; what has a beginning begins, and what has an end ends, after the share `cut` of them.
    pub fn apply_to(self, share: f64, cut: f64, events: &mut Vec<Event>, rng: &mut fastrand::Rng) {
        if events.is_empty() {
            return;
        }
        let cut = ((cut * events.len() as f64) as usize).min(events.len() - 1);
        match self {
            Damage::Dropped => events.retain(|_| rng.f64() >= share),
            Damage::Lost => {
                let before = events.len();
                events.retain(|_| rng.f64() >= share);
                let count = (before - events.len()) as u64;
                events.push(Event::Loss(Loss { time: MonoNs(0), kind: LossKind::OffCpu, count }));
            }
            Damage::LostInBursts => {
                const BURST: u64 = 100_000_000;
                let salt = rng.u64(..);
                let lost =
                    |e: &Event| when(e).is_some_and(|t| fastrand::Rng::with_seed(salt ^ (t.0 / BURST)).f64() < share);
                let before = events.len();
                events.retain(|e| !lost(e));
                let count = (before - events.len()) as u64;
                events.push(Event::Loss(Loss { time: MonoNs(0), kind: LossKind::OffCpu, count }));
            }
            Damage::Shuffled => rng.shuffle(events),
            Damage::Jumbled => {
                for n in 1..events.len() {
                    if rng.f64() < share {
                        events.swap(n - 1, n);
                    }
                }
            }
            Damage::Repeated => {
                for n in 0..events.len() {
                    if rng.f64() < share * 0.3 {
                        let again = events[n].clone();
                        let at = rng.usize(0..=events.len());
                        events.insert(at, again);
                    }
                }
            }
            Damage::WakesSwapped => swap_wakes(events, rng),
            Damage::WakesMissing => each_interval(events, |o| {
                if rng.f64() < share {
                    o.wakeup = None;
                }
            }),
            Damage::WakesInCircles => {
                let threads = threads(events);
                each_interval(events, |o| {
                    let (tid, pid) = *rng.choice(&threads).unwrap_or(&(o.tid, o.pid));
                    let at = MonoNs(rng.u64(o.off.0..=o.on.0.max(o.off.0)));
                    o.wakeup = Some(Wakeup { at, by: Waker::Thread { tid, pid, syscall: o.syscall } });
                    o.iowait = false;
                });
            }
            Damage::ClockStepped => {
                let by = rng.u64(0..5_000_000_000) as i64 - 2_500_000_000;
                for event in events.iter_mut().skip(cut) {
                    shift(event, by);
                }
            }
            Damage::IdsReused => reuse(events, rng),
            Damage::Vanished => {
                let threads = threads(events);
                let gone = rng.choice(&threads).copied().unwrap_or_default().0;
                let mut n = 0;
                events.retain(|e| {
                    n += 1;
                    let of = match e {
                        Event::OffCpu(o) => Some(o.tid),
                        Event::CpuSample(s) => Some(s.tid),
                        _ => None,
                    };
                    n <= cut || of != Some(gone)
                });
            }
            Damage::Truncated => events.truncate(cut),
            Damage::Beheaded => {
                events.drain(..cut);
            }
            Damage::StartedLater => {
                let mut n = 0;
                events.retain(|e| {
                    n += 1;
                    n > cut || !matches!(e, Event::OffCpu(_) | Event::CpuSample(_) | Event::Open(_) | Event::Block(_))
                });
            }
            Damage::Absurd => each_interval(events, |o| {
                if rng.f64() < 0.05 {
                    match rng.u8(0..5) {
                        0 => o.on = MonoNs(o.off.0.saturating_sub(rng.u64(0..1 << 40))),
                        1 => o.off = MonoNs(0),
                        2 => o.on = MonoNs(u64::MAX),
                        3 => (o.off, o.on) = (MonoNs(u64::MAX), MonoNs(u64::MAX)),
                        _ => o.wakeup = o.wakeup.map(|w| Wakeup { at: MonoNs(rng.u64(..)), ..w }),
                    }
                }
            }),
            Damage::StrangeProcesses => {
                for pid in [0, 1, u32::MAX] {
                    let process = GpuProcess { time: MonoNs(0), gpu: GpuIndex(0), pid: Pid(pid), memory_used: None };
                    events.push(Event::GpuProcess(process));
                }
            }
        }
    }
}

/// When the kernel side recorded an event.
fn when(event: &Event) -> Option<MonoNs> {
    match event {
        Event::OffCpu(o) => Some(o.on),
        Event::CpuSample(s) => Some(s.time),
        Event::Open(o) => Some(o.time),
        Event::Task(t) => Some(t.time),
        _ => None,
    }
}

fn each_interval(events: &mut [Event], mut change: impl FnMut(&mut gpustall::events::OffCpu)) {
    for event in events {
        if let Event::OffCpu(o) = event {
            change(o);
        }
    }
}

/// Threads that were off the CPU.
fn threads(events: &[Event]) -> Vec<(Tid, Pid)> {
    let mut all: Vec<(Tid, Pid)> = events
        .iter()
        .filter_map(|e| match e {
            Event::OffCpu(o) => Some((o.tid, o.pid)),
            _ => None,
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn swap_wakes(events: &mut [Event], rng: &mut fastrand::Rng) {
    let wakes: Vec<Option<Wakeup>> = events
        .iter()
        .filter_map(|e| match e {
            Event::OffCpu(o) => Some(o.wakeup),
            _ => None,
        })
        .collect();
    each_interval(events, |o| {
        if rng.bool()
            && let Some(other) = rng.choice(&wakes)
        {
            o.wakeup = *other;
        }
    });
}

/// Ends threads and gives their ids to new ones, or makes threads of other processes theirs.
fn reuse(events: &mut Vec<Event>, rng: &mut fastrand::Rng) {
    let threads = threads(events);
    let times: Vec<MonoNs> = events
        .iter()
        .filter_map(|e| match e {
            Event::OffCpu(o) => Some(o.off),
            _ => None,
        })
        .collect();
    for _ in 0..6 {
        let (Some(&(tid, pid)), Some(&time)) = (rng.choice(&threads), rng.choice(&times)) else { return };
        let parent = rng.choice(&threads).map_or(Tid(1), |(tid, _)| *tid);
        let new_pid = if rng.bool() { pid } else { Pid(rng.u32(1..10_000)) };
        let task = |time, pid, what| Event::Task(TaskEvent { time, tid, pid, what, comm: "reused".to_owned() });
        events.push(task(time, pid, TaskWhat::Exited));
        let born = if rng.bool() { time } else { time + Nanos(rng.u64(0..50_000_000)) };
        events.push(task(born, new_pid, TaskWhat::Forked { parent }));
        if rng.bool() {
            let old = rng.choice(&threads).map_or(Tid(2), |(tid, _)| *tid);
            for event in events.iter_mut() {
                if let Event::OffCpu(o) = event
                    && o.tid == old
                    && o.off > time
                {
                    (o.tid, o.pid) = (tid, new_pid);
                }
            }
        }
    }
}

fn shift(event: &mut Event, by: i64) {
    let moved = |t: &mut MonoNs| t.0 = t.0.saturating_add_signed(by);
    match event {
        Event::OffCpu(o) => {
            moved(&mut o.off);
            moved(&mut o.on);
            if let Some(w) = &mut o.wakeup {
                moved(&mut w.at);
            }
        }
        Event::CpuSample(s) => moved(&mut s.time),
        Event::Task(t) => moved(&mut t.time),
        Event::Open(o) => moved(&mut o.time),
        Event::GpuWindow(w) => {
            moved(&mut w.start);
            moved(&mut w.end);
        }
        _ => {}
    }
}

/// Gives processes that were started inside the recording the ids of such that had ended before: as if the kernel had run out of
/// ids. Returns how many.
pub fn reuse_ids(events: &mut [Event]) -> usize {
    let task = |e: &Event| match e {
        Event::Task(t) if t.tid.0 == t.pid.0 => Some((t.time, t.tid.0, t.what)),
        _ => None,
    };
    let tasks: Vec<_> = events.iter().filter_map(task).collect();
    let mut ended: Vec<(MonoNs, u32)> =
        tasks.iter().filter(|t| t.2 == TaskWhat::Exited).map(|(time, id, _)| (*time, *id)).collect();
    ended.sort_unstable();
    let mut born: Vec<(MonoNs, u32)> =
        tasks.iter().filter(|t| matches!(t.2, TaskWhat::Forked { .. })).map(|(time, id, _)| (*time, *id)).collect();
    born.sort_unstable();
    let mut ids: HashMap<u32, u32> = HashMap::new();
    for (time, id) in born {
        // The one that ended first is given to the next process, as long as it is not in use again by then.
        if let Some(at) = ended.iter().position(|(gone, old)| *gone < time && !ids.contains_key(old)) {
            ids.insert(id, ended.remove(at).1);
        }
    }
    for event in events {
        each_id(event, |id| *id = ids.get(id).copied().unwrap_or(*id));
    }
    ids.len()
}

/// Changes every thread and process id in an event.
fn each_id(event: &mut Event, mut change: impl FnMut(&mut u32)) {
    let mut both = |tid: &mut Tid, pid: &mut Pid| {
        change(&mut tid.0);
        change(&mut pid.0);
    };
    match event {
        Event::OffCpu(o) => {
            both(&mut o.tid, &mut o.pid);
            if let Some(Wakeup { by: Waker::Thread { tid, pid, .. }, .. }) = &mut o.wakeup {
                both(tid, pid);
            }
            change(&mut o.next_tid.0);
            change(&mut o.prev_tid.0);
        }
        Event::CpuSample(s) => both(&mut s.tid, &mut s.pid),
        Event::Open(o) => both(&mut o.tid, &mut o.pid),
        Event::Task(t) => {
            both(&mut t.tid, &mut t.pid);
            match &mut t.what {
                TaskWhat::Found { parent } => change(&mut parent.0),
                TaskWhat::Forked { parent } => change(&mut parent.0),
                TaskWhat::Exec { old_tid } => change(&mut old_tid.0),
                TaskWhat::Renamed | TaskWhat::Exited => {}
            }
        }
        _ => {}
    }
}

/// Header and events of a recording.
pub fn read(path: &Path) -> Result<(Header, Vec<Event>)> {
    let mut reader = Reader::open(path)?;
    let mut events = Vec::new();
    while let Some(batch) = reader.next_batch() {
        events.extend(batch.into_events());
    }
    Ok((reader.header().clone(), events))
}

/// Writes a recording; without an end if `ended` is not given. Blocks are closed about every `block` nanoseconds of its
/// own time.
pub fn write(path: &Path, header: &Header, events: &[Event], ended: Option<MonoNs>, block: Nanos) -> Result<()> {
    let mut writer = Writer::create(path, header, true)?;
    let mut next = header.started.mono + block;
    for event in events {
        if let Event::OffCpu(o) = event
            && o.on >= next
            && o.on.0 < u64::MAX / 2
        {
            writer.tick(o.on)?;
            next = o.on + block;
        }
        writer.push(event.clone())?;
    }
    match ended {
        Some(mono) => {
            let ended = ClockReading { mono, ..header.started };
            let trailer = Trailer { ended, reason: "duration".to_owned(), command_status: None, cost: Cost::default() };
            writer.finish(&trailer)?;
        }
        // As if it had been killed.
        None => drop(writer),
    }
    Ok(())
}

/// Makes the report and fails unless it adds up.
pub fn sound_report(path: &Path, options: &Options) -> Result<Report> {
    let report = of_file(path, options).context("no report")?;
    adds_up(&report)?;
    Ok(report)
}

fn ns(seconds: f64) -> i128 {
    (seconds * 1e9).round() as i128
}

/// Fails unless causes sum to the idle time, to the nanosecond, and chains cover their gaps.
pub fn adds_up(report: &Report) -> Result<()> {
    let mut idle = 0;
    for gpu in &report.gpus {
        let causes: i128 = gpu.causes.iter().map(|c| ns(c.seconds)).sum();
        ensure!(causes == ns(gpu.idle_s), "GPU {}: {causes} of {} ns have a cause", gpu.index, ns(gpu.idle_s));
        let active = ns(gpu.active_to_s) - ns(gpu.active_from_s);
        ensure!(ns(gpu.busy_s) + ns(gpu.idle_s) <= active.max(0) + 1, "GPU {}: more than its active time", gpu.index);
        idle += ns(gpu.idle_s);
    }
    let causes: i128 = report.causes.iter().map(|c| ns(c.seconds)).sum();
    ensure!(causes == idle, "{causes} of {idle} ns have a cause");
    for gap in &report.gaps {
        let mut at = gap.start_s;
        for link in &gap.chain {
            ensure!(link.start_s == at && link.end_s > at, "a chain with a hole or an overlap: {gap:?}");
            at = link.end_s;
        }
        ensure!(at == gap.end_s, "a chain that ends early: {gap:?}");
    }
    for t in &report.threads {
        ensure!(t.running_s >= 0.0 && t.runqueue_s >= 0.0 && t.alive_s >= 0.0, "{t:?}");
    }
    // What is printed can be read again.
    let again: Report = serde_json::from_str(&to_json(report)).context("a report that does not come back")?;
    ensure!(again.recording == report.recording, "{:?}", again.recording);
    Ok(())
}
