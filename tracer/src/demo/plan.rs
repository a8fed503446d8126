//! What one run of a scenario does, in numbers. Pure: made once from the scenario and the machine's size, then handed
//! to every process of the run.

use super::cuda::CudaWait;
use super::error::DemoError;
use super::{Scenario, work};
use crate::units::Nanos;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Samples in a batch.
const BATCH: usize = 4;
/// Bytes in a sample: a small JPEG.
const SAMPLE_BYTES: usize = 128 << 10;
/// Read operations a second that the held-back disk allows; with [`THROTTLED_READ`] a batch is 8 of them, 80 ms.
pub const IOPS: u32 = 100;
const THROTTLED_READ: usize = 64 << 10;
/// Bytes of a file where the disk is not held back, read at once: milliseconds even on a fast disk. Small reads would wake
/// the worker every 0.1 ms, and on a busy machine it would then wait more for a CPU than for the disk.
const UNTHROTTLED_FILE: usize = 2 << 20;
/// Competitors of the workers. With two workers on their CPU, a worker gets a seventh of it.
const COMPETITORS: usize = 5;

/// How workers read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reading {
    /// From the page cache.
    Cached,
    /// From the disk, at most so many bytes (a multiple of 4096) a read.
    Uncached {
        /// Bytes a read.
        chunk: usize,
    },
}

/// How long the GPU computes on a batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Compute {
    /// This long.
    Fixed(Nanos),
    /// This share of the time in which the workers make a batch, measured in the warm-up: a disk's own speed is not
    /// known before.
    ShareOfSupply(f64),
}

impl Compute {
    /// Time per batch, when the workers make one every `supply`.
    pub fn resolve(self, supply: Nanos) -> Nanos {
        match self {
            Compute::Fixed(time) => time,
            Compute::ShareOfSupply(share) => {
                Nanos::from_secs_f64(supply.secs() * share).clamp(Nanos(200_000), Nanos::from_millis(200))
            }
        }
    }
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Scenario.
    pub scenario: Scenario,
    /// Length of the steady phase.
    pub steady: Duration,
    /// Worker processes.
    pub workers: usize,
    /// Batches that a worker may be ahead.
    pub prefetch: usize,
    /// Samples in a batch.
    pub batch: usize,
    /// Bytes in a sample.
    pub sample_bytes: usize,
    /// Files (one sample each) in the data set.
    pub files: usize,
    /// Bytes in a file; the sample is what it begins with.
    pub file_bytes: usize,
    /// How they are read.
    pub reading: Reading,
    /// Passes of [`work::decode`] over a sample.
    pub passes: u32,
    /// GPU time per batch.
    pub compute: Compute,
    /// Rounds of one batch per worker before the steady phase.
    pub warm_up: usize,
    /// Competitors on the workers' CPU.
    pub competitors: usize,
    /// CPU that workers and competitors are confined to.
    pub worker_cpu: Option<usize>,
    /// CPUs that main is confined to; empty for no limit.
    pub main_cpus: Vec<usize>,
    /// Workers keep main's priority, the highest that this user may give: whatever else the machine does is not the
    /// bottleneck. Otherwise they compete as ordinary processes.
    pub raise_workers: bool,
    /// Cgroup that workers join.
    pub cgroup: Option<PathBuf>,
    /// Stand-in libcuda in which main waits for the GPU, and how.
    pub cuda: Option<(PathBuf, CudaWait)>,
    /// Directory of the data set.
    pub data: PathBuf,
    /// Directory of busy file, truth log and this plan.
    pub files_dir: PathBuf,
}

/// What the machine offers.
pub struct Machine {
    /// CPUs that this process may use, ascending.
    pub cpus: Vec<usize>,
    /// The disk can be held back.
    pub throttled: bool,
}

