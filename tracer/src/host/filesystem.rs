//! Kinds of file systems: whether a wait on a file is a wait on a local disk, a network, another process or memory.

use FsKind::{Local, Memory, Network, Pseudo, UserSpace};
use serde::{Deserialize, Serialize};

/// Where the data of a file system comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FsKind {
    /// Block devices of this machine (or, for overlay, other file systems of it).
    Local,
    /// Other machines, or the host of this virtual machine.
    Network,
    /// A process of this machine (FUSE), whatever that gets it from.
    UserSpace,
    /// Memory.
    Memory,
    /// The kernel makes it up: /proc, pipes, sockets.
    Pseudo,
}

/// One known file system.
struct Known {
    magic: u32,
    name: &'static str,
    kind: FsKind,
}

const fn known(magic: u32, name: &'static str, kind: FsKind) -> Known {
    Known { magic, name, kind }
}

/// Magic numbers (`statfs.f_type`, `super_block.s_magic`).
const KNOWN: &[Known] = &[
    // include/uapi/linux/magic.h
    known(0x0000_EF53, "ext4", Local),
    known(0x5846_5342, "xfs", Local),
    known(0x9123_683E, "btrfs", Local),
    known(0xF2F5_2010, "f2fs", Local),
    known(0x794C_7630, "overlay", Local),
    known(0x7371_7368, "squashfs", Local),
    known(0xE0F5_E1E2, "erofs", Local),
    known(0x28CD_3D45, "cramfs", Local),
    known(0x0000_9660, "iso9660", Local),
    known(0x1501_3346, "udf", Local),
    known(0x0000_4D44, "vfat", Local),
    known(0x2011_BAB0, "exfat", Local),
    known(0x0000_3434, "nilfs2", Local),
    known(0x5265_4973, "reiserfs", Local),
    known(0x7461_636F, "ocfs2", Local),
    known(0x0000_F15F, "ecryptfs", Local),
    known(0x5A4F_4653, "zonefs", Local),
    known(0x6264_6576, "bdev", Local),
    known(0x0000_6969, "nfs", Network),
    known(0xFE53_4D42, "smb2", Network),
    known(0xFF53_4D42, "cifs", Network),
    known(0x0000_517B, "smb", Network),
    known(0x00C3_6400, "ceph", Network),
    known(0x0102_1997, "9p", Network),
    known(0x5346_414F, "afs", Network),
    known(0x6B41_4653, "afs", Network),
    known(0x7375_7245, "coda", Network),
    known(0x0000_564C, "ncpfs", Network),
    known(0x6573_5546, "fuse", UserSpace),
    known(0x0102_1994, "tmpfs", Memory),
    known(0x8584_58F6, "ramfs", Memory),
    known(0x9584_58F6, "hugetlbfs", Memory),
    known(0x5345_434D, "secretmem", Memory),
    known(0x444D_4142, "dmabuf", Memory),
    known(0x0000_9FA0, "proc", Pseudo),
    known(0x6265_6572, "sysfs", Pseudo),
    known(0x6462_6720, "debugfs", Pseudo),
    known(0x7472_6163, "tracefs", Pseudo),
    known(0x7363_6673, "securityfs", Pseudo),
    known(0xF97C_FF8C, "selinuxfs", Pseudo),
    known(0x0027_E0EB, "cgroup", Pseudo),
    known(0x6367_7270, "cgroup2", Pseudo),
    known(0xCAFE_4A11, "bpf", Pseudo),
    known(0x0000_1CD1, "devpts", Pseudo),
    known(0x5049_5045, "pipefs", Pseudo),
    known(0x534F_434B, "sockfs", Pseudo),
    known(0x0904_1934, "anon_inodefs", Pseudo),
    known(0x6E73_6673, "nsfs", Pseudo),
    known(0x4249_4E4D, "binfmt_misc", Pseudo),
    known(0x6165_676C, "pstore", Pseudo),
    known(0xDE5E_81E4, "efivarfs", Pseudo),
    known(0x0000_0187, "autofs", Pseudo),
    // ipc/mqueue.c
    known(0x1980_0202, "mqueue", Pseudo),
    // fs/gfs2: GFS2_MAGIC, include/uapi/linux/gfs2_ondisk.h
    known(0x0116_1970, "gfs2", Local),
    // fs/bcachefs (6.7 to 6.17), now out of tree: BCACHEFS_STATFS_MAGIC
    known(0xCA45_1A4E, "bcachefs", Local),
    // fs/ntfs3/ntfs_fs.h and the old fs/ntfs
    known(0x7366_746E, "ntfs", Local),
    // OpenZFS, include/sys/fs/zfs.h: ZFS_SUPER_MAGIC
    known(0x2FC1_2FC1, "zfs", Local),
    // fs/orangefs/orangefs-kernel.h: ORANGEFS_SUPER_MAGIC
    known(0x2003_0528, "orangefs", Network),
    // fs/vboxsf/super.c: VBOXSF_SUPER_MAGIC
    known(0x786F_4256, "vboxsf", Network),
    // Lustre, include/uapi/linux/lustre/lustre_user.h: LL_SUPER_MAGIC
    known(0x0BD0_0BD0, "lustre", Network),
    // Outside the kernel; numbers as GNU coreutils lists them (src/stat.c)
    known(0x4750_4653, "gpfs", Network),
    known(0x1983_0326, "beegfs", Network),
    known(0xAAD7_AAEA, "panfs", Network),
    known(0x0131_11A8, "ibrix", Network),
    known(0xBEEF_DEAD, "snfs", Network),
    known(0xBACB_ACBC, "vmhgfs", Network),
    known(0x7C7C_6673, "prl_fs", Network),
    known(0x6163_6673, "acfs", Network),
];

