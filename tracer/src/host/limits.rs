//! Limits on a process: CPUs, CPU quota, memory and I/O of its control groups, nice value.

use super::cgroup::{self, Group, GroupVersion, IoLimitField};
use super::{HostError, IoLimit, MountEntry, ProcessLimits, mount_entries, system};
use crate::units::{DevId, Pid};
use std::path::PathBuf;

/// Limits on process `pid` as they are now. What cannot be seen from here (a hierarchy that is not mounted, a parent
/// outside the container that gpustall runs in) is no limit.
pub fn limits(pid: Pid) -> ProcessLimits {
    let groups = Memberships::read(pid);
    let process = i32::try_from(pid.0).ok().and_then(|p| procfs::process::Process::new(p).ok());
    let nice = process.as_ref().and_then(|p| p.stat().ok()).map_or(0, |s| i32::try_from(s.nice).unwrap_or(0));
    let allowed = process.and_then(|p| p.status().ok()?.cpus_allowed_list).unwrap_or_default();
    ProcessLimits {
        allowed_cpus: usable_cpus(&allowed, system::online_list().as_deref()),
        quota_cpus: groups.as_ref().and_then(|g| g.tightest("cpu", cgroup::quota, f64::min)),
        memory_limit: groups.as_ref().and_then(|g| g.tightest("memory", cgroup::memory_limit, u64::min)),
        io: groups.map(|g| g.io_limits()).unwrap_or_default(),
        nice,
    }
}

/// The control group of process `pid` for one controller (`cpu`, `cpuset`, `memory`, `blkio`; version 2 calls the last
/// one `io`, both names work). `None` where the controller is off or its hierarchy is not mounted.
pub fn control_group(pid: Pid, controller: &str) -> Result<Option<Group>, HostError> {
    let path = PathBuf::from(format!("/proc/{pid}/cgroup"));
    let text = std::fs::read(&path).map_err(|e| HostError::of_process(pid, &path, e))?;
    let mounts = mount_entries(Pid(std::process::id()))?;
    Ok(Memberships { text: String::from_utf8_lossy(&text).into_owned(), mounts }.group(controller))
}

/// Which groups a process is in, and where they can be seen.
struct Memberships {
    text: String,
    mounts: Vec<MountEntry>,
}

impl Memberships {
    fn read(pid: Pid) -> Option<Memberships> {
        let text = std::fs::read(format!("/proc/{pid}/cgroup")).ok()?;
        let mounts = mount_entries(Pid(std::process::id())).ok()?;
        Some(Memberships { text: String::from_utf8_lossy(&text).into_owned(), mounts })
    }

    fn group(&self, controller: &str) -> Option<Group> {
        let controller = if controller == "io" { "blkio" } else { controller };
        cgroup::find(controller, &self.text, &self.mounts)
    }

    /// The tightest value on the way from the process's group to the root.
    fn tightest<T>(&self, controller: &str, value: fn(&Group) -> Option<T>, tighter: fn(T, T) -> T) -> Option<T> {
        self.group(controller)?.lineage().filter_map(|g| value(&g)).reduce(tighter)
    }

    fn io_limits(&self) -> Vec<IoLimit> {
        let Some(group) = self.group("blkio") else { return Vec::new() };
        // Version 1 throttles each group by its own numbers alone: block/blk-throttle.c, throtl_pd_init(), makes parents
        // count on the default hierarchy only.
        let levels = if group.version == GroupVersion::V1 { 1 } else { usize::MAX };
        merge_io(group.lineage().take(levels).map(|g| (g.dir().to_string_lossy().into_owned(), cgroup::io_limits(&g))))
    }
}

/// CPUs in the kernel's ranges that are also online.
fn usable_cpus(allowed: &[(u32, u32)], online: Option<&[u32]>) -> Vec<u32> {
    // The kernel's mask may name CPUs that do not exist; without a list of those online the ranges must stay bounded.
    match online {
        Some(online) => online.iter().copied().filter(|c| allowed.iter().any(|(a, b)| (a..=b).contains(&c))).collect(),
        None => allowed.iter().flat_map(|&(a, b)| a..=b.min(a.saturating_add(8191))).collect(),
    }
}

