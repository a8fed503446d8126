//! The demo's scenarios are what they claim to be, by the workload's own log and by the kernel's accounts, without the
//! tracer. A verdict of the tracer can be right only if these hold.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails like the test")]

use gpustall::demo::{CudaWait, Options, Running, Scenario, start};
use gpustall_tests::truth::{Score, score_files};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One workload at a time: together they would starve each other.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn options(scenario: Scenario) -> Options {
    let program = Some(env!("CARGO_BIN_EXE_demo-workload").into());
    Options { program, ..Options::new(scenario, Duration::from_secs(3)) }
}

fn workers(running: &Running) -> Vec<u32> {
    children(running.pid().0)
}

fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    fs::read_to_string(path).unwrap().split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// CPU and run-queue time of a process's main thread, seconds.
fn schedstat(pid: u32) -> (f64, f64) {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    let fields: Vec<f64> = text.split_whitespace().map(|f| f.parse::<f64>().unwrap() / 1e9).collect();
    (fields[0], fields[1])
}

/// What the kernel says that the workers did in the steady phase, seconds summed over workers.
#[derive(Debug)]
struct Kernel {
    wall: f64,
    ran: f64,
    run_queue: f64,
    /// Share of looks that found a worker in state D.
    in_d: f64,
}

fn run(options: &Options) -> (Score, Kernel) {
    let mut running = start(options).unwrap();
    let workers = workers(&running);
    let sums = |all: &[u32]| {
        all.iter().map(|pid| schedstat(*pid)).fold((0.0, 0.0), |(ran, queue), (r, q)| (ran + r, queue + q))
    };
    let before = sums(&workers);
    let begin = Instant::now();
    running.go().unwrap();
    let (mut looks, mut in_d) = (0, 0);
    // Workers end after the steady phase, so what is read shortly before its end stands for all of it.
    while begin.elapsed() < options.duration - Duration::from_millis(200) {
        std::thread::sleep(Duration::from_millis(20));
        for pid in &workers {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            let state = stat.rsplit(')').next().unwrap().trim_start().chars().next().unwrap();
            looks += 1;
            in_d += usize::from(state == 'D');
        }
    }
    let after = sums(&workers);
    let kernel = Kernel {
        wall: begin.elapsed().as_secs_f64() * workers.len() as f64,
        ran: after.0 - before.0,
        run_queue: after.1 - before.1,
        in_d: in_d as f64 / looks as f64,
    };
    running.wait().unwrap();
    let score = score_files(&running.busy_file(), &running.truth_file()).unwrap();
    println!(
        "{}: {}\n  GPU busy {:.1} %, {} gaps, {}\n  workers by the kernel: {kernel:.2?}",
        options.scenario.name(),
        running.how(),
        100.0 * score.busy_share(),
        score.gaps,
        score.idle.summary()
    );
    assert_eq!(score.unmatched, 0);
    (score, kernel)
}

#[test]
fn disk_is_limited_by_the_disk() {
    let _alone = alone();
    let (score, kernel) = run(&options(Scenario::Disk));
    assert!((0.15..0.45).contains(&score.busy_share()), "{score:?}");
    assert!(score.idle.share(score.idle.disk) > 0.7, "{score:?}");
    assert!(kernel.in_d > 0.6, "{kernel:?}");
    assert!(score.gaps >= 10, "{score:?}");
}

#[test]
fn disk_is_limited_by_the_disk_also_without_a_limit() {
    let _alone = alone();
    let (score, _) = run(&Options { limit_disk: false, ..options(Scenario::Disk) });
    assert!((0.1..0.6).contains(&score.busy_share()), "{score:?}");
    // Not compared with cpu_starved: against a fast disk, other programs of the machine may win.
    let others = [score.idle.preprocessing, score.idle.other];
    assert!(others.iter().all(|other| *other < score.idle.disk), "{score:?}");
}

#[test]
fn cpu_starved_is_limited_by_the_run_queue() {
    let _alone = alone();
    let (score, kernel) = run(&options(Scenario::CpuStarved));
    assert!(score.busy_share() < 0.5, "{score:?}");
    assert!(score.idle.share(score.idle.cpu_starved) > 0.65, "{score:?}");
    assert!(kernel.run_queue > 2.0 * kernel.ran, "{kernel:?}");
    assert!(kernel.run_queue > 0.5 * kernel.wall, "{kernel:?}");
}

