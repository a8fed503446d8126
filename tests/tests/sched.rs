//! Off-CPU intervals, from the real kernel programs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod probing;

use gpustall::events::{Event, FileType, LossKind, OffCpu, SleepState, Syscall, Waker};
use gpustall::probe::{Options, Probe};
use gpustall::units::{DevId, Nanos, Pid, Tid};
use probing::{Trace, Workload, attach, finish, trace};
use std::os::unix::fs::MetadataExt;

const READ: Syscall = Syscall(0);
const WRITE: Syscall = Syscall(1);
const POLL: Syscall = Syscall(7);
const EPOLL_WAIT: Syscall = Syscall(232);
const SENDTO: Syscall = Syscall(44);
const RECVFROM: Syscall = Syscall(45);
const PREAD: Syscall = Syscall(17);
const FUTEX: Syscall = Syscall(202);
const NANOSLEEP: Syscall = Syscall(230);

fn waker(o: &OffCpu) -> Option<Waker> {
    o.wakeup.map(|w| w.by)
}

/// Checks that `seen` intervals are all there are, but for those whose end was not seen.
fn assert_all(seen: usize, expected: usize, unseen: usize) {
    assert!(seen <= expected && seen + unseen >= expected, "{seen} of {expected}, and {unseen} whose end was not seen");
}

#[test]
fn sleeps_are_timed_and_end_by_an_interrupt() {
    let (w, t) = trace(&["sleep"]);
    let unseen = t.assert_whole();
    let main = w.pid().main_thread();
    let mut sleeps = 0;
    for slept in &w.said["slept"] {
        let &[asked, before, after, switches] = slept.as_slice() else { panic!("{slept:?}") };
        let inside: Vec<_> = t
            .of(main)
            .into_iter()
            .filter(|o| o.state != SleepState::Preempted && o.off.0 >= before && o.on.0 <= after)
            .collect();
        // None at all if the timer ran out before the thread got round to sleeping.
        assert_all(inside.len(), switches as usize, unseen);
        for o in inside {
            let expected = (NANOSLEEP, SleepState::Interruptible, Some(Waker::Interrupt), w.pid());
            assert_eq!((o.syscall, o.state, waker(o), o.pid), expected, "{o:?}");
            // The kernel programs read a clock that may be off by some nanoseconds while it is being set.
            assert!(o.blocked_until().0 + 10_000 >= before + asked, "no sleep ends early: {o:?}");
            assert!(!o.iowait && !o.seeded && !o.pending && o.file.is_none());
            sleeps += 1;
        }
    }
    assert!(sleeps > 0);
}

#[test]
fn a_time_out_is_told_from_an_event() {
    let (w, t) = trace(&["polls"]);
    let unseen = t.assert_whole();
    let polls: Vec<_> = t
        .of(w.pid().main_thread())
        .into_iter()
        .filter(|o| [POLL, EPOLL_WAIT].contains(&o.syscall) && o.state == SleepState::Interruptible)
        .map(|o| (o.syscall, o.arg0 as i64, waker(o) == Some(Waker::Interrupt)))
        .collect();
    let expected = [POLL, EPOLL_WAIT].map(|call| [(call, 20, true), (call, 500, false), (call, -1, false)]).concat();
    assert!(polls.iter().all(|p| expected.contains(p)), "{polls:?}");
    assert_all(polls.len(), expected.len(), unseen);
}

#[test]
fn a_pipe_names_the_writer_and_the_pipe() {
    let (w, t) = trace(&["pipe", "50"]);
    let unseen = t.assert_whole();
    let &[partner, fd, inode] = w.value("partner") else { panic!() };
    let partner = Pid(partner as u32);
    let waits: Vec<_> = t
        .of(w.pid().main_thread())
        .into_iter()
        .filter(|o| o.syscall == READ && o.file.is_some_and(|f| f.ino == inode) && o.state != SleepState::Preempted)
        .collect();
    assert_all(waits.len(), 50, unseen);
    let by = Waker::Thread { tid: partner.main_thread(), pid: partner, syscall: WRITE };
    for o in waits {
        assert_eq!((waker(o), o.arg0), (Some(by), fd), "{o:?}");
        assert_eq!(o.file.map(|f| f.file_type()), Some(FileType::Pipe));
        assert_eq!(o.file.map(|f| f.magic), Some(0x5049_5045), "PIPEFS_MAGIC");
    }
}

#[test]
fn a_futex_names_the_thread_that_wakes() {
    let (w, t) = trace(&["futex"]);
    let unseen = t.assert_whole();
    let &[setter] = w.value("setter") else { panic!() };
    let by = Waker::Thread { tid: Tid(setter as u32), pid: w.pid(), syscall: FUTEX };
    let waits: Vec<_> = t
        .of(w.pid().main_thread())
        .into_iter()
        .filter(|o| o.syscall == FUTEX && o.state == SleepState::Interruptible && waker(o) == Some(by))
        .collect();
    assert_all(waits.len(), 5, unseen);
}

