//! The demo's processes: what each does when this program is started as one of them.

mod competitor;
mod main_process;
mod queue;
mod worker;

use super::error::DemoError;
use super::leftovers;
use clap::Subcommand;
use std::path::PathBuf;

/// Name of the hidden sub-command that takes a [`Role`].
pub const SUBCOMMAND: &str = "demo-workload";

/// One of the demo's processes.
#[derive(Clone, Debug, Subcommand)]
pub enum Role {
    /// Uses the simulated GPU; parent of the workers.
    Main {
        /// Directory of the run's plan.
        #[arg(long)]
        run_dir: PathBuf,
    },
    /// Reads and decodes; orders come on standard input, results go to standard output.
    Worker {
        /// Directory of the run's plan.
        #[arg(long)]
        run_dir: PathBuf,
        /// Which worker.
        #[arg(long)]
        index: usize,
        /// Process id of main.
        #[arg(long)]
        parent: i32,
        /// Main's descriptor of the memory shared with this worker.
        #[arg(long)]
        memory: i32,
    },
    /// Takes CPU time from the workers.
    Competitor {
        /// CPU to run on.
        #[arg(long)]
        cpu: usize,
        /// Longest time to run.
        #[arg(long)]
        seconds: u64,
        /// Process without which it ends.
        #[arg(long)]
        parent: i32,
    },
    /// Removes what the demo leaves behind.
    Janitor,
}

/// Runs one of the processes to its end.
pub fn run(role: &Role) -> Result<(), DemoError> {
    match role {
        Role::Main { run_dir } => main_process::run(run_dir),
        Role::Worker { run_dir, index, parent, memory } => worker::run(run_dir, *index, *parent, *memory),
        Role::Competitor { cpu, seconds, parent } => competitor::run(*cpu, *seconds, *parent),
        Role::Janitor => {
            leftovers::janitor(std::io::stdin().lock());
            Ok(())
        }
    }
}

/// Ends this process with its parent, and refuses to run without it (it may have died before this call).
fn die_with(parent: i32) -> Result<(), DemoError> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(DemoError::system("ask for a signal when the parent ends"))?;
    if is_child_of(parent) { Ok(()) } else { Err(DemoError::NotByHand("its parent is not the one named")) }
}

fn is_child_of(parent: i32) -> bool {
    rustix::process::getppid().is_some_and(|pid| pid.as_raw_nonzero().get() == parent)
}

/// Makes this process an ordinary competitor for its CPU: default priority, and a session of its own, since the kernel
/// shares a CPU among sessions first (autogroup) and among their processes second.
fn compete() -> Result<(), DemoError> {
    rustix::process::setsid().map_err(DemoError::system("start a session"))?;
    rustix::process::setpriority_process(None, 0).map_err(DemoError::system("set a process's priority"))
}

/// Name of the calling thread, as `ps` and the tracer show it (at most 15 bytes).
fn set_name(name: &'static std::ffi::CStr) {
    // A name that cannot be set costs nothing but readability.
    let _ = rustix::thread::set_name(name);
}

fn pin(cpus: &[usize]) -> Result<(), DemoError> {
    let mut set = rustix::thread::CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    rustix::thread::sched_setaffinity(None, &set).map_err(DemoError::system("confine a process to its CPUs"))
}
