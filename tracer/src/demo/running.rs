//! One run of the demo's workload, from the parent's side.

use super::cuda::{self, CudaWait, Gpu};
use super::disk::{Place, all_disks, find_place};
use super::error::DemoError;
use super::leftovers::{Leftover, Leftovers};
use super::plan::{IOPS, Machine, Plan};
use super::workload::SUBCOMMAND;
use super::{Scenario, cgroup, dataset};
use crate::units::Pid;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Longest time from the start of the processes until the workload is warm; it takes less than a second on an idle
/// machine.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// What holds the GPU up.
    pub scenario: Scenario,
    /// Length of the steady phase.
    pub duration: Duration,
    /// Main waits for its GPU inside the stand-in libcuda (for NVML evidence) and not in a plain sleep (for exact
    /// intervals).
    pub nvml: bool,
    /// How it waits there.
    pub cuda_wait: CudaWait,
    /// Hold the disk back by cgroup limits where they can be had; if not, `disk` reads at the disk's own speed.
    pub limit_disk: bool,
    /// Program that runs [`super::run`] for the arguments `demo-workload ROLE …`; this very program if `None`.
    pub program: Option<PathBuf>,
}

impl Options {
    /// The usual run: exact intervals, disk held back, this very program.
    pub fn new(scenario: Scenario, duration: Duration) -> Options {
        Options { scenario, duration, nvml: false, cuda_wait: CudaWait::Spin, limit_disk: true, program: None }
    }
}

/// A workload that is warm and waits for [`Running::go`]. Dropping it ends every process that it started and removes
/// the data set, the other files and the cgroup; a janitor process does the same if this process is killed.
pub struct Running {
    // Dropped in this order by `Drop` and the fields' own drops: processes first, then what they use.
    main: Child,
    go: Option<ChildStdin>,
    competitors: Vec<Child>,
    plan: Plan,
    how: String,
    leftovers: Leftovers,
}

/// Starts the workload and returns once it is warm: data written, workers started, and each has made a batch.
/// It blocks for about a second; the steady phase begins with [`Running::go`].
pub fn start(options: &Options) -> Result<Running, DemoError> {
    let program = match &options.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().map_err(DemoError::system("find the running program"))?,
    };
    let mut leftovers = Leftovers::start(&program, &[SUBCOMMAND, "janitor"])?;
    let (plan, how) = prepare(options, &program, &mut leftovers)?;
    dataset::write(&plan)?;
    plan.save()?;

    let mut main = spawn_main(&program, &plan)?;
    let stdout = main.stdout.take();
    let go = main.stdin.take();
    leftovers.add(Leftover::Group(main.id() as i32))?;
    let mut running = Running { main, go, competitors: Vec::new(), plan, how, leftovers };
    running.start_competitors(&program)?;
    running.await_ready(stdout)?;
    Ok(running)
}

/// Directories, cgroup and numbers of the run, and how the hold-up is made.
fn prepare(options: &Options, program: &Path, leftovers: &mut Leftovers) -> Result<(Plan, String), DemoError> {
    let cpus = allowed_cpus()?;
    let name = format!("gpustall-demo-{}", std::process::id());
    let place = match options.scenario {
        Scenario::Disk => find_place(512 << 20)?,
        // Read from the page cache, so any directory does.
        _ => find_place(64 << 20).unwrap_or(Place { dir: std::env::temp_dir(), disk: None }),
    };
    let throttle = match options.scenario {
        Scenario::Disk if options.limit_disk => Some(throttle(&name, &place, leftovers)),
        Scenario::Disk => Some(Err("not wanted".to_owned())),
        _ => None,
    };
    let machine = Machine { cpus, throttled: matches!(throttle, Some(Ok(_))) };
    let mut plan = Plan::new(options.scenario, options.duration, &machine);
    plan.data = run_dir(&place.dir, &name, leftovers)?;
    // Logs in memory: a log on the disk could hold up the run itself.
    let logs_in = Path::new("/dev/shm");
    plan.files_dir = match run_dir(logs_in, &name, leftovers) {
        Ok(dir) => dir,
        Err(_) => plan.data.clone(),
    };
    if options.nvml {
        let path = program.with_file_name(cuda::LIBRARY);
        // Spinning on the only CPU would itself starve the workers.
        let wait = if machine.cpus.len() > 1 { options.cuda_wait } else { CudaWait::Block };
        Gpu::cuda(&path, wait)?;
        plan.cuda = Some((path, wait));
    }
    let how = describe(&plan, &place, throttle.as_ref());
    plan.cgroup = throttle.and_then(Result::ok).map(|t| t.dir);
    Ok((plan, how))
}

