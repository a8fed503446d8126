//! What holds jobs up: limited and slow disks, slow file systems, short memory, servers that are slow, other processes.

use super::scenario::Hold;
use super::scenarios::python;
use crate::cgroup::{BlkioGroup, CpuGroup, MemoryGroup};
use crate::disks::whole_disk;
use crate::loopdev::{self, run};
use crate::process::ChildGuard;
use crate::slowfs::SlowFs;
use crate::slowloop::SlowDisk;
use crate::swap::Swap;
use anyhow::{Context, Result, ensure};
use gpustall::units::{DevId, Pid};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Several holds on one job. The first that brings a file system has the data.
pub struct All(pub Vec<Box<dyn Hold>>);

impl Hold for All {
    fn data(&self) -> Option<PathBuf> {
        self.0.iter().find_map(|hold| hold.data())
    }

    fn apply(&mut self, pids: &[u32]) -> Result<()> {
        self.0.iter_mut().try_for_each(|hold| hold.apply(pids))
    }
}

/// The job goes before others that use the machine, for scenarios that are not about CPUs. A nice value would not do: where
/// the scheduler groups tasks by session, it counts within the session only.
pub struct Ahead {
    hold: Box<dyn Hold>,
    group: Option<CpuGroup>,
}

impl Ahead {
    /// Beside this hold.
    pub fn with(hold: Box<dyn Hold>) -> Box<dyn Hold> {
        Box::new(Ahead { hold, group: None })
    }
}

impl Hold for Ahead {
    fn data(&self) -> Option<PathBuf> {
        self.hold.data()
    }

    fn apply(&mut self, pids: &[u32]) -> Result<()> {
        let group = CpuGroup::ahead_of_others()?;
        pids.iter().try_for_each(|pid| group.add(Pid(*pid)))?;
        self.group = Some(group);
        self.hold.apply(pids)
    }
}

/// A control group limits what the job reads from a disk.
pub struct LimitedDisk {
    disk: DevId,
    bps: Option<u64>,
    iops: Option<u64>,
    group: Option<BlkioGroup>,
}

impl LimitedDisk {
    /// So many reads a second from the disk under `scratch`.
    pub fn operations(scratch: &Path, iops: u64) -> Result<Box<dyn Hold>> {
        Ok(Box::new(LimitedDisk { disk: whole_disk(scratch)?, bps: None, iops: Some(iops), group: None }))
    }

    /// So many bytes a second from the disk under `scratch`.
    pub fn bandwidth(scratch: &Path, bps: u64) -> Result<Box<dyn Hold>> {
        Ok(Box::new(LimitedDisk { disk: whole_disk(scratch)?, bps: Some(bps), iops: None, group: None }))
    }
}

impl Hold for LimitedDisk {
    fn apply(&mut self, pids: &[u32]) -> Result<()> {
        let group = BlkioGroup::with_read_limit(self.disk, self.bps, self.iops)?;
        pids.iter().try_for_each(|pid| group.add(Pid(*pid)))?;
        self.group = Some(group);
        Ok(())
    }
}

/// How much longer requests take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slowness {
    /// Of a read.
    pub read: Duration,
    /// Of a write, and of making it durable.
    pub write: Duration,
    /// Of a look-up, open or listing.
    pub names: Duration,
}

impl Slowness {
    fn of(self, delays: &crate::slowfs::Delays) {
        delays.read(self.read);
        delays.write(self.write);
        delays.names(self.names);
    }
}

/// The data lie on a slow disk of their own.
pub struct DataOnSlowDisk {
    disk: SlowDisk,
    slowness: Slowness,
}

impl DataOnSlowDisk {
    /// A disk of so many MiB. It is slow from the moment when the job is warm.
    pub fn new(mib: u64, slowness: Slowness) -> Result<DataOnSlowDisk> {
        Ok(DataOnSlowDisk { disk: SlowDisk::new(mib << 20)?, slowness })
    }

    /// Has `job` make its data set, and makes the disk cold, names and inodes included.
    pub fn with_cold_data(self, job: &[String]) -> Result<DataOnSlowDisk> {
        let (program, args) = job.split_first().context("the scenario has no job")?;
        let unused = ["--busy-file", "/dev/null", "--truth", "/dev/null"];
        run(Command::new(program).args(args).args(unused).args(["--make", "--data"]).arg(self.disk.path()))?;
        self.disk.mounted().cool()?;
        Ok(self)
    }
}

