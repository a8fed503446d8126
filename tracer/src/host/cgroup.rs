//! Control groups of a process, version 1, 2 or both at once (hybrid), and the limits and counters in them.
//!
//! A controller is either bound to a version 1 hierarchy or available to version 2, never both; /proc/PID/cgroup says
//! which, and mountinfo says where that hierarchy is mounted.

use super::mounts::{MountEntry, parse_dev};
use crate::units::{DevId, Nanos};
use std::path::{Path, PathBuf};

/// Version of the control-group interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupVersion {
    /// One hierarchy per controller (`cgroup`).
    V1,
    /// One hierarchy for all (`cgroup2`, Linux 4.5).
    V2,
}

/// A control group, seen through one controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Group {
    /// Its interface.
    pub version: GroupVersion,
    /// Where its hierarchy is mounted.
    pub mount: PathBuf,
    /// Its path below the mount, without a slash at the start; empty for the root of what is mounted.
    pub path: String,
}

impl Group {
    /// Its directory.
    pub fn dir(&self) -> PathBuf {
        self.mount.join(&self.path)
    }

    /// The group itself, its parent, and so on up to the root of what is mounted.
    pub fn lineage(&self) -> impl Iterator<Item = Group> + '_ {
        Path::new(&self.path).ancestors().map(|p| Group { path: p.to_string_lossy().into_owned(), ..self.clone() })
    }

    /// One of its files; `None` where it has no such file (another version, a root, a controller that is off).
    pub fn read(&self, file: &str) -> Option<String> {
        std::fs::read_to_string(self.dir().join(file)).ok()
    }
}

/// The group that a process is in, as far as `controller` is concerned; `None` where the controller is off or its
/// hierarchy is not mounted here.
///
/// `memberships` is /proc/PID/cgroup, `mounts` the reader's own mountinfo.
pub fn find(controller: &str, memberships: &str, mounts: &[MountEntry]) -> Option<Group> {
    // `4:cpu,cpuacct:/path`, and for version 2 `0::/path`; the path may hold colons.
    let parsed: Vec<(&str, &str)> = memberships
        .lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            Some((parts.next()?, parts.next()?))
        })
        .collect();
    let v1 = parsed.iter().find(|(list, _)| list.split(',').any(|c| c == controller));
    let (version, path) = match v1 {
        Some((_, path)) => (GroupVersion::V1, *path),
        None => (GroupVersion::V2, parsed.iter().find(|(list, _)| list.is_empty())?.1),
    };
    let candidates = mounts.iter().filter(|m| match version {
        GroupVersion::V1 => m.mount.fs_type == "cgroup" && m.options.iter().any(|o| o == controller),
        GroupVersion::V2 => m.mount.fs_type == "cgroup2",
    });
    // The kernel marks a group that has been removed; its directory is gone.
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    // In a container only a part of the hierarchy may be mounted; take the mount that shows most of the way up.
    candidates
        .filter_map(|m| Some((m, below(path, &m.mount.root)?)))
        .max_by_key(|(_, rest)| rest.len())
        .map(|(m, rest)| Group { version, mount: PathBuf::from(&m.mount.point), path: rest.to_owned() })
}

/// `path` relative to `root`; `None` if it lies elsewhere.
fn below<'a>(path: &'a str, root: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(root.trim_end_matches('/'))?;
    // Paths outside the reader's control-group namespace start with `/..`.
    if rest.split('/').any(|part| part == "..") {
        return None;
    }
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
}

/// CPUs' worth of quota that this group itself has: `quota / period`. `None` without one.
pub fn quota(group: &Group) -> Option<f64> {
    match group.version {
        GroupVersion::V1 => parse_quota_v1(&group.read("cpu.cfs_quota_us")?, &group.read("cpu.cfs_period_us")?),
        GroupVersion::V2 => parse_quota_v2(&group.read("cpu.max")?),
    }
}

