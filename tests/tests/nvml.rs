//! The promise: what NVML says of a GPU is recorded as it was, on the right clock, through every quirk of the driver's
//! interface. The real wrapper loads the stand-in library here.
#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test, too")]

use gpustall::events::{GpuDevice, GpuProcess, GpuState, GpuWindow};
use gpustall::gpu::busy_line;
use gpustall::host::clocks;
use gpustall::units::{GpuIndex, MonoNs, Nanos, Pid};
use gpustall_tests::standin_nvml;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::process::{Child, Command, Output, Stdio};

const MS: u64 = 1_000_000;

/// A busy file whose changes are known before they happen: the stand-in looks at the clock, not at the file's growth.
struct Plan {
    file: tempfile::NamedTempFile,
    start: MonoNs,
}

impl Plan {
    /// Times of `busy` are milliseconds from a start one second ahead, in which the watching program gets going.
    fn new(busy: &[(u32, u64, u64)]) -> Plan {
        let file = tempfile::NamedTempFile::new().unwrap();
        let start = clocks().mono + Nanos::from_millis(1_000);
        let mut text = String::new();
        for &(gpu, from, to) in busy {
            text += &busy_line(start + Nanos::from_millis(from), GpuIndex(gpu), true);
            text += &busy_line(start + Nanos::from_millis(to), GpuIndex(gpu), false);
        }
        std::fs::write(file.path(), text).unwrap();
        Plan { file, start }
    }

    /// Watches until `ms` after the start at least.
    fn watch_until(&self, ms: u64, env: &[(&str, &str)]) -> Child {
        watch(self.at(ms).since(clocks().mono).secs(), &[env, &[("BUSY", self.file.path().to_str().unwrap())]].concat())
    }

    fn at(&self, ms: u64) -> MonoNs {
        self.start + Nanos::from_millis(ms)
    }
}

