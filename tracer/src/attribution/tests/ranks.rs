//! Several GPUs and the processes that feed them.

use super::*;

#[test]
fn each_gpu_is_explained_by_the_process_that_is_on_it() {
    // Two ranks: 2 waits for disk, 3 runs. One is on GPU 0, the other on GPU 1.
    let mut b = TimelineBuilder::new(Pid(1), MonoNs(0));
    for (tid, gpu) in [(2, 0), (3, 1)] {
        let what = TaskWhat::Found { parent: Pid(1) };
        b.push(Event::Task(TaskEvent { time: MonoNs(0), tid: Tid(tid), pid: Pid(tid), what, comm: "rank".into() }));
        let process =
            crate::events::GpuProcess { time: MonoNs(0), gpu: GpuIndex(gpu), pid: Pid(tid), memory_used: None };
        b.push(Event::GpuProcess(process));
    }
    b.push(Event::OffCpu(off(2, 2, 10, 100, 100, READ).on_disk()));
    let tl = b.finish(Some(ms(120)));
    let busy = [(0, 10), (100, 120)].map(|(a, b)| BusyInterval { start: ms(a), end: ms(b) });
    let gpus = [0, 1].map(|n| GpuActivity {
        gpu: GpuIndex(n),
        name: String::new(),
        source: GpuSource::Trace,
        pids: Vec::new(),
        holes: Vec::new(),
        activity: Activity::Intervals(busy.to_vec()),
    });
    let a = attribute(&tl, &[], gpus.to_vec());
    assert_eq!(a.gpus[0].totals.of(Cause::Disk), Nanos::from_millis(90));
    assert_eq!(a.gpus[1].totals.of(Cause::HostCode), Nanos::from_millis(90));
    assert!([2, 3].iter().all(|t| a.roles.of(tl.thread_at(Tid(*t), ms(1)).unwrap()) == Role::Feeder));
}

#[test]
fn ranks_that_wake_each_other_are_no_workers() {
    const RECV: Syscall = Syscall(45);
    // Rank 2 waits 10..100 for rank 3, which runs its own code 10..40 and then waits for its worker 4, which reads.
    let mut b = TimelineBuilder::new(Pid(1), MonoNs(0));
    for tid in [2, 3, 4] {
        let what = TaskWhat::Found { parent: Pid(1) };
        b.push(Event::Task(TaskEvent { time: MonoNs(0), tid: Tid(tid), pid: Pid(tid), what, comm: "x".into() }));
    }
    for o in [
        off(2, 2, 10, 100, 100, RECV).woken_by(3, 3),
        off(3, 3, 40, 95, 95, READ).woken_by(4, 4),
        off(4, 4, 30, 95, 95, READ).on_disk(),
        // Rank 2 has woken rank 3, too.
        off(3, 3, 1, 2, 2, RECV).woken_by(2, 2),
    ] {
        b.push(Event::OffCpu(o));
    }
    let tl = b.finish(Some(ms(120)));
    let busy = [(3, 10), (100, 120)].map(|(a, b)| BusyInterval { start: ms(a), end: ms(b) });
    let gpus = [(0, 2), (1, 3)].map(|(n, pid)| GpuActivity {
        gpu: GpuIndex(n),
        name: String::new(),
        source: GpuSource::Trace,
        pids: vec![Pid(pid)],
        holes: Vec::new(),
        activity: Activity::Intervals(busy.to_vec()),
    });
    let a = attribute(&tl, &[], gpus.to_vec());
    let role = |tid| a.roles.of(tl.thread_at(Tid(tid), ms(1)).unwrap());
    assert_eq!([2, 3, 4].map(role), [Role::Feeder, Role::Feeder, Role::Worker]);
    for g in &a.gpus {
        let said = [Cause::HostCode, Cause::Disk].map(|c| g.totals.of(c).0 / 1_000_000);
        assert_eq!(said, [35, 55], "GPU {}: 10..40 and 95..100 code of rank 3, 40..95 its worker's disk", g.gpu.gpu);
    }
    let waited = crate::diagnosis::waited_for(&a, &a.gpus[0]);
    assert_eq!(waited.iter().map(|w| (w.gpu, w.pid)).collect::<Vec<_>>(), [(1, 3)]);
    assert!(waited[0].share > 0.99, "{waited:?}");
    assert!(crate::diagnosis::waited_for(&a, &a.gpus[1]).is_empty());
}