/// Kind of the file system with this magic number (low 32 bits of `f_type`); `None` for one that is not known.
pub fn fs_kind_of_magic(magic: u32) -> Option<FsKind> {
    KNOWN.iter().find(|k| k.magic == magic).map(|k| k.kind)
}

/// Name of the file system with this magic number. ext2 and ext3 share one with ext4.
pub fn fs_name_of_magic(magic: u32) -> Option<&'static str> {
    KNOWN.iter().find(|k| k.magic == magic).map(|k| k.name)
}

/// Kind of a file system by its type in mountinfo (`ext4`, `nfs4`, `fuse.sshfs`); `None` for one that is not known.
pub fn fs_kind(fs_type: &str) -> Option<FsKind> {
    // `fuse.NAME` says who serves it; `fuseblk` is FUSE over a block device (ntfs-3g), and still served by a process.
    let base = fs_type.split('.').next().unwrap_or(fs_type);
    match base {
        "fuse" | "fuseblk" => return Some(UserSpace),
        // virtiofs has the magic number of FUSE, but the host of the virtual machine answers.
        "virtiofs" | "nfs4" | "smb3" | "wekafs" => return Some(Network),
        "ext2" | "ext3" | "msdos" | "ntfs3" => return Some(Local),
        "devtmpfs" => return Some(Memory),
        "configfs" | "fusectl" | "rpc_pipefs" | "nfsd" | "resctrl" | "binder" | "functionfs" => return Some(Pseudo),
        _ => {}
    }
    KNOWN.iter().find(|k| k.name == base).map(|k| k.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_by_magic() {
        let cases = [
            (0x6969, Network),
            (0xFE53_4D42, Network),
            (0x00C3_6400, Network),
            (0x0BD0_0BD0, Network),
            (0x0102_1997, Network),
            (0x4750_4653, Network),
            (0x6573_5546, UserSpace),
            (0x0102_1994, Memory),
            (0xEF53, Local),
            (0x5846_5342, Local),
            (0x9123_683E, Local),
            (0x794C_7630, Local),
            (0x5049_5045, Pseudo),
        ];
        for (magic, kind) in cases {
            assert_eq!(fs_kind_of_magic(magic), Some(kind), "{magic:#x}");
        }
        assert_eq!(fs_kind_of_magic(1), None);
        assert_eq!(fs_name_of_magic(0xEF53), Some("ext4"));
    }

    #[test]
    fn kinds_by_type() {
        let cases = [
            ("ext4", Some(Local)),
            ("nfs4", Some(Network)),
            ("fuse.sshfs", Some(UserSpace)),
            ("fuse", Some(UserSpace)),
            ("fuseblk", Some(UserSpace)),
            ("fusectl", Some(Pseudo)),
            ("virtiofs", Some(Network)),
            ("devtmpfs", Some(Memory)),
            ("overlay", Some(Local)),
            ("cgroup2", Some(Pseudo)),
            ("something", None),
        ];
        for (fs_type, kind) in cases {
            assert_eq!(fs_kind(fs_type), kind, "{fs_type}");
        }
    }

    #[test]
    fn no_magic_number_stands_twice() {
        let mut seen = std::collections::HashSet::new();
        assert!(KNOWN.iter().all(|k| seen.insert(k.magic)));
    }

    #[test]
    fn the_kernel_agrees_about_proc() {
        let magic = rustix::fs::statfs("/proc").unwrap().f_type as u32;
        assert_eq!(fs_name_of_magic(magic), Some("proc"));
    }
}