fn parse_quota_v1(quota: &str, period: &str) -> Option<f64> {
    // -1 is no limit.
    let (quota, period): (i64, i64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

fn parse_quota_v2(text: &str) -> Option<f64> {
    // `max 100000`, `50000 100000`; the period may be absent and is then 100 ms.
    let mut parts = text.split_whitespace();
    let quota: u64 = parts.next()?.parse().ok()?;
    let period: u64 = parts.next().map_or(Some(100_000), |p| p.parse().ok())?;
    (period > 0).then(|| quota as f64 / period as f64)
}

/// Periods in which a group was throttled, and time for which it was, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Periods.
    pub periods: u64,
    /// Time, summed over CPUs.
    pub time: Nanos,
}

/// Parses cpu.stat of either version (`throttled_time` in nanoseconds, or `throttled_usec`). `None` where the group
/// counts no throttling: the root of version 2, or a group without the CPU controller.
pub fn parse_throttling(text: &str) -> Option<Throttling> {
    let field = |name: &str| -> Option<u64> {
        text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    };
    let periods = field("nr_throttled")?;
    let time = field("throttled_time").or_else(|| field("throttled_usec").map(|us| us.saturating_mul(1_000)))?;
    Some(Throttling { periods, time: Nanos(time) })
}

/// Memory that this group itself may have, bytes; `None` without a limit. Of version 2's two limits the lower: above
/// `memory.high` threads are held back, above `memory.max` one is killed.
pub fn memory_limit(group: &Group) -> Option<u64> {
    match group.version {
        GroupVersion::V1 => parse_memory_v1(&group.read("memory.limit_in_bytes")?),
        GroupVersion::V2 => {
            ["memory.max", "memory.high"].iter().filter_map(|f| group.read(f)?.trim().parse().ok()).min()
        }
    }
}

fn parse_memory_v1(text: &str) -> Option<u64> {
    // No limit is PAGE_COUNTER_MAX pages, LONG_MAX rounded down to a page.
    text.trim().parse().ok().filter(|&bytes: &u64| bytes < (i64::MAX as u64) - (1 << 20))
}

/// Bytes or operations a second, for one device and direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoLimitField {
    /// Bytes read.
    ReadBps,
    /// Reads.
    ReadIops,
    /// Bytes written.
    WriteBps,
    /// Writes.
    WriteIops,
}

/// I/O limits that this group itself sets.
pub fn io_limits(group: &Group) -> Vec<(DevId, IoLimitField, u64)> {
    use IoLimitField::{ReadBps, ReadIops, WriteBps, WriteIops};
    match group.version {
        GroupVersion::V1 => [
            ("blkio.throttle.read_bps_device", ReadBps),
            ("blkio.throttle.read_iops_device", ReadIops),
            ("blkio.throttle.write_bps_device", WriteBps),
            ("blkio.throttle.write_iops_device", WriteIops),
        ]
        .into_iter()
        .flat_map(|(file, field)| {
            let text = group.read(file).unwrap_or_default();
            parse_throttle_v1(&text).into_iter().map(move |(dev, limit)| (dev, field, limit))
        })
        .collect(),
        GroupVersion::V2 => parse_io_max(&group.read("io.max").unwrap_or_default()),
    }
}

fn parse_throttle_v1(text: &str) -> Vec<(DevId, u64)> {
    text.lines()
        .filter_map(|line| {
            let (dev, limit) = line.trim().split_once(' ')?;
            Some((parse_dev(dev)?, limit.trim().parse().ok()?))
        })
        .collect()
}

