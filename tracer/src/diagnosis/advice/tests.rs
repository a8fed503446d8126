//! Advice from a job's recording to its sentences; the rules themselves are tested beside them.

use super::*;
use crate::attribution::{Detail, Role, attribute};
use crate::diagnosis::Sums;
use crate::events::*;
use crate::host::{BlockDevice, IoLimit, ProcessLimits};
use crate::recording::{ClockReading, Header, Target};
use crate::timeline::TimelineBuilder;
use crate::units::{DevId, MonoNs, Nanos, Pid, Tid};
use proptest::prelude::*;

const CAUSES: [Cause; 16] = [
    Cause::Disk,
    Cause::NetworkStorage,
    Cause::CpuStarved,
    Cause::CpuThrottled,
    Cause::Preprocessing,
    Cause::HostCode,
    Cause::PinMemory,
    Cause::Ipc,
    Cause::Checkpoint,
    Cause::WorkerStartup,
    Cause::Memory,
    Cause::Network,
    Cause::GpuDriver,
    Cause::Sleep,
    Cause::OtherProcess,
    Cause::Unknown,
];

const SDA: DevId = DevId { major: 8, minor: 0 };

/// What a job of one second looks like.
#[derive(Clone, Debug, Default)]
struct Job {
    workers: u32,
    cpus: u32,
    /// Share of the machine's CPU time that was idle.
    free: f64,
    /// CPUs that the job may use; all if none.
    allowed: Vec<u32>,
    /// Reads of this length from sda, seen at the disk in a tenth of it.
    read_ms: u64,
    limit: bool,
    rotational: bool,
    /// The thread that took the CPU.
    competitor: Option<u32>,
    /// Share of the idle time in which the job waited for the disk, besides the cause asked for.
    on_disk: f64,
    /// CPU quota of the job.
    quota: Option<f64>,
    /// Memory limit of the job, and whether it swaps.
    memory_limit: Option<u64>,
    swaps: bool,
}

fn ms(t: u64) -> MonoNs {
    MonoNs(t * 1_000_000)
}

