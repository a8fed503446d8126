//! What is known of the host's disks, mounts and the limits on a process.

use crate::units::DevId;
use serde::{Deserialize, Serialize};

/// One mount, from /proc/PID/mountinfo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Device of the file system (`st_dev` of its files).
    pub dev: DevId,
    /// Which part of the file system is mounted.
    pub root: String,
    /// Where.
    pub point: String,
    /// Type: `ext4`, `nfs4`, `fuse.sshfs` …
    pub fs_type: String,
    /// What is mounted: `/dev/sda1`, `server:/export` …
    pub source: String,
}

/// One block device (whole disk or partition), from /sys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDevice {
    /// Device number.
    pub dev: DevId,
    /// Name, such as `sda` or `nvme0n1p1`.
    pub name: String,
    /// The whole disk that a partition belongs to.
    pub disk: Option<String>,
    /// It has platters.
    pub rotational: bool,
    /// Model name, where the device tells one.
    pub model: Option<String>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// I/O scheduler in use.
    pub scheduler: Option<String>,
    /// For a loop device: the backing file.
    pub backing_file: Option<String>,
}

impl BlockDevice {
    /// What it is: `rotational`, `solid state`, `virtual` or `loop`. The kernel calls most virtual disks rotational, so
    /// their drivers' names and models are asked first.
    pub fn kind(&self) -> &'static str {
        /// Drivers without a medium of their own: virtio, Xen, device mapper, software RAID, network, memory.
        const DRIVERS: [&str; 9] = ["vd", "xvd", "dm-", "md", "nbd", "rbd", "zram", "ram", "drbd"];
        /// Words in the models that hypervisors and clouds give their disks.
        const MODELS: [&str; 6] = ["qemu", "virtual", "vbox", "elastic block", "persistentdisk", "vmware"];
        let model = self.model.as_deref().unwrap_or_default().to_lowercase();
        if self.backing_file.is_some() || self.name.starts_with("loop") {
            "loop"
        } else if DRIVERS.iter().any(|d| self.name.starts_with(d)) || MODELS.iter().any(|m| model.contains(m)) {
            "virtual"
        } else if self.rotational {
            "rotational"
        } else {
            "solid state"
        }
    }
}

/// Limits on a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessLimits {
    /// CPUs it may run on (affinity and cpuset).
    pub allowed_cpus: Vec<u32>,
    /// CPUs' worth of quota of its control groups, the tightest on the way to the root; absent without one.
    pub quota_cpus: Option<f64>,
    /// Memory limit of its control groups, bytes.
    pub memory_limit: Option<u64>,
    /// I/O limits of its control groups, one per device that has one.
    pub io: Vec<IoLimit>,
    /// Nice value.
    pub nice: i32,
}

/// Limits on the I/O of a control group to one device; an absent one is no limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoLimit {
    /// The device.
    pub dev: DevId,
    /// Path of the group that sets it.
    pub group: String,
    /// Bytes read a second.
    pub read_bps: Option<u64>,
    /// Reads a second.
    pub read_iops: Option<u64>,
    /// Bytes written a second.
    pub write_bps: Option<u64>,
    /// Writes a second.
    pub write_iops: Option<u64>,
}
