//! A made-up training job, as the tracer would see it: for the size and the speed of recordings, and for reports of any
//! length. Always the same for the same seed.
//!
//! It is a PyTorch DataLoader job: a main thread that polls its workers' pipes, workers that read and decode files, their
//! queue-feeder threads, and a pool of computing threads. Times have the full nanosecond noise of real ones, since that
//! noise is most of what a recording has to store.

use gpustall::events::{CpuSample, FileRef, ImageId, OffCpu, SleepState, Syscall, Waker, Wakeup};
use gpustall::recording::{ClockReading, Header, Target};
use gpustall::units::{DevId, MonoNs, Nanos, Pid, Tid, WallNs};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const READ: Syscall = Syscall(0);
const WRITE: Syscall = Syscall(1);
const POLL: Syscall = Syscall(7);
const FUTEX: Syscall = Syscall(202);
const OPENAT: Syscall = Syscall(257);

/// Files of the data set.
const FILES: u64 = 50_000;

#[derive(Clone, Copy, Debug)]
enum Role {
    Main,
    Worker(usize),
    Feeder(usize),
    Compute(usize),
}

#[derive(Debug)]
struct Thread {
    role: Role,
    tid: Tid,
    pid: Pid,
    cpu: u16,
    /// End of its last interval.
    on: u64,
    /// File that it reads and through which descriptor.
    file: u64,
    fd: u64,
}

/// Off-CPU intervals without end, in the order in which they end.
#[derive(Debug)]
pub struct Job {
    rng: fastrand::Rng,
    threads: Vec<Thread>,
    /// Ends of the intervals that are under way, and of which thread.
    queue: BinaryHeap<Reverse<(u64, usize)>>,
    under_way: Vec<OffCpu>,
    cpus: u16,
    workers: usize,
}

impl Job {
    /// A job with so many workers that gives about `per_second` intervals a second.
    pub fn new(seed: u64, workers: usize, cpus: u16) -> Job {
        let mut rng = fastrand::Rng::with_seed(seed);
        let base = 4_000 + rng.u32(0..1_000);
        let mut threads = Vec::new();
        let mut add = |role, tid, pid, rng: &mut fastrand::Rng| {
            let cpu = rng.u16(0..cpus);
            let on = 3_600_000_000_000 + rng.u64(0..5_000_000);
            threads.push(Thread { role, tid: Tid(tid), pid: Pid(pid), cpu, on, file: rng.u64(0..FILES), fd: 12 });
        };
        add(Role::Main, base, base, &mut rng);
        for i in 0..workers {
            let pid = base + 40 + 9 * i as u32;
            add(Role::Worker(i), pid, pid, &mut rng);
            add(Role::Feeder(i), pid + 4, pid, &mut rng);
        }
        for i in 0..8 {
            add(Role::Compute(i), base + 5 + i as u32, base, &mut rng);
        }
        let mut job = Job { rng, threads, queue: BinaryHeap::new(), under_way: Vec::new(), cpus, workers };
        for index in 0..job.threads.len() {
            let row = job.leave_cpu(index);
            job.under_way.push(row);
            job.queue.push(Reverse((row.on.0, index)));
        }
        job
    }

    /// A header that fits.
    pub fn header(&self) -> Header {
        Header {
            written_by: "synthetic".to_owned(),
            started: ClockReading {
                mono: MonoNs(3_600_000_000_000),
                wall: WallNs(1_700_000_000_000_000_000),
                ..ClockReading::default()
            },
            host: "example".to_owned(),
            kernel: "6.18.0".to_owned(),
            cpus: u32::from(self.cpus),
            target: Target {
                pid: self.threads.first().map(|t| t.pid).unwrap_or_default(),
                command: "python3 train.py".to_owned(),
            },
            probes: Vec::new(),
            gpu_note: None,
            sample_hz: 250,
            opens: "sampled".to_owned(),
            mounts: Vec::new(),
            disks: Vec::new(),
            limits: Default::default(),
        }
    }

    /// Log-normal time around `median` nanoseconds; `spread` is the standard deviation of its natural logarithm.
    fn time(&mut self, median: f64, spread: f64) -> u64 {
        // The sum of twelve uniform numbers is nearly normal, with variance 1.
        let normal: f64 = (0..12).map(|_| self.rng.f64()).sum::<f64>() - 6.0;
        (median * (normal * spread).exp()) as u64 + 1
    }

    fn chance(&mut self, share: f64) -> bool {
        self.rng.f64() < share
    }

    fn thread_waker(&self, wanted: impl Fn(Role) -> bool, syscall: Syscall) -> Waker {
        match self.threads.iter().find(|t| wanted(t.role)) {
            Some(t) => Waker::Thread { tid: t.tid, pid: t.pid, syscall },
            None => Waker::Interrupt,
        }
    }

    fn data_file(number: u64) -> FileRef {
        let dev = DevId { major: 259, minor: 2 };
        // ext4 gives neighbouring files neighbouring inodes; a shuffled sampler visits them in any order.
        FileRef { ino: 1_310_720 + number, dev, rdev: DevId::default(), magic: 0xef53, mode: 0o100_644 }
    }

    fn pipe(number: u64) -> FileRef {
        let dev = DevId { major: 0, minor: 14 };
        FileRef { ino: 90_000 + 3 * number, dev, rdev: DevId::default(), magic: 0x5049_5045, mode: 0o010_600 }
    }

