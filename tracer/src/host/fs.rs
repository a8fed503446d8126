//! Kinds of file systems: whether waiting for one means a local disk, a network or something else.

/// Kind of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FsKind {
    /// On a block device of this machine.
    Local,
    /// On a server.
    Network,
    /// Answered by a process of this machine (FUSE), which may itself use a network.
    UserSpace,
    /// In memory.
    Memory,
    /// No data at all: pipes, sockets, /proc.
    Pseudo,
}

/// Kind of a file system by its magic (`include/uapi/linux/magic.h`; Lustre, GPFS, BeeGFS: their own sources).
pub fn fs_kind_of_magic(magic: u32) -> FsKind {
    match magic {
        // NFS, SMB, SMB2, CIFS, Ceph, Lustre, 9p, AFS (kernel), AFS, GPFS, OCFS2, BeeGFS, Coda
        0x6969 | 0x517B | 0xFE53_4D42 | 0xFF53_4D42 | 0x00C3_6400 | 0x0BD0_0BD0 | 0x0102_1997 | 0x6B41_4653
        | 0x5346_414F | 0x4750_4653 | 0x7461_636F | 0x1983_0326 | 0x7375_7245 => FsKind::Network,
        // FUSE
        0x6573_5546 => FsKind::UserSpace,
        // tmpfs, ramfs, hugetlbfs
        0x0102_1994 | 0x8584_58F6 | 0x9584_58F6 => FsKind::Memory,
        // pipefs, sockfs, anonymous inodes, proc, sysfs, cgroup, cgroup2, devpts, debugfs, tracefs, bpf
        0x5049_5045 | 0x534F_434B | 0x0904_1934 | 0x9FA0 | 0x6265_6572 | 0x0027_E0EB | 0x6367_7270 | 0x1CD1
        | 0x6462_6720 | 0x7472_6163 | 0xCAFE_4A11 => FsKind::Pseudo,
        _ => FsKind::Local,
    }
}

/// Kind of a file system by the type that mountinfo shows.
pub fn fs_kind_of_type(fs_type: &str) -> FsKind {
    match fs_type {
        "nfs" | "nfs4" | "cifs" | "smb3" | "smbfs" | "ceph" | "lustre" | "9p" | "afs" | "gpfs" | "beegfs" | "ocfs2"
        | "coda" | "fuse.sshfs" | "fuse.glusterfs" | "fuse.s3fs" | "fuse.gcsfuse" | "fuse.mount-s3" | "fuse.ceph"
        | "fuse.juicefs" | "fuse.weka" | "wekafs" => FsKind::Network,
        "fuse" | "fuseblk" | "virtiofs" => FsKind::UserSpace,
        t if t.starts_with("fuse.") => FsKind::UserSpace,
        "tmpfs" | "ramfs" | "hugetlbfs" | "devtmpfs" => FsKind::Memory,
        "proc" | "sysfs" | "cgroup" | "cgroup2" | "devpts" | "mqueue" | "debugfs" | "tracefs" | "bpf"
        | "securityfs" | "pstore" | "configfs" | "fusectl" | "autofs" | "nsfs" | "binfmt_misc" => FsKind::Pseudo,
        _ => FsKind::Local,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_told_from_local_ones() {
        assert_eq!(fs_kind_of_magic(0x6969), FsKind::Network);
        assert_eq!(fs_kind_of_magic(0xEF53), FsKind::Local);
        assert_eq!(fs_kind_of_type("fuse.sshfs"), FsKind::Network);
        assert_eq!(fs_kind_of_type("fuse.bindfs"), FsKind::UserSpace);
        assert_eq!(fs_kind_of_type("xfs"), FsKind::Local);
    }
}