/// The advice for a cause that all of the job's idle time has.
fn advice(job: &Job, cause: Cause) -> String {
    let mut b = TimelineBuilder::new(Pid(1), MonoNs(0));
    for tid in 1..=1 + job.workers {
        let what = TaskWhat::Found { parent: Pid(1) };
        b.push(Event::Task(TaskEvent { time: MonoNs(0), tid: Tid(tid), pid: Pid(tid), what, comm: "python3".into() }));
    }
    b.push(Event::ThreadName(ThreadName {
        tid: Tid(99),
        pid: Pid(99),
        comm: "updatedb".into(),
        command: "updatedb".into(),
    }));
    let file = FileRef { ino: 7, dev: SDA, rdev: DevId::default(), magic: 0xEF53, mode: 0o100_644 };
    let wait = |tid: u32, from: u64, to: u64, on_disk: bool| OffCpu {
        tid: Tid(tid),
        pid: Pid(tid),
        cpu: 0,
        off: ms(from),
        wakeup: Some(Wakeup {
            at: ms(to),
            by: if on_disk {
                Waker::Interrupt
            } else {
                Waker::Thread { tid: Tid(2), pid: Pid(2), syscall: Syscall(1) }
            },
        }),
        on: ms(to),
        state: if on_disk { SleepState::Uninterruptible } else { SleepState::Interruptible },
        iowait: on_disk,
        syscall: Syscall(0),
        arg0: 3,
        file: on_disk.then_some(file),
        next_tid: Tid(0),
        prev_tid: Tid(0),
        seeded: false,
        pending: false,
    };
    for n in 0..job.workers {
        // Main gets a batch from each.
        let mut o = wait(1, 10 + 100 * u64::from(n), 90 + 100 * u64::from(n), false);
        let by = Waker::Thread { tid: Tid(2 + n), pid: Pid(2 + n), syscall: Syscall(1) };
        o.wakeup = o.wakeup.map(|w| Wakeup { by, ..w });
        b.push(Event::OffCpu(o));
    }
    if job.read_ms > 0 {
        let tid = if job.workers > 0 { 2 } else { 1 };
        for n in 0..3 {
            let (from, to) = (100 + 200 * n, 100 + 200 * n + job.read_ms);
            b.push(Event::OffCpu(wait(tid, from, to, true)));
            b.push(Event::Block(BlockRequest {
                dev: SDA,
                op: BlockOp::Read,
                bytes: 65_536,
                sector: 0,
                start: None,
                issue: ms(to - job.read_ms / 10),
                complete: ms(to),
                submitter: Submitter::Target { tid: Tid(tid), pid: Pid(tid) },
            }));
        }
    }
    for (t, share) in [(0, 0.0), (1_000, 1.0)] {
        let of = |part: f64| Nanos((part * share * 1e9 * f64::from(job.cpus)) as u64);
        b.push(Event::Host(HostSample {
            time: ms(t),
            cpus: job.cpus,
            cpu_busy: of(1.0 - job.free),
            cpu_idle: of(job.free),
            cpu_iowait: Nanos::ZERO,
            memory_available: 1 << 30,
            swapped_in: if job.swaps { t } else { 0 },
            major_faults: 0,
            pressure_cpu: None,
            pressure_io: None,
            pressure_memory: None,
            cgroups: Vec::new(),
            listeners: None,
        }));
    }
    let tl = b.finish(Some(ms(1_000)));
    let io = IoLimit {
        dev: SDA,
        group: "/sys/fs/cgroup/job".into(),
        read_bps: None,
        write_bps: None,
        read_iops: Some(100),
        write_iops: None,
    };
    let header = Header {
        written_by: "test".into(),
        started: ClockReading::default(),
        host: "example".into(),
        kernel: "6.18.0".into(),
        cpus: job.cpus,
        target: Target { pid: Pid(1), command: "python3 train.py".into() },
        probes: Vec::new(),
        gpu_note: None,
        sample_hz: 199,
        opens: "off".into(),
        mounts: Vec::new(),
        disks: vec![BlockDevice { rotational: job.rotational, ..disk() }],
        limits: ProcessLimits {
            allowed_cpus: if job.allowed.is_empty() { (0..job.cpus).collect() } else { job.allowed.clone() },
            io: if job.limit { vec![io] } else { Vec::new() },
            quota_cpus: job.quota,
            memory_limit: job.memory_limit,
            ..ProcessLimits::default()
        },
    };
    let at = attribute(&tl, &[], Vec::new());
    let mut sums = Sums::default();
    sums.add(&tl, &at.roles);
    let facts = Facts::gather(&tl, &at, &sums, &header);
    let mut totals = Totals::default();
    totals.idle = Nanos::from_millis(800);
    let on_disk = Nanos((totals.idle.0 as f64 * job.on_disk) as u64);
    *totals.causes.entry(Cause::Disk).or_default() += on_disk;
    *totals.causes.entry(cause).or_default() += totals.idle - on_disk;
    let detail = Detail {
        cause,
        role: Role::Worker,
        syscall: None,
        outsider: None,
        competitor: job.competitor.map(Tid),
        no_record: None,
    };
    totals.details.insert(detail, totals.idle);
    let all = on(&facts, &totals, cause, Pace::default());
    assert!(!all.is_empty(), "{cause:?} has no advice");
    for a in &all {
        assert!(a.ends_with('.') && a.chars().next().is_some_and(char::is_uppercase), "no sentence: {a}");
    }
    all.join("\n")
}

fn disk() -> BlockDevice {
    BlockDevice {
        dev: SDA,
        name: "sda".into(),
        disk: None,
        rotational: false,
        model: None,
        size_bytes: 1 << 40,
        scheduler: None,
        backing_file: None,
    }
}

