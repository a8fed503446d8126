//! The process to be traced: what it is, what limits it, where its files lie.

use super::Check;
use super::disks::bytes;
use super::storage::{StorageUse, uses_of};
use crate::events::CgroupCpu;
use crate::host::{self, FsKind, HostError, HostSampler, IoLimit, ProcessLimits};
use crate::units::Pid;
use procfs::process::{Process, StatFlags};

/// What is known of the target.
#[derive(Debug)]
pub(super) struct Target {
    pid: Pid,
    command: String,
    state: State,
    processes: usize,
    online_cpus: u32,
    limits: ProcessLimits,
    groups: Vec<CgroupCpu>,
    /// Memory of all its processes that is swapped out, bytes.
    swapped: u64,
    /// File systems that it uses.
    pub(super) storage: Vec<StorageUse>,
}

/// What kind of process it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Alive,
    /// It has ended, and its parent has not taken note yet.
    Zombie,
    KernelThread,
    /// It is one thread of this process, not its first.
    ThreadOf(Pid),
}

/// Looks at process `pid`.
pub(super) fn read(pid: Pid) -> Result<Target, HostError> {
    let tree = host::process_tree(pid)?;
    let command = host::command_line(pid)?;
    let state = state(pid);
    let storage = match state {
        State::Alive => uses_of(&tree)?,
        // They have no files, or it is the wrong id.
        State::Zombie | State::KernelThread | State::ThreadOf(_) => Vec::new(),
    };
    let status = |pid: &Pid| Process::new(i32::try_from(pid.0).ok()?).ok()?.status().ok();
    let now = host::clocks().mono;
    Ok(Target {
        pid,
        command,
        state,
        processes: tree.len(),
        online_cpus: host::online_cpus(),
        limits: host::limits(pid),
        groups: HostSampler::new().sample(now, &tree).cgroups,
        swapped: tree.iter().filter_map(status).filter_map(|s| s.vmswap).sum::<u64>() * 1024,
        storage,
    })
}

fn state(pid: Pid) -> State {
    let Some(process) = i32::try_from(pid.0).ok().and_then(|p| Process::new(p).ok()) else { return State::Alive };
    let leader = process.status().ok().and_then(|s| u32::try_from(s.tgid).ok()).map_or(pid, Pid);
    match process.stat() {
        _ if leader != pid => State::ThreadOf(leader),
        Ok(s) if matches!(s.state, 'Z' | 'X') => State::Zombie,
        Ok(s) if StatFlags::from_bits_truncate(s.flags).contains(StatFlags::PF_KTHREAD) => State::KernelThread,
        _ => State::Alive,
    }
}

/// Judges the target and its limits.
pub(super) fn judge(target: &Target) -> Vec<Check> {
    let mut checks = vec![
        judge_target(target),
        judge_cpus(&target.limits.allowed_cpus, target.online_cpus),
        judge_quota(target.limits.quota_cpus, &target.groups),
        judge_memory(target.limits.memory_limit, target.swapped),
        judge_io(&target.limits.io),
        judge_nice(target.limits.nice),
    ];
    checks.extend(judge_files(&target.storage));
    checks
}

fn judge_target(target: &Target) -> Check {
    const NAME: &str = "target";
    let pid = target.pid;
    match target.state {
        State::Alive => {
            let command: String = target.command.chars().take(100).collect();
            let tree = match target.processes {
                1 => "one process".to_owned(),
                n => format!("{n} processes with its descendants"),
            };
            Check::ok(NAME, format!("{pid}: {command}; {tree}"))
        }
        State::Zombie => Check::failure(
            NAME,
            format!("{pid} has ended already; its parent has not taken note yet"),
            "give the pid of a training process that runs",
        ),
        State::KernelThread => Check::failure(
            NAME,
            format!("{pid} is a kernel thread: {}", target.command),
            "give the pid of a training process",
        ),
        State::ThreadOf(process) => Check::failure(
            NAME,
            format!("{pid} is a thread of process {process}, not a process"),
            format!("give the pid of the process: --pid {process}"),
        ),
    }
}

fn judge_cpus(allowed: &[u32], online: u32) -> Check {
    const NAME: &str = "target_cpus";
    let count = allowed.len();
    match count {
        0 => Check::ok(NAME, "not told by this kernel"),
        _ if count < online as usize => Check::warning(
            NAME,
            format!("may run on {count} of {online} CPUs ({})", cpu_ranges(allowed)),
            "compare with the number of workers; widen it with taskset -apc, the cpuset of its control group, or the job's \
             CPU request",
        ),
        _ => Check::ok(NAME, format!("may run on all {online} CPUs")),
    }
}

