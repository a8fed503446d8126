//! Who is what to the training: by what comes again and again, not by one chance wake-up.

use super::*;

/// Processes 2 to 9 are workers of 1; threads 21 to 29 belong to 2, 11 to 19 to 1.
fn pid_of(tid: u32) -> u32 {
    match tid {
        11..=19 => 1,
        21..=29 => 2,
        other => other,
    }
}

fn task(tid: u32, comm: &str) -> Event {
    let what = TaskWhat::Found { parent: Pid(1) };
    Event::Task(TaskEvent { time: MonoNs(0), tid: Tid(tid), pid: Pid(pid_of(tid)), what, comm: comm.into() })
}

/// Threads 1, 2 and `others`, which wait in `waits`, and the roles of some of them.
fn roles_of<const N: usize>(others: &[u32], waits: Vec<OffCpu>, asked: [u32; N]) -> [Role; N] {
    let mut b = TimelineBuilder::new(Pid(1), MonoNs(0));
    for tid in [1, 2].iter().chain(others) {
        b.push(task(*tid, "python3"));
    }
    let end = waits.iter().map(|o| o.on).max().unwrap().max(ms(1_000));
    waits.into_iter().for_each(|o| b.push(Event::OffCpu(o)));
    let tl = b.finish(Some(end));
    let roles = crate::attribution::roles::assign(&tl, &Evidence::of(&tl), feeder(&tl), &HashSet::new());
    asked.map(|tid| roles.of(tl.thread_at(Tid(tid), ms(1)).unwrap()))
}

/// `n` waits of thread `to` in poll from `start` on, one every 10 ms, each ended by `by`.
fn woken(to: u32, by: u32, start: u64, n: u64) -> impl Iterator<Item = OffCpu> {
    let wait = move |k| {
        let from = start + 10 * k;
        off(to, pid_of(to), from, from + 5, from + 5, POLL).woken_by(by, pid_of(by))
    };
    (0..n).map(wait)
}

/// A thread that sleeps all the time.
fn waits(tid: u32) -> OffCpu {
    off(tid, pid_of(tid), 0, 999, 999, FUTEX)
}

#[test]
fn a_pool_thread_that_once_woke_the_feeder_still_prepares() {
    // 21 carries all batches; 22 and 23 compute, and one of them ends a wait of the feeder's process by chance.
    let all: Vec<_> = woken(1, 21, 100, 40).chain(woken(1, 22, 600, 1)).chain([waits(2), waits(21)]).collect();
    assert_eq!(roles_of(&[21, 22, 23], all, [2, 21, 22, 23]), [Role::Worker, Role::Ipc, Role::Worker, Role::Worker]);
    // Four times of 24, but it runs all the time.
    let all: Vec<_> = woken(1, 21, 100, 20).chain(woken(1, 22, 600, 4)).chain([waits(2), waits(21)]).collect();
    assert_eq!(roles_of(&[21, 22, 23], all, [21, 22]), [Role::Ipc, Role::Worker]);
}

#[test]
fn the_only_delivery_of_a_worker_is_made_by_its_carrier() {
    let one: Vec<_> = woken(1, 21, 100, 1).collect();
    assert_eq!(roles_of(&[21, 22], one, [1, 2, 21, 22]), [Role::Feeder, Role::Worker, Role::Ipc, Role::Worker]);
    // Of the main thread it is what a worker does anyway.
    assert_eq!(roles_of(&[], woken(1, 2, 100, 1).collect(), [2]), [Role::Worker]);
}

#[test]
fn descriptors_handed_over_one_by_one_do_not_hide_who_carries_the_batch() {
    // For each batch of 21, thread 22 hands over 20 descriptors; both wait most of the time, 23 computes.
    let piece = |tid, k: u64| off(tid, 2, 100 * k, 100 * k + 99, 100 * k + 99, FUTEX);
    let mut all: Vec<_> = woken(1, 21, 900, 4).chain(woken(1, 22, 50, 80)).chain([waits(2)]).collect();
    all.extend((0..10).flat_map(|k| [piece(21, k), piece(22, k)]));
    assert_eq!(roles_of(&[21, 22, 23], all, [21, 22, 23]), [Role::Ipc, Role::Ipc, Role::Worker]);
}

