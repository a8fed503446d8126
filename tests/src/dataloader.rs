//! A real PyTorch training job (tests/workloads/dataloader.py) that keeps its own account of its waits.

use crate::truth::{Score, score_files};
use anyhow::{Context, ensure};
use gpustall::units::Pid;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Debian's interpreter, which has `python3-torch`.
const PYTHON: &str = "/usr/bin/python3";

/// A job that is warm and waits for [`DataLoaderJob::go`]. Dropping it ends the job and removes its data.
pub struct DataLoaderJob {
    child: Child,
    folder: TempDir,
}

impl DataLoaderJob {
    /// Starts the job with these arguments and returns once its workers have delivered their first batches.
    pub fn start(args: &[&str]) -> anyhow::Result<DataLoaderJob> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/dataloader.py");
        // On a real disk: /tmp may be in memory.
        let folder = tempfile::tempdir_in("/var/tmp").context("cannot make a folder in /var/tmp")?;
        let mut command = Command::new(PYTHON);
        command.arg(script).args(args).arg("--wait-go").arg("--data").arg(folder.path());
        command.arg("--busy-file").arg(folder.path().join("busy")).arg("--truth").arg(folder.path().join("truth"));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start python3")?;
        let mut job = DataLoaderJob { child, folder };
        let stdout = job.child.stdout.take().context("the job has no standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("cannot read from the job")?;
        ensure!(line == "ready\n", "the job did not start; is python3-torch installed for {PYTHON}?");
        Ok(job)
    }

    /// Its main process.
    pub fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// Its workers.
    pub fn children(&self) -> anyhow::Result<Vec<Pid>> {
        let pid = self.pid();
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).context("the job is gone")?;
        text.split_whitespace().map(|p| Ok(Pid(p.parse()?))).collect()
    }

    /// When its simulated GPU was busy.
    pub fn busy_file(&self) -> PathBuf {
        self.folder.path().join("busy")
    }

    /// Begins the steady phase.
    pub fn go(&mut self) -> anyhow::Result<()> {
        let mut stdin = self.child.stdin.take().context("the job was told to go before")?;
        stdin.write_all(b"go\n").context("the job is gone")
    }

    /// Waits for its end and scores its own account.
    pub fn score(&mut self) -> anyhow::Result<Score> {
        let status = self.child.wait().context("cannot wait for the job")?;
        ensure!(status.success(), "the job failed: {status}");
        score_files(&self.busy_file(), &self.folder.path().join("truth"))
    }
}

impl Drop for DataLoaderJob {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
