//! What a scenario is: a job, what holds it up, and what must be said about it.

use anyhow::Result;
use std::path::{Path, PathBuf};

/// What holds a job up from outside: a limited disk, a slow file system, a busy CPU. Dropping it removes it.
pub trait Hold {
    /// Where the job's data set shall lie, if the hold brings its own file system.
    fn data(&self) -> Option<PathBuf> {
        None
    }

    /// Called when the job is warm and its processes are known, before the recording begins; the first is main.
    ///
    /// # Errors
    /// If the hold cannot be laid on them.
    fn apply(&mut self, pids: &[u32]) -> Result<()> {
        let _ = pids;
        Ok(())
    }
}

/// Nothing holds the job up.
pub struct Free;

impl Hold for Free {}

/// Causes of the three parts of an entry of the truth log: running, on the run queue, blocked.
pub type Parts = [&'static str; 3];

/// A job whose truth is known.
pub struct Scenario {
    /// Its name, as the scoreboard and `cargo xtask lab NAME` spell it.
    pub name: &'static str,
    /// What it is about, in one line.
    pub about: &'static str,
    /// Command line of the job: a program and its arguments. `--data`, `--busy-file`, `--truth`, `--seconds`, `--wait-go` and
    /// with NVML evidence `--cuda` are added; it says "ready" on standard output, waits for a line, and does its work.
    pub job: fn() -> Result<Vec<String>>,
    /// Lays the hold; called before the job starts, with a scratch directory on a real disk.
    pub hold: fn(&Path) -> Result<Box<dyn Hold>>,
    /// Rows of the scorer's table that are different here.
    pub rows: &'static [(&'static str, Parts)],
    /// The bottlenecks that it is meant to show: one, unless two kinds are deliberately equal. Which verdict is right is decided by
    /// the truth of each run; a run whose truth is another than it was meant to be shows nothing.
    pub verdict: &'static [&'static str],
    /// Shortest steady phase that says anything, seconds. Where running time is divided by samples, some hundred a run are too few:
    /// of 230, a share of 80 % is known to 2.6 points (one standard deviation).
    pub at_least_s: f64,
    /// Why this machine cannot run it, if it cannot.
    pub missing: fn() -> Option<String>,
}
