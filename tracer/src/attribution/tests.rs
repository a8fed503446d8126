//! The walk on small timelines whose answer can be worked out on paper, and on random ones.

mod adversaries;
mod ranks;
mod roles;
mod turns;

use super::*;
use crate::events::{
    Event, FileOpen, FileRef, NamedFile, OffCpu, OpenOutcome, SleepState, Syscall, TaskEvent, TaskWhat, Waker, Wakeup,
};
use crate::gpu::{Activity, BusyInterval, GpuSource};
use crate::timeline::TimelineBuilder;
use crate::units::{DevId, GpuIndex, MonoNs, Nanos, Tid};
use proptest::prelude::*;

const READ: Syscall = Syscall(0);
const WRITE: Syscall = Syscall(1);
const POLL: Syscall = Syscall(7);
const FUTEX: Syscall = Syscall(202);

fn ms(t: u64) -> MonoNs {
    MonoNs(t * 1_000_000)
}

fn off(tid: u32, pid: u32, from: u64, wake: u64, on: u64, call: Syscall) -> OffCpu {
    OffCpu {
        tid: Tid(tid),
        pid: Pid(pid),
        cpu: 0,
        off: ms(from),
        wakeup: Some(Wakeup { at: ms(wake), by: Waker::Interrupt }),
        on: ms(on),
        state: SleepState::Interruptible,
        iowait: false,
        syscall: call,
        arg0: 3,
        file: None,
        next_tid: Tid(0),
        prev_tid: Tid(0),
        seeded: false,
        pending: false,
    }
}

fn feeder(tl: &Timeline) -> Pid {
    super::roles::feeder_process(tl, &Evidence::of(tl), &[])
}

trait With {
    fn woken_by(self, tid: u32, pid: u32) -> OffCpu;
    fn on_disk(self) -> OffCpu;
    fn preempted_by(self, tid: u32) -> OffCpu;
}

impl With for OffCpu {
    fn woken_by(mut self, tid: u32, pid: u32) -> OffCpu {
        let at = self.blocked_until();
        self.wakeup = Some(Wakeup { at, by: Waker::Thread { tid: Tid(tid), pid: Pid(pid), syscall: WRITE } });
        self
    }
    fn on_disk(mut self) -> OffCpu {
        self.state = SleepState::Uninterruptible;
        self.iowait = true;
        let dev = DevId { major: 8, minor: 1 };
        self.file = Some(FileRef { ino: 7, dev, rdev: DevId::default(), magic: 0xEF53, mode: 0o100_644 });
        self
    }
    fn preempted_by(mut self, tid: u32) -> OffCpu {
        self.state = SleepState::Preempted;
        self.wakeup = None;
        self.next_tid = Tid(tid);
        self
    }
}

/// Attribution of the time in which the GPU was not busy; the recording lasts from 0 to `end`.
fn attribution(events: Vec<Event>, busy: &[(u64, u64)], end: u64) -> (Timeline, Attribution) {
    let mut b = TimelineBuilder::new(Pid(1), MonoNs(0));
    for e in events {
        b.push(e);
    }
    let tl = b.finish(Some(ms(end)));
    let busy = busy.iter().map(|(a, b)| BusyInterval { start: ms(*a), end: ms(*b) }).collect();
    let gpu = GpuActivity {
        gpu: GpuIndex(0),
        name: String::new(),
        source: GpuSource::Simulated,
        pids: Vec::new(),
        holes: Vec::new(),
        activity: Activity::Intervals(busy),
    };
    let a = attribute(&tl, &[], vec![gpu]);
    (tl, a)
}

fn causes(events: Vec<OffCpu>, busy: &[(u64, u64)], end: u64) -> Vec<(Cause, u64)> {
    // As at a real attach, the threads of the target are known even if they never left the CPU.
    let found = [(1, 1), (2, 2), (3, 3)].map(|(tid, pid)| {
        let what = TaskWhat::Found { parent: Pid(1) };
        Event::Task(TaskEvent { time: MonoNs(0), tid: Tid(tid), pid: Pid(pid), what, comm: "python3".into() })
    });
    let (_, a) = attribution(found.into_iter().chain(events.into_iter().map(Event::OffCpu)).collect(), busy, end);
    a.totals.ranked().into_iter().map(|(c, n)| (c, n.0 / 1_000_000)).collect()
}

