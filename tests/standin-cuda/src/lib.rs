//! Stands in for `libcuda.so.1`: a GPU that is busy for as long as it is told, and a driver that waits for it as the
//! real one does, spinning in the library or blocking in a system call made by the library.
//!
//! The functions follow the CUDA driver API where it has them (`cuInit`, `cuDeviceGetCount`, `cuCtxSetFlags`,
//! `cuCtxSynchronize`); work is queued with [`standinLaunch`], since a real `cuLaunchKernel` does not say how long its
//! kernel takes. There is one device and one queue per process.
#![allow(non_snake_case)]

mod wait;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// `CUresult` of a call that worked.
pub const CUDA_SUCCESS: i32 = 0;
/// `CUresult` for a null pointer or an unknown flag.
pub const CUDA_ERROR_INVALID_VALUE: i32 = 1;
/// `CUresult` of a call before `cuInit`.
pub const CUDA_ERROR_NOT_INITIALIZED: i32 = 3;

/// `CU_CTX_SCHED_AUTO`: the driver chooses; it spins while there are CPUs to spare.
pub const CU_CTX_SCHED_AUTO: u32 = 0;
/// `CU_CTX_SCHED_SPIN`: wait by spinning.
pub const CU_CTX_SCHED_SPIN: u32 = 1;
/// `CU_CTX_SCHED_BLOCKING_SYNC`: wait by blocking.
pub const CU_CTX_SCHED_BLOCKING_SYNC: u32 = 4;

/// What `cuDriverGetVersion` says: CUDA 12.4.
const DRIVER_VERSION: i32 = 12_040;

static INITIALIZED: AtomicBool = AtomicBool::new(false);
static FLAGS: AtomicU32 = AtomicU32::new(CU_CTX_SCHED_AUTO);
/// When the queued work ends, CLOCK_MONOTONIC ns.
static BUSY_UNTIL: AtomicU64 = AtomicU64::new(0);

fn initialized(then: impl FnOnce() -> i32) -> i32 {
    if INITIALIZED.load(Ordering::Acquire) { then() } else { CUDA_ERROR_NOT_INITIALIZED }
}

/// Starts the driver; `flags` must be 0, as in the real one.
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: u32) -> i32 {
    if flags != 0 {
        return CUDA_ERROR_INVALID_VALUE;
    }
    INITIALIZED.store(true, Ordering::Release);
    CUDA_SUCCESS
}

/// Version of the driver, `1000 * major + 10 * minor`. Works before `cuInit`.
///
/// # Safety
/// `version` is null or points to a writable `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut i32) -> i32 {
    if version.is_null() {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // SAFETY: not null, and the caller vouches for the rest.
    unsafe { version.write(DRIVER_VERSION) };
    CUDA_SUCCESS
}

/// Number of devices: one.
///
/// # Safety
/// `count` is null or points to a writable `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut i32) -> i32 {
    initialized(|| {
        if count.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: not null, and the caller vouches for the rest.
        unsafe { count.write(1) };
        CUDA_SUCCESS
    })
}

/// How `cuCtxSynchronize` waits from now on: [`CU_CTX_SCHED_SPIN`] (also for [`CU_CTX_SCHED_AUTO`]) or
/// [`CU_CTX_SCHED_BLOCKING_SYNC`].
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetFlags(flags: u32) -> i32 {
    initialized(|| match flags {
        CU_CTX_SCHED_AUTO | CU_CTX_SCHED_SPIN | CU_CTX_SCHED_BLOCKING_SYNC => {
            FLAGS.store(flags, Ordering::Release);
            CUDA_SUCCESS
        }
        _ => CUDA_ERROR_INVALID_VALUE,
    })
}

/// Queues work that keeps the device busy for `ns` nanoseconds after what is queued already; returns at once.
#[unsafe(no_mangle)]
pub extern "C" fn standinLaunch(ns: u64) -> i32 {
    initialized(|| {
        let now = wait::monotonic_ns();
        // The closure never declines, so this cannot fail.
        let _ = BUSY_UNTIL
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |until| Some(until.max(now).saturating_add(ns)));
        CUDA_SUCCESS
    })
}

/// Works inside the driver for `ns` nanoseconds, without the device, as `cuModuleLoadData` does that compiles a kernel.
#[unsafe(no_mangle)]
pub extern "C" fn standinCompile(ns: u64) -> i32 {
    initialized(|| {
        wait::spin_until(wait::monotonic_ns().saturating_add(ns));
        CUDA_SUCCESS
    })
}

/// Waits until the device has done all that is queued.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> i32 {
    initialized(|| {
        let until = BUSY_UNTIL.load(Ordering::Acquire);
        match FLAGS.load(Ordering::Acquire) {
            CU_CTX_SCHED_BLOCKING_SYNC => wait::block_until(until),
            _ => wait::spin_until(until),
        }
        CUDA_SUCCESS
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test: the driver's state belongs to the process.
    #[test]
    fn work_takes_its_time_in_both_modes_and_bad_calls_are_refused() {
        assert_eq!(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
        assert_eq!(cuInit(1), CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cuInit(0), CUDA_SUCCESS);
        let mut count = 0;
        // SAFETY: a valid pointer, then a null one.
        unsafe {
            assert_eq!(cuDeviceGetCount(&mut count), CUDA_SUCCESS);
            assert_eq!(cuDeviceGetCount(std::ptr::null_mut()), CUDA_ERROR_INVALID_VALUE);
        }
        assert_eq!(count, 1);
        assert_eq!(cuCtxSetFlags(64), CUDA_ERROR_INVALID_VALUE);
        for flags in [CU_CTX_SCHED_SPIN, CU_CTX_SCHED_BLOCKING_SYNC] {
            assert_eq!(cuCtxSetFlags(flags), CUDA_SUCCESS);
            let start = wait::monotonic_ns();
            assert_eq!(standinLaunch(5_000_000), CUDA_SUCCESS);
            assert_eq!(standinLaunch(5_000_000), CUDA_SUCCESS);
            let launched = wait::monotonic_ns();
            assert_eq!(cuCtxSynchronize(), CUDA_SUCCESS);
            let end = wait::monotonic_ns();
            assert!(end - start >= 10_000_000, "two launches of 5 ms took {} ns", end - start);
            assert!(launched - start < end - launched, "launching must not wait");
            assert_eq!(cuCtxSynchronize(), CUDA_SUCCESS);
        }
        let start = wait::monotonic_ns();
        assert_eq!(standinCompile(2_000_000), CUDA_SUCCESS);
        assert!(wait::monotonic_ns() - start >= 2_000_000);
    }
}
