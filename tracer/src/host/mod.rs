//! The host around the target: control groups, pressure, disks, mounts and /proc.

mod fs;
mod model;

pub use fs::{FsKind, fs_kind_of_magic, fs_kind_of_type};
pub use model::{BlockDevice, IoLimit, Mount, ProcessLimits};