#[test]
fn a_wait_for_a_worker_is_explained_by_what_the_worker_did() {
    // Main (1) waits 10..110 for worker (2), which reads 20..80 and decodes the rest.
    let events = vec![off(1, 1, 10, 110, 110, POLL).woken_by(2, 2), off(2, 2, 20, 80, 80, READ).on_disk()];
    assert_eq!(causes(events, &[(0, 10), (110, 120)], 120), vec![(Cause::Disk, 60), (Cause::Preprocessing, 40)]);
}

#[test]
fn early_batches_of_other_workers_do_not_take_the_blame() {
    // Worker 3 delivers early at 40 and 70; the batch that main needs comes from worker 2, which decoded all along.
    // Worker 3 was on disk: the wrong answer would be disk.
    let events = vec![
        off(1, 1, 10, 40, 40, POLL).woken_by(3, 3),
        off(1, 1, 41, 70, 70, POLL).woken_by(3, 3),
        off(1, 1, 71, 110, 110, POLL).woken_by(2, 2),
        off(3, 3, 12, 39, 39, READ).on_disk(),
        off(3, 3, 43, 69, 69, READ).on_disk(),
        off(3, 3, 72, 119, 119, READ).on_disk(),
    ];
    assert_eq!(causes(events, &[(0, 10), (110, 120)], 120), vec![(Cause::Preprocessing, 100)]);
}

#[test]
fn a_longer_run_between_two_waits_is_work_and_not_delivery() {
    let events = vec![off(1, 1, 10, 50, 50, POLL).woken_by(2, 2), off(1, 1, 60, 110, 110, POLL).woken_by(2, 2)];
    assert_eq!(causes(events, &[(0, 10), (110, 120)], 120), vec![(Cause::Preprocessing, 90), (Cause::HostCode, 10)]);
}

#[test]
fn time_outs_while_waiting_for_a_lock_lead_to_its_holder() {
    // Waiting for Python's GIL: 5 ms time-outs, then the holder's wake-up.
    let mut events: Vec<OffCpu> = (0..10).map(|k| off(1, 1, 10 + 5 * k, 15 + 5 * k, 15 + 5 * k, FUTEX)).collect();
    events.push(off(1, 1, 60, 70, 70, FUTEX).woken_by(5, 1));
    events.push(off(5, 1, 0, 9, 9, READ).on_disk());
    let (tl, a) = attribution(events.into_iter().map(Event::OffCpu).collect(), &[(0, 10), (70, 80)], 80);
    let holder = tl.thread_at(Tid(5), ms(70)).unwrap();
    assert_eq!(a.totals.threads.get(&holder), Some(&Nanos::from_millis(60)));
}

#[test]
fn a_runnable_worker_is_starved_and_the_competitor_is_known() {
    let events =
        vec![off(1, 1, 10, 110, 110, POLL).woken_by(2, 2), off(2, 2, 20, 20, 90, Syscall::NONE).preempted_by(99)];
    let (_, a) = attribution(events.into_iter().map(Event::OffCpu).collect(), &[(0, 10), (110, 120)], 120);
    assert_eq!(a.totals.of(Cause::CpuStarved), Nanos::from_millis(70));
    let named = a.totals.details.iter().any(|(d, n)| d.competitor == Some(Tid(99)) && *n == Nanos::from_millis(70));
    assert!(named, "{:?}", a.totals.details);
}

#[test]
fn a_chain_through_a_pin_memory_thread_reaches_the_worker() {
    let events = vec![
        off(1, 1, 10, 110, 110, FUTEX).woken_by(4, 1),
        off(4, 1, 5, 100, 100, POLL).woken_by(2, 2),
        off(4, 1, 112, 113, 113, POLL).woken_by(2, 2),
        off(4, 1, 114, 115, 115, POLL).woken_by(2, 2),
        off(2, 2, 0, 95, 95, READ).on_disk(),
    ];
    // 10..95 disk, 95..100 decode, 100..110 pinning.
    assert_eq!(
        causes(events, &[(0, 10), (110, 120)], 120),
        vec![(Cause::Disk, 85), (Cause::PinMemory, 10), (Cause::Preprocessing, 5)]
    );
}

