//! The compiled kernel programs: what they need to know of this kernel, and how large their maps are.

use super::offsets::resolve;
use super::{Options, ProbeError, proc};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader, Pod};
use std::{fs, io};
use tracer_ebpf::{KernelOffsets, TARGET_CHUNK};

/// The object that `cargo xtask ebpf` builds from `tracer-ebpf`; committed, so that stable Rust alone builds gpustall.
static OBJECT: &[u8] = aya::include_bytes_aligned!("gpustall.bpf.o");

/// Where the kernel describes its own types.
const VMLINUX: &str = "/sys/kernel/btf/vmlinux";
/// Inode of the initial pid namespace (`PROC_PID_INIT_INO`, `linux/proc_ns.h`), fixed in all kernels.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// [`KernelOffsets`] as aya takes it.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct Global(KernelOffsets);
// SAFETY: a `repr(C)` structure of `u32` alone.
unsafe impl Pod for Global {}

/// The loaded object: maps exist, programs are not in the kernel yet.
pub struct Loaded {
    /// Programs and maps.
    pub ebpf: Ebpf,
    /// The kernel's types, for programs that attach by type.
    pub btf: Btf,
    /// Length of the target map in bytes.
    pub target_bytes: usize,
}

/// Makes the maps and prepares the programs.
pub fn load(options: &Options) -> Result<Loaded, ProbeError> {
    // Ids in /proc must be those that the kernel programs see.
    match fs::read_link("/proc/self/ns/pid") {
        Ok(ns) if ns.as_os_str() == INITIAL_PID_NAMESPACE => {}
        Ok(_) => return Err(ProbeError::PidNamespace),
        Err(error) => return Err(ProbeError::Proc { path: "/proc/self/ns/pid".into(), error }),
    }
    let no_btf = |error: String| ProbeError::NoBtf { path: VMLINUX, error };
    let offsets = Global(resolve(&fs::read(VMLINUX).map_err(|e| no_btf(e.to_string()))?)?);
    let btf = Btf::from_sys_fs().map_err(|e| no_btf(e.to_string()))?;
    let pid_max = proc::pid_max().unwrap_or(PID_MAX_LIMIT).clamp(TARGET_CHUNK as u32, PID_MAX_LIMIT);
    let chunks = pid_max.div_ceil(TARGET_CHUNK as u32);
    // Levels of `log` and of aya-log agree. Where a level is off, the verifier removes the code.
    let log_level = log::max_level() as u8;
    raise_memlock();
    let ebpf = EbpfLoader::new()
        .btf(Some(&btf))
        .override_global("OFFSETS", &offsets, true)
        .override_global(aya_log::LEVEL, &log_level, false)
        .map_max_entries("TARGETS", chunks)
        .map_max_entries("EVENTS", options.events_ring_bytes)
        .map_max_entries("RARE", options.rare_ring_bytes)
        .load(OBJECT)
        .map_err(setup_error)?;
    Ok(Loaded { ebpf, btf, target_bytes: chunks as usize * TARGET_CHUNK })
}

/// `PID_MAX_LIMIT` on 64 bits (`linux/threads.h`).
const PID_MAX_LIMIT: u32 = 4 << 20;

/// Kernels before 5.11 charge maps to RLIMIT_MEMLOCK. Later ones do not, so that failing here (no CAP_SYS_RESOURCE) need
/// not matter; if it does, making the maps fails and says so.
fn raise_memlock() {
    let all = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: passes a valid structure.
    if unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const all) } != 0 {
        log::debug!("RLIMIT_MEMLOCK stays as it is: {}", io::Error::last_os_error());
    }
}

fn setup_error(error: EbpfError) -> ProbeError {
    log::info!("loading the object: {}", chain(&error));
    match os_error(&error) {
        Some(e) if is_refusal(&e) => not_permitted(e),
        _ => ProbeError::Setup(chain(&error)),
    }
}

/// Whether an error means a lack of privilege.
pub fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES))
}

/// The sentence for a lack of privilege.
pub fn not_permitted(error: io::Error) -> ProbeError {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } == 0 { ProbeError::LockedDown(error) } else { ProbeError::NotPermitted(error) }
}

/// The system's error at the bottom of a chain.
pub fn os_error(error: &(dyn std::error::Error + 'static)) -> Option<io::Error> {
    let mut next = Some(error);
    while let Some(e) = next {
        if let Some(code) = e.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(io::Error::from_raw_os_error(code));
        }
        next = e.source();
    }
    None
}

/// An error with its sources, on one line each; the repeated ones left out.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(e) = next {
        let cause = e.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        next = e.source();
    }
    text
}
