//! Which processes listen for connections: a process that serves requests waits for them when it has nothing to do.

use crate::units::Pid;
use procfs::net::{TcpState, UnixState};
use procfs::process::{FDTarget, Process};
use std::collections::HashSet;
use std::ffi::OsStr;

/// Those of `pids` that hold a listening TCP or unix stream socket, to serve whoever comes. Left out are processes that cannot be
/// looked at, and ranks of a distributed job: they listen for each other.
/// Costs about 10 µs and some µs for each open descriptor of each process.
pub fn listeners(pids: &[Pid]) -> Vec<Pid> {
    let of = |pid: &&Pid| {
        i32::try_from(pid.0).ok().and_then(|p| Process::new(p).ok()).is_some_and(|p| listens(&p) && !is_rank(&p))
    };
    pids.iter().filter(of).copied().collect()
}

fn listens(process: &Process) -> bool {
    let tcp = process.tcp().unwrap_or_default().into_iter().chain(process.tcp6().unwrap_or_default());
    let mut open: HashSet<u64> = tcp.filter(|s| s.state == TcpState::Listen).map(|s| s.inode).collect();
    // /proc/net/unix tells a listening socket by a flag that the library does not read; one that has a name and is not
    // connected is as good.
    let unix = process.unix().unwrap_or_default().into_iter();
    let named = |s: &procfs::net::UnixNetEntry| s.path.is_some() && s.state == UnixState::UNCONNECTED;
    open.extend(unix.filter(|s| i32::from(s.socket_type) == libc::SOCK_STREAM && named(s)).map(|s| s.inode));
    if open.is_empty() {
        return false;
    }
    let mut held = process.fd().into_iter().flatten().flatten();
    held.any(|fd| matches!(fd.target, FDTarget::Socket(inode) if open.contains(&inode)))
}

/// Started as one of several ranks, by torchrun, accelerate or deepspeed (`WORLD_SIZE`), MPI or Slurm.
fn is_rank(process: &Process) -> bool {
    const SIZES: [&str; 4] = ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"];
    let Ok(environment) = process.environ() else { return false };
    let ranks = |name: &&str| environment.get(OsStr::new(name))?.to_str()?.parse::<u32>().ok();
    SIZES.iter().filter_map(ranks).any(|n| n > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_process_that_accepts_connections_is_a_listener() {
        let me = Pid(std::process::id());
        let folder = tempfile::tempdir().unwrap();
        {
            let _tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            assert_eq!(listeners(&[Pid(4_194_305), me]), [me]);
        }
        let _unix = UnixListener::bind(folder.path().join("socket")).unwrap();
        assert_eq!(listeners(&[me]), [me]);
    }

    #[test]
    fn a_rank_of_a_distributed_job_is_none() {
        use std::io::BufRead;
        let script = "import socket, sys, time; s = socket.create_server(('127.0.0.1', 0)); print('up', flush=True); time.sleep(60)";
        let serves = |ranks: &str| {
            let mut child = std::process::Command::new("python3")
                .args(["-c", script])
                .env("WORLD_SIZE", ranks)
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            let found = listeners(&[Pid(child.id())]);
            child.kill().unwrap();
            child.wait().unwrap();
            !found.is_empty()
        };
        assert!(serves("1"));
        assert!(!serves("8"));
    }
}
