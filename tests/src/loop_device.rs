//! Loop devices on files of the test's own.

use anyhow::{Context, bail};
use gpustall::units::DevId;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device on a file, detached when dropped.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// Attaches the file to a free loop device, with direct I/O where its file system can do that.
    pub fn attach(file: &Path) -> anyhow::Result<LoopDevice> {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show", "--direct-io=on"]).arg(file);
        let output = command.output().context("cannot run losetup (package util-linux, or mount on Debian)")?;
        if !output.status.success() {
            bail!("losetup failed (it needs root): {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(LoopDevice { path: PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()) })
    }

    /// Its node, such as `/dev/loop0`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its name, such as `loop0`.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Its device number.
    pub fn dev(&self) -> anyhow::Result<DevId> {
        let rdev = std::fs::metadata(&self.path)?.rdev();
        Ok(DevId { major: libc::major(rdev), minor: libc::minor(rdev) })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        match Command::new("losetup").arg("--detach").arg(&self.path).status() {
            Ok(status) if status.success() => {}
            other => eprintln!("could not detach {}: {other:?}", self.path.display()),
        }
    }
}
