//! A worker: reads the samples of a batch, decodes them, hands the batch over.

use super::super::error::DemoError;
use super::super::plan::Plan;
use super::super::truth::{Entry, TruthLog};
use super::super::{cgroup, clock, dataset, work};
use super::queue::{Done, Order, Slots};
use crate::units::{MonoNs, Nanos};
use std::io::{stdin, stdout};
use std::path::Path;

/// Works until main closes the queue of orders; then writes the truth log.
pub fn run(run_dir: &Path, index: usize, parent: i32, memory: i32) -> Result<(), DemoError> {
    super::set_name(c"demo-worker");
    super::die_with(parent)?;
    let plan = Plan::load(run_dir)?;
    if !plan.raise_workers {
        super::compete()?;
    }
    if let Some(cpu) = plan.worker_cpu {
        super::pin(&[cpu])?;
    }
    if let Some(dir) = &plan.cgroup {
        cgroup::join(dir).map_err(DemoError::file("join cgroup", dir))?;
    }
    let slots = Slots::open(parent, memory, plan.batch_bytes())?;
    let mut worker = Worker {
        index,
        input: dataset::AlignedBuf::new(plan.file_bytes),
        output: vec![0; plan.batch_bytes()],
        run_delay: clock::RunDelay::of_this_thread(),
        truth: TruthLog::default(),
        plan,
    };
    // Unbuffered, so that a read waits for one message and not for more than there are.
    while let Some(order) = Order::receive(Unbuffered(stdin()))? {
        worker.make(order.batch, &slots)?;
    }
    worker.truth.append_to(&worker.plan.truth_file())
}

struct Unbuffered(std::io::Stdin);

impl std::io::Read for Unbuffered {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        Ok(rustix::io::read(&self.0, buf)?)
    }
}

/// The three clocks at one moment.
#[derive(Clone, Copy)]
struct Stamp {
    at: MonoNs,
    cpu: Nanos,
    run_delay: Nanos,
}

impl Stamp {
    /// Reads them again if the worker lost its CPU in between: that happens just here, at the end of these system
    /// calls (lazy preemption), and the times would not belong together.
    fn now(run_delay: &clock::RunDelay) -> Stamp {
        loop {
            let before = run_delay.so_far();
            let stamp = Stamp { at: clock::now(), cpu: clock::thread_cpu(), run_delay: run_delay.so_far() };
            if stamp.run_delay == before {
                return stamp;
            }
        }
    }
}

struct Worker {
    index: usize,
    plan: Plan,
    input: dataset::AlignedBuf,
    output: Vec<u8>,
    run_delay: clock::RunDelay,
    truth: TruthLog,
}

impl Worker {
    fn make(&mut self, batch: u64, slots: &Slots) -> Result<(), DemoError> {
        let mut begin = Stamp::now(&self.run_delay);
        for sample in 0..self.plan.batch {
            begin = self.sample(batch, sample, begin)?;
        }
        let crc = crc32fast::hash(&self.output);
        slots.put(self.plan.slot_of(batch), &self.output)?;
        // The time is taken before the message: after it, main may run, and this worker may not.
        let end = Stamp::now(&self.run_delay);
        Done { batch, crc }.send(stdout().lock())?;
        self.truth.note(Entry::Put {
            batch,
            worker: self.index,
            pid: std::process::id(),
            start_ns: begin.at,
            end_ns: end.at,
            delay_ns: end.run_delay - begin.run_delay,
        });
        Ok(())
    }

    /// Makes one sample, begun at `begin`; returns when it was done.
    fn sample(&mut self, batch: u64, sample: usize, begin: Stamp) -> Result<Stamp, DemoError> {
        let path = dataset::sample_path(&self.plan.data, self.plan.file_of(batch, sample));
        let bytes = self.plan.sample_bytes;
        let output = &mut self.output[sample * bytes..][..bytes];

        dataset::read(&path, self.input.bytes(), self.plan.reading).map_err(DemoError::file("read", &path))?;
        let read = Stamp::now(&self.run_delay);
        std::hint::black_box(work::decode(&self.input.bytes()[..bytes], output, self.plan.passes));
        let end = Stamp::now(&self.run_delay);

        self.truth.note(Entry::Sample {
            batch,
            worker: self.index,
            pid: std::process::id(),
            read_start_ns: begin.at,
            read_end_ns: read.at,
            read_cpu_ns: read.cpu - begin.cpu,
            read_delay_ns: read.run_delay - begin.run_delay,
            transform_start_ns: read.at,
            transform_end_ns: end.at,
            transform_cpu_ns: end.cpu - read.cpu,
            transform_delay_ns: end.run_delay - read.run_delay,
        });
        Ok(end)
    }
}
