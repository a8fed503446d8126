//! One run of a scenario: hold, job, recorder, both reports.

use super::account::Account;
use super::profile::chrome_trace;
use super::scenario::{Hold, Scenario};
use super::score::{Score, score};
use crate::recording::{Recording, command, report};
use crate::{standin_cuda, standin_nvml};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a job may take to get ready.
const READY_WITHIN: Duration = Duration::from_secs(90);
/// How long it may take after its steady phase should have ended.
const DONE_WITHIN: Duration = Duration::from_secs(60);

/// What a run left.
pub struct Outcome {
    /// The truth.
    pub account: Account,
    /// The truth about its gaps.
    pub score: Score,
    /// The report by exact busy times.
    pub exact: Value,
    /// The report by the same busy times in a profiler's trace, by the wall clock.
    pub profiled: Value,
    /// The report by NVML windows of the same recording.
    pub nvml: Value,
}

/// Runs a scenario with a steady phase of so many seconds, or as many as it needs at least. All its files are copied to `keep`, also if it fails.
///
/// # Errors
/// If anything of it does not work; the message has what the job wrote to standard error.
pub fn run(scenario: &Scenario, seconds: f64, keep: Option<&Path>) -> Result<Outcome> {
    let seconds = seconds.max(scenario.at_least_s);
    let files = Files::new()?;
    let result = record(scenario, seconds, &files).and_then(|()| evaluate(scenario, &files, keep));
    if let Some(keep) = keep {
        files.keep(keep).with_context(|| format!("cannot keep the run's files in {}", keep.display()))?;
    }
    result.with_context(|| format!("{}: the run failed; the job said: {}", scenario.name, files.job_said()))
}

/// The files of a run.
struct Files {
    /// On a real disk: data set, recording.
    disk: TempDir,
    /// In memory, so that a log does not hold up what it tells of.
    logs: TempDir,
}

impl Files {
    fn new() -> Result<Files> {
        let dir = |path: &str| {
            let made = tempfile::Builder::new().prefix("gpustall-lab-").tempdir_in(path);
            made.with_context(|| format!("cannot make a folder in {path}"))
        };
        Ok(Files { disk: dir("/var/tmp")?, logs: dir("/dev/shm")? })
    }

    fn log(&self, name: &str) -> PathBuf {
        self.logs.path().join(name)
    }

    fn recording(&self) -> PathBuf {
        self.disk.path().join("job.gpustall")
    }

    fn job_said(&self) -> String {
        let text = fs::read_to_string(self.log("stderr")).unwrap_or_default();
        let text = text.trim();
        if text.is_empty() { "nothing".to_owned() } else { text.to_owned() }
    }

    fn keep(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        for entry in fs::read_dir(self.logs.path())? {
            let entry = entry?;
            fs::copy(entry.path(), folder.join(entry.file_name()))?;
        }
        if self.recording().exists() {
            fs::copy(self.recording(), folder.join("job.gpustall"))?;
        }
        Ok(())
    }
}

fn record(scenario: &Scenario, seconds: f64, files: &Files) -> Result<()> {
    let scratch = files.disk.path().join("hold");
    fs::create_dir(&scratch)?;
    let mut hold = (scenario.hold)(&scratch).context("the hold cannot be laid")?;
    let mut job = Job::start(scenario, seconds, files, hold.as_ref())?;
    hold.apply(&job.pids()?).context("the hold cannot be laid on the job")?;
    let mut recorder = Recording::start(
        command(["record", "--overwrite", "--pid", &job.child.id().to_string(), "--output"])?
            .arg(files.recording())
            .arg("--nvml-lib")
            .arg(standin_nvml())
            .env("GPUSTALL_STANDIN_BUSY", files.log("busy"))
            // The busy file names the processes on each.
            .env("GPUSTALL_STANDIN_GPUS", job.gpus.to_string()),
    )?;
    job.go()?;
    job.wait(Duration::from_secs_f64(seconds) * 3 + DONE_WITHIN)?;
    let (status, said) = recorder.wait()?;
    ensure!(status.success(), "the recorder failed ({status}): {said}");
    Ok(())
}