#[test]
fn a_thread_killed_in_user_code_is_the_waker_of_its_parent() {
    let (w, t) = trace(&["join"]);
    let unseen = t.assert_whole();
    let &[killed] = w.value("killed") else { panic!() };
    let waits: Vec<_> = t
        .of(w.pid().main_thread())
        .into_iter()
        .filter(|o| matches!(waker(o), Some(Waker::Thread { tid, .. }) if tid == Tid(killed as u32)))
        .collect();
    assert_all(waits.len(), 1, unseen);
}

#[test]
fn unix_sockets_and_eventfds_name_the_thread_that_wakes() {
    // The standard library writes to a unix socket by sendto and reads by recvfrom.
    for (how, sends, waits_in) in [("unix", SENDTO, RECVFROM), ("eventfd", WRITE, EPOLL_WAIT)] {
        let (w, t) = trace(&[how]);
        let unseen = t.assert_whole();
        let &[server] = w.value("server") else { panic!() };
        let by = Waker::Thread { tid: Tid(server as u32), pid: w.pid(), syscall: sends };
        let waits = t.of(w.pid().main_thread()).into_iter().filter(|o| o.syscall == waits_in && waker(o) == Some(by));
        assert_all(waits.count(), 20, unseen);
    }
}

#[test]
fn the_sender_wakes_over_loopback() {
    let (w, t) = trace(&["loopback"]);
    let &[server] = w.value("server") else { panic!() };
    let waits: Vec<_> = t
        .of(w.pid().main_thread())
        .into_iter()
        .filter(|o| o.file.is_some_and(|f| f.file_type() == FileType::Socket) && o.state == SleepState::Interruptible)
        .collect();
    assert!(waits.len() + t.assert_whole() >= 20, "{waits:?}");
    let from_server = |o: &&&OffCpu| matches!(waker(o), Some(Waker::Thread { tid, .. }) if tid == Tid(server as u32));
    // A packet may also be delivered by ksoftirqd or by an interrupt that comes just then.
    let right = waits.iter().filter(from_server).count();
    assert!(right >= 10, "{right} of {}: {waits:?}", waits.len());
}

#[test]
fn uncached_reads_are_disk_waits_on_the_file() {
    let dir = tempfile::Builder::new().prefix("gpustall-direct").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = dir.path().join("data");
    std::fs::write(&path, vec![7; 4 << 20]).unwrap();
    std::fs::File::open(&path).unwrap().sync_all().unwrap();
    let meta = std::fs::metadata(&path).unwrap();
    let (w, t) = trace(&["direct", path.to_str().unwrap()]);
    t.assert_whole();
    let &[reads, fd] = w.value("reads") else { panic!() };
    let waits: Vec<_> = t
        .of(w.pid().main_thread())
        .into_iter()
        .filter(|o| o.syscall == PREAD && o.state != SleepState::Preempted)
        .collect();
    assert!(waits.len() as u64 > reads / 2, "{} waits for {reads} reads", waits.len());
    let dev = DevId { major: libc::major(meta.dev()), minor: libc::minor(meta.dev()) };
    for o in waits {
        assert_eq!((o.state, o.iowait, o.arg0), (SleepState::Uninterruptible, true, fd), "{o:?}");
        let file = o.file.unwrap();
        assert_eq!((file.ino, file.dev, u32::from(file.mode)), (meta.ino(), dev, meta.mode()));
        assert!(o.blocked() > Nanos(1000), "{o:?}");
    }
}

#[test]
fn a_competitor_on_the_same_cpu_is_named() {
    let mut w = Workload::start(&["spin", "1", "150"]);
    let mut rival = Workload::start(&["spin", "1", "3000"]);
    let mut probe = attach(w.pid());
    rival.go();
    w.go();
    let t = finish(&mut w, &mut probe);
    t.assert_whole();
    let main = w.pid().main_thread();
    let rival_tid = rival.pid().main_thread();
    let preempted: Vec<_> = t.of(main).into_iter().filter(|o| o.state == SleepState::Preempted).collect();
    let lost_to = |next: Tid| preempted.iter().filter(|o| o.next_tid == next).count();
    assert!(lost_to(rival_tid) >= 5, "{preempted:?}");
    assert!(preempted.iter().any(|o| o.prev_tid == rival_tid && o.run_queue() > Nanos::from_millis(1)));
    assert!(preempted.iter().all(|o| o.wakeup.is_none() && o.blocked() == Nanos::ZERO));
    let name = t.events.iter().find_map(|e| match e {
        Event::ThreadName(n) if n.tid == rival_tid => Some(n),
        _ => None,
    });
    let name = name.expect("the rival has a name");
    assert_eq!((name.pid, name.comm.as_str()), (rival.pid(), "gpustall-test-t"));
    assert!(name.command.ends_with("spin 1 3000"), "{name:?}");
    agrees_with_the_schedulers_books(&w, &t);
}

