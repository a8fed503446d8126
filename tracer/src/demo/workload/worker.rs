//! A worker: reads the samples of a batch, decodes them, hands the batch over.

use super::super::error::DemoError;
use super::super::plan::Plan;
use super::super::truth::{Entry, TruthLog};
use super::super::{cgroup, clock, dataset, work};
use super::queue::{Done, Order, Slots};
use std::io::{stdin, stdout};
use std::path::Path;

/// Works until main closes the queue of orders; then writes the truth log.
pub fn run(run_dir: &Path, index: usize, parent: i32, memory: i32) -> Result<(), DemoError> {
    super::set_name(c"demo-worker");
    super::die_with(parent)?;
    let plan = Plan::load(run_dir)?;
    if let Some(cpu) = plan.worker_cpu {
        super::pin(&[cpu])?;
    }
    if let Some(dir) = &plan.cgroup {
        cgroup::join(dir).map_err(DemoError::file("join cgroup", dir))?;
    }
    let slots = Slots::open(parent, memory, plan.batch_bytes())?;
    let mut worker = Worker {
        index,
        input: dataset::AlignedBuf::new(plan.sample_bytes),
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
        for sample in 0..self.plan.batch {
            self.sample(batch, sample)?;
        }
        let crc = crc32fast::hash(&self.output);
        let start_ns = clock::now();
        slots.put(self.plan.slot_of(batch), &self.output)?;
        Done { batch, crc }.send(stdout().lock())?;
        let (worker, pid, end_ns) = (self.index, std::process::id(), clock::now());
        self.truth.note(Entry::Put { batch, worker, pid, start_ns, end_ns });
        Ok(())
    }

    fn sample(&mut self, batch: u64, sample: usize) -> Result<(), DemoError> {
        let path = dataset::sample_path(&self.plan.data, self.plan.file_of(batch, sample));
        let bytes = self.plan.sample_bytes;
        let output = &mut self.output[sample * bytes..][..bytes];
        let stamp = || (clock::now(), clock::thread_cpu(), self.run_delay.so_far());

        let before = stamp();
        dataset::read(&path, self.input.bytes(), self.plan.reading).map_err(DemoError::file("read", &path))?;
        let between = stamp();
        std::hint::black_box(work::decode(self.input.bytes(), output, self.plan.passes));
        let after = stamp();

        self.truth.note(Entry::Sample {
            batch,
            worker: self.index,
            pid: std::process::id(),
            read_start_ns: before.0,
            read_end_ns: between.0,
            read_cpu_ns: between.1 - before.1,
            read_delay_ns: between.2 - before.2,
            transform_start_ns: between.0,
            transform_end_ns: after.0,
            transform_cpu_ns: after.1 - between.1,
            transform_delay_ns: after.2 - between.2,
        });
        Ok(())
    }
}
