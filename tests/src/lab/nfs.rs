//! A data set on an NFS share: the server is one of the lab's own, on this machine, behind a slow link.

use super::holds::helper;
use super::scenario::Hold;
use crate::loopdev::{run, scratch};
use crate::process::ChildGuard;
use anyhow::{Context, Result};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// The data lie on a share that is mounted over NFS, version 4.
pub struct DataOnNfs {
    // Dropped in this order: the share is unmounted while its server still answers, and both need their folders.
    share: Share,
    server: ChildGuard,
    _folders: [TempDir; 3],
    delay: Duration,
}

/// A mounted share, unmounted when dropped.
struct Share(PathBuf);

impl Drop for Share {
    fn drop(&mut self) {
        let error = run(Command::new("umount").arg(&self.0)).err();
        if let Some(error) = error.and_then(|_| run(Command::new("umount").args(["-f", "-l"]).arg(&self.0)).err()) {
            eprintln!("{error:#}");
        }
    }
}

impl DataOnNfs {
    /// A share whose answers take so much longer from the moment when the job is warm.
    ///
    /// # Errors
    /// If the server does not start, or the share cannot be mounted.
    pub fn new(delay: Duration) -> Result<DataOnNfs> {
        let folders = [scratch()?, scratch()?, scratch()?];
        let [exported, point, own] = &folders;
        let own_files = own.path().display().to_string();
        let mut server = helper("serve_nfs.py", &["--scratch", &own_files], Some(exported.path()))?;
        let stdout = server.0.stdout.take().context("the NFS server has no standard output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("cannot read from the NFS server")?;
        let port = line.trim().strip_prefix("port ").context("the NFS server did not start")?;
        // Not for ever: a job whose server is gone must end.
        let options = format!("vers=4.1,proto=tcp,port={port},soft,timeo=100,retrans=1");
        run(Command::new("mount").args(["-t", "nfs4", "-o", &options, "127.0.0.1:/data"]).arg(point.path()))?;
        let share = Share(point.path().to_owned());
        Ok(DataOnNfs { share, server, _folders: folders, delay })
    }
}

impl Hold for DataOnNfs {
    fn data(&self) -> Option<PathBuf> {
        Some(self.share.0.clone())
    }

    fn apply(&mut self, _: &[u32]) -> Result<()> {
        let stdin = self.server.0.stdin.as_mut().context("the NFS server has no standard input")?;
        writeln!(stdin, "{}", self.delay.as_secs_f64() * 1e3).context("the NFS server is gone")
    }
}

/// Why there can be no NFS share here, if so.
pub fn no_nfs() -> Option<String> {
    let known =
        || fs::read_to_string("/proc/filesystems").is_ok_and(|text| text.lines().any(|l| l.ends_with("\tnfs4")));
    // Where it is a module, it may not be loaded yet; where there is none, this fails, as the second look tells.
    if !known() {
        let _ = run(Command::new("modprobe").args(["--quiet", "nfsv4"]));
    }
    let program = |path: &str| Path::new(path).exists();
    if !known() {
        Some("the kernel has no NFS client: it needs CONFIG_NFS_V4".to_owned())
    } else if !program("/usr/bin/ganesha.nfsd") || !program("/sbin/mount.nfs4") {
        Some("an NFS server is missing: apt-get install --no-install-recommends nfs-ganesha-vfs nfs-common".to_owned())
    } else {
        None
    }
}
