//! The kernel programs of gpustall. One file per event family, named like its decoder in `tracer/src/probe/decode`.
#![no_std]
#![no_main]
#![allow(internal_features, reason = "atomic_xadd, see maps::count")]
#![feature(asm_experimental_arch, core_intrinsics)]

mod block;
mod faults;
mod files;
mod kernel;
mod maps;
mod samples;
mod sched;
mod states;
mod target;
mod tasks;

/// The verifier admits no program that can get here; the language asks for the handler all the same.
#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// `bpf_probe_read_kernel` and the ring buffer are for GPL-compatible programs only.
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
