//! Timelines from events in any order, with the damage that recordings can have.

use super::*;
use crate::events::{Event, OffCpu, SleepState, Syscall, TaskEvent, TaskWhat};

fn off(tid: u32, from: u64, on: u64) -> Event {
    Event::OffCpu(OffCpu {
        tid: Tid(tid),
        pid: Pid(1),
        cpu: 0,
        off: MonoNs(from),
        wakeup: None,
        on: MonoNs(on),
        state: SleepState::Preempted,
        iowait: false,
        syscall: Syscall::NONE,
        arg0: 0,
        file: None,
        next_tid: Tid(0),
        prev_tid: Tid(0),
        seeded: false,
        pending: false,
    })
}

fn task(tid: u32, time: u64, what: TaskWhat) -> Event {
    Event::Task(TaskEvent { time: MonoNs(time), tid: Tid(tid), pid: Pid(tid), what, comm: format!("t{tid}") })
}

fn built(events: Vec<Event>) -> Timeline {
    let mut b = TimelineBuilder::new(Pid(1), MonoNs(0));
    events.into_iter().for_each(|e| b.push(e));
    b.finish(Some(MonoNs(1_000)))
}

#[test]
fn a_thread_id_that_was_used_twice_is_two_threads() {
    let parent = Tid(1);
    let tl = built(vec![
        off(7, 500, 520),
        task(7, 400, TaskWhat::Forked { parent }),
        task(7, 200, TaskWhat::Exited),
        off(7, 110, 130),
        task(7, 100, TaskWhat::Forked { parent }),
    ]);
    let [first, second] = [150, 600].map(|t| tl.thread_at(Tid(7), MonoNs(t)).unwrap());
    assert_ne!(first, second);
    let (first, second) = (tl.thread(first).unwrap(), tl.thread(second).unwrap());
    assert_eq!((first.born, first.died, first.intervals.len()), (MonoNs(100), MonoNs(200), 1));
    assert_eq!((second.born, second.died, second.intervals.len()), (MonoNs(400), MonoNs(1_000), 1));
    assert_eq!(second.running(), Nanos(580));
}

#[test]
fn intervals_that_contradict_each_other_are_cut_and_counted() {
    let tl = built(vec![off(1, 10, 50), off(1, 20, 30), off(1, 40, 80), off(1, 90, 95)]);
    let line = &tl.threads[0];
    let spans: Vec<(u64, u64)> = line.intervals.iter().map(|i| (i.off.0, i.on.0)).collect();
    assert_eq!(spans, [(10, 50), (50, 80), (90, 95)]);
    assert_eq!(tl.contradictions, 2);
}

#[test]
fn an_empty_recording_is_an_empty_timeline() {
    let tl = TimelineBuilder::new(Pid(1), MonoNs(5)).finish(None);
    assert_eq!(tl.duration(), Nanos::ZERO);
    assert!(tl.threads.is_empty() && tl.thread_at(Tid(1), MonoNs(9)).is_none());
}

#[test]
fn an_interval_that_reaches_out_of_the_span_counts_clipped() {
    let mut b = TimelineBuilder::new(Pid(1), MonoNs(100));
    [off(1, 50, 150), off(1, 180, 300), off(1, 10, 20)].into_iter().for_each(|e| b.push(e));
    let tl = b.finish(Some(MonoNs(200)));
    let line = &tl.threads[0];
    assert_eq!((line.alive(), line.off_cpu(), line.running()), (Nanos(100), Nanos(70), Nanos(30)));
}
