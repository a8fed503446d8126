//! The main process: takes batches in order, each from the worker that owes it, and keeps the simulated GPU busy with
//! them, as a training loop over PyTorch's DataLoader does.

use super::super::busy::BusyFile;
use super::super::clock;
use super::super::cuda::Gpu;
use super::super::error::DemoError;
use super::super::plan::Plan;
use super::super::truth::{Entry, TruthLog};
use super::SUBCOMMAND;
use super::queue::{Done, Order, Slots};
use crate::units::{MonoNs, Nanos};
use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Runs the job of the plan in `run_dir`: warms up, says `ready` on standard output, waits for a line on standard
/// input, trains for the planned time, and sees its workers out.
pub fn run(run_dir: &Path) -> Result<(), DemoError> {
    super::set_name(c"demo-main");
    let plan = Plan::load(run_dir)?;
    stand_apart()?;
    if !plan.main_cpus.is_empty() {
        super::pin(&plan.main_cpus)?;
    }
    let gpu = match &plan.cuda {
        Some((path, wait)) => Gpu::cuda(path, *wait)?,
        None => Gpu::Sleep,
    };
    let busy = BusyFile::append(&plan.busy_file())?;
    let workers = (0..plan.workers).map(|index| Worker::start(&plan, run_dir, index)).collect::<Result<Vec<_>, _>>()?;
    let host = vec![0; plan.batch_bytes()];
    let mut job = Job { plan, workers, gpu, busy, host, truth: TruthLog::default() };

    let supply = job.warm_up()?;
    if wait_for_go()? {
        let compute = job.plan.compute.resolve(supply);
        job.train(compute)?;
    }
    job.end()
}

/// A process group of its own, by which all of the job can be ended, and the highest priority for it and its children to
/// come, as far as this user may: a main process that got no CPU would be a bottleneck that no scenario is about. The
/// kernel weighs priorities only within a session (autogroup), so main leads a session, and that gets one too.
fn stand_apart() -> Result<(), DemoError> {
    rustix::process::setsid().map_err(DemoError::system("start a session"))?;
    let _ = std::fs::write("/proc/self/autogroup", "-20");
    let _ = rustix::process::setpriority_process(None, -20);
    Ok(())
}

/// Says that the job is warm; `false` if the demo is gone.
fn wait_for_go() -> Result<bool, DemoError> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready").and_then(|()| out.flush()).map_err(DemoError::system("say that the job is ready"))?;
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line).map_err(DemoError::system("read standard input"))?;
    Ok(read > 0)
}

struct Worker {
    process: Child,
    orders: ChildStdin,
    results: ChildStdout,
    slots: Slots,
}

impl Worker {
    fn start(plan: &Plan, run_dir: &Path, index: usize) -> Result<Worker, DemoError> {
        let program = std::env::current_exe().map_err(DemoError::system("find the running program"))?;
        let slots = Slots::create(plan.prefetch, plan.batch_bytes())?;
        let spawned = Command::new(&program)
            .args([SUBCOMMAND, "worker", "--run-dir"])
            .arg(run_dir)
            .args(["--index", &index.to_string(), "--parent", &std::process::id().to_string()])
            .args(["--memory", &slots.descriptor().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let spawn_error = |source| DemoError::Spawn { role: "worker", program: program.clone(), source };
        let mut process = spawned.map_err(spawn_error)?;
        match (process.stdin.take(), process.stdout.take()) {
            (Some(orders), Some(results)) => Ok(Worker { process, orders, results, slots }),
            _ => Err(spawn_error(std::io::Error::other("it has no pipes"))),
        }
    }
}

struct Job {
    plan: Plan,
    workers: Vec<Worker>,
    gpu: Gpu,
    busy: BusyFile,
    /// Where batches are copied to, as to pinned memory of a real job.
    host: Vec<u8>,
    truth: TruthLog,
}

impl Job {
    fn order(&mut self, batch: u64) -> Result<(), DemoError> {
        let worker = self.plan.worker_of(batch);
        Order { batch }.send(&mut self.workers[worker].orders)
    }

    /// Waits for a batch and copies it; returns when it had arrived.
    fn take(&mut self, batch: u64) -> Result<MonoNs, DemoError> {
        let index = self.plan.worker_of(batch);
        let worker = &mut self.workers[index];
        let done = Done::receive(&mut worker.results)?;
        let arrived = clock::now();
        let wrong = |what| DemoError::WrongBatch { worker: index, what };
        if done.batch != batch {
            return Err(wrong(format!("it is number {}, expected {batch}", done.batch)));
        }
        worker.slots.take(self.plan.slot_of(batch), &mut self.host)?;
        if crc32fast::hash(&self.host) != done.crc {
            return Err(wrong(format!("number {batch} does not match its checksum")));
        }
        Ok(arrived)
    }

    /// Lets every worker make some batches; returns the time between two batches in the last round.
    fn warm_up(&mut self) -> Result<Nanos, DemoError> {
        let workers = self.workers.len() as u64;
        let mut supply = Nanos::ZERO;
        for round in 0..self.plan.warm_up as u64 {
            let start = clock::now();
            let batches = round * workers..(round + 1) * workers;
            batches.clone().try_for_each(|batch| self.order(batch))?;
            batches.clone().try_for_each(|batch| self.take(batch).map(|_| ()))?;
            supply = Nanos(clock::now().since(start).0 / workers.max(1));
        }
        Ok(supply)
    }

    /// The steady phase.
    fn train(&mut self, compute: Nanos) -> Result<(), DemoError> {
        let first = (self.plan.warm_up * self.workers.len()) as u64;
        let ahead = (self.plan.prefetch * self.workers.len()) as u64;
        let end = clock::now() + Nanos(u64::try_from(self.plan.steady.as_nanos()).unwrap_or(u64::MAX));
        (first..first + ahead).try_for_each(|batch| self.order(batch))?;
        let mut batch = first;
        while clock::now() < end {
            let wait_start_ns = clock::now();
            let wait_end_ns = self.take(batch)?;
            self.order(batch + ahead)?;
            let compute_start_ns = self.busy.set(true)?;
            self.gpu.compute(compute)?;
            let compute_end_ns = self.busy.set(false)?;
            let worker = self.plan.worker_of(batch);
            self.truth.note(Entry::Step {
                batch,
                worker,
                wait_start_ns,
                wait_end_ns,
                compute_start_ns,
                compute_end_ns,
            });
            batch += 1;
        }
        Ok(())
    }

    /// Writes the truth log and lets the workers finish: each makes the batches ordered and writes its own.
    fn end(self) -> Result<(), DemoError> {
        self.truth.append_to(&self.plan.truth_file())?;
        // A closed queue of orders is the workers' sign to end. What they still deliver fits the pipes.
        let leaving: Vec<(Child, ChildStdout)> =
            self.workers.into_iter().map(|worker| (worker.process, worker.results)).collect();
        for (mut process, _results) in leaving {
            let status = process.wait().map_err(DemoError::system("wait for a worker"))?;
            if !status.success() {
                let detail = "see above".to_owned();
                return Err(DemoError::Ended { role: "worker", status: status.to_string(), detail });
            }
        }
        Ok(())
    }
}
