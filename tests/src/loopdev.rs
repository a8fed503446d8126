//! Loop devices and file systems of the tests' own, removed again whatever happens.

use anyhow::{Context, Result, ensure};
use gpustall::units::DevId;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use tempfile::TempDir;

/// A block device that nobody else uses, on a file of its own.
pub struct LoopDevice {
    path: String,
    image: PathBuf,
    /// The folder of the image, if it is the device's own.
    _folder: Option<TempDir>,
}

impl LoopDevice {
    /// A device of so many bytes, past the page cache of the file under it.
    pub fn new(bytes: u64) -> Result<LoopDevice> {
        // Not in /tmp by default: O_DIRECT needs a real file system below.
        let dir = scratch()?;
        let mut device = LoopDevice::on(dir.path().join("image"), bytes)?;
        device._folder = Some(dir);
        Ok(device)
    }

    /// The same on a file that is made at `image`, on a file system of the caller's choice.
    pub fn on(image: PathBuf, bytes: u64) -> Result<LoopDevice> {
        let file = File::create(&image)?;
        file.set_len(bytes)?;
        // A device that reads holes never reaches the disk, but one that was written has to.
        run(Command::new("dd")
            .args(["if=/dev/zero", "bs=1M", "conv=notrunc,fsync"])
            .args([format!("of={}", image.display()), format!("count={}", bytes >> 20)]))?;
        let made = run(Command::new("losetup").args(["--find", "--show", "--direct-io=on"]).arg(&image))?;
        Ok(LoopDevice { path: made.trim().to_owned(), image, _folder: None })
    }

    /// Its device node.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The file under it.
    pub fn image(&self) -> PathBuf {
        self.image.clone()
    }

    /// Its number.
    pub fn dev(&self) -> Result<DevId> {
        let rdev = fs::metadata(&self.path)?.rdev();
        Ok(DevId { major: libc::major(rdev), minor: libc::minor(rdev) })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("losetup").args(["--detach", &self.path])) {
            // Loud, but no second panic.
            eprintln!("{error:#}");
        }
    }
}

/// An ext4 file system on a loop device, mounted.
pub struct Mounted {
    point: TempDir,
    device: LoopDevice,
}

impl Mounted {
    /// A fresh file system of so many bytes.
    pub fn new(bytes: u64) -> Result<Mounted> {
        Mounted::on(LoopDevice::new(bytes)?)
    }

    /// A fresh file system on this device.
    pub fn on(device: LoopDevice) -> Result<Mounted> {
        // With everything written at once, so that no kernel thread fills tables in the background later.
        run(Command::new("mkfs.ext4").args(["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device.path()]))?;
        let point = scratch()?;
        run(Command::new("mount").arg(device.path()).arg(point.path()))?;
        Ok(Mounted { point, device })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.point.path()
    }

    /// The device under it.
    pub fn device(&self) -> &LoopDevice {
        &self.device
    }

    /// Makes a file of so many bytes, on disk and in no cache.
    pub fn cold_file(&self, name: &str, bytes: usize) -> Result<PathBuf> {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().context("no parent")?)?;
        let _alone = starting();
        fs::write(&path, vec![1; bytes])?;
        File::open(&path)?.sync_all()?;
        Ok(path)
    }

    /// Forgets everything about the file system that is cached, names and inodes included.
    pub fn cool(&self) -> Result<()> {
        run(Command::new("umount").arg(self.path()))?;
        run(Command::new("blockdev").args(["--flushbufs", self.device.path()]))?;
        run(Command::new("mount").arg(self.device.path()).arg(self.path()))?;
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("umount").arg(self.path())) {
            eprintln!("{error:#}");
        }
    }
}

/// What the folders of [`scratch`] are called, before the pid of their process.
pub const SCRATCH: &str = "gpustall-scratch-";

/// A fresh folder on a real disk. Its name tells whose it is, so that [`crate::leftovers`] finds what a killed process left.
pub fn scratch() -> Result<TempDir> {
    static CLEARED: Once = Once::new();
    CLEARED.call_once(crate::leftovers::clear);
    let prefix = format!("{SCRATCH}{}-", std::process::id());
    tempfile::Builder::new().prefix(&prefix).tempdir_in("/var/tmp").context("cannot make a folder in /var/tmp")
}

/// Until a new process runs its program it holds copies of all descriptors of the test, and a file system with an open file cannot be unmounted.
static STARTING: Mutex<()> = Mutex::new(());

/// To be held while a file on a file system of the tests is open, and while a process is started.
pub fn starting() -> MutexGuard<'static, ()> {
    STARTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a command and gives what it printed.
pub fn run(command: &mut Command) -> Result<String> {
    let child = {
        let _alone = starting();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    };
    let output = child
        .and_then(Child::wait_with_output)
        .with_context(|| format!("{command:?} could not be started; the tests need it"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed (tests of the kernel programs need root): {errors}");
    Ok(String::from_utf8(output.stdout)?)
}
