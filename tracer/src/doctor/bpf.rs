//! Does the bpf system call do what gpustall asks of it, and does it do it fast?

use super::Check;
use aya::maps::MapType;
use aya::programs::ProgramType;
use aya::sys::{is_map_supported, is_program_supported};

/// Outcome of trying something out.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Trial {
    Works,
    /// The kernel does not know it.
    Unknown,
    /// It failed, for this reason.
    Refused(String),
}

impl Trial {
    fn of<E: std::error::Error>(result: Result<bool, E>) -> Trial {
        match result {
            Ok(true) => Trial::Works,
            Ok(false) => Trial::Unknown,
            Err(e) => Trial::Refused(chain(&e)),
        }
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

pub(super) fn checks() -> Vec<Check> {
    let attribute = |path: &str| std::fs::read_to_string(path).ok();
    // Loads a program of two instructions; it is attached to nothing.
    let programs = [
        ("raw tracepoint", ProgramType::RawTracePoint),
        ("tracepoint", ProgramType::TracePoint),
        ("perf event", ProgramType::PerfEvent),
    ];
    vec![
        judge_bpf(
            &Trial::of(is_map_supported(MapType::Hash)),
            &programs.map(|(name, kind)| (name, Trial::of(is_program_supported(kind)))),
        ),
        judge_ring_buffer(&Trial::of(is_map_supported(MapType::RingBuf))),
        judge_jit(attribute("/proc/sys/net/core/bpf_jit_enable").as_deref()),
        judge_stats(attribute("/proc/sys/kernel/bpf_stats_enabled").as_deref()),
        judge_perf_events(try_cpu_clock()),
    ]
}

fn judge_bpf(map: &Trial, programs: &[(&str, Trial)]) -> Check {
    const NAME: &str = "bpf";
    let advice = "run gpustall with sudo; in a container: --privileged; else boot a kernel with CONFIG_BPF_SYSCALL=y \
                  and CONFIG_BPF_EVENTS=y";
    match map {
        Trial::Works => {}
        Trial::Unknown => return Check::failure(NAME, "the kernel has no hash maps", advice),
        Trial::Refused(why) => return Check::failure(NAME, format!("no map could be made: {why}"), advice),
    }
    let bad: Vec<String> = programs
        .iter()
        .filter_map(|(name, trial)| match trial {
            Trial::Works => None,
            Trial::Unknown => Some(format!("no {name} programs in this kernel")),
            Trial::Refused(why) => Some(format!("no {name} program could be loaded: {why}")),
        })
        .collect();
    if !bad.is_empty() {
        return Check::failure(NAME, bad.join("; "), advice);
    }
    let names: Vec<&str> = programs.iter().map(|(name, _)| *name).collect();
    Check::ok(NAME, format!("a map was made, and a program each of kind {} loaded", names.join(", ")))
}

fn judge_ring_buffer(trial: &Trial) -> Check {
    const NAME: &str = "ring_buffer";
    match trial {
        Trial::Works => Check::ok(NAME, "supported"),
        Trial::Unknown => Check::failure(NAME, "not in this kernel", "boot Linux 5.10 or newer"),
        Trial::Refused(why) => Check::failure(NAME, format!("none could be made: {why}"), "run gpustall with sudo"),
    }
}

fn judge_jit(text: Option<&str>) -> Check {
    const NAME: &str = "bpf_jit";
    match text.map(str::trim) {
        Some("0") => Check::warning(
            NAME,
            "off: kernel programs are interpreted, which costs the traced job several times as much",
            "sudo sysctl net.core.bpf_jit_enable=1",
        ),
        Some(_) => Check::ok(NAME, "on"),
        None => Check::ok(NAME, "not told by this kernel"),
    }
}

fn judge_stats(text: Option<&str>) -> Check {
    const NAME: &str = "bpf_stats";
    match text.map(str::trim) {
        Some("1") => Check::warning(
            NAME,
            "on: the kernel times every run of every kernel program, which costs some 20 to 50 ns each",
            "sudo sysctl kernel.bpf_stats_enabled=0, unless the cost of the programs is what you want to see",
        ),
        _ => Check::ok(NAME, "off"),
    }
}

/// Opens and closes the software clock event that samples are taken with, on CPU 0.
fn try_cpu_clock() -> Result<(), std::io::Error> {
    // struct perf_event_attr of include/uapi/linux/perf_event.h in its first published form, 64 bytes.
    const PERF_TYPE_SOFTWARE: u64 = 1;
    const ATTR_SIZE: u64 = 64;
    const FLAG_FREQ: u64 = 1 << 10;
    let mut attr = [0u64; 8];
    attr[0] = PERF_TYPE_SOFTWARE | ATTR_SIZE << 32;
    // attr[1] is the event: PERF_COUNT_SW_CPU_CLOCK is 0. attr[2] is the rate, with FLAG_FREQ in hertz.
    attr[2] = 250;
    attr[5] = FLAG_FREQ;
    let (any_process, cpu, no_group) = (-1, 0, -1);
    const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
    // SAFETY: the kernel reads ATTR_SIZE bytes from `attr`, which lives through the call; the result is a new descriptor
    // or -1.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), any_process, cpu, no_group, PERF_FLAG_FD_CLOEXEC)
    };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just returned to this function and nobody else knows it.
    drop(unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd as libc::c_int) });
    Ok(())
}

