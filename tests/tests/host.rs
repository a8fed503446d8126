//! Reads of the host against a real kernel: control groups, loop devices, mounts and processes that the tests make
//! themselves. They need root.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail the test; clippy's own exception covers #[test] functions only"
)]

use gpustall::events::CgroupCpu;
use gpustall::host::{self, HostSampler, IoLimit};
use gpustall::units::Pid;
use gpustall_tests::cgroup::{BlkioGroup, CpuGroup, CpusetGroup, MemoryGroup};
use gpustall_tests::loopdev::LoopDevice;
use gpustall_tests::process::ChildGuard;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Asks again and again until there is an answer; the limit is generous since machines get crowded.
fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process that burns CPU until dropped.
fn burner() -> ChildGuard {
    ChildGuard::spawn(Command::new("sh").args(["-c", "while :; do :; done"])).unwrap()
}

fn nr_throttled(group: &Path) -> u64 {
    let text = std::fs::read_to_string(group.join("cpu.stat")).unwrap();
    text.lines().find_map(|l| l.strip_prefix("nr_throttled ")).unwrap().trim().parse().unwrap()
}

/// The sampled entry of the group in this directory.
fn entry<'a>(groups: &'a [CgroupCpu], dir: &Path) -> Option<&'a CgroupCpu> {
    groups.iter().find(|g| dir.ends_with(g.path.trim_start_matches('/')) && g.path != "/")
}

#[test]
fn a_cpu_quota_and_its_throttled_periods_are_seen() {
    // Tight, so that it is used up even where other work leaves little of the CPUs.
    let group = CpuGroup::with_quota(Duration::from_millis(4), Duration::from_millis(100)).unwrap();
    let child = burner();
    assert_ne!(host::limits(child.pid()).quota_cpus, Some(0.04));
    group.add(child.pid()).unwrap();
    assert_eq!(host::limits(child.pid()).quota_cpus, Some(0.04));

    let mut sampler = HostSampler::new();
    eventually("five throttled periods", || (nr_throttled(group.path()) >= 5).then_some(()));
    let before = nr_throttled(group.path());
    let sample = sampler.sample(host::clocks().mono, &[child.pid(), child.pid()]);
    let after = nr_throttled(group.path());
    let seen = entry(&sample.cgroups, group.path()).expect("the group is sampled");
    assert_eq!(seen.quota_cpus, Some(0.04));
    assert!((before..=after).contains(&seen.throttled_periods), "{before} <= {} <= {after}", seen.throttled_periods);
    assert!(seen.throttled.0 > 0);
    let above = |g: &&CgroupCpu| g.path != seen.path;
    assert!(sample.cgroups.iter().filter(above).all(|g| g.quota_cpus.is_some()), "{:?}", sample.cgroups);
    assert_eq!(sample.cgroups.iter().filter(|g| g.path == seen.path).count(), 1, "each group once");

    // The kernel counts the period when it holds the threads back, the time when it lets them go.
    eventually("more throttled periods and time", || {
        let sample = sampler.sample(host::clocks().mono, &[child.pid()]);
        let now = entry(&sample.cgroups, group.path())?;
        (now.throttled_periods > seen.throttled_periods && now.throttled > seen.throttled).then_some(())
    });
}

#[test]
fn a_quota_further_up_counts_for_the_groups_below() {
    let outer = CpuGroup::with_quota(Duration::from_millis(2), Duration::from_millis(100)).unwrap();
    let inner = outer.inner().unwrap();
    let child = burner();
    inner.add(child.pid()).unwrap();
    assert_eq!(host::limits(child.pid()).quota_cpus, Some(0.02));

    let mut sampler = HostSampler::new();
    let (own, above) = eventually("throttling of the outer group", || {
        let groups = sampler.sample(host::clocks().mono, &[child.pid()]).cgroups;
        let above = entry(&groups, outer.path()).filter(|g| g.throttled_periods >= 3)?.clone();
        Some((entry(&groups, inner.path()).cloned(), above))
    });
    assert_eq!(above.quota_cpus, Some(0.02));
    assert_eq!(own.expect("the group of the process is sampled as well").quota_cpus, None);
    drop(child);
    drop(inner);
}

