//! Maps that several program families use. Sizes here are defaults; user space sets the real ones at load.

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, PerCpuArray, RingBuf};
use core::intrinsics::{AtomicOrdering, atomic_xadd};
use tracer_ebpf::{COUNTERS as SLOTS, Counter, TARGET_CHUNK};

/// `BPF_F_MMAPABLE` (5.5): user space marks threads by single byte stores.
const MMAPABLE: u32 = 1 << 10;
/// `BPF_RB_NO_WAKEUP`: user space drains by the clock. Waking it costs the traced thread about 1.4 µs a record.
pub const NO_WAKEUP: u64 = 1;

/// One byte per tid, 1 for a target. Bytes, not bits: kernel and user space both write, and only a byte store leaves its
/// neighbours alone without an atomic *or*, which 5.10 lacks.
#[map]
pub static TARGETS: Array<[u8; TARGET_CHUNK]> = Array::with_max_entries(8, MMAPABLE);

/// Off-CPU intervals and samples.
#[map]
pub static EVENTS: RingBuf = RingBuf::with_byte_size(8 << 20, 0);

/// Everything else. Apart from [`EVENTS`], so that a storm of intervals cannot push out a fork or an exit.
#[map]
pub static RARE: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

/// One value that holds all counters, so that user space reads them with one system call.
#[map]
pub static COUNTERS: PerCpuArray<[u64; SLOTS as usize]> = PerCpuArray::with_max_entries(1, 0);

/// Adds one to a counter and gives what it was before on this CPU, or nearly so. The add is atomic, since most programs
/// can be interrupted on their CPU by another one that counts.
#[inline(always)]
pub fn count(counter: Counter) -> u64 {
    let Some(all) = COUNTERS.get_ptr_mut(0) else { return u64::MAX };
    // SAFETY: the slot lies inside the value, and values are 8-byte aligned. `AtomicU64` has no `fetch_add` on this
    // target; the result is not used, so this is the plain add that 5.10 has.
    unsafe {
        let slot = all.cast::<u64>().add(counter as usize);
        let before = slot.read_volatile();
        atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(slot, 1);
        before
    }
}

/// Adds one to a counter from a program that runs with interrupts off and is the only one to use this counter.
#[inline(always)]
pub fn count_alone(counter: Counter) {
    if let Some(all) = COUNTERS.get_ptr_mut(0) {
        // SAFETY: as in `count`; nothing on this CPU can come between load and store.
        unsafe { *all.cast::<u64>().add(counter as usize) += 1 };
    }
}
