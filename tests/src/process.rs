//! Child processes that do not outlive their test.

use anyhow::Context;
use gpustall::units::Pid;
use std::process::{Child, Command};

/// A child process, killed and collected when dropped.
#[derive(Debug)]
pub struct ChildGuard(pub Child);

impl ChildGuard {
    /// Starts it.
    pub fn spawn(command: &mut Command) -> anyhow::Result<ChildGuard> {
        Ok(ChildGuard(command.spawn().with_context(|| format!("cannot start {command:?}"))?))
    }

    /// A process that sleeps, longer than any test.
    pub fn sleeper() -> anyhow::Result<ChildGuard> {
        ChildGuard::spawn(Command::new("sleep").arg("600"))
    }

    /// Its pid.
    pub fn pid(&self) -> Pid {
        Pid(self.0.id())
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // Both fail only if it has been collected already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