fn throttle(name: &str, place: &Place, leftovers: &mut Leftovers) -> Result<cgroup::Throttle, String> {
    let disks = place.disk.map_or_else(|| all_disks(Path::new("/sys")), |disk| vec![disk]);
    let throttle = cgroup::hold_back(name, &disks, IOPS)?;
    leftovers
        .add(Leftover::Cgroup(throttle.dir.clone(), throttle.switched_on.clone()))
        .map_err(|e| e.to_string())
        .inspect_err(|_| cgroup::remove(&throttle.dir, throttle.switched_on.as_deref()))?;
    Ok(throttle)
}

/// A new directory of this run in `dir`, readable by its owner alone.
fn run_dir(dir: &Path, name: &str, leftovers: &mut Leftovers) -> Result<PathBuf, DemoError> {
    let made = tempfile::Builder::new()
        .prefix(&format!("{name}-"))
        .tempdir_in(dir)
        .map_err(DemoError::file("create a directory in", dir))?;
    leftovers.add(Leftover::Dir(made.path().to_owned()))?;
    Ok(made.keep())
}

/// How the GPU is held up, in one sentence for the person.
fn describe(plan: &Plan, place: &Place, throttle: Option<&Result<cgroup::Throttle, String>>) -> String {
    let dir = place.dir.display();
    match (plan.scenario, throttle) {
        (Scenario::Disk, Some(Ok(throttle))) => {
            let disk = place.disk.map_or("all disks".to_owned(), |disk| format!("disk {disk}"));
            format!(
                "{} workers read {} files under {dir}, and a cgroup v{} limit holds them to {IOPS} reads a second on {disk}",
                plan.workers, plan.files, throttle.version
            )
        }
        (Scenario::Disk, reason) => {
            let reason = reason.and_then(|r| r.as_ref().err()).map_or("not tried", String::as_str);
            format!(
                "{} workers read {} files under {dir} past the page cache, at the disk's own speed, since no cgroup I/O \
                 limit can be had ({reason})",
                plan.workers, plan.files
            )
        }
        (Scenario::CpuStarved, _) => format!(
            "{} workers share CPU {} with {} busy processes named demo-busy",
            plan.workers,
            plan.worker_cpu.unwrap_or(0),
            plan.competitors
        ),
        (Scenario::Preprocessing, _) => {
            format!(
                "{} worker(s) decode for longer than the GPU computes; files come from the page cache",
                plan.workers
            )
        }
        (Scenario::Compute, _) => "nothing holds the GPU up: batches are ready before it needs them".to_owned(),
    }
}

