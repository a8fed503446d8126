//! Writes a recording of a made-up training job, as large as asked, for measuring how fast recordings are read:
//! `synthetic-recording INTERVALS FILE`.
//!
//! A main process waits in `poll` for eight workers; they read files and wait for the disk, are preempted, and hand over
//! batches. Times and choices come from a small generator with a fixed seed, so that every run writes the same.

use std::env;
use std::path::Path;

use anyhow::{Context, Result, bail};
use gpustall::events::{
    Event, FileRef, GpuDevice, GpuWindow, OffCpu, SleepState, Syscall, TaskEvent, TaskWhat, Waker, Wakeup,
};
use gpustall::recording::{ClockReading, Cost, Header, Target, Trailer, Writer};
use gpustall::units::{BootNs, DevId, GpuIndex, MonoNs, Pid, Tid, WallNs};

const MAIN: u32 = 1000;
const WORKERS: u32 = 8;
/// Linux x86-64.
const READ: Syscall = Syscall(0);
const POLL: Syscall = Syscall(7);
const WRITE: Syscall = Syscall(1);
const START: u64 = 1_000_000_000_000;
/// Length of an NVML window.
const WINDOW: u64 = 167_000_000;

/// Knuth's 64-bit linear congruential generator; its upper bits are good enough here.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [intervals, path] = args.as_slice() else { bail!("usage: synthetic-recording INTERVALS FILE") };
    let intervals: u64 = intervals.parse().with_context(|| format!("`{intervals}` is no number of intervals"))?;
    let mut writer = Writer::create(Path::new(path), &header(), false)?;
    let end = write_events(&mut writer, intervals)?;
    let trailer = Trailer {
        ended: clock(end),
        reason: "interrupted".to_owned(),
        command_status: None,
        cost: Cost { intervals_emitted: intervals, ..Cost::default() },
    };
    let written = writer.finish(&trailer)?;
    println!(
        "{} intervals over {} s, {} bytes, {:.1} an interval",
        written.intervals,
        (end - START) / 1_000_000_000,
        written.bytes,
        written.bytes as f64 / intervals.max(1) as f64
    );
    Ok(())
}

fn write_events(writer: &mut Writer, intervals: u64) -> Result<u64> {
    let main = |what| Event::Task(task(MAIN, what));
    writer.push(main(TaskWhat::Found { parent: Pid(1) }))?;
    for worker in 1..=WORKERS {
        writer.push(Event::Task(task(MAIN + worker, TaskWhat::Found { parent: Pid(MAIN) })))?;
    }
    writer.push(Event::GpuDevice(GpuDevice {
        gpu: GpuIndex(0),
        name: "Synthetic".to_owned(),
        uuid: None,
        pci: None,
        memory_bytes: None,
        pcie_max: None,
        power_limit_mw: None,
    }))?;

    let mut random = Lcg(1);
    let mut free_at = [START; WORKERS as usize + 1];
    let mut window_end = START + WINDOW;
    // About 16,000 intervals a second over all threads, as a busy job makes.
    for index in 0..intervals {
        let thread = (index % u64::from(WORKERS + 1)) as usize;
        let off = free_at[thread] + 20_000 + random.below(200_000);
        let interval = if thread == 0 { main_wait(off, &mut random) } else { worker_wait(thread, off, &mut random) };
        free_at[thread] = interval.on.0;
        writer.push(Event::OffCpu(interval))?;
        while interval.on.0 >= window_end {
            let (start, end) = (MonoNs(window_end - WINDOW), MonoNs(window_end));
            let utilization = 0.3 + random.below(40) as f32 / 100.0;
            writer.push(Event::GpuWindow(GpuWindow { gpu: GpuIndex(0), start, end, utilization }))?;
            writer.tick(end)?;
            window_end += WINDOW;
        }
    }
    Ok(free_at.into_iter().max().unwrap_or(START))
}

/// Main waits in `poll` until a worker has written its batch.
fn main_wait(off: u64, random: &mut Lcg) -> OffCpu {
    let wake = off + 50_000 + random.below(600_000);
    let worker = MAIN + 1 + random.below(u64::from(WORKERS)) as u32;
    OffCpu {
        wakeup: Some(Wakeup {
            at: MonoNs(wake),
            by: Waker::Thread { tid: Tid(worker), pid: Pid(worker), syscall: WRITE },
        }),
        on: MonoNs(wake + 3_000 + random.below(20_000)),
        ..interval(MAIN, off, SleepState::Interruptible, POLL, 0x7ffe_0000_1000)
    }
}

/// A worker is preempted one time in eight and waits for the disk otherwise.
fn worker_wait(thread: usize, off: u64, random: &mut Lcg) -> OffCpu {
    let tid = MAIN + thread as u32;
    if random.below(8) == 0 {
        return OffCpu {
            on: MonoNs(off + 100_000 + random.below(900_000)),
            ..interval(tid, off, SleepState::Preempted, Syscall::NONE, 0)
        };
    }
    let wake = off + 80_000 + random.below(500_000);
    let file = FileRef {
        ino: 5_000 + random.below(2_000),
        dev: DevId { major: 8, minor: 1 },
        rdev: DevId { major: 0, minor: 0 },
        magic: 0xef53,
        mode: 0o100_644,
    };
    OffCpu {
        wakeup: Some(Wakeup { at: MonoNs(wake), by: Waker::Interrupt }),
        on: MonoNs(wake + 2_000 + random.below(10_000)),
        iowait: true,
        file: Some(file),
        ..interval(tid, off, SleepState::Uninterruptible, READ, 7)
    }
}

fn interval(tid: u32, off: u64, state: SleepState, syscall: Syscall, arg0: u64) -> OffCpu {
    OffCpu {
        tid: Tid(tid),
        pid: Pid(tid),
        cpu: (tid % 4) as u16,
        off: MonoNs(off),
        wakeup: None,
        on: MonoNs(off),
        state,
        iowait: false,
        syscall,
        arg0,
        file: None,
        next_tid: Tid(0),
        prev_tid: Tid(0),
        seeded: false,
        pending: false,
    }
}

fn task(tid: u32, what: TaskWhat) -> TaskEvent {
    TaskEvent { time: MonoNs(START), tid: Tid(tid), pid: Pid(tid), what, comm: "python3".to_owned() }
}

fn header() -> Header {
    Header {
        written_by: "synthetic-recording".to_owned(),
        started: clock(START),
        host: "nowhere".to_owned(),
        kernel: "6.1.0".to_owned(),
        cpus: 4,
        target: Target { pid: Pid(MAIN), command: "python3 train.py".to_owned() },
        probes: Vec::new(),
        gpu_note: None,
        sample_hz: 0,
        opens: "off".to_owned(),
        mounts: Vec::new(),
        disks: Vec::new(),
        limits: Default::default(),
    }
}

fn clock(mono: u64) -> ClockReading {
    ClockReading { mono: MonoNs(mono), wall: WallNs(1_700_000_000_000_000_000 + mono), boot: BootNs(mono) }
}
