//! The host around the target: control groups, pressure, disks, mounts and /proc. Each reader is a thin shell around a
//! pure parser.

mod block;
mod cgroup;
mod error;
mod filesystem;
mod limits;
mod listen;
mod model;
mod mounts;
mod process;
mod sampler;
mod system;

pub use block::{block_devices, block_driver, block_members, whole_disks};
pub use cgroup::{Group, GroupVersion};
pub use error::HostError;
pub use filesystem::{FsKind, fs_kind, fs_kind_of_magic, fs_name_of_magic};
pub use limits::{control_group, limits};
pub use listen::listeners;
pub use model::{BlockDevice, IoLimit, Mount, ProcessLimits};
pub use mounts::{MountEntry, mount_entries, mounts, parse_mountinfo};
pub use process::{command_line, process_tree};
pub use sampler::HostSampler;
pub use system::{clocks, hostname, kernel_release, online_cpus, parse_cpu_list, parse_ns_link};
