//! Task lifecycle, from the real kernel programs, and targets that cannot be.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod probing;

use gpustall::events::{Event, SleepState, TaskEvent, TaskWhat};
use gpustall::probe::{Options, Probe, ProbeError};
use gpustall::units::{Pid, Tid};
use probing::{Trace, Workload, trace};

fn of(t: &Trace, tid: Tid) -> Vec<&TaskEvent> {
    let mut of: Vec<_> = t.tasks().filter(|e| e.tid == tid).collect();
    of.sort_by_key(|e| e.time);
    of
}

fn kinds(events: &[&TaskEvent]) -> Vec<TaskWhat> {
    events.iter().map(|e| e.what).collect()
}

#[test]
fn children_grandchildren_and_threads_are_followed() {
    let (w, t) = trace(&["tree"]);
    t.assert_whole();
    let &[child, thread, grandchild] = w.value("tree") else { panic!() };
    let (child, thread, grandchild) = (Pid(child as u32), Tid(thread as u32), Pid(grandchild as u32));
    let main = of(&t, w.pid().main_thread());
    assert_eq!(kinds(&main), [TaskWhat::Found { parent: Pid(std::process::id()) }, TaskWhat::Exited]);
    assert_eq!(main[0].comm, "gpustall-test-t");
    assert_eq!(
        kinds(&of(&t, child.main_thread())),
        [TaskWhat::Forked { parent: w.pid().main_thread() }, TaskWhat::Exited]
    );
    let thread_events = of(&t, thread);
    assert_eq!(kinds(&thread_events), [TaskWhat::Forked { parent: child.main_thread() }, TaskWhat::Exited]);
    assert!(thread_events.iter().all(|e| e.pid == child), "a thread belongs to its process");
    let ran = of(&t, grandchild.main_thread());
    let fork = TaskWhat::Forked { parent: child.main_thread() };
    let exec = TaskWhat::Exec { old_tid: grandchild.main_thread() };
    assert_eq!(kinds(&ran), [fork, TaskWhat::Renamed, exec, TaskWhat::Exited]);
    assert_eq!([&ran[0].comm, &ran[1].comm, &ran[2].comm], ["gpustall-test-t", "sleep", "sleep"]);
    for tid in [child.main_thread(), thread, grandchild.main_thread()] {
        let first = t.of(tid)[0];
        assert_eq!(first.state, SleepState::New, "{first:?}");
        assert_eq!(first.off, of(&t, tid)[0].time, "runnable from the fork on");
        assert!(t.of(tid).len() > 1, "its sleep is recorded too");
    }
}

#[test]
fn a_thread_that_execs_becomes_the_main_thread() {
    let (w, t) = trace(&["exec-thread"]);
    t.assert_whole();
    let &[thread] = w.value("thread") else { panic!() };
    let (thread, main) = (Tid(thread as u32), w.pid().main_thread());
    let exec = t.tasks().find(|e| matches!(e.what, TaskWhat::Exec { .. })).expect("an exec");
    assert_eq!((exec.tid, exec.what, exec.comm.as_str()), (main, TaskWhat::Exec { old_tid: thread }, "sleep"));
    let slept = t.of(main).into_iter().filter(|o| o.off > exec.time && o.syscall.0 == 230).count();
    assert_eq!(slept, 1, "the new program is still traced: {:?}", t.of(main));
    assert!(t.of(thread).iter().all(|o| o.off < exec.time), "nothing under the old id");
    assert_eq!(t.tasks().filter(|e| e.what == TaskWhat::Exited && e.tid == main).count(), 2, "old and new main thread");
}

#[test]
fn a_new_name_is_seen() {
    let (w, t) = trace(&["rename"]);
    let renamed: Vec<_> = t.tasks().filter(|e| e.what == TaskWhat::Renamed).collect();
    let [one] = renamed.as_slice() else { panic!("{renamed:?}") };
    assert_eq!((one.tid, one.pid, one.comm.as_str()), (w.pid().main_thread(), w.pid(), "pt_data_worker"));
}

