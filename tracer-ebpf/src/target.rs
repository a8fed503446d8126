//! Which threads are traced.

use crate::maps::TARGETS;
use tracer_ebpf::TARGET_CHUNK;

/// Whether a thread is a target. The kernel inlines the look-up, so that a miss costs a few instructions.
#[inline(always)]
pub fn is_target(tid: u32) -> bool {
    match TARGETS.get_ptr(tid / TARGET_CHUNK as u32) {
        // SAFETY: the remainder lies inside the chunk.
        Some(chunk) => unsafe { *chunk.cast::<u8>().add(tid as usize % TARGET_CHUNK) != 0 },
        None => false,
    }
}

/// Makes a thread a target. False if its id is beyond the map (`pid_max` was raised after the start).
#[inline(always)]
pub fn mark(tid: u32) -> bool {
    store(tid, 1)
}

/// Ends that.
#[inline(always)]
pub fn unmark(tid: u32) {
    store(tid, 0);
}

#[inline(always)]
fn store(tid: u32, value: u8) -> bool {
    match TARGETS.get_ptr_mut(tid / TARGET_CHUNK as u32) {
        Some(chunk) => {
            // SAFETY: the remainder lies inside the chunk. A volatile byte store stays one byte wide.
            unsafe { chunk.cast::<u8>().add(tid as usize % TARGET_CHUNK).write_volatile(value) };
            true
        }
        None => false,
    }
}