fn evaluate(scenario: &Scenario, files: &Files, keep: Option<&Path>) -> Result<Outcome> {
    let busy = files.log("busy");
    let exact = report(&files.recording(), &["--gpu-trace", &busy.display().to_string()])?;
    let nvml = report(&files.recording(), &[])?;
    if keep.is_some() {
        fs::write(files.log("exact.json"), serde_json::to_vec_pretty(&exact)?)?;
        fs::write(files.log("nvml.json"), serde_json::to_vec_pretty(&nvml)?)?;
    }
    let account = Account::read(&busy, &files.log("truth"))?;
    let trace = files.log("trace.json");
    fs::write(&trace, chrome_trace(&account)?)?;
    let profiled = report(&files.recording(), &["--gpu-trace", &trace.display().to_string()])?;
    let score = score(&account, scenario.rows)?;
    Ok(Outcome { account, score, exact, profiled, nvml })
}

/// The job. Dropping it ends all its processes.
struct Job {
    child: Child,
    lines: Receiver<String>,
    gpus: u32,
}

impl Job {
    fn start(scenario: &Scenario, seconds: f64, files: &Files, hold: &dyn Hold) -> Result<Job> {
        let words = (scenario.job)()?;
        let (program, args) = words.split_first().context("the scenario has no job")?;
        let data = hold.data().unwrap_or_else(|| files.disk.path().join("data"));
        fs::create_dir_all(&data)?;
        let gpus = args.iter().skip_while(|a| *a != "--gpus").nth(1).map_or(Ok(1), |n| n.parse())?;
        let mut command = Command::new(program);
        // Python makes folders there for its processes' sockets, which a job that is killed leaves.
        let temporary = files.disk.path().join("tmp");
        fs::create_dir(&temporary)?;
        command.env("TMPDIR", temporary);
        command.args(args).arg("--wait-go").arg("--seconds").arg(seconds.to_string());
        for (flag, path) in [
            ("--data", data),
            ("--busy-file", files.log("busy")),
            ("--truth", files.log("truth")),
            ("--cuda", standin_cuda()?),
        ] {
            command.arg(flag).arg(path);
        }
        // Empty from the start: the stand-in for NVML reads it before the job first writes to it.
        fs::write(files.log("busy"), "")?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(fs::File::create(files.log("stderr"))?);
        // A lab that is killed takes its jobs along. SAFETY: one system call, which a forked child may make.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        // A group of its own, so that all of it can be ended.
        let mut child = command.process_group(0).spawn().with_context(|| format!("cannot start the job {words:?}"))?;
        let stdout = BufReader::new(child.stdout.take().context("the job has no standard output")?);
        let (send, lines) = channel();
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        let job = Job { child, lines, gpus };
        let first = job.lines.recv_timeout(READY_WITHIN);
        ensure!(first.as_deref() == Ok("ready"), "the job did not get ready: {first:?}");
        Ok(job)
    }

    /// Main first, then all that descends from it.
    fn pids(&self) -> Result<Vec<u32>> {
        let mut pids = vec![self.child.id()];
        let mut next = 0;
        while let Some(pid) = pids.get(next).copied() {
            next += 1;
            for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
                for child in children.split_whitespace() {
                    pids.push(child.parse()?);
                }
            }
        }
        Ok(pids)
    }

    fn go(&mut self) -> Result<()> {
        let mut stdin = self.child.stdin.take().context("the job was told to go before")?;
        stdin.write_all(b"go\n").context("the job is gone")
    }

    fn wait(&mut self, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        loop {
            match self.child.try_wait().context("cannot wait for the job")? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the job failed ({status})"),
                None => ensure!(Instant::now() < end, "the job did not end within {} s", limit.as_secs()),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Ok(group) = i32::try_from(self.child.id()) {
            // SAFETY: no memory effects; the group is the job's own, made when it was started.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        let _ = self.child.wait();
    }
}