/// Eight CPUs, three quarters of them free, two workers.
fn roomy() -> Job {
    Job { workers: 2, cpus: 8, free: 0.75, ..Job::default() }
}

/// Sentences that propose more workers, or more work in them.
fn proposes_workers(advice: &str) -> bool {
    const MORE: [&str; 7] =
        ["raise", "increase", "add ", "more workers", "load data in", "into the workers", "num_workers="];
    let proposes = |line: &str| {
        let line = line.to_lowercase();
        let less = ["would not help", "fewer", "use up the quota"].iter().any(|less| line.contains(less));
        line.contains("worker") && !less && MORE.iter().any(|more| line.contains(more))
    };
    advice.lines().any(proposes)
}

#[test]
fn workers_are_proposed_where_cpus_are_free() {
    let told = advice(&roomy(), Cause::Preprocessing);
    assert!(told.contains("Raise num_workers from 2 to 8: 6.0 CPUs were free"), "{told}");
    let told = advice(&Job { workers: 0, ..roomy() }, Cause::Preprocessing);
    assert!(told.contains("Load data in workers (num_workers=6): 6.0 CPUs were free"), "{told}");
    let told = advice(&Job { allowed: vec![0, 1], ..roomy() }, Cause::Preprocessing);
    assert!(
        told.contains("Only 0.0 of the 2.0 CPUs that the job may use were free"),
        "its two CPUs are taken, whatever the machine has: {told}"
    );
    let told = advice(&Job { free: 0.05, ..roomy() }, Cause::Preprocessing);
    assert!(
        told.contains("Only 0.4 of the 8.0 CPUs that the job may use were free, so more workers would not help"),
        "{told}"
    );
}

#[test]
fn free_cpus_that_the_job_may_not_use_are_not_free() {
    // Two workers that run all the time, on a machine with 6 CPUs free.
    let told = advice(&Job { allowed: vec![0, 1, 2], ..roomy() }, Cause::Preprocessing);
    assert!(!proposes_workers(&told), "main and two workers have all three: {told}");
    let told = advice(&Job { quota: Some(2.5), ..roomy() }, Cause::Preprocessing);
    assert!(!proposes_workers(&told), "the quota is used up: {told}");
    let told = advice(&Job { allowed: vec![0, 1, 2, 3, 4, 5], ..roomy() }, Cause::Preprocessing);
    assert!(proposes_workers(&told), "{told}");
}

#[test]
fn a_limit_is_lifted_before_a_disk_is_bought() {
    let slow = Job { read_ms: 50, ..roomy() };
    let told = advice(&Job { limit: true, ..slow.clone() }, Cause::Disk);
    assert!(told.contains("Raise or lift the I/O limit that control group /sys/fs/cgroup/job sets on sda"), "{told}");
    assert!(told.contains("100 reads a second") && !told.contains("faster drive"), "{told}");
    let told = advice(&slow, Cause::Disk);
    assert!(told.contains("Find what holds the reads back before sda"), "{told}");
    assert!(told.contains("Read in larger pieces") && told.contains("64 KiB on average"), "{told}");
    assert!(told.contains("smaller than 1.0 GiB"), "192 KiB were read: {told}");
    let told = advice(&Job { rotational: true, ..slow }, Cause::Disk);
    assert!(told.contains("Move the data from sda"), "{told}");
}

#[test]
fn who_takes_the_cpu_decides_what_to_do() {
    let crowded = Job { free: 0.0, ..roomy() };
    let told = advice(&Job { competitor: Some(99), ..crowded.clone() }, Cause::CpuStarved);
    assert!(told.contains("Move updatedb (thread 99 of process 99: updatedb) to other CPUs"), "{told}");
    let told = advice(&Job { competitor: Some(2), ..crowded.clone() }, Cause::CpuStarved);
    assert!(told.contains("Start fewer workers or limit the thread pools"), "{told}");
    let told = advice(&Job { allowed: vec![0, 1], ..crowded }, Cause::CpuStarved);
    assert!(told.contains("Widen the CPU affinity") && told.contains("may use 2 of 8 CPUs"), "{told}");
}