#[test]
fn a_carrier_of_a_worker_that_lives_for_one_epoch_delivers_once() {
    // Thread 22 hands over 15 descriptors of the one batch of 21; both ran for milliseconds.
    let all = woken(1, 21, 900, 1).chain(woken(1, 22, 500, 15)).chain([2, 21, 22].map(waits));
    assert_eq!(roles_of(&[21, 22, 23], all.collect(), [21, 22, 23]), [Role::Ipc, Role::Ipc, Role::Worker]);
}

#[test]
fn a_command_that_was_run_once_is_no_worker() {
    // Workers 2 and 3 deliver all the time; 4 lives as long and woke the feeder once.
    let all = |n| woken(1, 2, 0, n).chain(woken(1, 3, 10 * n, n)).chain(woken(1, 4, 20 * n, 1)).collect();
    assert_eq!(roles_of(&[3, 4], all(600), [2, 3, 4]), [Role::Worker, Role::Worker, Role::Other]);
    // Of twin workers one may wake the feeder far more often.
    assert_eq!(roles_of(&[3, 4], all(40), [2, 3, 4]), [Role::Worker; 3]);
}

#[test]
fn a_worker_of_the_last_epoch_that_delivered_once_is_one() {
    let fork = Event::Task(TaskEvent {
        time: ms(950),
        tid: Tid(5),
        pid: Pid(5),
        what: TaskWhat::Forked { parent: Tid(1) },
        comm: "python3".into(),
    });
    let all = woken(1, 2, 0, 80).chain(woken(1, 5, 980, 1)).map(Event::OffCpu).chain([fork, task(1, "python3")]);
    let (tl, a) = attribution(all.chain([task(2, "python3")]).collect(), &[(0, 10), (990, 999)], 1_000);
    assert_eq!(a.roles.of(tl.thread_at(Tid(5), ms(990)).unwrap()), Role::Worker);
}

#[test]
fn one_answer_of_a_command_does_not_take_the_data_loading_from_the_feeder() {
    let reads = (0..9).map(|k| off(1, 1, 20 * k, 20 * k + 15, 20 * k + 15, READ).on_disk());
    let mut events: Vec<Event> = [1, 2].map(|tid| task(tid, "python3")).into();
    events.extend(reads.chain(woken(1, 2, 300, 1)).map(Event::OffCpu));
    let loads = |events: Vec<Event>| {
        let (tl, a) = attribution(events, &[(0, 5), (990, 999)], 1_000);
        a.roles.loads_data(tl.thread_at(Tid(1), ms(1)).unwrap())
    };
    assert!(loads(events.clone()));
    events.extend(woken(1, 2, 400, 10).map(Event::OffCpu));
    assert!(!loads(events));
}

#[test]
fn whoever_frees_a_page_or_a_lock_of_the_kernel_delivers_nothing() {
    // Thread 2 happens to complete what 1 waits for.
    let locked =
        |k: u64| OffCpu { state: SleepState::Uninterruptible, ..off(1, 1, 10 * k, 10 * k + 5, 10 * k + 5, READ) };
    let all = (0..20).map(|k| locked(k).woken_by(2, 2)).collect();
    assert_eq!(roles_of(&[], all, [2]), [Role::Other]);
}

#[test]
fn a_thread_beside_the_feeder_hands_over_what_comes_regularly() {
    // 11 gets what 2 delivers and wakes the feeder for each; 12 was woken by the worker once, and woke the feeder once.
    let batches = || woken(11, 2, 0, 30).chain(woken(1, 11, 6, 30));
    let all: Vec<_> = batches().chain(woken(12, 2, 400, 1)).chain(woken(1, 12, 406, 1)).collect();
    assert_eq!(roles_of(&[11, 12], all, [11, 12]), [Role::PinMemory, Role::Helper]);
    // 12 reads files, as one that logs its settings does; one wake-up makes it no worker.
    let reads = (0..9).map(|k| off(12, 1, 500 + 20 * k, 515 + 20 * k, 515 + 20 * k, READ).on_disk());
    let all: Vec<_> = batches().chain(woken(1, 12, 406, 1)).chain(reads.clone()).collect();
    assert_eq!(roles_of(&[11, 12], all, [12]), [Role::Helper]);
    // Many workers that each deliver a few batches are many deliveries.
    let few = (2..9).flat_map(|tid| woken(11, tid, 60 * u64::from(tid), 1));
    let all: Vec<_> = few.chain(woken(1, 11, 706, 4)).collect();
    assert_eq!(roles_of(&[3, 4, 5, 6, 7, 8, 11], all, [3, 8, 11]), [Role::Worker, Role::Worker, Role::PinMemory]);
}