#[test]
fn limits_and_samples_agree_on_whether_there_is_a_quota() {
    // Outside the groups of the tests: the machine itself, or the container around it, decides.
    let child = burner();
    let sample = HostSampler::new().sample(host::clocks().mono, &[child.pid()]);
    let tightest = sample.cgroups.iter().filter_map(|g| g.quota_cpus).reduce(f64::min);
    assert_eq!(host::limits(child.pid()).quota_cpus, tightest, "{:?}", sample.cgroups);
}

#[test]
fn busy_cpus_show_in_the_counters() {
    let mut sampler = HostSampler::new();
    let start = Instant::now();
    let first = sampler.sample(host::clocks().mono, &[]);
    let child = burner();
    let later = eventually("200 ms of CPU time", || {
        let later = sampler.sample(host::clocks().mono, &[child.pid()]);
        (later.cpu_busy.saturating_sub(first.cpu_busy).millis() >= 200.0).then_some(later)
    });
    let passed = start.elapsed().as_secs_f64() * f64::from(later.cpus);
    let counted = later.cpu_busy.saturating_sub(first.cpu_busy) + later.cpu_idle.saturating_sub(first.cpu_idle);
    // Ticks of 10 ms on each CPU, at each end; a hypervisor may hold CPUs back without telling.
    assert!(counted.secs() <= passed + 0.02 * f64::from(later.cpus) + 0.05, "{} > {passed}", counted.secs());
    assert_eq!(later.cpus, host::online_cpus());
}

#[test]
fn a_cpuset_and_an_affinity_narrow_the_cpus() {
    let child = ChildGuard::sleeper().unwrap();
    let all = host::limits(child.pid()).allowed_cpus;
    let first = *all.first().expect("the process may run somewhere");
    let group = CpusetGroup::with_cpus(&first.to_string()).unwrap();
    group.add(child.pid()).unwrap();
    assert_eq!(host::limits(child.pid()).allowed_cpus, [first]);

    let last = *all.last().unwrap();
    let pinned = ChildGuard::spawn(Command::new("taskset").args(["-c", &last.to_string(), "sleep", "600"])).unwrap();
    // taskset sets the mask before it becomes sleep.
    eventually("the affinity mask", || (host::limits(pinned.pid()).allowed_cpus == [last]).then_some(()));
}

#[test]
fn a_memory_limit_is_seen() {
    let group = MemoryGroup::with_limit(512 << 20).unwrap();
    let child = ChildGuard::sleeper().unwrap();
    assert_ne!(host::limits(child.pid()).memory_limit, Some(512 << 20));
    group.add(child.pid()).unwrap();
    assert_eq!(host::limits(child.pid()).memory_limit, Some(512 << 20));
}

#[test]
fn io_limits_are_seen_and_hold() {
    let device = LoopDevice::new(4 << 20).unwrap();
    let dev = device.dev().unwrap();
    let group = BlkioGroup::with_read_limit(dev, Some(40 << 20), Some(20)).unwrap();

    // The shell waits for a line, so that it reads nothing before it is in the group.
    let script = format!("read go && exec dd if={} of=/dev/null bs=4k count=24 iflag=direct", device.path());
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = ChildGuard::spawn(&mut command).unwrap();
    assert_eq!(host::limits(child.pid()).io, []);
    group.add(child.pid()).unwrap();
    let expected = IoLimit {
        dev,
        group: group.path().display().to_string(),
        read_bps: Some(40 << 20),
        read_iops: Some(20),
        write_bps: None,
        write_iops: None,
    };
    assert_eq!(host::limits(child.pid()).io, [expected]);

    let start = Instant::now();
    child.0.stdin.take().unwrap().write_all(b"\n").unwrap();
    let status = child.0.wait().unwrap();
    let mut words = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut words).unwrap();
    assert!(status.success(), "{words}");
    // 24 reads at 20 a second, of which the first few go at once.
    assert!(start.elapsed() >= Duration::from_millis(800), "not held back: {:?}", start.elapsed());
}