/// One entry per device with the tightest of each limit. Its group is the one that set the tightest limit last, going
/// from the process's own group up.
fn merge_io(groups: impl Iterator<Item = (String, Vec<(DevId, IoLimitField, u64)>)>) -> Vec<IoLimit> {
    let mut merged: Vec<IoLimit> = Vec::new();
    for (group, limits) in groups {
        for (dev, field, limit) in limits {
            let index = merged.iter().position(|l| l.dev == dev).unwrap_or_else(|| {
                let group = group.clone();
                merged.push(IoLimit { dev, group, read_bps: None, read_iops: None, write_bps: None, write_iops: None });
                merged.len() - 1
            });
            let entry = &mut merged[index];
            let slot = match field {
                IoLimitField::ReadBps => &mut entry.read_bps,
                IoLimitField::ReadIops => &mut entry.read_iops,
                IoLimitField::WriteBps => &mut entry.write_bps,
                IoLimitField::WriteIops => &mut entry.write_iops,
            };
            if slot.is_none_or(|known| limit < known) {
                *slot = Some(limit);
                entry.group.clone_from(&group);
            }
        }
    }
    merged.sort_by_key(|l| l.dev);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use IoLimitField::{ReadBps, ReadIops, WriteBps};

    #[test]
    fn cpus_are_those_allowed_and_online() {
        assert_eq!(usable_cpus(&[(0, 1), (4, 63)], Some(&[0, 2, 4, 5])), [0, 4, 5]);
        assert_eq!(usable_cpus(&[(2, 3)], None), [2, 3]);
        assert_eq!(usable_cpus(&[], Some(&[0])), [0u32; 0]);
    }

    #[test]
    fn the_tightest_io_limit_wins_and_names_its_group() {
        let dev = DevId { major: 8, minor: 0 };
        let other = DevId { major: 7, minor: 1 };
        let merged = merge_io(
            [
                ("/c/a/b".to_owned(), vec![(dev, ReadBps, 100), (dev, ReadIops, 10)]),
                ("/c/a".to_owned(), vec![(dev, ReadBps, 50), (other, WriteBps, 7)]),
                ("/c".to_owned(), vec![(dev, ReadBps, 70)]),
            ]
            .into_iter(),
        );
        let none =
            IoLimit { dev, group: String::new(), read_bps: None, read_iops: None, write_bps: None, write_iops: None };
        assert_eq!(
            merged,
            [
                IoLimit { dev: other, group: "/c/a".into(), write_bps: Some(7), ..none.clone() },
                IoLimit { group: "/c/a".into(), read_bps: Some(50), read_iops: Some(10), ..none },
            ]
        );
    }

    /// Files of a version 2 hierarchy in an ordinary directory: the reader cannot tell.
    #[test]
    fn limits_of_a_version_2_hierarchy_come_from_every_level() {
        let dir = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| std::fs::write(dir.path().join(file), text).unwrap();
        std::fs::create_dir_all(dir.path().join("pod/job")).unwrap();
        write("pod/cpu.max", "150000 100000\n");
        write("pod/job/cpu.max", "max 100000\n");
        write("pod/memory.max", "max\n");
        write("pod/memory.high", "1073741824\n");
        write("pod/job/memory.max", "2147483648\n");
        write("pod/io.max", "8:0 rbps=1000 wbps=max riops=max wiops=max\n");
        write("pod/job/io.max", "8:0 rbps=2000 wbps=max riops=50 wiops=max\n");
        let mountinfo = format!("28 23 0:26 / {} rw - cgroup2 cgroup2 rw\n", dir.path().display());
        let groups =
            Memberships { text: "0::/pod/job\n".into(), mounts: crate::host::parse_mountinfo(mountinfo.as_bytes()) };
        assert_eq!(groups.tightest("cpu", cgroup::quota, f64::min), Some(1.5));
        assert_eq!(groups.tightest("memory", cgroup::memory_limit, u64::min), Some(1 << 30));
        let io = groups.io_limits();
        assert_eq!((io.len(), io[0].read_bps, io[0].read_iops), (1, Some(1000), Some(50)));
        assert_eq!(io[0].group, dir.path().join("pod").to_string_lossy());
    }
}
