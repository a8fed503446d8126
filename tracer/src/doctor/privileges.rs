//! May this process load kernel programs and look into others, and are its pids the kernel's?

use super::Check;
use crate::host::parse_ns_link;

/// Capability numbers, from include/uapi/linux/capability.h.
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Inode of the initial pid namespace: PROC_PID_INIT_INO in include/linux/proc_ns.h, the same since Linux 3.8.
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

pub(super) fn check_privileges() -> Check {
    let effective = procfs::process::Process::myself().and_then(|p| p.status()).map(|s| s.capeff);
    judge_privileges(effective.ok())
}

/// Judges the effective capabilities (`CapEff` of /proc/self/status).
fn judge_privileges(effective: Option<u64>) -> Check {
    const NAME: &str = "privileges";
    let Some(effective) = effective else {
        return Check::failure(NAME, "/proc/self/status cannot be read", "mount /proc: mount -t proc proc /proc");
    };
    let has = |cap: u32| effective >> cap & 1 == 1;
    let mut missing = Vec::new();
    // CAP_SYS_ADMIN stands for the two that were split off from it in Linux 5.8.
    for (cap, name) in [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")] {
        if !has(cap) && !has(CAP_SYS_ADMIN) {
            missing.push(name);
        }
    }
    if !missing.is_empty() {
        let finding = format!("{} missing: kernel programs cannot be loaded", missing.join(" and "));
        return Check::failure(NAME, finding, "run gpustall with sudo");
    }
    if !has(CAP_SYS_PTRACE) {
        return Check::warning(
            NAME,
            "CAP_SYS_PTRACE missing: files, mappings and waits in progress of other users' processes stay hidden",
            "run gpustall with sudo, or give the container --cap-add SYS_PTRACE",
        );
    }
    Check::ok(NAME, "kernel programs may be loaded and other users' processes read")
}

pub(super) fn check_pid_namespace() -> Check {
    let link = std::fs::read_link("/proc/self/ns/pid").ok();
    judge_pid_namespace(link.and_then(|l| parse_ns_link(&l.to_string_lossy())))
}

/// Judges the inode of the reader's pid namespace.
fn judge_pid_namespace(inode: Option<u64>) -> Check {
    const NAME: &str = "pid_namespace";
    let advice = "run gpustall on the host itself, or start its container with --pid=host --privileged";
    match inode {
        Some(INITIAL_PID_NAMESPACE) => Check::ok(NAME, "the initial one: pids here are those of the kernel"),
        Some(_) => Check::failure(
            NAME,
            "a container's: the kernel's records carry pids of the host, which mean other processes here",
            advice,
        ),
        None => {
            Check::warning(NAME, "/proc/self/ns/pid cannot be read, so pids may not be those of the kernel", advice)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    fn caps(list: &[u32]) -> Option<u64> {
        Some(list.iter().fold(0, |all, cap| all | 1 << cap))
    }

    #[test]
    fn capabilities() {
        let cases = [
            (caps(&[]), Level::Failure),
            (None, Level::Failure),
            (caps(&[CAP_BPF, CAP_SYS_PTRACE]), Level::Failure),
            (caps(&[CAP_BPF, CAP_PERFMON]), Level::Warning),
            (caps(&[CAP_SYS_ADMIN]), Level::Warning),
            (caps(&[CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE]), Level::Ok),
            (caps(&[CAP_SYS_ADMIN, CAP_SYS_PTRACE]), Level::Ok),
            // Root without CAP_SYS_RESOURCE, as some virtual machines have it.
            (Some(0x1ff_feff_ffff), Level::Ok),
        ];
        for (effective, level) in cases {
            assert_eq!(judge_privileges(effective).level, level, "{effective:x?}");
        }
        let check = judge_privileges(caps(&[CAP_PERFMON, CAP_SYS_PTRACE]));
        assert!(check.finding.starts_with("CAP_BPF missing"), "{}", check.finding);
    }

    #[test]
    fn namespaces() {
        assert_eq!(judge_pid_namespace(Some(4_026_531_836)).level, Level::Ok);
        assert_eq!(judge_pid_namespace(Some(4_026_532_501)).level, Level::Failure);
        assert_eq!(judge_pid_namespace(None).level, Level::Warning);
    }
}