#[test]
fn a_new_worker_starts_up_until_its_first_batch() {
    let fork = TaskEvent {
        time: ms(20),
        tid: Tid(2),
        pid: Pid(2),
        what: TaskWhat::Forked { parent: Tid(1) },
        comm: "python3".into(),
    };
    let events = vec![
        Event::Task(fork),
        Event::OffCpu(off(1, 1, 30, 100, 100, POLL).woken_by(2, 2)),
        Event::OffCpu(off(2, 2, 40, 60, 60, READ).on_disk()),
    ];
    let (_, a) = attribution(events, &[(0, 10), (100, 110)], 110);
    // Until the fork at 20 main itself runs; from there on workers are being started, whoever runs.
    assert_eq!(a.totals.of(Cause::WorkerStartup), Nanos::from_millis(80));
    assert_eq!(a.totals.of(Cause::HostCode), Nanos::from_millis(10));
}

#[test]
fn waits_that_span_the_edges_of_a_gap_count_clipped() {
    let events = vec![off(1, 1, 0, 200, 200, POLL).woken_by(2, 2), off(2, 2, 5, 150, 150, READ).on_disk()];
    assert_eq!(causes(events, &[(0, 50), (100, 120)], 200), vec![(Cause::Disk, 50)]);
}

#[test]
fn two_threads_that_wait_for_each_other_end_in_unknown_and_not_in_a_loop() {
    // Damaged data: each says that the other woke it at the same moment.
    let events = vec![off(1, 1, 10, 110, 110, POLL).woken_by(2, 2), off(2, 2, 10, 110, 110, POLL).woken_by(1, 1)];
    assert_eq!(causes(events, &[(0, 10), (110, 120)], 120), vec![(Cause::Unknown, 100)]);
}

#[test]
fn windows_spend_their_idle_time_on_the_most_certain_waits_first() {
    // One window of 100 ms at 40 %: main waits 30 ms for a disk worker, runs 70 ms of which the GPU may be busy.
    let events = [off(1, 1, 10, 40, 40, POLL).woken_by(2, 2), off(2, 2, 0, 40, 40, READ).on_disk()];
    let mut b = TimelineBuilder::new(Pid(1), MonoNs(0));
    for e in events {
        b.push(Event::OffCpu(e));
    }
    let tl = b.finish(Some(ms(100)));
    let window = crate::events::GpuWindow { gpu: GpuIndex(0), start: ms(0), end: ms(100), utilization: 40.0 };
    let gpu = GpuActivity {
        gpu: GpuIndex(0),
        name: String::new(),
        source: GpuSource::Nvml,
        pids: Vec::new(),
        holes: Vec::new(),
        activity: Activity::Windows(vec![window]),
    };
    let a = attribute(&tl, &[], vec![gpu]);
    assert_eq!(a.totals.of(Cause::Disk), Nanos::from_millis(30));
    assert_eq!(a.totals.of(Cause::HostCode), Nanos::from_millis(30));
    assert_eq!(a.totals.idle, Nanos::from_millis(60));
    assert_eq!(a.gpus[0].usage.certain, Nanos::from_millis(30), "its own running may have been beside the GPU's work");
}

#[test]
fn a_window_without_work_is_certain_whatever_the_feeder_did() {
    let tl = TimelineBuilder::new(Pid(1), MonoNs(0)).finish(Some(ms(300)));
    let window = |k: u64, utilization| crate::events::GpuWindow {
        gpu: GpuIndex(0),
        start: ms(k * 100),
        end: ms((k + 1) * 100),
        utilization,
    };
    let activity = Activity::Windows(vec![window(0, 50.0), window(1, 0.0), window(2, 100.0)]);
    let gpu = GpuActivity {
        gpu: GpuIndex(0),
        name: String::new(),
        source: GpuSource::Nvml,
        pids: Vec::new(),
        holes: Vec::new(),
        activity,
    };
    let usage = attribute(&tl, &[], vec![gpu]).gpus[0].usage;
    assert_eq!((usage.idle, usage.certain), (Nanos::from_millis(150), Nanos::from_millis(100)));
}

