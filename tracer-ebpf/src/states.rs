//! The interval that each target thread is in, kept where a look-up costs least.
//!
//! A thread's home is the slot of an array that its id points at; the kernel inlines array look-ups. Of the threads that
//! share a home one owns it. The others, and waits that user space wrote at the attach, are in a hash map.

use crate::maps::count;
use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, HashMap};
use core::ptr::addr_of_mut;
use tracer_ebpf::{Counter, HOMES, NO_SYSCALL, OffCpu, OffCpuFile, State};

/// One home for each slot. `off.tid` is its owner, 0 if it has none; only the owner's state is ever touched in it.
#[map]
static STATES: Array<State> = Array::with_max_entries(HOMES, 0);

/// Which homes are taken: an insert that must not overwrite decides between threads that claim one at the same time, which
/// nothing else in 5.10 does.
#[map]
static OWNERS: HashMap<u32, u32> = HashMap::with_max_entries(HOMES, 0);

/// States of threads that do not own their home.
#[map]
static OTHERS: HashMap<u32, State> = HashMap::with_max_entries(16_384, 0);

/// The state in a thread's home, if it is the owner.
#[inline(always)]
pub fn at_home(tid: u32) -> Option<*mut State> {
    let slot = STATES.get_ptr_mut(tid & (HOMES - 1))?;
    // SAFETY: map values stay in place. A volatile load, since another CPU may claim or release the home.
    (unsafe { (&raw const (*slot).record.off.tid).read_volatile() } == tid).then_some(slot)
}

/// The state of a thread that does not own its home.
#[inline(always)]
pub fn elsewhere(tid: u32) -> Option<*mut State> {
    OTHERS.get_ptr_mut(&tid)
}

/// The state of a thread, wherever it is.
#[inline(always)]
pub fn find(tid: u32) -> Option<*mut State> {
    match at_home(tid) {
        Some(state) => Some(state),
        None => elsewhere(tid),
    }
}

/// The same, begun if there is none. `None` if there is no room for it.
#[inline(always)]
pub fn find_or_begin(tid: u32) -> Option<*mut State> {
    match find(tid) {
        Some(state) => Some(state),
        None => {
            begin(tid);
            find(tid)
        }
    }
}

/// Gives a thread a state: at home if that is free. Its own function, since it runs once for each thread.
#[inline(never)]
fn begin(tid: u32) -> i32 {
    if claim(tid) {
        return 0;
    }
    if OTHERS.insert(&tid, &fresh(tid), u64::from(BPF_ANY)).is_err() && count(Counter::StateFull) == 0 {
        aya_log_ebpf::warn!(&(), "the state map is full: thread {} is not followed, and others may follow", tid);
    }
    0
}

/// Makes a thread the owner of its home. False if another one is.
#[inline(always)]
fn claim(tid: u32) -> bool {
    let home = tid & (HOMES - 1);
    if OWNERS.insert(&home, &tid, u64::from(BPF_NOEXIST)).is_err() {
        return false;
    }
    let Some(slot) = STATES.get_ptr_mut(home) else { return false };
    // SAFETY: map values stay in place, and nobody but the owner of a home writes to it. The owner's id comes last.
    unsafe {
        *slot = fresh(0);
        core::arch::asm!("", options(nostack));
        addr_of_mut!((*slot).record.off.tid).write_volatile(tid);
    }
    true
}

#[inline(always)]
fn fresh(tid: u32) -> State {
    let off = OffCpu { tid, syscall: NO_SYSCALL, waker_syscall: NO_SYSCALL, ..OffCpu::default() };
    State { record: OffCpuFile { off, ..OffCpuFile::default() }, sb: 0, fault: 0 }
}

/// Moves a thread that runs, and so is in no interval, to its home if that is free by now.
#[inline(never)]
pub fn move_home(tid: u32) -> i32 {
    let Some(slot) = STATES.get_ptr_mut(tid & (HOMES - 1)) else { return 0 };
    // SAFETY: map values stay in place.
    let taken = unsafe { (&raw const (*slot).record.off.tid).read_volatile() } != 0;
    if !taken && claim(tid) {
        let _ = OTHERS.remove(&tid);
    }
    0
}

/// Forgets a thread. By the thread itself, so that it is in no interval.
#[inline(always)]
pub fn release(tid: u32) {
    if let Some(slot) = at_home(tid) {
        // SAFETY: map values stay in place. The id goes first: whoever claims the home finds it without an owner.
        unsafe { addr_of_mut!((*slot).record.off.tid).write_volatile(0) };
        let _ = OWNERS.remove(&(tid & (HOMES - 1)));
    }
    let _ = OTHERS.remove(&tid);
}
