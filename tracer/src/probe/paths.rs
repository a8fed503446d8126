//! Full paths of files that threads blocked on, from the names inside their mount and what /proc knows of the process.

use super::decode::FileNames;
use crate::events::{FileRef, NamedFile};
use crate::host::Mount;
use crate::units::{DevId, Pid};
use procfs::process::Process;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// Gives a file its path, as its process sees it.
///
/// While the descriptor is still open on the same file, its link in /proc is the exact path. Otherwise the names lead
/// from the mount point.
pub fn locate(names: FileNames) -> NamedFile {
    let path = by_descriptor(&names).unwrap_or_else(|| {
        let mounts = mounts_of(names.pid).or_else(|| mounts_of(Pid(std::process::id()))).unwrap_or_default();
        from_mount(&names, &mounts)
    });
    NamedFile { file: names.file, path }
}

/// The link in /proc, if it leads to the same file: descriptors are used again.
fn by_descriptor(names: &FileNames) -> Option<String> {
    let link = format!("/proc/{}/fd/{}", names.pid, names.fd);
    let same = |link: &str| fs::metadata(link).is_ok_and(|m| is_same(&m, &names.file));
    if !same(&link) {
        return None;
    }
    let path = fs::read_link(&link).ok()?;
    // Looked at again, since the descriptor may have changed in between.
    let path = path.to_str().filter(|_| same(&link))?;
    (path.starts_with('/') && !path.ends_with(" (deleted)")).then(|| path.to_owned())
}

fn is_same(found: &fs::Metadata, file: &FileRef) -> bool {
    let dev = DevId { major: libc::major(found.dev()), minor: libc::minor(found.dev()) };
    found.ino() == file.ino && dev == file.dev
}

/// The path from the mount point of the file's device. Several mounts may show the file: the one that shows the whole
/// file system comes first, then the one with the shortest mount point.
fn from_mount(names: &FileNames, mounts: &[Mount]) -> String {
    let inside = format!("/{}", names.names.join("/"));
    if names.cut {
        return inside.replacen('/', "…/", 1);
    }
    let shown = mounts.iter().filter(|m| m.dev == names.file.dev).filter_map(|m| {
        let rest = if m.root == "/" { Some(inside.as_str()) } else { inside.strip_prefix(&m.root) };
        let rest = rest.filter(|r| r.is_empty() || r.starts_with('/'))?;
        Some((m.root != "/", m.point.len(), format!("{}{}", m.point.trim_end_matches('/'), rest)))
    });
    match shown.min() {
        Some((_, _, path)) if path.len() > 1 => path.trim_end_matches('/').to_owned(),
        _ => inside,
    }
}

fn mounts_of(pid: Pid) -> Option<Vec<Mount>> {
    let infos = Process::new(i32::try_from(pid.0).ok()?).and_then(|p| p.mountinfo()).ok()?;
    let mount = |m: procfs::process::MountInfo| {
        let (major, minor) = m.majmin.split_once(':')?;
        Some(Mount {
            dev: DevId { major: major.parse().ok()?, minor: minor.parse().ok()? },
            root: m.root,
            point: m.mount_point.to_string_lossy().into_owned(),
            fs_type: m.fs_type,
            source: m.mount_source.unwrap_or_default(),
        })
    };
    Some(infos.into_iter().filter_map(mount).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str], cut: bool) -> FileNames {
        let file = FileRef {
            ino: 7,
            dev: DevId { major: 8, minor: 1 },
            rdev: DevId { major: 0, minor: 0 },
            magic: 0xef53,
            mode: 0o100_644,
        };
        // No process has this id.
        FileNames { file, pid: Pid(i32::MAX as u32), fd: 3, names: list.iter().map(|n| (*n).into()).collect(), cut }
    }

    fn mount(dev: (u32, u32), root: &str, point: &str) -> Mount {
        let dev = DevId { major: dev.0, minor: dev.1 };
        Mount { dev, root: root.into(), point: point.into(), fs_type: "ext4".into(), source: "/dev/sda1".into() }
    }

    #[test]
    fn the_mount_point_comes_before_the_names() {
        let file = names(&["train", "a.jpg"], false);
        let other = mount((8, 2), "/", "/");
        assert_eq!(from_mount(&file, std::slice::from_ref(&other)), "/train/a.jpg");
        assert_eq!(from_mount(&file, &[other, mount((8, 1), "/", "/data")]), "/data/train/a.jpg");
        assert_eq!(from_mount(&file, &[mount((8, 1), "/", "/")]), "/train/a.jpg");
        assert_eq!(from_mount(&names(&[], false), &[mount((8, 1), "/", "/data")]), "/data");
        assert_eq!(from_mount(&names(&[], false), &[mount((8, 1), "/", "/")]), "/");
    }

    #[test]
    fn a_mounted_part_shows_only_what_lies_in_it() {
        let file = names(&["train", "a.jpg"], false);
        assert_eq!(from_mount(&file, &[mount((8, 1), "/train", "/mnt")]), "/mnt/a.jpg");
        assert_eq!(from_mount(&file, &[mount((8, 1), "/tra", "/mnt")]), "/train/a.jpg");
        let both = [mount((8, 1), "/train", "/mnt"), mount((8, 1), "/", "/data")];
        assert_eq!(from_mount(&file, &both), "/data/train/a.jpg");
    }

    #[test]
    fn a_cut_path_says_so() {
        assert_eq!(from_mount(&names(&["x", "y"], true), &[mount((8, 1), "/", "/data")]), "…/x/y");
    }
}
