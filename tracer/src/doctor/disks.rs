//! The disks that file systems are mounted from: platters or not, and which of them the target uses.

use super::Check;
use super::storage::{StorageUse, disks_of};
use crate::host::{self, BlockDevice};
use crate::units::Pid;

/// What is to be known of one disk.
struct Disk {
    device: BlockDevice,
    driver: Option<String>,
    /// Mount points of file systems on it.
    mounted: Vec<String>,
    /// It holds files of the target.
    used: bool,
}

/// One check for each whole disk that a file system is mounted from or that the target uses.
pub(super) fn checks(uses: &[StorageUse]) -> Vec<Check> {
    let devices = host::block_devices();
    let mounts = host::mount_entries(Pid(std::process::id())).unwrap_or_default();
    let under: Vec<(Vec<String>, String)> =
        mounts.iter().map(|m| (disks_of(m, &mounts, &devices, &host::block_members), m.mount.point.clone())).collect();
    let disks = devices.iter().filter(|d| d.disk.is_none()).map(|device| Disk {
        driver: host::block_driver(&device.name),
        mounted: under.iter().filter(|(names, _)| names.contains(&device.name)).map(|(_, p)| p.clone()).collect(),
        used: uses.iter().any(|u| u.disks.contains(&device.name)),
        device: device.clone(),
    });
    let mut checks: Vec<Check> = disks.filter(|d| d.used || !d.mounted.is_empty()).map(|d| judge(&d)).collect();
    if checks.is_empty() {
        checks.push(Check::ok(NAME, "no file system is mounted from a disk of this machine"));
    }
    checks
}

const NAME: &str = "disk";

fn judge(disk: &Disk) -> Check {
    let device = &disk.device;
    let kind = kind_of(device, disk.driver.as_deref());
    let mut finding = device.name.clone();
    if let Some(model) = &device.model {
        finding += &format!(" ({model})");
    }
    finding += &match kind {
        Kind::Loop => format!(": loop device on {}", device.backing_file.as_deref().unwrap_or("?")),
        Kind::Virtual => ": virtual disk, what it is made of cannot be seen from inside".to_owned(),
        Kind::Memory => ": compressed memory".to_owned(),
        Kind::Platters => ": rotational".to_owned(),
        Kind::Solid => ": not rotational".to_owned(),
    };
    finding += &format!(", {}", bytes(device.size_bytes));
    if let Some(scheduler) = &device.scheduler {
        finding += &format!(", scheduler {scheduler}");
    }
    if let Some((first, more)) = disk.mounted.split_first() {
        finding += &format!(", mounted at {first}");
        if !more.is_empty() {
            finding += &format!(" and {} more", more.len());
        }
    }
    if disk.used {
        finding += "; holds files of the target";
    }
    match kind {
        Kind::Platters => Check::warning(
            NAME,
            finding,
            "random reads cost some 10 ms each there: keep training data on an SSD, or pack it into large files that are \
             read from start to end",
        ),
        _ => Check::ok(NAME, finding),
    }
}

/// What a disk is made of, as far as can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Loop,
    Virtual,
    Memory,
    Platters,
    Solid,
}

fn kind_of(device: &BlockDevice, driver: Option<&str>) -> Kind {
    let model = device.model.as_deref().unwrap_or_default().to_ascii_lowercase();
    // The rotational flag of these says what their driver or hypervisor defaults to (virtio_blk: rotational), not what is
    // underneath. Models: QEMU's, VMware's and Hyper-V's, VirtualBox's, Google's.
    let emulated = ["qemu", "virtual", "vbox", "persistentdisk"].iter().any(|name| model.contains(name));
    match driver {
        _ if device.backing_file.is_some() => Kind::Loop,
        _ if device.name.starts_with("zram") || device.name.starts_with("pmem") => Kind::Memory,
        Some("virtio_blk" | "vbd") => Kind::Virtual,
        _ if emulated => Kind::Virtual,
        _ if device.rotational => Kind::Platters,
        _ => Kind::Solid,
    }
}

/// A size for people: `238 GiB`.
pub(super) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 10.0 && value.fract() > 0.05 { 1 } else { 0 };
    format!("{value:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;
    use crate::units::DevId;

    fn disk(name: &str, rotational: bool, model: Option<&str>, driver: Option<&str>) -> Disk {
        Disk {
            device: BlockDevice {
                dev: DevId::default(),
                name: name.into(),
                disk: None,
                rotational,
                model: model.map(str::to_owned),
                size_bytes: 4 << 40,
                scheduler: Some("none".into()),
                backing_file: None,
            },
            driver: driver.map(str::to_owned),
            mounted: vec!["/data".into(), "/old".into()],
            used: false,
        }
    }

    #[test]
    fn platters_are_a_warning_but_not_where_the_flag_means_nothing() {
        let cases = [
            (disk("sda", true, Some("ST4000NM000A"), Some("sd")), Kind::Platters),
            (disk("sdb", false, Some("SAMSUNG MZ7LH"), Some("sd")), Kind::Solid),
            (disk("nvme0n1", false, None, Some("nvme")), Kind::Solid),
            (disk("vda", true, None, Some("virtio_blk")), Kind::Virtual),
            (disk("sdc", true, Some("QEMU HARDDISK"), Some("sd")), Kind::Virtual),
            (disk("sdd", true, Some("Virtual disk"), Some("sd")), Kind::Virtual),
            (disk("md0", true, None, None), Kind::Platters),
        ];
        for (disk, kind) in cases {
            assert_eq!(kind_of(&disk.device, disk.driver.as_deref()), kind, "{}", disk.device.name);
            let warned = judge(&disk).level == Level::Warning;
            assert_eq!(warned, kind == Kind::Platters, "{}", disk.device.name);
        }
    }

    #[test]
    fn the_line_of_a_disk() {
        let mut d = disk("sda", true, Some("ST4000NM000A"), Some("sd"));
        d.used = true;
        assert_eq!(
            judge(&d).finding,
            "sda (ST4000NM000A): rotational, 4 TiB, scheduler none, mounted at /data and 1 more; holds files of the target"
        );
        d.device.backing_file = Some("/images/x".into());
        assert!(judge(&d).finding.starts_with("sda (ST4000NM000A): loop device on /images/x"));
    }

    #[test]
    fn sizes_for_people() {
        assert_eq!(bytes(256 << 30), "256 GiB");
        assert_eq!(bytes(1536 << 20), "1.5 GiB");
        assert_eq!(bytes(0), "0 KiB");
    }
}
