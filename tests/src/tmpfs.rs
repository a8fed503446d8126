//! Small file systems in memory, for full and read-only disks.

use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

/// A tmpfs on a folder of its own, unmounted when dropped.
#[derive(Debug)]
pub struct Tmpfs {
    folder: tempfile::TempDir,
}

impl Tmpfs {
    /// Mounts one with these options, such as `size=1m`. Needs root.
    pub fn mount(options: &str) -> Result<Tmpfs> {
        let folder = tempfile::tempdir()?;
        let mut command = Command::new("mount");
        let mounted = command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder.path()).status();
        ensure!(mounted.context("cannot run mount")?.success(), "mount failed; it needs root");
        Ok(Tmpfs { folder })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: a process that outlives its test must not keep it. What fails is told by umount itself.
        let _ = Command::new("umount").arg("-l").arg(self.path()).stdout(Stdio::null()).status();
    }
}
