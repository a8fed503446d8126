//! The host around the target: control groups, pressure, disks, mounts and /proc.

mod model;

pub use model::{BlockDevice, IoLimit, Mount, ProcessLimits};
