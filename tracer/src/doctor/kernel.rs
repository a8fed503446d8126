//! The kernel: version, type information, tracefs, lockdown, locked memory, clock.

use super::Check;
use crate::host;

pub(super) fn checks() -> Vec<Check> {
    let release = host::kernel_release();
    let attribute = |path: &str| std::fs::read_to_string(path).ok();
    vec![
        judge_architecture(std::env::consts::ARCH),
        judge_kernel(&release),
        judge_btf(&read_btf()),
        judge_tracefs(&host::mounts(crate::units::Pid(std::process::id())).unwrap_or_default()),
        judge_lockdown(attribute("/sys/kernel/security/lockdown").as_deref()),
        judge_memlock(&release, rustix::process::getrlimit(rustix::process::Resource::Memlock).current),
        judge_clocksource(attribute("/sys/devices/system/clocksource/clocksource0/current_clocksource").as_deref()),
    ]
}

fn judge_architecture(arch: &str) -> Check {
    const NAME: &str = "architecture";
    match arch {
        "x86_64" => Check::ok(NAME, arch),
        _ => Check::failure(
            NAME,
            format!("{arch}: the kernel programs read system calls from x86-64 registers"),
            "use gpustall on an x86-64 machine",
        ),
    }
}

/// Major and minor version of a release such as `5.10.0-28-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn judge_kernel(release: &str) -> Check {
    const NAME: &str = "kernel";
    match version(release) {
        Some(v) if v >= (5, 10) => Check::ok(NAME, format!("Linux {release}")),
        Some(_) => Check::failure(
            NAME,
            format!("Linux {release}: ring buffers and other parts that gpustall needs are missing"),
            "boot Linux 5.10 or newer",
        ),
        None => Check::warning(
            NAME,
            format!("the release {release:?} has no version number in it"),
            "make sure that it is Linux 5.10 or newer",
        ),
    }
}

/// What became of reading the kernel's type information.
enum Btf {
    Missing,
    Bad(String),
    Parsed { bytes: u64 },
}

const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";

fn read_btf() -> Btf {
    let Ok(meta) = std::fs::metadata(BTF_PATH) else { return Btf::Missing };
    match aya::Btf::from_sys_fs() {
        Ok(_) => Btf::Parsed { bytes: meta.len() },
        Err(e) => Btf::Bad(e.to_string()),
    }
}

fn judge_btf(btf: &Btf) -> Check {
    const NAME: &str = "btf";
    match btf {
        Btf::Parsed { bytes } => Check::ok(NAME, format!("type information of the kernel read ({} KiB)", bytes / 1024)),
        Btf::Missing => Check::failure(
            NAME,
            format!("{BTF_PATH} is missing: the layout of the kernel's structures is not known"),
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y (all current distribution kernels are)",
        ),
        Btf::Bad(why) => Check::failure(
            NAME,
            format!("{BTF_PATH} cannot be used: {why}"),
            "run as root; if that does not help, report it with the kernel's version",
        ),
    }
}

fn judge_tracefs(mounts: &[host::Mount]) -> Check {
    const NAME: &str = "tracefs";
    match mounts.iter().rfind(|m| m.fs_type == "tracefs") {
        Some(mount) => Check::ok(NAME, format!("mounted at {}", mount.point)),
        None => Check::warning(
            NAME,
            "not mounted: each recording mounts it for itself, which containers may forbid; file opens then cannot be counted",
            "sudo mount -t tracefs nodev /sys/kernel/tracing",
        ),
    }
}

/// Judges /sys/kernel/security/lockdown, such as `none [integrity] confidentiality`.
fn judge_lockdown(text: Option<&str>) -> Check {
    const NAME: &str = "lockdown";
    let chosen = text.and_then(|t| Some(t.split_once('[')?.1.split_once(']')?.0));
    match (text, chosen) {
        (_, Some("confidentiality")) => Check::failure(
            NAME,
            "confidentiality: kernel programs may not read kernel memory",
            "boot with lockdown=integrity or without lockdown (with secure boot: see the distribution's documentation)",
        ),
        (_, Some(mode)) => Check::ok(NAME, mode),
        (None, None) => Check::ok(NAME, "the kernel has no lockdown, or securityfs is not mounted"),
        (Some(text), None) => Check::warning(
            NAME,
            format!("mode not understood: {:?}", text.trim()),
            "see /sys/kernel/security/lockdown; confidentiality keeps kernel programs from reading kernel memory",
        ),
    }
}

