//! Which disk a path lies on.

use anyhow::{Context, Result};
use gpustall::units::DevId;
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::Path;

/// The whole disk that holds a path: limits of control groups are given for disks, not for partitions.
///
/// # Errors
/// If the path does not lie on a block device.
pub fn whole_disk(path: &Path) -> Result<DevId> {
    let dev = fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?.st_dev();
    let link = fs::canonicalize(format!("/sys/dev/block/{}:{}", libc::major(dev), libc::minor(dev)))
        .with_context(|| format!("{} does not lie on a block device", path.display()))?;
    let whole = if link.join("partition").exists() { link.parent().context("a partition has a disk")? } else { &link };
    let text = fs::read_to_string(whole.join("dev"))?;
    let (major, minor) = text.trim().split_once(':').context("a device number has two parts")?;
    Ok(DevId { major: major.parse()?, minor: minor.parse()? })
}