/// `0-3,8`.
fn cpu_ranges(cpus: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let texts: Vec<String> =
        ranges.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
    texts.join(",")
}

fn judge_quota(quota: Option<f64>, groups: &[CgroupCpu]) -> Check {
    const NAME: &str = "target_quota";
    let Some(quota) = quota else { return Check::ok(NAME, "no CPU quota") };
    let throttled = groups.iter().filter(|g| g.throttled_periods > 0).max_by_key(|g| g.throttled);
    let so_far = match throttled {
        Some(g) => format!("{} throttled in {} periods so far, for {}", g.path, g.throttled_periods, g.throttled),
        None => "not throttled so far".to_owned(),
    };
    Check::warning(
        NAME,
        format!("its control groups give it {quota:.2} CPUs; {so_far}"),
        "raise the quota (cpu.cfs_quota_us, cpu.max, or the CPU limit of the container) if throttling goes on while it \
         trains",
    )
}

fn judge_memory(limit: Option<u64>, swapped: u64) -> Check {
    const NAME: &str = "target_memory";
    let limit = match limit {
        Some(limit) => format!("its control groups give it {}, page cache of its files included", bytes(limit)),
        None => "no limit".to_owned(),
    };
    /// A few cold pages say nothing.
    const MUCH: u64 = 64 << 20;
    if swapped > MUCH {
        return Check::warning(
            NAME,
            format!("{limit}; {} of it are swapped out", bytes(swapped)),
            "give it more memory, or use fewer workers or a smaller prefetch",
        );
    }
    Check::ok(NAME, limit)
}

fn judge_io(limits: &[IoLimit]) -> Check {
    const NAME: &str = "target_io";
    if limits.is_empty() {
        return Check::ok(NAME, "no I/O limit");
    }
    let each = |limit: &IoLimit| {
        let parts = [
            limit.read_bps.map(|v| format!("reads {}/s", bytes(v))),
            limit.read_iops.map(|v| format!("{v} reads/s")),
            limit.write_bps.map(|v| format!("writes {}/s", bytes(v))),
            limit.write_iops.map(|v| format!("{v} writes/s")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        format!("device {}: {} (set in {})", limit.dev, parts.join(", "), limit.group)
    };
    let all: Vec<String> = limits.iter().map(each).collect();
    Check::warning(NAME, all.join("; "), "raise or remove the limit in that control group (io.max, blkio.throttle.*)")
}

fn judge_nice(nice: i32) -> Check {
    const NAME: &str = "target_nice";
    if nice > 0 {
        return Check::warning(
            NAME,
            format!("nice {nice}: other processes go first when CPUs are short"),
            "start it without nice, or: sudo renice -n 0 -p PID",
        );
    }
    Check::ok(NAME, format!("nice {nice}"))
}

fn judge_files(storage: &[StorageUse]) -> Vec<Check> {
    const NAME: &str = "target_files";
    let each = |u: &StorageUse| {
        let many = if u.files == 1 { "1 file" } else { &format!("{} files", u.files) };
        let what = format!("{many} on {} at {} (such as {})", u.mount.fs_type, u.mount.point, u.example.display());
        match u.kind {
            Some(FsKind::Network) => Check::warning(
                NAME,
                format!("{what}: from {} over the network", u.mount.source),
                "every read and open may be a round trip: copy the data to a local disk, or pack it into large files",
            ),
            Some(FsKind::UserSpace) => Check::warning(
                NAME,
                format!("{what}: served by a process of this machine ({})", u.mount.source),
                "every read goes through that process, which needs CPU time too: copy the data to a local disk",
            ),
            _ if u.disks.is_empty() => Check::ok(NAME, what),
            _ => Check::ok(NAME, format!("{what}: disk {}", u.disks.join(", "))),
        }
    };
    let relevant = storage.iter().filter(|u| !matches!(u.kind, Some(FsKind::Pseudo)));
    let checks: Vec<Check> = relevant.map(each).collect();
    if checks.is_empty() { vec![Check::ok(NAME, "no files open now")] } else { checks }
}

#[cfg(test)]
mod tests;