fn watch(seconds: f64, env: &[(&str, &str)]) -> Child {
    let library = standin_nvml();
    assert!(library.is_file(), "{} is not built", library.display());
    Command::new(env!("CARGO_BIN_EXE_nvml-watch"))
        .arg(library)
        .arg(seconds.to_string())
        .envs(env.iter().map(|(name, value)| (format!("GPUSTALL_STANDIN_{name}"), value)))
        // The sentence alone, whatever the developer has set.
        .env("RUST_BACKTRACE", "0")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What the watching program printed.
struct Seen(Vec<Value>);

impl Seen {
    fn of(child: Child) -> Seen {
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        Seen(String::from_utf8(stdout).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect())
    }

    fn all<T: DeserializeOwned>(&self, key: &str) -> Vec<T> {
        self.0.iter().filter_map(|v| v.get(key)).map(|v| serde_json::from_value(v.clone()).unwrap()).collect()
    }

    fn windows(&self, gpu: u32) -> Vec<GpuWindow> {
        let all: Vec<GpuWindow> = self.all("window");
        let list: Vec<GpuWindow> = all.into_iter().filter(|w| w.gpu == GpuIndex(gpu)).collect();
        assert!(list.iter().all(|w| w.start < w.end && (0.0..=100.0).contains(&w.utilization)), "{list:?}");
        assert!(list.windows(2).all(|p| p[0].end <= p[1].start), "windows overlap: {list:?}");
        list
    }
}

/// Time covered by windows between two moments and busy time owed by them, milliseconds. A window across an edge counts
/// in proportion.
fn covered_and_busy(windows: &[GpuWindow], from: MonoNs, to: MonoNs) -> (f64, f64) {
    windows.iter().fold((0.0, 0.0), |(covered, busy), w| {
        let inside = w.end.min(to).since(w.start.max(from)).millis();
        (covered + inside, busy + inside * f64::from(w.utilization) / 100.0)
    })
}

/// Busy for the first `percent` ms of every 100 ms.
fn duty(gpu: u32, percent: u64, from_ms: u64, to_ms: u64) -> Vec<(u32, u64, u64)> {
    (from_ms..to_ms).step_by(100).map(|t| (gpu, t, t + percent)).collect()
}

#[test]
fn utilization_is_right_within_3_points_on_each_clock() {
    let plan = Plan::new(&duty(0, 70, 0, 3_000));
    let children: Vec<(&str, Child)> =
        ["epoch", "boot", "mono"].into_iter().map(|c| (c, plan.watch_until(3_400, &[("CLOCK", c)]))).collect();
    for (clock, child) in children {
        let windows = Seen::of(child).windows(0);
        let (covered, busy) = covered_and_busy(&windows, plan.at(100), plan.at(2_900));
        assert!(covered > 2_780.0, "{clock}: {covered} of 2800 ms covered");
        let percent = 100.0 * busy / covered;
        assert!((percent - 70.0).abs() < 3.0, "{clock}: {percent} %");
        // On the right clock: idle before and after, whose windows may reach in by one period.
        let (_, before) = covered_and_busy(&windows, MonoNs(0), plan.at(0));
        let (_, after) = covered_and_busy(&windows, plan.at(3_000), MonoNs(u64::MAX));
        assert!(before < 110.0 && after < 110.0, "{clock}: {before} ms before, {after} ms after");
    }
}

#[test]
fn an_idle_gpu_is_recorded_as_idle_not_as_unknown() {
    // Idle for so long that the buffer empties, between two busy seconds.
    let plan = Plan::new(&[(0, 0, 1_000), (0, 5_000, 6_000)]);
    let windows = Seen::of(plan.watch_until(6_700, &[])).windows(0);
    let (covered, busy) = covered_and_busy(&windows, plan.at(1_250), plan.at(4_750));
    assert!(covered > 3_450.0, "{covered} of 3500 ms covered: {windows:?}");
    assert!(busy < 1.0, "{busy} ms busy while idle");
    let (covered, busy) = covered_and_busy(&windows, plan.at(0), plan.at(6_000));
    assert!(covered > 5_900.0, "{covered} of 6000 ms covered");
    assert!((busy - 2_000.0).abs() < 180.0, "{busy} ms busy");
    let times: Vec<MonoNs> = windows.iter().map(|w| w.end).collect();
    assert!(times.windows(2).all(|t| t[1].since(t[0]) < Nanos::from_millis(700)), "windows grew long");
}

#[test]
fn a_gpu_that_never_works_has_idle_windows() {
    let windows = Seen::of(watch(2.0, &[])).windows(0);
    let covered: Nanos = windows.iter().map(|w| w.end.since(w.start)).sum();
    assert!(covered > Nanos::from_millis(1_850), "{windows:?}");
    assert!(windows.iter().all(|w| w.utilization == 0.0), "{windows:?}");
}

#[test]
fn every_gpu_is_told_apart() {
    let plan = Plan::new(&[duty(0, 20, 0, 2_000), duty(2, 90, 0, 2_000)].concat());
    let seen = Seen::of(plan.watch_until(2_400, &[("GPUS", "3"), ("CLOCK", "boot")]));
    let devices: Vec<GpuDevice> = seen.all("device");
    assert_eq!(devices.iter().map(|d| d.gpu.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(devices[2].name, "Simulated GPU 2");
    assert_eq!(devices[2].pci.as_deref(), Some("00000000:03:00.0"));
    for (gpu, percent) in [(0, 20.0), (1, 0.0), (2, 90.0)] {
        let (covered, busy) = covered_and_busy(&seen.windows(gpu), plan.at(100), plan.at(1_900));
        assert!(covered > 1_780.0 && (100.0 * busy / covered - percent).abs() < 4.0, "GPU {gpu}: {busy} of {covered}");
    }
}

#[test]
fn absurd_values_do_not_reach_the_recording() {
    let plan = Plan::new(&duty(0, 50, 0, 3_000));
    let windows = Seen::of(plan.watch_until(3_400, &[("ABSURD", "1"), ("CLOCK", "mono")])).windows(0);
    let (covered, busy) = covered_and_busy(&windows, plan.at(100), plan.at(2_900));
    // Every fifth sample is absurd. How much of its time the rates fill depends on when this busy machine let us read them.
    assert!(covered > 2_100.0, "{covered} of 2800 ms covered");
    assert!((100.0 * busy / covered - 50.0).abs() < 6.0, "{}", 100.0 * busy / covered);
}

#[test]
fn a_frozen_buffer_does_not_hide_the_work() {
    let plan = Plan::new(&[(0, 0, 4_000)]);
    let windows = Seen::of(plan.watch_until(3_800, &[("FROZEN", "1")])).windows(0);
    let (covered, busy) = covered_and_busy(&windows, plan.at(500), plan.at(3_500));
    assert!(covered > 2_900.0 && busy > 0.97 * covered, "{busy} of {covered} ms");
}

#[test]
fn without_samples_the_rates_are_used() {
    let plan = Plan::new(&duty(0, 60, 0, 3_000));
    let windows = Seen::of(plan.watch_until(3_400, &[("UNSUPPORTED", "samples")])).windows(0);
    let (covered, busy) = covered_and_busy(&windows, plan.at(300), plan.at(2_900));
    assert!(covered > 2_500.0 && (100.0 * busy / covered - 60.0).abs() < 6.0, "{busy} of {covered} ms");
}

#[test]
fn state_and_processes_are_recorded_with_their_rates() {
    let plan = Plan::new(&[(0, 0, 5_000)]);
    let env = [
        ("PIDS", "4242:2147483648,77"),
        ("THROTTLE", "0x24"),
        ("PCIE", "4x4/4x16"),
        ("MEMORY", "1000/4000"),
        ("SM_CLOCK", "1410/1980"),
    ];
    let seen = Seen::of(plan.watch_until(2_500, &env));
    let states: Vec<GpuState> = seen.all("state");
    let rate = |count: usize, first: MonoNs, last: MonoNs| (count - 1) as f64 / last.since(first).secs();
    let hz = rate(states.len(), states[0].time, states[states.len() - 1].time);
    assert!((5.0..=10.5).contains(&hz), "{hz} states a second; 10 are meant");
    // Far from both edges: the calls for one state take as long as this machine lets them.
    let loaded: Vec<&GpuState> = states.iter().filter(|s| s.time > plan.at(1_000) && s.time < plan.at(3_000)).collect();
    assert!(!loaded.is_empty());
    for s in loaded {
        assert_eq!((s.memory_used, s.throttle_reasons), (Some(1_000), Some(0x24)));
        assert_eq!((s.sm_clock_mhz, s.pcie), (Some((1_410, 1_980)), Some((4, 4))));
        assert_eq!((s.power_mw, s.memory_utilization), (Some(670_000), Some(50)));
    }
    let devices: Vec<GpuDevice> = seen.all("device");
    assert_eq!((devices[0].memory_bytes, devices[0].pcie_max), (Some(4_000), Some((4, 16))));
    assert_eq!(devices[0].power_limit_mw, None, "the stand-in lacks the call: unknown, not 0");
    let processes: Vec<GpuProcess> = seen.all("process");
    let of_one: Vec<MonoNs> = processes.iter().filter(|p| p.pid == Pid(77)).map(|p| p.time).collect();
    let hz = rate(of_one.len(), of_one[0], of_one[of_one.len() - 1]);
    assert!((0.7..=1.05).contains(&hz), "{hz} lists of processes a second; 1 is meant");
    assert!(processes.iter().any(|p| p.pid == Pid(4_242) && p.memory_used == Some(2 << 30)));
    assert!(processes.iter().any(|p| p.pid == Pid(77) && p.memory_used.is_none()));
    let latest: Vec<Option<f32>> = seen.all("latest");
    assert!(latest[0].is_some());
}

#[test]
fn what_a_board_does_not_support_is_absent_not_zero() {
    let all = "samples,rates,memory,power,temperature,clocks,throttle,pcie,processes,uuid,pci";
    let seen = Seen::of(watch(0.5, &[("UNSUPPORTED", all), ("PIDS", "1")]));
    let devices: Vec<GpuDevice> = seen.all("device");
    let d = &devices[0];
    assert!(d.uuid.is_none() && d.pci.is_none() && d.memory_bytes.is_none() && d.pcie_max.is_none());
    let states: Vec<GpuState> = seen.all("state");
    let s = states.first().unwrap();
    let nothing = GpuState {
        time: s.time,
        gpu: s.gpu,
        memory_used: None,
        memory_utilization: None,
        power_mw: None,
        temperature_c: None,
        sm_clock_mhz: None,
        throttle_reasons: None,
        pcie: None,
    };
    assert_eq!(s, &nothing);
    assert!(seen.windows(0).is_empty() && seen.all::<GpuProcess>("process").is_empty());
    assert_eq!(seen.all::<String>("note"), ["GPU 0: this driver gives no utilization."]);
}

#[test]
fn a_slow_driver_is_asked_less_often_and_loses_no_utilization() {
    let plan = Plan::new(&duty(0, 70, 0, 3_000));
    let seen = Seen::of(plan.watch_until(3_400, &[("DELAY_MS", "20")]));
    let (covered, busy) = covered_and_busy(&seen.windows(0), plan.at(100), plan.at(2_900));
    assert!(covered > 2_780.0 && (100.0 * busy / covered - 70.0).abs() < 3.0, "{busy} of {covered} ms");
    // Its state takes nine calls of 20 ms: at a fifth of the time, about one state a second.
    let states: Vec<GpuState> = seen.all("state");
    let apart: Vec<f64> = states.windows(2).map(|s| s[1].time.since(s[0].time).millis()).collect();
    // The last one is read because the recording ends.
    let (_, apart) = apart.split_last().unwrap();
    assert!(!apart.is_empty() && apart.iter().all(|ms| *ms > 600.0), "{apart:?}");
}

#[test]
fn a_split_gpu_says_that_it_has_no_utilization() {
    let plan = Plan::new(&[(0, 0, 2_000)]);
    let seen = Seen::of(plan.watch_until(500, &[("MIG", "1")]));
    let note = "GPU 0 is split into instances (MIG), for which NVML gives no utilization.";
    assert_eq!(seen.all::<String>("note"), [note]);
    assert!(seen.windows(0).is_empty());
    assert_eq!(seen.all::<Option<f32>>("latest"), [None]);
}

#[test]
fn a_driver_that_does_not_start_is_told_in_one_sentence() {
    let cases = [
        ("INIT_ERROR", "9", "NVML cannot start (NVIDIA driver is not loaded); load the driver with: modprobe nvidia"),
        (
            "INIT_ERROR",
            "18",
            "NVML cannot start (RM detects a driver/library version mismatch); library and kernel module",
        ),
        ("GPUS", "0", "the NVIDIA driver runs but shows no GPU; check with nvidia-smi"),
    ];
    for (name, value, expected) in cases {
        let output = watch(0.1, &[(name, value)]).wait_with_output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        let expected = format!("Error: GPU utilization is not recorded, everything else is: {expected}");
        assert!(text.starts_with(&expected) && text.trim_end().lines().count() == 1, "{text}");
    }
}

#[test]
fn a_missing_library_is_told_in_one_sentence() {
    let output = Command::new(env!("CARGO_BIN_EXE_nvml-watch"))
        .args(["/nowhere/libnvidia-ml.so.1", "1"])
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("/nowhere/libnvidia-ml.so.1 given with --nvml-lib cannot be loaded (cannot open shared"),
        "{text}"
    );
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
}

#[test]
fn a_busy_file_written_while_it_is_read_is_seen_as_it_grows() {
    use std::io::Write as _;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let child = watch(2.0, &[("BUSY", file.path().to_str().unwrap()), ("CLOCK", "mono")]);
    // Half a line first; the rest of it, later, completes it.
    let start = clocks().mono;
    let line = busy_line(start, GpuIndex(0), true);
    let (head, tail) = line.split_at(10);
    file.write_all(head.as_bytes()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    file.write_all(tail.as_bytes()).unwrap();
    let windows = Seen::of(child).windows(0);
    let (covered, busy) = covered_and_busy(&windows, start + Nanos(700 * MS), start + Nanos(1_700 * MS));
    assert!(covered > 900.0 && busy > 0.99 * covered, "{busy} of {covered} ms: {windows:?}");
}