#[test]
fn preprocessing_is_limited_by_running_workers() {
    let _alone = alone();
    let (score, kernel) = run(&options(Scenario::Preprocessing));
    assert!(score.busy_share() < 0.5, "{score:?}");
    assert!(score.idle.share(score.idle.preprocessing) > 0.6, "{score:?}");
    assert!(kernel.ran > 2.0 * kernel.run_queue, "{kernel:?}");
    assert!(kernel.in_d < 0.1, "{kernel:?}");
}

#[test]
fn compute_is_limited_by_the_gpu() {
    let _alone = alone();
    let (score, _) = run(&options(Scenario::Compute));
    assert!(score.busy_share() > 0.95, "{score:?}");
}

/// Directories and cgroups of runs that this process started.
fn leftovers() -> Vec<PathBuf> {
    leftovers_of(std::process::id())
}

fn leftovers_of(pid: u32) -> Vec<PathBuf> {
    let mine = format!("gpustall-demo-{pid}");
    let tops = ["/dev/shm", "/var/tmp", "/tmp", "/sys/fs/cgroup", "/sys/fs/cgroup/blkio"];
    let in_top = |top: &str| fs::read_dir(top).into_iter().flatten().flatten().map(|entry| entry.path());
    tops.into_iter()
        .flat_map(in_top)
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&mine)))
        .collect()
}

fn alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn a_run_that_is_dropped_leaves_nothing_behind() {
    let _alone = alone();
    for scenario in [Scenario::Disk, Scenario::CpuStarved] {
        let mut running = start(&options(scenario)).unwrap();
        running.go().unwrap();
        let processes: Vec<u32> = workers(&running).into_iter().chain([running.pid().0]).collect();
        assert!(!leftovers().is_empty());
        drop(running);
        assert_eq!(leftovers(), Vec::<PathBuf>::new());
        soon(|| processes.iter().all(|pid| !alive(*pid)), "processes are still alive");
    }
}

fn soon(done: impl Fn() -> bool, otherwise: &str) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "after 20 s, {otherwise}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_demo_that_is_killed_leaves_nothing_behind() {
    let _alone = alone();
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo-workload"));
    let mut demo = command.args(["start", "disk"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(demo.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let main: u32 = line.trim().parse().unwrap();
    let workers = children(main);
    assert_eq!(workers.len(), 2);
    assert!(!leftovers_of(demo.id()).is_empty());
    // SIGKILL: nothing in the demo itself can clean up.
    demo.kill().unwrap();
    demo.wait().unwrap();
    soon(|| workers.iter().chain([&main]).all(|pid| !alive(*pid)), "processes are still alive");
    soon(|| leftovers_of(demo.id()).is_empty(), "files or cgroups are still there");
}

#[test]
fn the_gpu_wait_inside_libcuda_is_as_long_as_a_sleep() {
    let _alone = alone();
    let program = Path::new(env!("CARGO_BIN_EXE_demo-workload"));
    let profile = program.parent().and_then(Path::file_name).unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--package", "standin-cuda"]);
    if profile == "release" {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success());
    for cuda_wait in [CudaWait::Spin, CudaWait::Block] {
        let options = Options { nvml: true, cuda_wait, duration: Duration::from_secs(1), ..options(Scenario::Compute) };
        let mut running = start(&options).unwrap();
        let maps = fs::read_to_string(format!("/proc/{}/maps", running.pid())).unwrap();
        assert!(maps.contains("libcuda"), "the stand-in is not mapped");
        running.go().unwrap();
        running.wait().unwrap();
        let score = score_files(&running.busy_file(), &running.truth_file()).unwrap();
        println!("{cuda_wait:?}: GPU busy {:.1} %", 100.0 * score.busy_share());
        // A main process that spins uses up its time slices, so others may come between.
        assert!(score.busy_share() > 0.8, "{score:?}");
        assert!((15..=34).contains(&score.gaps), "{score:?}");
    }
}

#[test]
fn a_missing_stand_in_is_said_plainly() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("elsewhere");
    fs::copy(env!("CARGO_BIN_EXE_demo-workload"), &program).unwrap();
    let error = start(&Options { nvml: true, program: Some(program), ..options(Scenario::Compute) }).err().unwrap();
    assert!(error.to_string().contains("libcuda_standin.so"), "{error}");
    assert_eq!(leftovers(), Vec::<PathBuf>::new());
}