prop_compose! {
    fn any_off()(
        tid in 1u32..6, from in 0u64..1000, blocked in 0u64..200, queued in 0u64..50, kind in 0u8..5,
        waker in 0u32..8, call in prop::sample::select(vec![-1i16, 0, 1, 7, 24, 74, 202, 230, 257]), arg in 0u64..3,
    ) -> OffCpu {
        let pid = if tid < 3 { 1 } else { tid };
        let waker_pid = if waker < 3 { 1 } else { waker };
        let mut o = off(tid, pid, from, from + blocked, from + blocked + queued, Syscall(call));
        o.arg0 = arg;
        match kind {
            0 => o,
            1 => o.on_disk(),
            2 => o.preempted_by(waker),
            _ => o.woken_by(waker, waker_pid),
        }
    }
}

prop_compose! {
    /// Wakings before, in and after the interval, by anybody, or none; ends before starts.
    fn any_wild_off()(
        mut o in any_off(), pid in 1u32..5, wake in prop::option::of(0u64..1300), waker in 0u32..7, waker_pid in 0u32..5,
        backwards in prop::bool::weighted(0.03), seeded in any::<bool>(), pending in any::<bool>(),
    ) -> OffCpu {
        o.pid = Pid(pid);
        let by = Waker::Thread { tid: Tid(waker), pid: Pid(waker_pid), syscall: WRITE };
        o.wakeup = wake.map(|at| Wakeup { at: if at % 4 == 0 { ms(at) } else { o.on }, by });
        if backwards {
            std::mem::swap(&mut o.off, &mut o.on);
        }
        OffCpu { seeded, pending, ..o }
    }
}

