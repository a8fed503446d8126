//! Making sure that kernel programs can run here before anything needs them: root, BPF, BTF, tracefs.

use std::env;
use std::fs;
use std::io::Error;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::shell;

const BTF: &str = "/sys/kernel/btf/vmlinux";
const TRACEFS: &str = "/sys/kernel/tracing";

/// Runs [`run`] as root: here, or in a copy of this program under sudo.
pub fn through_sudo() -> Result<()> {
    if shell::is_root() {
        return run();
    }
    let this = env::current_exe().context("cannot find this program's own file")?;
    let mut command = shell::as_root_with_environment(&this)
        .context("the kernel tests cannot run without root, so not all tests can pass")?;
    shell::run(command.arg("prepare")).context("the kernel tests cannot run here, so not all tests can pass")
}

/// Checks, as root, that kernel programs can be loaded, and mounts tracefs where it is missing.
pub fn run() -> Result<()> {
    if !Path::new(BTF).is_file() {
        bail!(
            "kernel programs cannot be loaded: {BTF} is missing; boot a kernel built with CONFIG_DEBUG_INFO_BTF (every current \
             distribution's kernel is)"
        );
    }
    bpf_works().map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) => anyhow::anyhow!(
            "kernel programs cannot be loaded: the kernel refuses bpf() to this root ({error}); inside a container, start it with \
             CAP_BPF, CAP_PERFMON and CAP_SYS_ADMIN (--privileged)"
        ),
        Some(libc::ENOSYS) => {
            anyhow::anyhow!("kernel programs cannot be loaded: this kernel has no bpf() (CONFIG_BPF_SYSCALL)")
        }
        _ => anyhow::anyhow!("kernel programs cannot be loaded: bpf() fails ({error})"),
    })?;
    mount_tracefs()
}

/// Creates and drops the smallest map there is.
fn bpf_works() -> Result<(), Error> {
    const BPF_MAP_CREATE: libc::c_int = 0;
    const BPF_MAP_TYPE_ARRAY: u32 = 2;
    /// The first members of `union bpf_attr`, as `BPF_MAP_CREATE` reads them.
    #[repr(C)]
    struct MapCreate {
        map_type: u32,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    }
    let attributes = MapCreate { map_type: BPF_MAP_TYPE_ARRAY, key_size: 4, value_size: 8, max_entries: 1 };
    // SAFETY: the kernel reads `size_of::<MapCreate>()` bytes from a live, initialised structure and keeps no pointer to it.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_CREATE, &raw const attributes, size_of::<MapCreate>()) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the descriptor was made above and nobody else knows it.
    unsafe { libc::close(fd as libc::c_int) };
    Ok(())
}

fn mount_tracefs() -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
    if mounted(&mounts, TRACEFS) {
        return Ok(());
    }
    shell::run(shell::command("mount").args(["-t", "tracefs", "nodev", TRACEFS]))
        .with_context(|| format!("the kernel tests need tracefs at {TRACEFS}"))
}

fn mounted(mounts: &str, dir: &str) -> bool {
    mounts.lines().any(|line| {
        let mut fields = line.split(' ').skip(1);
        fields.next() == Some(dir) && fields.next() == Some("tracefs")
    })
}

#[cfg(test)]
mod tests {
    use super::mounted;

    #[test]
    fn only_a_tracefs_at_that_place_counts() {
        let mounts = "sysfs /sys sysfs rw 0 0\nnodev /sys/kernel/tracing tracefs rw 0 0\n";
        assert!(mounted(mounts, "/sys/kernel/tracing"));
        assert!(!mounted(mounts, "/sys"));
        assert!(!mounted("sysfs /sys sysfs rw 0 0\n", "/sys/kernel/tracing"));
    }
}