#[test]
fn blocked_runnable_and_running_time_add_up_alone_too() {
    let (w, t) = trace(&["spin", "0", "100"]);
    t.assert_whole();
    agrees_with_the_schedulers_books(&w, &t);
}

/// The sum of run-queue times is the run delay in /proc/PID/schedstat, and what is neither blocked nor runnable is running.
fn agrees_with_the_schedulers_books(w: &Workload, t: &Trace) {
    let &[start, end, cpu, delay] = w.value("spun") else { panic!() };
    let inside: Vec<_> =
        t.of(w.pid().main_thread()).into_iter().filter(|o| o.off.0 >= start && o.on.0 <= end).collect();
    let run_queue: Nanos = inside.iter().map(|o| o.run_queue()).sum();
    let blocked: Nanos = inside.iter().map(|o| o.blocked()).sum();
    let near = |a: u64, b: u64| a.abs_diff(b) < b / 25 + 1_000_000;
    // Since Linux 6.12 a sleeper may stay on its queue for a while, and the run delay counts that as waiting for a CPU.
    let slept_on_the_queue = delay.saturating_sub(run_queue.0).min(blocked.0);
    assert!(
        near(run_queue.0 + slept_on_the_queue, delay),
        "run queue {run_queue}, blocked {blocked}, schedstat says {}",
        Nanos(delay)
    );
    let total = cpu + run_queue.0 + blocked.0;
    assert!(near(total, end - start), "parts make {}, wall is {}", Nanos(total), Nanos(end - start));
    let preempted = inside.iter().filter(|o| o.state == SleepState::Preempted).count();
    let &[slept, displaced] = w.value("switched") else { panic!() };
    assert_all(inside.len(), (slept + displaced) as usize, t.assert_whole());
    assert!(inside.len() - preempted <= slept as usize && preempted <= displaced as usize);
    for pair in inside.windows(2) {
        assert!(pair[0].on <= pair[1].off, "intervals of a thread do not overlap: {pair:?}");
    }
}

#[test]
fn a_wait_in_progress_at_the_attach_is_known() {
    for (how, syscall) in [("read", READ), ("poll", POLL)] {
        let mut w = Workload::start(&["hang", how]);
        w.hear_until("waiter");
        let &[tid, fd, inode] = w.value("waiter") else { panic!() };
        let waiter = Tid(tid as u32);
        wait_until_asleep(w.pid(), waiter);
        let mut probe = attach(w.pid());
        w.go();
        w.hear_until("woken");
        let &[main, woken_at] = w.value("woken") else { panic!() };
        // It waits again, in the second read, when the tracer stops.
        wait_until_asleep(w.pid(), waiter);
        let mut events = Vec::new();
        let cost = probe.stop(&mut |e| events.push(e));
        let t = Trace { events, cost };
        t.assert_whole();
        let of = t.of(waiter);
        let first = of.first().unwrap();
        assert!(first.seeded && !first.pending, "{of:?}");
        assert_eq!((first.syscall, first.state), (syscall, SleepState::Interruptible));
        let file = first.file.unwrap();
        assert_eq!((file.ino, file.file_type(), file.magic), (inode, FileType::Pipe, 0x5049_5045));
        if how == "read" {
            assert_eq!(first.arg0, fd);
        }
        let by = Waker::Thread { tid: Tid(main as u32), pid: w.pid(), syscall: WRITE };
        assert_eq!(waker(first), Some(by));
        assert!(first.wakeup.unwrap().at.0 <= woken_at);
        let last = of.last().unwrap();
        assert!(last.pending && !last.seeded && last.wakeup.is_none(), "{of:?}");
        assert_eq!((last.syscall, last.arg0, last.file.unwrap().ino), (READ, fd, inode));
        assert!(last.off >= first.on && last.on > last.off);
    }
}