impl Plan {
    /// The plan of `scenario`; directories, cgroup and libcuda are filled in by the caller. Measures this machine's
    /// speed for some milliseconds.
    pub fn new(scenario: Scenario, steady: Duration, machine: &Machine) -> Plan {
        let cpus = machine.cpus.len();
        let mut plan = Plan {
            scenario,
            steady,
            workers: 2,
            prefetch: 2,
            batch: BATCH,
            sample_bytes: SAMPLE_BYTES,
            files: 96,
            file_bytes: SAMPLE_BYTES,
            reading: Reading::Cached,
            passes: 1,
            compute: Compute::Fixed(Nanos::from_millis(6)),
            warm_up: 2,
            competitors: 0,
            worker_cpu: None,
            main_cpus: Vec::new(),
            raise_workers: true,
            cgroup: None,
            cuda: None,
            data: PathBuf::new(),
            files_dir: PathBuf::new(),
        };
        let decode = match scenario {
            Scenario::Disk => {
                if machine.throttled {
                    plan.reading = Reading::Uncached { chunk: THROTTLED_READ };
                    plan.files = files_for(steady);
                    // Not measured: the limit lets the first reads of a warm-up pass.
                    plan.compute = Compute::Fixed(Nanos::from_secs_f64(0.3 * throttled_batch().secs()));
                } else {
                    plan.reading = Reading::Uncached { chunk: UNTHROTTLED_FILE };
                    plan.file_bytes = UNTHROTTLED_FILE;
                    plan.compute = Compute::ShareOfSupply(0.3);
                }
                plan.warm_up = 3;
                Nanos::ZERO
            }
            Scenario::CpuStarved => {
                plan.competitors = COMPETITORS;
                plan.worker_cpu = machine.cpus.last().copied();
                if let Some((_, rest)) = machine.cpus.split_last() {
                    plan.main_cpus = rest.to_vec();
                }
                // Priorities would decide the contest that is to be shown.
                plan.raise_workers = false;
                Nanos(1_500_000)
            }
            Scenario::Preprocessing => {
                // One worker where a second one would leave no CPU to main.
                plan.workers = if cpus > 2 { 2 } else { 1 };
                // A fifth of the CPU time of a batch: a machine that was twice as slow while its speed was measured is still
                // far from keeping the GPU busy.
                plan.compute = Compute::Fixed(Nanos(6_400_000 / plan.workers as u64));
                Nanos::from_millis(8)
            }
            Scenario::Compute => {
                plan.compute = Compute::Fixed(Nanos::from_millis(30));
                plan.workers = 1;
                Nanos(300_000)
            }
        };
        plan.passes = work::passes_for(decode, plan.sample_bytes);
        plan
    }

    /// The busy file.
    pub fn busy_file(&self) -> PathBuf {
        self.files_dir.join("busy.jsonl")
    }

    /// The truth log.
    pub fn truth_file(&self) -> PathBuf {
        self.files_dir.join("truth.jsonl")
    }

    /// The plan itself.
    pub fn file(files_dir: &Path) -> PathBuf {
        files_dir.join("plan.json")
    }

    /// Writes it where the other processes look.
    pub fn save(&self) -> Result<(), DemoError> {
        let path = Plan::file(&self.files_dir);
        let text = serde_json::to_vec(self).map_err(|e| DemoError::file("write", &path)(e.into()))?;
        std::fs::write(&path, text).map_err(DemoError::file("write", &path))
    }

    /// Reads it.
    pub fn load(files_dir: &Path) -> Result<Plan, DemoError> {
        let path = Plan::file(files_dir);
        let text = std::fs::read(&path).map_err(DemoError::file("read", &path))?;
        serde_json::from_slice(&text).map_err(|e| DemoError::file("read", &path)(e.into()))
    }

    /// Which worker makes a batch.
    pub fn worker_of(&self, batch: u64) -> usize {
        (batch % self.workers.max(1) as u64) as usize
    }

    /// Where in its worker's shared memory a batch is left: slots are reused once main has taken what was there.
    pub fn slot_of(&self, batch: u64) -> usize {
        ((batch / self.workers.max(1) as u64) % self.prefetch.max(1) as u64) as usize
    }