fn judge_perf_events(trial: Result<(), std::io::Error>) -> Check {
    const NAME: &str = "perf_events";
    match trial {
        Ok(()) => Check::ok(NAME, "the software clock can be sampled"),
        Err(e) => {
            let advice = match e.raw_os_error() {
                Some(libc::EACCES | libc::EPERM) => {
                    "run gpustall with sudo; in a container allow perf_event_open (--privileged, or --cap-add PERFMON \
                     and a seccomp profile with it)"
                }
                _ => "boot a kernel with CONFIG_PERF_EVENTS=y",
            };
            Check::warning(
                NAME,
                format!("the software clock cannot be sampled ({e}): what running threads do stays unknown"),
                advice,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;
    use std::io::Error;

    #[test]
    fn the_bpf_system_call() {
        let refused = Trial::Refused("Operation not permitted".into());
        assert_eq!(judge_bpf(&Trial::Works, &[("tracepoint", Trial::Works)]).level, Level::Ok);
        assert_eq!(judge_bpf(&refused, &[]).level, Level::Failure);
        let check = judge_bpf(&Trial::Works, &[("tracepoint", Trial::Works), ("perf event", Trial::Unknown)]);
        assert_eq!((check.level, check.finding.as_str()), (Level::Failure, "no perf event programs in this kernel"));
        assert_eq!(judge_ring_buffer(&Trial::Unknown).level, Level::Failure);
        assert!(judge_ring_buffer(&refused).finding.contains("Operation not permitted"));
    }

    #[test]
    fn settings_that_cost_time() {
        assert_eq!(judge_jit(Some("0\n")).level, Level::Warning);
        assert_eq!(judge_jit(Some("2\n")).level, Level::Ok);
        assert_eq!(judge_stats(Some("1\n")).level, Level::Warning);
        assert_eq!(judge_stats(Some("0\n")).level, Level::Ok);
        assert_eq!(judge_stats(None).level, Level::Ok);
    }

    #[test]
    fn perf_events_refused_or_missing() {
        let refused = judge_perf_events(Err(Error::from_raw_os_error(libc::EACCES)));
        assert!(refused.advice.unwrap().contains("sudo"));
        let missing = judge_perf_events(Err(Error::from_raw_os_error(libc::ENOSYS)));
        assert!(missing.advice.unwrap().contains("CONFIG_PERF_EVENTS"));
        assert_eq!(judge_perf_events(Ok(())).level, Level::Ok);
    }
}