/// Judges RLIMIT_MEMLOCK (`None`: no limit). Since Linux 5.11 the memory of maps counts towards the control group instead.
fn judge_memlock(release: &str, limit: Option<u64>) -> Check {
    const NAME: &str = "memlock";
    /// What rings and maps take together.
    const NEEDED: u64 = 64 << 20;
    match (version(release), limit) {
        (Some(v), _) if v >= (5, 11) => Check::ok(NAME, "not needed since Linux 5.11"),
        (_, None) => Check::ok(NAME, "unlimited"),
        (_, Some(limit)) if limit >= NEEDED => Check::ok(NAME, format!("{} MiB", limit >> 20)),
        (_, Some(limit)) => Check::warning(
            NAME,
            format!("limit of {} KiB: ring buffers do not fit unless gpustall may raise it", limit >> 10),
            "ulimit -l unlimited, in the shell that starts gpustall (in a container: --ulimit memlock=-1)",
        ),
    }
}

/// Judges the kernel's clock: every record reads it two or three times.
fn judge_clocksource(text: Option<&str>) -> Check {
    const NAME: &str = "clocksource";
    match text.map(str::trim) {
        Some(slow @ ("hpet" | "acpi_pm" | "pit" | "jiffies" | "refined-jiffies")) => Check::warning(
            NAME,
            format!(
                "{slow}: reading the time takes a microsecond or more, so that tracing costs several times as much"
            ),
            "find out why the TSC was given up: sudo dmesg | grep -iE 'tsc|clocksource'",
        ),
        Some(name) => Check::ok(NAME, name),
        None => Check::ok(NAME, "not told by this kernel"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;
    use crate::units::DevId;

    #[test]
    fn kernel_releases() {
        let cases = [
            ("6.18.44-fc-v657", Level::Ok),
            ("5.10.0-28-amd64", Level::Ok),
            ("5.9.16", Level::Failure),
            ("4.18.0-553.el8.x86_64", Level::Failure),
            ("10.0", Level::Ok),
            ("unknown", Level::Warning),
        ];
        for (release, level) in cases {
            assert_eq!(judge_kernel(release).level, level, "{release}");
        }
    }

    #[test]
    fn lockdown_modes() {
        assert_eq!(judge_lockdown(Some("[none] integrity confidentiality\n")).level, Level::Ok);
        assert_eq!(judge_lockdown(Some("none [integrity] confidentiality\n")).level, Level::Ok);
        assert_eq!(judge_lockdown(Some("none integrity [confidentiality]\n")).level, Level::Failure);
        assert_eq!(judge_lockdown(Some("?")).level, Level::Warning);
        assert_eq!(judge_lockdown(None).level, Level::Ok);
    }

    #[test]
    fn locked_memory_matters_on_old_kernels_only() {
        assert_eq!(judge_memlock("6.1.0", Some(65_536)).level, Level::Ok);
        assert_eq!(judge_memlock("5.10.0", Some(65_536)).level, Level::Warning);
        assert_eq!(judge_memlock("5.10.0", Some(128 << 20)).level, Level::Ok);
        assert_eq!(judge_memlock("5.10.0", None).level, Level::Ok);
    }

    #[test]
    fn tracefs_found_among_mounts() {
        let mount = |fs_type: &str| host::Mount {
            dev: DevId::default(),
            root: "/".into(),
            point: "/sys/kernel/tracing".into(),
            fs_type: fs_type.into(),
            source: "nodev".into(),
        };
        assert_eq!(judge_tracefs(&[mount("sysfs"), mount("tracefs")]).level, Level::Ok);
        let check = judge_tracefs(&[mount("sysfs")]);
        assert_eq!(check.level, Level::Warning);
        assert!(check.advice.unwrap().contains("mount -t tracefs"));
    }

    #[test]
    fn the_rest() {
        assert_eq!(judge_architecture("aarch64").level, Level::Failure);
        assert_eq!(judge_btf(&Btf::Missing).level, Level::Failure);
        assert_eq!(judge_btf(&Btf::Bad("cut short".into())).level, Level::Failure);
        assert_eq!(judge_btf(&Btf::Parsed { bytes: 5 << 20 }).level, Level::Ok);
        assert_eq!(judge_clocksource(Some("hpet\n")).level, Level::Warning);
        assert_eq!(judge_clocksource(Some("kvm-clock\n")).level, Level::Ok);
    }
}