fn parse_io_max(text: &str) -> Vec<(DevId, IoLimitField, u64)> {
    let mut limits = Vec::new();
    for line in text.lines() {
        let mut parts = line.split_whitespace();
        let Some(dev) = parts.next().and_then(parse_dev) else { continue };
        for (name, value) in parts.filter_map(|p| p.split_once('=')) {
            let field = match name {
                "rbps" => IoLimitField::ReadBps,
                "riops" => IoLimitField::ReadIops,
                "wbps" => IoLimitField::WriteBps,
                "wiops" => IoLimitField::WriteIops,
                _ => continue,
            };
            // `max` does not parse: no limit.
            if let Ok(limit) = value.parse() {
                limits.push((dev, field, limit));
            }
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::parse_mountinfo;

    const V1: &[u8] = b"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
        33 31 0:30 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n\
        34 31 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    const V2: &[u8] = b"28 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    fn group(version: GroupVersion, mount: &str, path: &str) -> Option<Group> {
        Some(Group { version, mount: mount.into(), path: path.into() })
    }

    #[test]
    fn version_1_and_hybrid() {
        let mounts = parse_mountinfo(V1);
        let cgroup = "7:blkio:/\n2:cpu,cpuacct:/jobs/a:b\n0::/user.slice\n";
        assert_eq!(find("cpu", cgroup, &mounts), group(GroupVersion::V1, "/sys/fs/cgroup/cpu,cpuacct", "jobs/a:b"));
        assert_eq!(find("blkio", cgroup, &mounts), group(GroupVersion::V1, "/sys/fs/cgroup/blkio", ""));
        // Not bound to version 1, so version 2 has it.
        assert_eq!(find("memory", cgroup, &mounts), group(GroupVersion::V2, "/sys/fs/cgroup/unified", "user.slice"));
    }

    #[test]
    fn version_2_alone() {
        let mounts = parse_mountinfo(V2);
        let found = find("cpu", "0::/system.slice/docker-1.scope (deleted)\n", &mounts);
        assert_eq!(found, group(GroupVersion::V2, "/sys/fs/cgroup", "system.slice/docker-1.scope"));
        assert_eq!(find("cpu", "", &mounts), None);
    }

    #[test]
    fn a_container_that_sees_a_part_of_the_hierarchy() {
        let mounts = parse_mountinfo(b"50 1 0:29 /docker/1 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n");
        assert_eq!(find("cpu", "2:cpu:/docker/1/job\n", &mounts), group(GroupVersion::V1, "/sys/fs/cgroup/cpu", "job"));
        assert_eq!(find("cpu", "2:cpu:/docker/1\n", &mounts), group(GroupVersion::V1, "/sys/fs/cgroup/cpu", ""));
        assert_eq!(find("cpu", "2:cpu:/docker/12\n", &mounts), None, "a sibling is not below");
        assert_eq!(find("cpu", "0::/../other\n", &parse_mountinfo(V2)), None, "outside the namespace");
    }

    #[test]
    fn a_controller_whose_hierarchy_is_not_mounted() {
        assert_eq!(find("cpu", "2:cpu:/x\n", &parse_mountinfo(V2)), None);
    }

    #[test]
    fn lineage_goes_from_the_group_to_the_mount() {
        let g = group(GroupVersion::V2, "/c", "a/b").unwrap();
        let paths: Vec<String> = g.lineage().map(|g| g.path).collect();
        assert_eq!(paths, ["a/b", "a", ""]);
        assert_eq!(g.dir(), Path::new("/c/a/b"));
    }

    #[test]
    fn quotas() {
        assert_eq!(parse_quota_v1("50000\n", "100000\n"), Some(0.5));
        assert_eq!(parse_quota_v1("-1\n", "100000\n"), None);
        assert_eq!(parse_quota_v1("5", "0"), None);
        assert_eq!(parse_quota_v2("max 100000\n"), None);
        assert_eq!(parse_quota_v2("150000 100000\n"), Some(1.5));
        assert_eq!(parse_quota_v2("25000"), Some(0.25));
        assert_eq!(parse_quota_v2(""), None);
    }

    #[test]
    fn throttling_in_both_units() {
        let v1 = "nr_periods 10\nnr_throttled 7\nthrottled_time 123456\nnr_bursts 0\n";
        let v2 = "usage_usec 9\nnr_periods 10\nnr_throttled 7\nthrottled_usec 123\n";
        assert_eq!(parse_throttling(v1), Some(Throttling { periods: 7, time: Nanos(123_456) }));
        assert_eq!(parse_throttling(v2), Some(Throttling { periods: 7, time: Nanos(123_000) }));
        assert_eq!(parse_throttling("usage_usec 9\nuser_usec 3\n"), None);
    }

    #[test]
    fn memory_without_a_limit() {
        assert_eq!(parse_memory_v1("9223372036854771712\n"), None);
        assert_eq!(parse_memory_v1("1073741824\n"), Some(1 << 30));
    }

    #[test]
    fn io_limits_of_both_versions() {
        let dev = |major, minor| DevId { major, minor };
        assert_eq!(parse_throttle_v1("254:0 1048576\n8:16 5\n\n"), [(dev(254, 0), 1 << 20), (dev(8, 16), 5)]);
        let text = "8:16 rbps=2097152 wbps=max riops=max wiops=120\n259:1 rbps=max\nx rbps=1\n";
        assert_eq!(
            parse_io_max(text),
            [(dev(8, 16), IoLimitField::ReadBps, 2_097_152), (dev(8, 16), IoLimitField::WriteIops, 120)]
        );
    }
}
