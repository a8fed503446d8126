//! Real control groups for tests: made with a limit, removed when dropped. Works with version 1 and 2, whichever has the
//! controller.

use anyhow::{Context, bail};
use gpustall::host::{GroupVersion, control_group};
use gpustall::units::{DevId, Pid};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A control group, removed when dropped; processes still in it go back to its parent.
#[derive(Debug)]
struct Dir {
    path: PathBuf,
    version: GroupVersion,
}

impl Dir {
    /// Makes a group directly below the root of the controller's hierarchy.
    fn new(controller: &str) -> anyhow::Result<Dir> {
        let own = control_group(Pid(std::process::id()), controller)?.with_context(|| {
            format!(
                "no control-group hierarchy with {controller} is mounted; for version 1: \
                 mkdir -p /sys/fs/cgroup/{controller} && mount -t cgroup -o {controller} cgroup /sys/fs/cgroup/{controller}"
            )
        })?;
        if own.version == GroupVersion::V2 {
            enable(&own.mount, if controller == "blkio" { "io" } else { controller })?;
        }
        remove_leftovers(&own.mount);
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{PREFIX}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Dir::make(own.mount.join(name), own.version)
    }

    fn make(path: PathBuf, version: GroupVersion) -> anyhow::Result<Dir> {
        std::fs::create_dir(&path)
            .with_context(|| format!("cannot make the control group {} (it needs root)", path.display()))?;
        Ok(Dir { path, version })
    }

    fn write(&self, file: &str, text: &str) -> anyhow::Result<()> {
        write(&self.path.join(file), text)
    }

    fn add(&self, pid: Pid) -> anyhow::Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }
}

const PREFIX: &str = "gpustall-test-";

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {text:?} to {}", file.display()))
}

/// Makes a version 2 controller available to groups below `parent`. It stays so: other groups may have come to use it.
fn enable(parent: &Path, controller: &str) -> anyhow::Result<()> {
    let offered = std::fs::read_to_string(parent.join("cgroup.controllers"))?;
    if !offered.split_whitespace().any(|c| c == controller) {
        bail!("the version 2 hierarchy at {} does not offer {controller}", parent.display());
    }
    write(&parent.join("cgroup.subtree_control"), &format!("+{controller}"))
}

/// Removes groups of test processes that were killed before they could.
fn remove_leftovers(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove(&entry.path());
        }
    }
}

fn remove(path: &Path) {
    for child in std::fs::read_dir(path).into_iter().flatten().filter_map(Result::ok) {
        if child.path().is_dir() {
            remove(&child.path());
        }
    }
    let mut result = Ok(());
    // A process that was killed is in its group until it has run its exit.
    for _ in 0..100 {
        let members = std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        for pid in members.lines() {
            if let Some(parent) = path.parent() {
                let _ = std::fs::write(parent.join("cgroup.procs"), pid);
            }
        }
        result = std::fs::remove_dir(path);
        if result.is_ok() || !path.exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    eprintln!("could not remove the control group {}: {result:?}", path.display());
}

impl Drop for Dir {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// A group with a CPU quota.
#[derive(Debug)]
pub struct CpuGroup(Dir);

impl CpuGroup {
    /// Its processes together get `quota` of CPU time in each `period`.
    pub fn with_quota(quota: Duration, period: Duration) -> anyhow::Result<CpuGroup> {
        let dir = Dir::new("cpu")?;
        match dir.version {
            GroupVersion::V1 => {
                dir.write("cpu.cfs_period_us", &period.as_micros().to_string())?;
                dir.write("cpu.cfs_quota_us", &quota.as_micros().to_string())?;
            }
            GroupVersion::V2 => dir.write("cpu.max", &format!("{} {}", quota.as_micros(), period.as_micros()))?,
        }
        Ok(CpuGroup(dir))
    }

    /// Its processes go before others: they weigh as much as 64 groups.
    pub fn ahead_of_others() -> anyhow::Result<CpuGroup> {
        let dir = Dir::new("cpu")?;
        match dir.version {
            GroupVersion::V1 => dir.write("cpu.shares", "65536")?,
            GroupVersion::V2 => dir.write("cpu.weight", "6400")?,
        }
        Ok(CpuGroup(dir))
    }

    /// A group below this one, without a quota of its own. It must be dropped first.
    pub fn inner(&self) -> anyhow::Result<CpuGroup> {
        Ok(CpuGroup(Dir::make(self.0.path.join("inner"), self.0.version)?))
    }

    /// Moves a process, all its threads included, into the group.
    pub fn add(&self, pid: Pid) -> anyhow::Result<()> {
        self.0.add(pid)
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.0.path
    }
}

/// A group whose processes may use some CPUs only.
#[derive(Debug)]
pub struct CpusetGroup(Dir);

impl CpusetGroup {
    /// CPUs as the kernel lists them: `0-3,8`.
    pub fn with_cpus(cpus: &str) -> anyhow::Result<CpusetGroup> {
        let dir = Dir::new("cpuset")?;
        if dir.version == GroupVersion::V1 {
            // Version 1 takes no process into a group without memory nodes.
            let parent = dir.path.parent().context("the group has no parent")?;
            let nodes = std::fs::read_to_string(parent.join("cpuset.mems"))?;
            dir.write("cpuset.mems", nodes.trim())?;
        }
        dir.write("cpuset.cpus", cpus)?;
        Ok(CpusetGroup(dir))
    }

    /// Moves a process, all its threads included, into the group.
    pub fn add(&self, pid: Pid) -> anyhow::Result<()> {
        self.0.add(pid)
    }
}

/// A group with limited memory.
#[derive(Debug)]
pub struct MemoryGroup(Dir);

impl MemoryGroup {
    /// Its processes together may have this many bytes, page cache included.
    pub fn with_limit(bytes: u64) -> anyhow::Result<MemoryGroup> {
        let dir = Dir::new("memory")?;
        let file = match dir.version {
            GroupVersion::V1 => "memory.limit_in_bytes",
            GroupVersion::V2 => "memory.max",
        };
        dir.write(file, &bytes.to_string())?;
        Ok(MemoryGroup(dir))
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Moves a process, all its threads included, into the group.
    pub fn add(&self, pid: Pid) -> anyhow::Result<()> {
        self.0.add(pid)
    }
}

/// A group whose reads from one disk are limited.
#[derive(Debug)]
pub struct BlkioGroup(Dir);

impl BlkioGroup {
    /// Limits reads from the whole disk `dev` to so many bytes and operations a second; `None` is no limit.
    pub fn with_read_limit(dev: DevId, bps: Option<u64>, iops: Option<u64>) -> anyhow::Result<BlkioGroup> {
        let dir = Dir::new("blkio")?;
        match dir.version {
            GroupVersion::V1 => {
                for (file, limit) in [("read_bps_device", bps), ("read_iops_device", iops)] {
                    if let Some(limit) = limit {
                        dir.write(&format!("blkio.throttle.{file}"), &format!("{dev} {limit}"))?;
                    }
                }
            }
            GroupVersion::V2 => {
                let text = |limit: Option<u64>| limit.map_or("max".to_owned(), |l| l.to_string());
                dir.write("io.max", &format!("{dev} rbps={} riops={}", text(bps), text(iops)))?;
            }
        }
        Ok(BlkioGroup(dir))
    }

    /// Moves a process, all its threads included, into the group.
    pub fn add(&self, pid: Pid) -> anyhow::Result<()> {
        self.0.add(pid)
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.0.path
    }
}