    /// The interval that begins when thread `index` next leaves the CPU.
    fn leave_cpu(&mut self, index: usize) -> OffCpu {
        let Thread { role, tid, pid, cpu, on: last_on, file, fd } = self.threads[index];
        let competitor = |job: &mut Job| {
            let n = job.threads.len();
            if job.chance(0.6) { Tid(0) } else { job.threads[job.rng.usize(0..n)].tid }
        };
        let (next_tid, prev_tid) = (competitor(self), competitor(self));
        let cpu = if self.chance(0.1) { self.rng.u16(0..self.cpus) } else { cpu };
        let mut row = OffCpu {
            tid,
            pid,
            cpu,
            off: MonoNs(last_on + 1),
            wakeup: None,
            on: MonoNs(0),
            state: SleepState::Interruptible,
            iowait: false,
            syscall: FUTEX,
            arg0: 0x7f3c_5a00_1000 + 0x40 * u64::from(tid.0 % 7),
            file: None,
            next_tid,
            prev_tid,
            seeded: false,
            pending: false,
        };
        // How long it ran before, how long it waits, and for whom.
        let (ran, waits, by) = match role {
            Role::Main => {
                let worker = self.rng.usize(0..self.workers);
                if self.chance(0.5) {
                    (row.syscall, row.arg0) = (POLL, 0x7ffd_1000);
                    row.file = Some(Job::pipe(worker as u64));
                    let by = self.thread_waker(|r| matches!(r, Role::Feeder(i) if i == worker), WRITE);
                    (self.time(40_000.0, 0.8), self.time(2_000_000.0, 1.2), by)
                } else {
                    let by = self.thread_waker(|r| matches!(r, Role::Compute(i) if i == worker % 8), FUTEX);
                    (self.time(150_000.0, 1.0), self.time(60_000.0, 1.0), by)
                }
            }
            Role::Worker(i) => match self.rng.u8(0..10) {
                0..6 => {
                    if self.chance(0.3) {
                        let thread = &mut self.threads[index];
                        thread.file = self.rng.u64(0..FILES);
                        thread.fd = 9 + self.rng.u64(0..4);
                    }
                    (row.syscall, row.arg0, row.file) = (READ, fd, Some(Job::data_file(file)));
                    (row.state, row.iowait) = (SleepState::Uninterruptible, true);
                    let kworker = 60 + self.rng.u32(0..5);
                    let by =
                        if self.chance(0.3) { Waker::KernelThread { tid: Tid(kworker) } } else { Waker::Interrupt };
                    (self.time(60_000.0, 1.2), self.time(300_000.0, 0.9), by)
                }
                6 => {
                    (row.syscall, row.arg0) = (OPENAT, 0xffff_ff9c);
                    (row.state, row.iowait) = (SleepState::Uninterruptible, true);
                    (self.time(90_000.0, 1.0), self.time(250_000.0, 0.8), Waker::Interrupt)
                }
                7 | 8 => {
                    (row.state, row.syscall, row.arg0) = (SleepState::Preempted, Syscall::NONE, 0);
                    let (ran, waits) = (self.time(2_500_000.0, 0.4), self.time(1_200_000.0, 0.9));
                    (ran, waits, Waker::Interrupt)
                }
                _ => {
                    let by = self.thread_waker(|r| matches!(r, Role::Feeder(j) if j == i), FUTEX);
                    (self.time(30_000.0, 1.0), self.time(80_000.0, 1.0), by)
                }
            },
            Role::Feeder(i) => {
                if self.chance(0.2) {
                    (row.syscall, row.arg0, row.file) = (WRITE, 7, Some(Job::pipe(i as u64)));
                }
                let by = self.thread_waker(|r| matches!(r, Role::Worker(j) if j == i), FUTEX);
                (self.time(25_000.0, 0.8), self.time(4_000_000.0, 1.3), by)
            }
            Role::Compute(_) => {
                row.arg0 = 0x7f3c_5b80_0000 + 0x80 * self.rng.u64(0..3);
                let by = self.thread_waker(|r| matches!(r, Role::Main), FUTEX);
                (self.time(80_000.0, 0.7), self.time(400_000.0, 1.4), by)
            }
        };
        row.off = MonoNs(last_on + ran);
        if row.state == SleepState::Preempted {
            row.on = row.off + Nanos(waits);
            return row;
        }
        let early = self.chance(0.03);
        let at = row.off + Nanos(if early { 0 } else { waits });
        let queued = if self.chance(0.1) { self.time(900_000.0, 1.0) } else { self.time(9_000.0, 0.8) };
        row.wakeup = Some(Wakeup { at, by });
        row.on = at + Nanos(queued);
        row
    }

    /// On-CPU samples of the workers at 250 Hz a CPU, from `start` on.
    pub fn samples(&mut self, start: MonoNs, count: usize) -> Vec<CpuSample> {
        (0..count as u64)
            .map(|i| {
                let cpu = (i % u64::from(self.cpus)) as u16;
                let time = start + Nanos(i / u64::from(self.cpus) * 4_000_000 + self.rng.u64(0..3_000));
                let which = self.rng.usize(0..self.threads.len());
                let (tid, pid) = (self.threads[which].tid, self.threads[which].pid);
                let image = ImageId(1 + self.rng.u32(0..6));
                let user_ip = 0x7f3c_0000_0000 + (u64::from(image.0) << 24) + self.rng.u64(0..40_000) * 4;
                CpuSample { time, tid, pid, cpu, syscall: Syscall::NONE, user_ip, image, file: None }
            })
            .collect()
    }
}

impl Iterator for Job {
    type Item = OffCpu;

    fn next(&mut self) -> Option<OffCpu> {
        let Reverse((_, index)) = self.queue.pop()?;
        let row = self.under_way[index];
        self.threads[index].on = row.on.0;
        self.threads[index].cpu = row.cpu;
        let next = self.leave_cpu(index);
        self.under_way[index] = next;
        self.queue.push(Reverse((next.on.0, index)));
        Some(row)
    }
}
