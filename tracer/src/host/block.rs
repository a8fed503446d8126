//! Block devices, from /sys/class/block.

use super::BlockDevice;
use super::mounts::parse_dev;
use std::path::Path;

const CLASS: &str = "/sys/class/block";

/// Block devices of this machine, whole disks and partitions, by name. Devices without a medium are left out: loop and
/// zram devices that are not set up, empty card readers.
pub fn block_devices() -> Vec<BlockDevice> {
    let Ok(entries) = std::fs::read_dir(CLASS) else { return Vec::new() };
    let mut devices: Vec<_> = entries
        .filter_map(|e| read_device(&e.ok()?.file_name().to_string_lossy()))
        .filter(|d| d.size_bytes > 0)
        .collect();
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    devices
}

fn read_device(name: &str) -> Option<BlockDevice> {
    let dir = Path::new(CLASS).join(name);
    let text = |file: &str| attribute(&dir.join(file));
    // Paths of NVMe multipath devices (nvme0c0n1) have no number and cannot be opened.
    let dev = parse_dev(&text("dev")?)?;
    // A partition's directory lies inside that of its disk, which alone has the queue.
    let real = std::fs::canonicalize(&dir).ok()?;
    let disk_dir = if real.join("partition").exists() { real.parent() } else { None };
    let whole = disk_dir.unwrap_or(&real);
    let of_whole = |file: &str| attribute(&whole.join(file));
    Some(BlockDevice {
        dev,
        name: name.to_owned(),
        disk: disk_dir.and_then(|d| Some(d.file_name()?.to_string_lossy().into_owned())),
        rotational: of_whole("queue/rotational").is_some_and(|t| t == "1"),
        model: of_whole("device/model").filter(|m| !m.is_empty()),
        // In sectors of 512 bytes, whatever the device's own sector size.
        size_bytes: text("size")?.parse::<u64>().ok()?.saturating_mul(512),
        scheduler: of_whole("queue/scheduler").as_deref().and_then(chosen_scheduler),
        backing_file: text("loop/backing_file"),
    })
}

fn attribute(path: &Path) -> Option<String> {
    Some(String::from_utf8_lossy(&std::fs::read(path).ok()?).trim().to_owned())
}

/// The scheduler in brackets: `none [mq-deadline] kyber`. Some devices offer just `none`, without brackets.
fn chosen_scheduler(text: &str) -> Option<String> {
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(name, _)| name);
    chosen.or_else(|| Some(text).filter(|t| !t.is_empty() && !t.contains(' '))).map(str::to_owned)
}

/// Devices that a stacked device (device mapper, md) is made of, by name; empty for any other.
pub fn block_members(name: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(Path::new(CLASS).join(name).join("slaves")) else { return Vec::new() };
    let mut names: Vec<_> = entries.filter_map(|e| Some(e.ok()?.file_name().to_string_lossy().into_owned())).collect();
    names.sort();
    names
}

/// The kernel driver of a whole disk (`virtio_blk`, `nvme`, `sd`), where it has one.
pub fn block_driver(name: &str) -> Option<String> {
    let link = std::fs::read_link(Path::new(CLASS).join(name).join("device/driver")).ok()?;
    Some(link.file_name()?.to_string_lossy().into_owned())
}

/// The whole disks that data on device `name` lies on: the disk of a partition, the members of a stacked device, and so
/// on down. `members` is [`block_members`], or a stand-in for it.
pub fn whole_disks(name: &str, devices: &[BlockDevice], members: &dyn Fn(&str) -> Vec<String>) -> Vec<String> {
    let mut found = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let mut todo = vec![name.to_owned()];
    while let Some(name) = todo.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let below = members(&name);
        if !below.is_empty() {
            todo.extend(below);
        } else if let Some(disk) = devices.iter().find(|d| d.name == name).and_then(|d| d.disk.clone()) {
            todo.push(disk);
        } else {
            found.push(name);
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::DevId;

    #[test]
    fn the_scheduler_in_brackets() {
        assert_eq!(chosen_scheduler("none [mq-deadline] kyber bfq").as_deref(), Some("mq-deadline"));
        assert_eq!(chosen_scheduler("[none] mq-deadline").as_deref(), Some("none"));
        assert_eq!(chosen_scheduler("none").as_deref(), Some("none"));
        assert_eq!(chosen_scheduler(""), None);
    }

    #[test]
    fn a_volume_on_two_partitions_lies_on_two_disks() {
        let device = |name: &str, disk: Option<&str>| BlockDevice {
            dev: DevId::default(),
            name: name.into(),
            disk: disk.map(str::to_owned),
            rotational: false,
            model: None,
            size_bytes: 1,
            scheduler: None,
            backing_file: None,
        };
        let devices =
            [device("dm-0", None), device("md0", None), device("sda1", Some("sda")), device("sdb1", Some("sdb"))];
        let members = |name: &str| -> Vec<String> {
            match name {
                "dm-0" => vec!["md0".into()],
                "md0" => vec!["sda1".into(), "sdb1".into()],
                _ => vec![],
            }
        };
        assert_eq!(whole_disks("dm-0", &devices, &members), ["sda", "sdb"]);
        assert_eq!(whole_disks("sda1", &devices, &members), ["sda"]);
        assert_eq!(whole_disks("sdc", &devices, &members), ["sdc"]);
    }

    #[test]
    fn the_devices_of_this_machine_are_told_apart() {
        let devices = block_devices();
        let mut numbers: Vec<_> = devices.iter().map(|d| d.dev).collect();
        numbers.sort();
        numbers.dedup();
        assert_eq!(numbers.len(), devices.len());
        assert!(devices.iter().all(|d| d.size_bytes > 0));
    }
}
