//! The two ways to wait. Both keep the instruction pointer inside this library: no call into libc, neither for the
//! system call (made by hand) nor, for longer than an instant, for the clock.

use std::ffi::{c_int, c_long};

#[repr(C)]
struct Timespec {
    sec: i64,
    nsec: c_long,
}

unsafe extern "C" {
    fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
}

/// `CLOCK_MONOTONIC`, nanoseconds.
pub fn monotonic_ns() -> u64 {
    const CLOCK_MONOTONIC: c_int = 1;
    let mut t = Timespec { sec: 0, nsec: 0 };
    // SAFETY: `t` is writable; the call cannot fail for this clock.
    unsafe { clock_gettime(CLOCK_MONOTONIC, &mut t) };
    t.sec as u64 * 1_000_000_000 + t.nsec as u64
}

/// Spins, looking at the clock every few microseconds, as the real driver polls a word in memory.
pub fn spin_until(until_ns: u64) {
    while monotonic_ns() < until_ns {
        for _ in 0..200 {
            std::hint::spin_loop();
        }
    }
}

/// Blocks in `ppoll` without descriptors until the time has come; signals do not shorten it.
pub fn block_until(until_ns: u64) {
    loop {
        let left = until_ns.saturating_sub(monotonic_ns());
        if left == 0 {
            return;
        }
        let mut timeout = Timespec { sec: (left / 1_000_000_000) as i64, nsec: (left % 1_000_000_000) as c_long };
        ppoll_nothing(&mut timeout);
    }
}

/// `ppoll(NULL, 0, timeout, NULL, 8)`; the loop around it looks at the clock, so its result does not matter.
#[cfg(target_arch = "x86_64")]
fn ppoll_nothing(timeout: &mut Timespec) {
    const SYS_PPOLL: i64 = 271;
    // SAFETY: no descriptors and no signal mask are passed; the time-out outlives the call, and the kernel may
    // write the time left to it (it does for ppoll) and to the registers named.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") SYS_PPOLL => _,
            in("rdi") 0usize,
            in("rsi") 0usize,
            in("rdx") std::ptr::from_mut(timeout),
            in("r10") 0usize,
            in("r8") 8usize,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
}

/// `ppoll(NULL, 0, timeout, NULL, 8)`; the loop around it looks at the clock, so its result does not matter.
#[cfg(target_arch = "aarch64")]
fn ppoll_nothing(timeout: &mut Timespec) {
    const SYS_PPOLL: usize = 73;
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") SYS_PPOLL,
            inlateout("x0") 0usize => _,
            in("x1") 0usize,
            in("x2") std::ptr::from_mut(timeout),
            in("x3") 0usize,
            in("x4") 8usize,
            options(nostack)
        );
    }
}
