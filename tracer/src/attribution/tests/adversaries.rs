//! Intervals of threads that wake each other in ways that a walk could follow for ever.

use super::*;
use std::time::{Duration, Instant};

/// Intervals of a recording, and how long attribution of them may take.
const COUNT: u64 = 1_000_000;
const LIMIT: Duration = Duration::from_secs(2);

/// Interval number `n` of the recording, 1 µs long, one every 2 µs a thread.
fn short(tid: u32, n: u64) -> OffCpu {
    let from = MonoNs(1_000 + n * 2_000);
    let mut o = off(tid, if tid < 3 { 1 } else { tid }, 0, 0, 0, FUTEX);
    (o.off, o.on) = (from, from + Nanos(1_000));
    o
}

fn woken(mut o: OffCpu, tid: u32) -> OffCpu {
    let by = Waker::Thread { tid: Tid(tid), pid: Pid(if tid < 3 { 1 } else { tid }), syscall: WRITE };
    o.wakeup = Some(Wakeup { at: o.on, by });
    o
}

/// Attribution of one gap over all of it, and of windows; every nanosecond has a cause, within the time limit.
fn explained(events: impl Iterator<Item = OffCpu>) {
    let mut b = TimelineBuilder::new(Pid(1), MonoNs(0));
    events.for_each(|o| b.push_off_cpu(&o));
    let tl = b.finish(None);
    let end = tl.span.1;
    let busy = [(MonoNs(0), MonoNs(10)), (MonoNs(end.0 - 10), end)].map(|(start, end)| BusyInterval { start, end });
    let window = crate::events::GpuWindow { gpu: GpuIndex(1), start: MonoNs(0), end, utilization: 50.0 };
    let gpus = [Activity::Intervals(busy.to_vec()), Activity::Windows(vec![window])];
    for (n, activity) in gpus.into_iter().enumerate() {
        let (gpu, source) = (GpuIndex(n as u32), GpuSource::Trace);
        let begun = Instant::now();
        let a = attribute(
            &tl,
            &[],
            vec![GpuActivity { gpu, name: String::new(), source, pids: Vec::new(), holes: Vec::new(), activity }],
        );
        let took = begun.elapsed();
        assert_eq!(a.totals.causes.values().copied().sum::<Nanos>(), a.totals.idle);
        assert!(a.totals.idle > Nanos(end.0 / 3));
        println!("{took:?}");
        assert!(took < LIMIT, "{took:?}");
    }
}

#[test]
fn two_threads_that_wake_each_other_all_the_time() {
    explained((0..COUNT).map(|n| {
        let tid = 1 + (n % 2) as u32;
        woken(short(tid, n / 2), 3 - tid)
    }));
}

#[test]
fn the_same_with_another_lock_each_time() {
    explained((0..COUNT).map(|n| {
        let tid = 1 + (n % 2) as u32;
        OffCpu { arg0: n, ..woken(short(tid, n / 2), 3 - tid) }
    }));
}

#[test]
fn a_ring_of_more_threads_than_are_followed() {
    explained((0..COUNT).map(|n| {
        let tid = 1 + (n % 64) as u32;
        let o = OffCpu { arg0: n % 3, ..short(tid, n / 64) };
        woken(o, 1 + tid % 64)
    }));
}

#[test]
fn any_thread_wakes_any_other() {
    let mut rng = 1u64;
    explained((0..COUNT).map(move |n| {
        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let o = OffCpu { arg0: rng >> 62, ..short(1 + (n % 20) as u32, n / 20) };
        woken(o, 1 + (rng >> 40) as u32 % 20)
    }));
}

#[test]
fn a_feeder_that_is_preempted_all_the_time() {
    explained((0..COUNT).map(|n| short(1, n).preempted_by(99)));
}

#[test]
fn a_feeder_that_writes_checkpoints_all_the_time() {
    explained((0..COUNT).map(|n| match n % 3 {
        0 => OffCpu { syscall: Syscall(74), ..short(1, n).on_disk() },
        _ => short(1, n).preempted_by(99),
    }));
}