#[test]
fn a_loop_device_shows_its_file_while_it_has_one() {
    let device = LoopDevice::new(3 << 20).unwrap();
    let (name, dev, image) =
        (device.path().trim_start_matches("/dev/").to_owned(), device.dev().unwrap(), device.image());

    let devices = host::block_devices();
    let seen = devices.iter().find(|d| d.name == name).expect("the loop device is listed");
    assert_eq!(seen.dev, dev);
    assert_eq!(seen.size_bytes, 3 << 20);
    assert_eq!(seen.backing_file.as_deref(), Some(image.to_str().unwrap()));
    assert_eq!(seen.disk, None);
    assert_eq!(host::whole_disks(&name, &devices, &host::block_members), [name.as_str()]);

    drop(device);
    let ours = |d: &host::BlockDevice| d.backing_file.as_deref() == Some(image.to_str().unwrap());
    eventually("the loop device to go", || (!host::block_devices().iter().any(ours)).then_some(()));
}

/// Unmounts when dropped.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let status = Command::new("umount").arg(self.0).status();
        assert!(status.is_ok_and(|s| s.success()) || std::thread::panicking(), "{} stays mounted", self.0.display());
    }
}

#[test]
fn a_mount_point_with_spaces_and_a_backslash_is_read_right() {
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path().join("my \\data\tdir");
    std::fs::create_dir(&point).unwrap();
    let status =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "my source"]).arg(&point).status().unwrap();
    assert!(status.success(), "mounting needs root");
    let mounted = Mounted(&point);

    let mounts = host::mounts(Pid(std::process::id())).unwrap();
    let seen = mounts.iter().find(|m| Path::new(&m.point) == point).expect("the mount is listed");
    assert_eq!((seen.fs_type.as_str(), seen.source.as_str(), seen.root.as_str()), ("tmpfs", "my source", "/"));
    assert_eq!(host::fs_kind(&seen.fs_type), Some(host::FsKind::Memory));
    let number = std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(&point).unwrap());
    assert_eq!((seen.dev.major, seen.dev.minor), (libc::major(number), libc::minor(number)));
    drop(mounted);
    let mounts = host::mounts(Pid(std::process::id())).unwrap();
    assert!(!mounts.iter().any(|m| Path::new(&m.point) == point));
}

#[test]
fn a_process_with_an_odd_name_is_read_right() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("x) R (1 2");
    std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
    let child = ChildGuard::spawn(Command::new("nice").args(["-n", "7"]).arg(&program).arg("600")).unwrap();
    let pid = child.pid();
    eventually("nice to become sleep", || {
        host::command_line(pid).ok().filter(|line| line.starts_with(program.to_str().unwrap()))
    });
    let own = host::limits(Pid(std::process::id())).nice;
    assert_eq!(host::limits(pid).nice, (own + 7).min(19));
    assert_eq!(host::process_tree(pid).unwrap(), [pid]);
    assert!(host::process_tree(Pid(std::process::id())).unwrap().contains(&pid));
}

#[test]
fn the_tree_has_children_and_grandchildren() {
    // The inner shell must not replace itself by its last command, hence the `:` behind.
    let script = "sh -c 'sleep 600; :' & sleep 600; :";
    let mut child = ChildGuard::spawn(Command::new("sh").args(["-c", script])).unwrap();
    let tree = eventually("four processes", || {
        let tree = host::process_tree(child.pid()).unwrap();
        (tree.len() == 4).then_some(tree)
    });
    assert_eq!(tree[0], child.pid());
    // The sleepers would outlive their shells.
    for pid in &tree[1..] {
        // SAFETY: plain system call; these processes are the test's own.
        unsafe { libc::kill(pid.0 as libc::pid_t, libc::SIGKILL) };
    }
    child.0.wait().unwrap();
    assert!(matches!(host::process_tree(child.pid()), Err(host::HostError::NoSuchProcess(_))));
}
