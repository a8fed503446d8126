//! State of the host, read a few times a second: CPU, memory, pressure, and the counters of the target's control groups.

use super::cgroup::{self, Group};
use super::{MountEntry, listeners, mount_entries, online_cpus};
use crate::events::{CgroupCpu, HostSample, Pressure};
use crate::units::{MonoNs, Nanos, Pid};
use procfs::{Current, CurrentSI};
use std::collections::BTreeMap;

/// Reads [`HostSample`]s. One costs about half a millisecond and some 20 µs for each target process, so a few a second
/// are nothing.
#[derive(Debug)]
pub struct HostSampler {
    mounts: Vec<MountEntry>,
    nanos_per_tick: u64,
    samples: u32,
}

/// Listening sockets are looked for at every so many samples: they stay, and the look costs time for every open file.
const LISTENERS_EVERY: u32 = 16;

impl Default for HostSampler {
    fn default() -> HostSampler {
        HostSampler::new()
    }
}

impl HostSampler {
    /// Finds where the control groups are mounted.
    pub fn new() -> HostSampler {
        HostSampler {
            mounts: mount_entries(Pid(std::process::id())).unwrap_or_default(),
            nanos_per_tick: 1_000_000_000 / procfs::ticks_per_second().max(1),
            samples: 0,
        }
    }

    /// State of the host, and of the control groups that the processes `pids` are in. A value that this kernel does not
    /// tell is zero, or absent where it can be.
    pub fn sample(&mut self, now: MonoNs, pids: &[Pid]) -> HostSample {
        let cpu = procfs::KernelStats::current().map(|s| self.cpu(&s.total)).unwrap_or_default();
        let vm = procfs::vmstat().unwrap_or_default();
        let counter = |name: &str| vm.get(name).and_then(|v| u64::try_from(*v).ok()).unwrap_or(0);
        let listeners = self.samples.is_multiple_of(LISTENERS_EVERY).then(|| listeners(pids));
        self.samples = self.samples.wrapping_add(1);
        HostSample {
            time: now,
            cpus: online_cpus(),
            cpu_busy: cpu.busy,
            cpu_idle: cpu.idle,
            cpu_iowait: cpu.iowait,
            memory_available: procfs::Meminfo::current().ok().and_then(|m| m.mem_available).unwrap_or(0),
            swapped_in: counter("pswpin"),
            major_faults: counter("pgmajfault"),
            pressure_cpu: pressure("cpu"),
            pressure_io: pressure("io"),
            pressure_memory: pressure("memory"),
            cgroups: self.cgroups(pids),
            listeners,
        }
    }

    fn cpu(&self, t: &procfs::CpuTime) -> Cpu {
        // Guest time is part of user time already.
        let busy = t.user + t.nice + t.system + t.irq.unwrap_or(0) + t.softirq.unwrap_or(0) + t.steal.unwrap_or(0);
        let iowait = t.iowait.unwrap_or(0);
        let nanos = |ticks: u64| Nanos(ticks.saturating_mul(self.nanos_per_tick));
        Cpu { busy: nanos(busy), idle: nanos(t.idle + iowait), iowait: nanos(iowait) }
    }

    /// Counters of each group that holds a process, and of each group above that has a quota: there a process is
    /// throttled too, while the counters of its own group stand still.
    fn cgroups(&self, pids: &[Pid]) -> Vec<CgroupCpu> {
        // Processes can be moved at any time, so memberships are read anew.
        let texts = pids.iter().filter_map(|pid| std::fs::read(format!("/proc/{pid}/cgroup")).ok());
        let own = texts.filter_map(|t| cgroup::find("cpu", &String::from_utf8_lossy(&t), &self.mounts));
        let mut seen: BTreeMap<String, CgroupCpu> = BTreeMap::new();
        for group in own {
            if seen.contains_key(&name(&group)) {
                continue;
            }
            for (level, group) in group.lineage().enumerate() {
                if let Some(read) = read_group(&group)
                    && (level == 0 || read.quota_cpus.is_some())
                {
                    seen.entry(read.path.clone()).or_insert(read);
                }
            }
        }
        seen.into_values().collect()
    }
}

#[derive(Default)]
struct Cpu {
    busy: Nanos,
    idle: Nanos,
    iowait: Nanos,
}

fn name(group: &Group) -> String {
    format!("/{}", group.path)
}

fn read_group(group: &Group) -> Option<CgroupCpu> {
    let throttling = cgroup::parse_throttling(&group.read("cpu.stat")?).unwrap_or_default();
    Some(CgroupCpu {
        path: name(group),
        quota_cpus: cgroup::quota(group),
        throttled_periods: throttling.periods,
        throttled: throttling.time,
    })
}

fn pressure(resource: &str) -> Option<Pressure> {
    parse_pressure(&std::fs::read_to_string(format!("/proc/pressure/{resource}")).ok()?)
}

/// Parses /proc/pressure/*. The file for the CPU has no `full` line before Linux 5.13; it is then zero, as later kernels
/// report it for the whole machine.
fn parse_pressure(text: &str) -> Option<Pressure> {
    let total = |kind: &str| -> Option<Nanos> {
        let line = text.lines().find_map(|l| l.strip_prefix(kind)?.strip_prefix(' '))?;
        let micros: u64 = line.split_whitespace().find_map(|f| f.strip_prefix("total="))?.parse().ok()?;
        Some(Nanos(micros.saturating_mul(1_000)))
    };
    Some(Pressure { some: total("some")?, full: total("full").unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromBufReadSI;

    #[test]
    fn pressure_with_and_without_the_full_line() {
        let some = "some avg10=0.95 avg60=0.67 avg300=0.57 total=13015\n";
        assert_eq!(parse_pressure(some), Some(Pressure { some: Nanos(13_015_000), full: Nanos(0) }));
        let both = format!("{some}full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n");
        assert_eq!(parse_pressure(&both), Some(Pressure { some: Nanos(13_015_000), full: Nanos(7_000) }));
        assert_eq!(parse_pressure(""), None);
    }

    #[test]
    fn cpu_time_counts_guests_once_and_iowait_as_idle() {
        let text = "cpu  100 10 50 1000 200 5 6 7 90 9\ncpu0 100 10 50 1000 200 5 6 7 90 9\nctxt 1\nbtime 1\nprocesses 1\n\
                    procs_running 1\nprocs_blocked 0\n";
        let stats = procfs::KernelStats::from_buf_read(text.as_bytes(), procfs::current_system_info()).unwrap();
        let sampler = HostSampler { mounts: vec![], nanos_per_tick: 10_000_000, samples: 0 };
        let cpu = sampler.cpu(&stats.total);
        let tick = 10_000_000;
        assert_eq!((cpu.busy.0, cpu.idle.0, cpu.iowait.0), (178 * tick, 1200 * tick, 200 * tick));
    }

    #[test]
    fn a_sample_of_this_machine_adds_up() {
        let me = Pid(std::process::id());
        let sample = HostSampler::new().sample(MonoNs(5), &[me, me, Pid(4_194_305)]);
        assert_eq!(sample.time, MonoNs(5));
        assert!(sample.cpu_busy.0 > 0 && sample.cpu_idle >= sample.cpu_iowait);
        assert!(sample.memory_available > 0 && sample.cpus > 0);
        let mut paths: Vec<_> = sample.cgroups.iter().map(|g| g.path.clone()).collect();
        paths.dedup();
        assert_eq!(paths.len(), sample.cgroups.len(), "each group once");
    }
}