fn allowed_cpus() -> Result<Vec<usize>, DemoError> {
    let set = rustix::thread::sched_getaffinity(None).map_err(DemoError::system("read this process's CPU affinity"))?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

fn spawn_main(program: &Path, plan: &Plan) -> Result<Child, DemoError> {
    let errors = errors_file(plan);
    let stderr = File::create(&errors).map_err(DemoError::file("create", &errors))?;
    Command::new(program)
        .args([SUBCOMMAND, "main", "--run-dir"])
        .arg(&plan.files_dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .current_dir("/")
        .spawn()
        .map_err(|source| DemoError::Spawn { role: "main", program: program.to_owned(), source })
}

fn errors_file(plan: &Plan) -> PathBuf {
    plan.files_dir.join("errors.txt")
}

impl Running {
    /// Main process: the one to trace.
    pub fn pid(&self) -> Pid {
        Pid(self.main.id())
    }

    /// When the simulated GPU was busy: JSON lines of `t_ns` (CLOCK_MONOTONIC), `gpu`, `busy`. It stays until this
    /// value is dropped.
    pub fn busy_file(&self) -> PathBuf {
        self.plan.busy_file()
    }

    /// What the workload knows about its own waits; complete after [`Running::wait`], gone when this value is dropped.
    pub fn truth_file(&self) -> PathBuf {
        self.plan.truth_file()
    }

    /// How the GPU is held up, in one sentence without a full stop.
    pub fn how(&self) -> &str {
        &self.how
    }

    /// Begins the steady phase.
    pub fn go(&mut self) -> Result<(), DemoError> {
        let Some(mut pipe) = self.go.take() else { return Ok(()) };
        pipe.write_all(b"go\n").map_err(|source| DemoError::Queue { queue: "to the main process", source })
    }

    /// Waits for the end of the steady phase. Blocks for its whole length; see [`Running::try_wait`].
    pub fn wait(&mut self) -> Result<(), DemoError> {
        let status = self.main.wait().map_err(DemoError::system("wait for the demo's main process"))?;
        self.ended(status)
    }

    /// Whether the steady phase is over; an error if the main process failed.
    pub fn try_wait(&mut self) -> Result<bool, DemoError> {
        match self.main.try_wait().map_err(DemoError::system("wait for the demo's main process"))? {
            None => Ok(false),
            Some(status) => self.ended(status).map(|()| true),
        }
    }

    fn ended(&mut self, status: ExitStatus) -> Result<(), DemoError> {
        self.leftovers.forget(&Leftover::Group(self.main.id() as i32));
        self.end_competitors();
        if status.success() { Ok(()) } else { Err(self.failure(status.to_string())) }
    }

    fn failure(&self, status: String) -> DemoError {
        let text = std::fs::read_to_string(errors_file(&self.plan)).unwrap_or_default();
        // A failing worker speaks before main, which then only sees a broken queue.
        let detail = text.lines().find(|line| !line.is_empty()).unwrap_or("it said nothing").to_owned();
        DemoError::Ended { role: "main", status, detail }
    }

    fn start_competitors(&mut self, program: &Path) -> Result<(), DemoError> {
        let Some(cpu) = self.plan.worker_cpu else { return Ok(()) };
        // Bounded, should all else fail.
        let seconds = self.plan.steady.as_secs() + READY_WITHIN.as_secs() + 60;
        for _ in 0..self.plan.competitors {
            let child = Command::new(program)
                .args([SUBCOMMAND, "competitor", "--cpu", &cpu.to_string(), "--seconds", &seconds.to_string()])
                .args(["--parent", &std::process::id().to_string()])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .current_dir("/")
                .spawn()
                .map_err(|source| DemoError::Spawn { role: "competitor", program: program.to_owned(), source })?;
            self.competitors.push(child);
        }
        Ok(())
    }

    fn end_competitors(&mut self) {
        for mut child in self.competitors.drain(..) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn await_ready(&mut self, stdout: Option<ChildStdout>) -> Result<(), DemoError> {
        let (send, receive) = mpsc::channel();
        // The thread ends with the first line, or with the process, whose pipe then closes.
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            if let Some(stdout) = stdout {
                let _ = BufReader::new(stdout).read_line(&mut line);
            }
            let _ = send.send(line);
        });
        match receive.recv_timeout(READY_WITHIN) {
            Ok(line) if line.trim_end() == "ready" => {
                // Callers may rely on having one thread again.
                let _ = reader.join();
                Ok(())
            }
            Ok(_) => {
                let status = self.main.wait().map_err(DemoError::system("wait for the demo's main process"))?;
                Err(self.failure(status.to_string()))
            }
            Err(_) => Err(DemoError::NotReady(READY_WITHIN)),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end_competitors();
        // Main's group first, while main is not reaped and its id cannot mean another group; then main itself, which
        // may not have made its group yet.
        if let (Ok(None), Some(group)) = (self.main.try_wait(), rustix::process::Pid::from_raw(self.main.id() as i32)) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = self.main.kill();
            let _ = self.main.wait();
        }
        self.leftovers.forget(&Leftover::Group(self.main.id() as i32));
    }
}