    /// Bytes in a batch.
    pub fn batch_bytes(&self) -> usize {
        self.batch * self.sample_bytes
    }

    /// Which file holds a sample of a batch: each file once before any comes again, neighbours apart, as a shuffling
    /// sampler reads.
    pub fn file_of(&self, batch: u64, sample: usize) -> usize {
        let files = self.files.max(1) as u64;
        // Odd and no multiple of 3, so coprime to the file counts that are used (2^a * 3^b).
        let stride = (files / 3 * 2) | 1;
        let n = batch.wrapping_mul(self.batch as u64).wrapping_add(sample as u64) % files;
        let stride = if stride.is_multiple_of(3) { stride + 2 } else { stride };
        (n.wrapping_mul(stride) % files) as usize
    }
}

/// Time between two batches on the held-back disk.
fn throttled_batch() -> Nanos {
    Nanos::from_secs_f64((BATCH * SAMPLE_BYTES / THROTTLED_READ) as f64 / f64::from(IOPS))
}

/// Enough files that the steady phase hardly reads one twice, within bounds: a held-back disk reads a file again as slowly
/// as the first time, and making and removing a file costs a busy machine milliseconds.
fn files_for(steady: Duration) -> usize {
    let samples = steady.as_secs_f64() * f64::from(IOPS) * THROTTLED_READ as f64 / SAMPLE_BYTES as f64;
    if samples <= 96.0 { 96 } else { 192 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn plan(scenario: Scenario, cpus: usize) -> Plan {
        Plan::new(scenario, Duration::from_secs(10), &Machine { cpus: (0..cpus).collect(), throttled: true })
    }

    #[test]
    fn every_file_comes_once_before_any_comes_twice() {
        for files in [96, 192, 768, 1536] {
            let plan = Plan { files, ..plan(Scenario::Disk, 2) };
            let seen: HashSet<usize> = (0..files).map(|n| plan.file_of((n / 4) as u64, n % 4)).collect();
            assert_eq!(seen.len(), files);
            assert!(plan.file_of(0, 0).abs_diff(plan.file_of(0, 1)) > 8);
        }
    }

    #[test]
    fn a_slot_is_not_reused_while_its_batch_may_be_waiting() {
        let plan = plan(Scenario::Disk, 4);
        // Batches 0, 2 (worker 0, both prefetched) lie in different slots; 4 takes that of 0.
        assert_eq!([0, 2, 4].map(|b| plan.worker_of(b)), [0, 0, 0]);
        assert_eq!([0, 2, 4].map(|b| plan.slot_of(b)), [0, 1, 0]);
    }

    #[test]
    fn starved_workers_are_kept_apart_from_main_where_there_are_two_cpus() {
        let plan = plan(Scenario::CpuStarved, 2);
        assert_eq!((plan.worker_cpu, plan.main_cpus), (Some(1), vec![0]));
        let single = self::plan(Scenario::CpuStarved, 1);
        assert_eq!((single.worker_cpu, single.main_cpus), (Some(0), vec![]));
    }

    #[test]
    fn the_data_set_grows_with_the_duration_within_bounds() {
        assert_eq!([1, 3, 3600].map(|seconds| files_for(Duration::from_secs(seconds))), [96, 192, 192]);
    }

    #[test]
    fn the_gpu_needs_a_third_of_the_time_that_the_held_back_disk_does() {
        assert_eq!(throttled_batch(), Nanos::from_millis(80));
        assert_eq!(plan(Scenario::Disk, 2).compute, Compute::Fixed(Nanos::from_millis(24)));
    }

    #[test]
    fn compute_time_follows_the_supply_within_bounds() {
        let share = Compute::ShareOfSupply(0.3);
        assert_eq!(share.resolve(Nanos::from_millis(80)), Nanos::from_millis(24));
        assert_eq!(share.resolve(Nanos::ZERO), Nanos(200_000));
        assert_eq!(share.resolve(Nanos::from_millis(60_000)), Nanos::from_millis(200));
    }
}