impl Hold for DataOnSlowDisk {
    fn data(&self) -> Option<PathBuf> {
        Some(self.disk.path().to_owned())
    }

    fn apply(&mut self, _: &[u32]) -> Result<()> {
        self.slowness.of(self.disk.delays());
        Ok(())
    }
}

/// Checkpoints go to a slow place of their own: `checkpoints` in the data leads there.
pub struct CheckpointsElsewhere {
    place: Box<dyn Hold>,
    data: PathBuf,
}

impl CheckpointsElsewhere {
    /// To where `place` has its data; the job's data lie in `scratch`.
    pub fn new(scratch: &Path, place: impl Hold + 'static) -> Result<CheckpointsElsewhere> {
        let data = scratch.join("data");
        fs::create_dir_all(&data)?;
        std::os::unix::fs::symlink(place.data().context("no place for checkpoints")?, data.join("checkpoints"))?;
        Ok(CheckpointsElsewhere { place: Box::new(place), data })
    }
}

impl Hold for CheckpointsElsewhere {
    fn data(&self) -> Option<PathBuf> {
        Some(self.data.clone())
    }

    fn apply(&mut self, pids: &[u32]) -> Result<()> {
        self.place.apply(pids)
    }
}

/// The data lie on a slow file system in user space, as on a network share.
pub struct DataOnSlowShare {
    // Dropped in this order: the mount needs its folders.
    share: SlowFs,
    _folders: [TempDir; 2],
    slowness: Slowness,
}

impl DataOnSlowShare {
    /// A share that is slow from the moment when the job is warm.
    pub fn new(slowness: Slowness) -> Result<DataOnSlowShare> {
        let (source, point) = (loopdev::scratch()?, loopdev::scratch()?);
        let share = SlowFs::mount(source.path(), point.path())?;
        Ok(DataOnSlowShare { share, _folders: [source, point], slowness })
    }
}

impl Hold for DataOnSlowShare {
    fn data(&self) -> Option<PathBuf> {
        Some(self.share.path().to_owned())
    }

    fn apply(&mut self, _: &[u32]) -> Result<()> {
        self.slowness.of(self.share.delays());
        Ok(())
    }
}

/// Memory is short: what does not fit goes to swap.
pub struct ShortOfMemory {
    // Dropped in this order: nobody swaps when swap is switched off, which would read all of it back.
    limit: Option<BlkioGroup>,
    memory: MemoryGroup,
    swap: Swap,
    data: PathBuf,
}

impl ShortOfMemory {
    /// Reads from swap are limited to [`SWAP_READS`] a second.
    pub fn with_slow_swap(scratch: &Path, mib: u64) -> Result<Box<dyn Hold>> {
        let swap = Swap::new(256 << 20)?;
        let memory = MemoryGroup::with_limit(mib << 20)?;
        let data = scratch.join("data");
        fs::create_dir_all(&data)?;
        // Memory is counted where a process got it, so those that are to be short of it join by themselves, at their start.
        fs::write(data.join("group"), memory.path().as_os_str().as_encoded_bytes())?;
        Ok(Box::new(ShortOfMemory { limit: None, memory, swap, data }))
    }
}

/// Reads a second from slow swap.
pub const SWAP_READS: u64 = 400;

impl Hold for ShortOfMemory {
    fn data(&self) -> Option<PathBuf> {
        Some(self.data.clone())
    }

    fn apply(&mut self, pids: &[u32]) -> Result<()> {
        let members = fs::read_to_string(self.memory.path().join("cgroup.procs"))?;
        ensure!(!members.trim().is_empty(), "no process of the job joined the control group with limited memory");
        let group = BlkioGroup::with_read_limit(self.swap.device().dev()?, None, Some(SWAP_READS))?;
        pids.iter().try_for_each(|pid| group.add(Pid(*pid)))?;
        self.limit = Some(group);
        Ok(())
    }
}

/// A server of data outside the job answers slowly.
pub struct SlowServer {
    _server: ChildGuard,
    data: PathBuf,
}

