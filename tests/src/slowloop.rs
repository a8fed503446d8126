//! A slow disk: a loop device past the page cache on a file in a slow user-space file system. It stands in for dm-delay,
//! which many kernels lack: each request takes the delay between its issue and its completion.

use crate::loopdev::{LoopDevice, Mounted, scratch};
use crate::slowfs::{Delays, SlowFs};
use anyhow::Result;
use std::path::Path;
use tempfile::TempDir;

/// An ext4 file system on a disk whose requests take as long as [`SlowDisk::delays`] says; at first it is fast.
pub struct SlowDisk {
    // Dropped in this order: each lies on the next.
    mounted: Mounted,
    below: SlowFs,
    _point: TempDir,
    _source: TempDir,
}

impl SlowDisk {
    /// A file system of so many bytes.
    ///
    /// # Errors
    /// If a part cannot be made; it needs root, /dev/fuse and loop devices.
    pub fn new(bytes: u64) -> Result<SlowDisk> {
        let (source, point) = (scratch()?, scratch()?);
        let below = SlowFs::mount(source.path(), point.path())?;
        let mounted = Mounted::on(LoopDevice::on(point.path().join("image"), bytes)?)?;
        Ok(SlowDisk { mounted, below, _point: point, _source: source })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.mounted.path()
    }

    /// The file system, to make it cold for example.
    pub fn mounted(&self) -> &Mounted {
        &self.mounted
    }

    /// How slow it is.
    pub fn delays(&self) -> &Delays {
        self.below.delays()
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // What is still to be written need not take long.
        self.delays().none();
    }
}