#[test]
fn every_other_cause_has_its_remedy() {
    for (cause, remedy) in [
        (Cause::NetworkStorage, "Copy the data to a local disk"),
        (Cause::CpuThrottled, "Raise the CPU quota"),
        (Cause::HostCode, "Move per-batch Python code into the workers"),
        (Cause::PinMemory, "pinned memory"),
        (Cause::Ipc, "Send less between processes"),
        (Cause::Checkpoint, "less often"),
        (Cause::WorkerStartup, "persistent_workers=True"),
        (Cause::Memory, "more memory, or use fewer workers"),
        (Cause::Network, "other end of the connection"),
        (Cause::GpuDriver, ".item()"),
        (Cause::Sleep, "Find the sleep"),
        (Cause::OtherProcess, "the process that the job waited for"),
        (Cause::Unknown, "Record again"),
    ] {
        let told = advice(&roomy(), cause);
        assert!(told.contains(remedy), "{cause:?}: {told}");
    }
    let alone = advice(&Job { workers: 0, ..roomy() }, Cause::HostCode);
    assert!(!alone.contains("into the workers"), "there are none: {alone}");
    let full = advice(&Job { free: 0.0, ..roomy() }, Cause::HostCode);
    assert!(!full.contains("into the workers"), "no CPU is free for that: {full}");
    let limited = advice(&Job { memory_limit: Some(1 << 30), swaps: true, ..roomy() }, Cause::Memory);
    assert!(limited.contains("Raise the memory limit") && limited.contains("1.0 GiB"), "{limited}");
}

/// All that the rules look at, at random.
fn any_job() -> impl Strategy<Value = Job> {
    let limits = (any::<bool>(), any::<bool>(), prop::option::of(0.1f64..32.0), prop::option::of(0u64..1 << 34));
    let around = (1u32..64, 0.0f64..1.0, 0u32..64, prop::option::of(prop::sample::select(vec![1u32, 2, 99])));
    (0u32..6, 0u64..150, 0.0f64..1.0, any::<bool>(), limits, around).prop_map(
        |(workers, read_ms, on_disk, swaps, (limit, rotational, quota, memory_limit), around)| {
            let (cpus, free, allowed, competitor) = around;
            Job {
                workers,
                cpus,
                free,
                read_ms,
                limit,
                rotational,
                competitor,
                on_disk,
                quota,
                memory_limit,
                swaps,
                allowed: (0..allowed.min(cpus)).collect(),
            }
        },
    )
}

proptest! {
    #[test]
    fn more_workers_need_a_free_cpu_and_another_limit_than_storage(
        cause in prop::sample::select(CAUSES.to_vec()), job in any_job(),
    ) {
        let told = advice(&job, cause);
        if proposes_workers(&told) {
            prop_assert!(matches!(cause, Cause::Preprocessing | Cause::HostCode), "{cause:?}: {told}");
            prop_assert!(job.free * f64::from(job.cpus) >= 0.749, "{} of {} CPUs free: {told}", job.free, job.cpus);
            prop_assert!(job.on_disk < 0.21, "the disk is the limit for {}: {told}", job.on_disk);
            // Main and the workers of these jobs run whenever they do not wait.
            let waits = 0.08 * f64::from(job.workers) + 3.0 * job.read_ms as f64 / 1e3;
            let used = f64::from(1 + job.workers) - waits;
            let mask = if job.allowed.is_empty() { job.cpus } else { job.allowed.len() as u32 };
            let may_use = f64::from(mask).min(job.quota.unwrap_or(f64::INFINITY));
            if may_use < f64::from(job.cpus) {
                prop_assert!(used + 0.7 <= may_use, "{used} of {may_use} CPUs used: {told}");
            }
        }
    }
}