/// Waits until a thread sleeps in a system call.
fn wait_until_asleep(pid: Pid, tid: Tid) {
    let path = format!("/proc/{pid}/task/{tid}/stat");
    for _ in 0..60_000 {
        let stat = std::fs::read_to_string(&path).unwrap();
        if stat[stat.rfind(')').unwrap()..].starts_with(") S") {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{tid} does not go to sleep");
}

#[test]
fn every_interval_is_recorded_or_counted_as_lost() {
    let mut w = Workload::start(&["storm"]);
    let options = Options { events_ring_bytes: 4096, ..Options::new(w.pid()) };
    let mut probe = Probe::attach(&options).unwrap();
    w.go();
    // Nobody drains while it runs: most must be lost.
    w.child.wait().unwrap();
    while w.hear() {}
    let mut events = Vec::new();
    let cost = probe.stop(&mut |e| events.push(e));
    let t = Trace { events, cost };
    let recorded = t.off_cpu().filter(|o| !o.pending).count() as u64;
    let lost = t.lost(LossKind::OffCpu);
    assert!(lost > 5000 && recorded > 10, "{recorded} recorded, {lost} lost");
    assert_eq!(t.cost.intervals, recorded + lost);
}

/// Forks one child whose id lies a multiple of the number of state slots away from the shell's own, says both ids, and waits
/// for the child.
const SAME_SLOT: &str = "read go; child=$$; [ $$ -gt 16384 ] && child=$(($$ - 32768)); child=$(($child + 16384))
    for i in 1 2 3 4 5 6 7 8 9 10; do
        echo $(($child - 1)) >/proc/sys/kernel/ns_last_pid; sleep 0.02 & wait $!; [ $! = $child ] && break
    done; echo $! $child";

#[test]
fn threads_that_share_a_slot_are_told_apart() {
    // Somebody else may have the id or take it first; then with another shell.
    let (shell, child, t) = (0..20).find_map(|_| same_slot()).expect("a child with the wanted id");
    t.assert_whole();
    let slept: Vec<_> = t.of(child.main_thread()).into_iter().filter(|o| o.syscall == NANOSLEEP).collect();
    let [slept] = slept.as_slice() else { panic!("{slept:?}") };
    assert!(slept.on.since(slept.off) >= Nanos::from_millis(20), "{slept:?}");
    assert_eq!(t.of(child.main_thread())[0].state, SleepState::New);
    let waits: Vec<_> =
        t.of(shell.main_thread()).into_iter().filter(|o| o.off <= slept.off && o.on >= slept.on).collect();
    let [wait] = waits.as_slice() else { panic!("{waits:?}") };
    assert!(matches!(waker(wait), Some(Waker::Thread { pid, .. }) if pid == child), "{wait:?}");
    assert!(t.of(shell.main_thread())[0].seeded);
}

/// A trace of [`SAME_SLOT`] with the ids of the shell and of the child, if it got the wanted one.
fn same_slot() -> Option<(Pid, Pid, Trace)> {
    use std::io::{Read, Write};
    let pipe = std::process::Stdio::piped;
    let mut shell =
        std::process::Command::new("sh").args(["-c", SAME_SLOT]).stdin(pipe()).stdout(pipe()).spawn().unwrap();
    let mut probe = attach(Pid(shell.id()));
    shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut said = String::new();
    shell.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    shell.wait().unwrap();
    let mut events = Vec::new();
    let cost = probe.stop(&mut |e| events.push(e));
    let (got, wanted) = said.trim().split_once(' ').unwrap();
    (got == wanted).then(|| (Pid(shell.id()), Pid(got.parse().unwrap()), Trace { events, cost }))
}

#[test]
fn the_untyped_programs_say_the_same() {
    let mut w = Workload::start(&["pipe", "20"]);
    let mut probe = Probe::attach_untyped(&Options::new(w.pid())).unwrap();
    w.go();
    let t = finish(&mut w, &mut probe);
    let unseen = t.assert_whole();
    let &[partner, fd, inode] = w.value("partner") else { panic!() };
    let by = Waker::Thread { tid: Tid(partner as u32), pid: Pid(partner as u32), syscall: WRITE };
    let waits: Vec<_> = t
        .of(w.pid().main_thread())
        .into_iter()
        .filter(|o| o.file.is_some_and(|f| f.ino == inode) && o.state != SleepState::Preempted)
        .collect();
    assert_all(waits.len(), 20, unseen);
    for o in waits {
        assert_eq!((o.syscall, o.arg0, o.state, waker(o)), (READ, fd, SleepState::Interruptible, Some(by)));
    }
}

#[test]
fn the_idle_task_is_never_a_thread() {
    let (_, t) = trace(&["pipe", "20"]);
    for o in t.off_cpu() {
        assert!(o.tid.0 != 0 && o.pid.0 != 0, "{o:?}");
        assert!(!matches!(waker(o), Some(Waker::Thread { tid: Tid(0), .. } | Waker::KernelThread { tid: Tid(0) })));
        assert!(o.off <= o.blocked_until() && o.blocked_until() <= o.on, "{o:?}");
    }
}
