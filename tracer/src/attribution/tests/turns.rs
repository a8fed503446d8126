//! Processes that take turns at a GPU: a job that is started again, training and evaluation, a process that only has a context.

use super::*;
use crate::attribution::turns;
use crate::events::{CpuSample, GpuProcess, ImageId, ImageName};

const CUDA: ImageId = ImageId(1);

/// Process `n` lives in this time, and NVML lists it on GPU 0.
fn process(n: u32, from: u64, to: Option<u64>) -> Vec<Event> {
    let what = match from {
        0 => TaskWhat::Found { parent: Pid(1) },
        _ => TaskWhat::Forked { parent: Tid(1) },
    };
    let task = |time, what| Event::Task(TaskEvent { time, tid: Tid(n), pid: Pid(n), what, comm: "python3".into() });
    let on = GpuProcess { time: MonoNs(0), gpu: GpuIndex(0), pid: Pid(n), memory_used: None };
    let died = to.map(|to| task(ms(to), TaskWhat::Exited));
    [task(ms(from), what), Event::GpuProcess(on)].into_iter().chain(died).collect()
}

/// Process `n` is in libcuda at these times.
fn in_libcuda(n: u32, times: impl IntoIterator<Item = u64>) -> Vec<Event> {
    let sample = move |t| CpuSample {
        time: ms(t),
        tid: Tid(n),
        pid: Pid(n),
        cpu: 0,
        syscall: Syscall::NONE,
        user_ip: 0,
        image: CUDA,
        file: None,
    };
    let name = Event::ImageName(ImageName { id: CUDA, path: "/usr/lib/libcuda.so.1".into() });
    std::iter::once(name).chain(times.into_iter().map(sample).map(Event::CpuSample)).collect()
}

/// 90 ms of each 100 ms in which the GPU is idle.
fn on_disk(n: u32, from: u64, to: u64) -> Vec<Event> {
    (from / 100..to / 100)
        .map(|k| Event::OffCpu(off(n, n, 100 * k + 10, 100 * k + 100, 100 * k + 100, READ).on_disk()))
        .collect()
}

/// The GPU is busy for 10 ms in each 100 ms.
fn judged(events: Vec<Vec<Event>>, end: u64) -> (Timeline, Attribution) {
    let busy: Vec<(u64, u64)> = (0..=end / 100).map(|k| (100 * k, 100 * k + 10)).collect();
    attribution(events.into_iter().flatten().collect(), &busy, end + 20)
}

fn share(a: &Attribution, cause: Cause) -> f64 {
    a.totals.of(cause).share_of(a.totals.idle)
}

#[test]
fn who_is_seen_in_libcuda_feeds_it_and_not_who_is_listed_only() {
    // 2 has a context and runs; 3 trains, and waits for the disk.
    let (_, a) = judged(
        vec![
            process(2, 0, None),
            process(3, 0, None),
            in_libcuda(3, (0..30).map(|k| 100 * k + 5)),
            on_disk(3, 0, 3000),
        ],
        3000,
    );
    assert_eq!(a.gpus[0].roles.feeder_pid, Pid(3));
    assert!(share(&a, Cause::Disk) > 0.99, "{:?}", a.totals.causes);
}

#[test]
fn a_job_that_is_started_again_goes_on_feeding() {
    // 2 waits for the disk until it ends at 2 s; 3 comes then, and runs.
    let (tl, a) = judged(vec![process(2, 0, Some(2000)), process(3, 2000, None), on_disk(2, 0, 2000)], 4000);
    let (disk, host) = (share(&a, Cause::Disk), share(&a, Cause::HostCode));
    assert!((disk - 0.5).abs() < 0.02 && (host - 0.5).abs() < 0.02, "{:?}", a.totals.causes);
    assert!([2, 3].iter().all(|n| a.roles.of(tl.thread_at(Tid(*n), ms(2000)).unwrap()) == Role::Feeder));
}

#[test]
fn training_and_evaluation_take_turns() {
    // 2 trains for 4 s and waits for the disk; then 3 evaluates for 4 s, and is in the driver, while 2 waits for it.
    let waits = Event::OffCpu(off(2, 2, 4000, 8000, 8000, READ).woken_by(3, 3));
    let turn = |n, from: u64| in_libcuda(n, (0..800).map(move |k| from + 5 * k));
    let events =
        vec![process(2, 0, None), process(3, 0, None), turn(2, 0), turn(3, 4000), on_disk(2, 0, 4000), vec![waits]];
    let (_, a) = judged(events, 8000);
    let (disk, driver) = (share(&a, Cause::Disk), share(&a, Cause::GpuDriver));
    assert!((disk - 0.5).abs() < 0.02 && (driver - 0.5).abs() < 0.02, "{:?}", a.totals.causes);
}

#[test]
fn turns_are_those_of_the_living() {
    let mut b = TimelineBuilder::new(Pid(1), MonoNs(0));
    for events in
        [process(2, 0, Some(3500)), process(3, 2000, None), process(4, 0, None), in_libcuda(2, [100, 200, 300])]
    {
        events.into_iter().for_each(|e| b.push(e));
    }
    let tl = b.finish(Some(ms(9000)));
    let turns = turns::find(&tl, &Evidence::of(&tl), &[2, 3, 4].map(Pid));
    // Of those never seen in libcuda one takes over, since somebody must.
    assert_eq!(turns.pids, [2, 3].map(Pid));
    assert_eq!([0, 3400, 3600, 9000].map(|t| turns.pids[turns.at(ms(t))]), [2, 2, 3, 3].map(Pid));
}