#[test]
fn processes_that_exist_already_are_found_with_their_threads() {
    let mut w = Workload::start(&["hang", "read"]);
    w.hear_until("waiter");
    let waiter = Tid(w.value("waiter")[0] as u32);
    let mut shell = std::process::Command::new("sh")
        .args(["-c", "sleep 100 & echo $!; wait"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(shell.stdout.take().unwrap()), &mut line).unwrap();
    let below = Pid(line.trim().parse().unwrap());
    let found = |pid: Pid| {
        let mut probe = probing::attach(pid);
        let mut events = Vec::new();
        let cost = probe.stop(&mut |e| events.push(e));
        Trace { events, cost }
    };
    let t = found(w.pid());
    assert_eq!(kinds(&of(&t, waiter)), [TaskWhat::Found { parent: Pid(std::process::id()) }]);
    assert!(t.of(waiter)[0].seeded && t.of(waiter)[0].pending);
    let t = found(Pid(shell.id()));
    assert_eq!(kinds(&of(&t, below.main_thread())), [TaskWhat::Found { parent: Pid(shell.id()) }]);
    assert_eq!(t.of(below.main_thread()).len(), 1);
    // SAFETY: ends the sleep that this test's own shell started and still waits for.
    unsafe { libc::kill(below.0 as i32, libc::SIGTERM) };
    shell.wait().unwrap();
}

#[test]
fn no_child_slips_through_while_the_tracer_attaches() {
    let mut w = Workload::start(&["forks"]);
    let mut probe = probing::attach(w.pid());
    let attached = monotonic();
    let mut events = Vec::new();
    let mut forks = 0;
    while forks < 60 {
        assert!(monotonic() - attached < 60_000_000_000, "{forks} forks in a minute");
        probe.drain(&mut |e| {
            let fork = |t: &TaskEvent| matches!(t.what, TaskWhat::Forked { .. }) && t.time.0 > attached;
            forks += usize::from(matches!(&e, Event::Task(t) if fork(t)));
            events.push(e);
        });
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    w.go();
    let rest = probing::finish(&mut w, &mut probe);
    events.extend(rest.events);
    let t = Trace { events, cost: rest.cost };
    t.assert_whole();
    let mut judged = 0;
    for child in &w.said["child"] {
        let &[pid, forked_after, _] = child.as_slice() else { panic!("{child:?}") };
        let known = of(&t, Tid(pid as u32));
        // A child sleeps for 3 ms; one that may have ended before the attach was complete need not be known.
        if forked_after + 3_000_000 <= attached {
            continue;
        }
        judged += 1;
        assert!(
            matches!(known.first().map(|e| e.what), Some(TaskWhat::Found { .. } | TaskWhat::Forked { .. })),
            "{pid}, forked after {forked_after}, attached by {attached}: {known:?}"
        );
        assert_eq!(known.iter().filter(|e| e.what == TaskWhat::Exited).count(), 1, "{known:?}");
    }
    assert!(judged >= 60, "{judged} children");
}

fn monotonic() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn refusal(pid: Pid) -> ProbeError {
    match Probe::attach(&Options::new(pid)) {
        Ok(_) => panic!("{pid} was accepted"),
        Err(e) => e,
    }
}

#[test]
fn targets_that_cannot_be_are_refused_in_a_sentence() {
    assert!(matches!(refusal(Pid(std::process::id())), ProbeError::Own(_)));
    assert!(matches!(refusal(Pid(2)), ProbeError::KernelThread(_)));
    assert!(matches!(refusal(Pid(0)), ProbeError::NoSuchProcess(_)));
    assert!(matches!(refusal(Pid(u32::MAX)), ProbeError::NoSuchProcess(_)));
    let mut gone = std::process::Command::new("true").spawn().unwrap();
    let pid = Pid(gone.id());
    gone.wait().unwrap();
    assert_eq!(
        refusal(pid).to_string(),
        format!("no process has the id {pid}; find the training process with `pgrep -af python` or `nvidia-smi`")
    );
    let mut w = Workload::start(&["hang", "read"]);
    w.hear_until("waiter");
    let waiter = Pid(w.value("waiter")[0] as u32);
    assert!(matches!(refusal(waiter), ProbeError::Thread(_, owner) if owner == w.pid()));
}

#[test]
fn a_zombie_has_died() {
    let mut w = Workload::start(&["rename"]);
    w.go();
    while w.hear() {}
    // Its output is closed; it is a zombie as soon as its state says so, since nobody has waited for it.
    let stat = format!("/proc/{}/stat", w.pid());
    while !std::fs::read_to_string(&stat).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    assert!(matches!(refusal(w.pid()), ProbeError::Died(_)));
}