prop_compose! {
    fn any_task()(tid in 1u32..7, pid in 1u32..5, time in 0u64..1300, parent in 0u32..7, what in 0u8..5) -> Event {
        let what = match what {
            0 => TaskWhat::Found { parent: Pid(parent) },
            1 => TaskWhat::Exec { old_tid: Tid(parent) },
            2 => TaskWhat::Exited,
            _ => TaskWhat::Forked { parent: Tid(parent) },
        };
        Event::Task(TaskEvent { time: ms(time), tid: Tid(tid), pid: Pid(pid), what, comm: "python3".into() })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever the events, overlapping and contradicting ones included, the segments of a gap follow each other without
    /// gap or overlap and sum to its length.
    #[test]
    fn causes_of_a_gap_sum_to_it(events in prop::collection::vec(any_off(), 0..80), cut in 1u64..900, len in 1u64..300) {
        let mut b = TimelineBuilder::new(Pid(1), MonoNs(0));
        for e in events {
            b.push(Event::OffCpu(e));
        }
        let tl = b.finish(Some(ms(1500)));
        let roles = super::roles::assign(&tl, &Evidence::of(&tl), feeder(&tl), &HashSet::new());
        let around = Surroundings::default();
        let walker = walk::Walker::new(&tl, &roles, &around);
        let (from, to) = (ms(cut), ms(cut + len));
        let segments = walker.explain(roles.feeder, from, to);
        let mut t = from;
        for s in &segments {
            prop_assert_eq!(s.start, t);
            prop_assert!(s.end > s.start);
            prop_assert_eq!(s.idle, s.end.since(s.start));
            t = s.end;
        }
        prop_assert_eq!(t, to);
    }

    /// The same with births, ends and reused ids, wakings by anybody at any time, and a recording that begins and ends in
    /// the middle of things; by several GPUs at once.
    #[test]
    fn every_idle_nanosecond_has_one_cause(
        mut events in prop::collection::vec(prop_oneof![6 => any_wild_off().prop_map(Event::OffCpu), 1 => any_task()], 0..120),
        start in 0u64..400, length in 0u64..900, gaps in prop::collection::vec((0u64..1400, 1u64..90), 0..12),
        seed in any::<u64>(),
    ) {
        fastrand::Rng::with_seed(seed).shuffle(&mut events);
        let mut b = TimelineBuilder::new(Pid(1), ms(start));
        for e in events {
            b.push(e);
        }
        let tl = b.finish(Some(ms(start + length)));
        for line in &tl.threads {
            prop_assert!(line.born <= line.died);
            prop_assert!(line.intervals.iter().all(|i| i.off <= i.wake && i.wake <= i.on));
            prop_assert!(line.intervals.windows(2).all(|w| w[0].on <= w[1].off));
        }
        let mut busy: Vec<BusyInterval> = Vec::new();
        for (from, len) in gaps {
            let after = busy.last().map_or(MonoNs(0), |b| b.end) + Nanos::from_millis(from % 60 + 1);
            busy.push(BusyInterval { start: after, end: after + Nanos::from_millis(len) });
        }
        let windows = (0..9).map(|k| crate::events::GpuWindow {
            gpu: GpuIndex(1), start: ms(k * 167), end: ms((k + 1) * 167), utilization: (seed >> k) as f32 % 101.0,
        }).collect();
        let gpus = [Activity::Intervals(busy), Activity::Windows(windows)].into_iter().zip(0..).map(|(activity, n)| {
            GpuActivity { gpu: GpuIndex(n), name: String::new(), source: GpuSource::Trace, pids: Vec::new(), holes: Vec::new(), activity }
        });
        let a = attribute(&tl, &[], gpus.collect());
        for g in &a.gpus {
            prop_assert_eq!(g.totals.causes.values().copied().sum::<Nanos>(), g.usage.idle);
            prop_assert_eq!(g.totals.idle, g.usage.idle);
            prop_assert!(g.usage.busy + g.usage.idle <= g.usage.to.since(g.usage.from));
        }
        let alone = attribute(&tl, &[], Vec::new());
        prop_assert_eq!(alone.main_thread.causes.values().copied().sum::<Nanos>(), tl.duration());
    }

    /// A window's idle time is spent to the nanosecond.
    #[test]
    fn idle_time_of_windows_is_spent_exactly(events in prop::collection::vec(any_off(), 0..60), util in 0f32..100.0) {
        let mut b = TimelineBuilder::new(Pid(1), MonoNs(0));
        for e in events {
            b.push(Event::OffCpu(e));
        }
        let tl = b.finish(Some(ms(1500)));
        let windows = (0..9).map(|k| crate::events::GpuWindow {
            gpu: GpuIndex(0), start: ms(k * 167), end: ms((k + 1) * 167), utilization: if k == 4 { 100.0 } else { util },
        }).collect();
        let gpu = GpuActivity {
            gpu: GpuIndex(0), name: String::new(), source: GpuSource::Nvml, pids: Vec::new(), holes: Vec::new(), activity: Activity::Windows(windows),
        };
        let a = attribute(&tl, &[], vec![gpu]);
        let sum: Nanos = a.totals.causes.values().copied().sum();
        prop_assert_eq!(sum, a.totals.idle);
        prop_assert_eq!(a.gpus[0].usage.idle, a.totals.idle);
        prop_assert!(a.gpus[0].usage.certain <= a.totals.idle);
    }
}

#[test]
fn a_file_that_is_synced_is_a_checkpoint_and_one_that_is_only_appended_to_is_not() {
    let fsync = Syscall(74);
    let log = vec![off(1, 1, 20, 40, 40, WRITE).on_disk()];
    assert_eq!(causes(log.clone(), &[(0, 10), (50, 60)], 60), vec![(Cause::Disk, 20), (Cause::HostCode, 20)]);
    let checkpoint = [log, vec![off(1, 1, 40, 50, 50, fsync).on_disk()]].concat();
    assert_eq!(causes(checkpoint, &[(0, 10), (50, 60)], 60), vec![(Cause::Checkpoint, 30), (Cause::HostCode, 10)]);
}

#[test]
fn a_checkpoint_is_known_by_its_name_where_links_or_relative_paths_lead_to_it() {
    const CREATE: u32 = 0o1101;
    const APPEND: u32 = 0o2000;
    let of = |opened: &str, flags| {
        let write = off(1, 1, 20, 40, 40, WRITE).on_disk();
        let named = NamedFile { file: write.file.unwrap(), path: "/mnt/real/last.pt".into() };
        let outcome = Some(OpenOutcome { latency: Nanos(1), result: 3, flags });
        let open =
            FileOpen { time: ms(15), tid: Tid(1), pid: Pid(1), syscall: Syscall(257), path: opened.into(), outcome };
        let events = vec![Event::NamedFile(named), Event::Open(open), Event::OffCpu(write)];
        let (_, a) = attribution(events, &[(0, 10), (50, 60)], 60);
        (a.totals.of(Cause::Checkpoint), a.roles.checkpoint_opens, a.roles.checkpoint_paths.contains(opened))
    };
    for opened in ["/mnt/real/last.pt", "/link/last.pt", "last.pt"] {
        assert_eq!(of(opened, CREATE), (Nanos::from_millis(25), vec![ms(15)], true), "{opened}");
    }
    let nothing = (Nanos::ZERO, vec![], false);
    assert_eq!(of("/mnt/real/other.pt", CREATE), nothing);
    assert_eq!(of("last.pt", CREATE | APPEND), nothing, "what is appended to is a log");
}

#[test]
fn a_lock_that_was_asked_for_in_vain_was_held_by_who_lets_go_of_it() {
    let lock = |from, wake, word| OffCpu { arg0: word, ..off(1, 1, from, wake, wake, FUTEX) };
    // Thread 2 runs throughout. Thread 1 asks every 5 ms, and then finds the lock's mutex taken for a moment: by 2.
    let asked = vec![lock(10, 15, 1000), lock(15, 20, 1004)];
    let in_vain = causes_of(asked.clone());
    assert_eq!(in_vain.of(Cause::Sleep), Nanos::from_millis(10), "nobody is known to have it");
    for mutex in [lock(20, 21, 1008).woken_by(2, 1), lock(9, 10, 1008).woken_by(2, 1)] {
        let told = causes_of([asked.clone(), vec![mutex]].concat());
        assert_eq!(told.of(Cause::Sleep), Nanos::ZERO, "{:?}", told.causes);
    }
    let other_lock = causes_of([asked.clone(), vec![lock(20, 21, 5000).woken_by(2, 1)]].concat());
    assert_eq!(other_lock.of(Cause::Sleep), Nanos::from_millis(10));
    // A waker that waited itself had it not.
    let waits = OffCpu { arg0: 1000, ..off(2, 1, 9, 20, 20, FUTEX) };
    let both = causes_of([asked, vec![lock(20, 21, 1008).woken_by(2, 1), waits]].concat());
    assert_eq!(both.of(Cause::Sleep), Nanos::from_millis(10), "{:?}", both.causes);
}

/// Of the gap 10..30 ms of a GPU that thread 1 feeds; thread 2 is another of its process.
fn causes_of(mut intervals: Vec<OffCpu>) -> Totals {
    intervals.sort_by_key(|i| i.off);
    let found = |tid| {
        let what = TaskWhat::Found { parent: Pid(0) };
        Event::Task(TaskEvent { time: ms(0), tid: Tid(tid), pid: Pid(1), what, comm: "python3".into() })
    };
    let events = [1, 2].into_iter().map(found).chain(intervals.into_iter().map(Event::OffCpu)).collect();
    attribution(events, &[(0, 10), (30, 40)], 40).1.totals
}

#[test]
fn a_script_of_short_commands_is_followed_itself() {
    const WAIT: Syscall = Syscall(61);
    const NANOSLEEP: Syscall = Syscall(230);
    // The script (1) waits 0..50 for one command (2) and 50..100 for the next (3); both sleep.
    let mut events = Vec::new();
    for (tid, from) in [(2, 0), (3, 50)] {
        let task = |time, what| {
            Event::Task(TaskEvent { time: ms(time), tid: Tid(tid), pid: Pid(tid), what, comm: "sleep".into() })
        };
        events.push(task(from, TaskWhat::Forked { parent: Tid(1) }));
        events.push(Event::OffCpu(off(tid, tid, from + 2, from + 48, from + 48, NANOSLEEP)));
        events.push(task(from + 49, TaskWhat::Exited));
        events.push(Event::OffCpu(off(1, 1, from + 1, from + 49, from + 49, WAIT).woken_by(tid, tid)));
    }
    let (_, a) = attribution(events, &[(0, 5), (95, 100)], 100);
    assert!(a.totals.of(Cause::Sleep) > Nanos::from_millis(80), "{:?}", a.totals.causes);
    assert_eq!(a.totals.of(Cause::Unknown), Nanos::ZERO);
}