impl SlowServer {
    /// Over `kind`, `tcp`, `unix` or `pipe`, with so many ms of thought for each answer.
    pub fn new(scratch: &Path, kind: &str, delay_ms: &str) -> Result<SlowServer> {
        let data = scratch.join("data");
        fs::create_dir_all(&data)?;
        let mut server = helper("serve.py", &["--kind", kind, "--delay-ms", delay_ms], Some(&data))?;
        let stdout = server.0.stdout.take().context("the server has no standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("cannot read from the server")?;
        ensure!(line == "ready\n", "the server of the data did not start");
        Ok(SlowServer { _server: server, data })
    }
}

impl Hold for SlowServer {
    fn data(&self) -> Option<PathBuf> {
        Some(self.data.clone())
    }
}

/// Clients of an inference server: few.
pub struct FewRequests {
    data: PathBuf,
    clients: Option<ChildGuard>,
}

impl FewRequests {
    /// They find the server's port in the data.
    pub fn new(scratch: &Path) -> Result<FewRequests> {
        let data = scratch.join("data");
        fs::create_dir_all(&data)?;
        Ok(FewRequests { data, clients: None })
    }
}

impl Hold for FewRequests {
    fn data(&self) -> Option<PathBuf> {
        Some(self.data.clone())
    }

    fn apply(&mut self, _: &[u32]) -> Result<()> {
        self.clients = Some(helper("clients.py", &[], Some(&self.data))?);
        Ok(())
    }
}

/// The workers have a quota of CPU time. Main has none: it would be late to say that the simulated GPU is done.
pub struct CpuQuota {
    quota: Duration,
    period: Duration,
    group: Option<CpuGroup>,
}

impl CpuQuota {
    /// All of them together get `quota` in each `period`.
    pub fn new(quota: Duration, period: Duration) -> CpuQuota {
        CpuQuota { quota, period, group: None }
    }
}

impl Hold for CpuQuota {
    fn apply(&mut self, pids: &[u32]) -> Result<()> {
        let group = CpuGroup::with_quota(self.quota, self.period)?;
        pids.iter().skip(1).try_for_each(|pid| group.add(Pid(*pid)))?;
        self.group = Some(group);
        Ok(())
    }
}

/// Other processes compute, two on each CPU.
#[derive(Default)]
pub struct BusyCpus(Vec<ChildGuard>);

impl Hold for BusyCpus {
    fn apply(&mut self, _: &[u32]) -> Result<()> {
        let cpus = std::thread::available_parallelism().context("cannot count CPUs")?.get();
        for cpu in (0..cpus).chain(0..cpus) {
            self.0.push(helper("compete.py", &["--cpu", &cpu.to_string()], None)?);
        }
        Ok(())
    }
}

/// A process outside the job. It ends when its standard input is closed, so it does not outlive a killed lab.
///
/// # Errors
/// If it cannot be started.
pub fn helper(script: &str, args: &[&str], data: Option<&Path>) -> Result<ChildGuard> {
    let words = python(script, args)?;
    let (program, args) = words.split_first().context("a command line has a program")?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    if let Some(data) = data {
        command.arg("--data").arg(data);
    }
    ChildGuard::spawn(&mut command)
}

/// Why no disk can be limited here, if so.
pub fn no_limits() -> Option<String> {
    whole_disk(Path::new("/var/tmp")).err().map(|error| format!("{error:#}: limits need a real disk"))
}

/// Why there can be no slow file system here, if so.
pub fn no_fuse() -> Option<String> {
    (!Path::new("/dev/fuse").exists()).then(|| "there is no /dev/fuse: the kernel needs CONFIG_FUSE_FS".to_owned())
}

/// Why there can be no slow disk here, if so.
pub fn no_slow_disk() -> Option<String> {
    let loops = Path::new("/dev/loop-control").exists();
    no_fuse().or_else(|| (!loops).then(|| "there are no loop devices: the kernel needs CONFIG_BLK_DEV_LOOP".to_owned()))
}

/// Why there can be no swap on a disk here, if so.
pub fn no_swap() -> Option<String> {
    let swap = Path::new("/proc/swaps").exists() && Path::new("/dev/loop-control").exists();
    (!swap).then(|| "the kernel has no swap or no loop devices".to_owned())
}

/// Why there is no io_uring here, if so. The kernel has a switch for it since 6.6.
pub fn no_uring() -> Option<String> {
    let off = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").is_ok_and(|text| text.trim() != "0");
    off.then(|| "io_uring is switched off: sysctl kernel.io_uring_disabled=0".to_owned())
}
