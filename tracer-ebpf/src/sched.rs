//! Off-CPU intervals: one record each, written when the thread runs again.
//!
//! A thread's state is written from two sides. The switch-out runs on its CPU and writes everything but the waking;
//! the waking runs anywhere, serialised by `task_struct.pi_lock`, and writes `wake_ns`, `waker_*` and `pad`. They may run
//! at the same time, since a waking can overtake the end of the switch-out by a microsecond; no field has two writers.

use crate::files;
use crate::kernel::{Access, Current, Direct, Probed, call_file, offset, update_file_id};
use crate::maps::{EVENTS, NO_WAKEUP, count_alone};
use crate::states::{self, find_or_begin};
use crate::target::is_target;
use aya_ebpf::helpers::generated::{bpf_get_smp_processor_id, bpf_ktime_get_ns};
use aya_ebpf::macros::{btf_tracepoint, raw_tracepoint};
use aya_ebpf::programs::{BtfTracePointContext, RawTracePointContext};
use tracer_ebpf::{
    ABSENT, Counter, EPOLL_PWAIT, EPOLL_WAIT, FLAG_IOWAIT, FLAG_PREEMPTED, FLAG_SEEDED, FLAG_WAKER_INTERRUPT,
    FLAG_WAKER_KTHREAD, Kind, NO_SYSCALL, OffCpu, OffCpuFile, POLL, State,
};

/// `PF_KTHREAD` (`linux/sched.h`).
const PF_KTHREAD: u32 = 0x0020_0000;
/// `PF_EXITING`: a thread that was killed in user code wakes its parent, outside any system call.
const PF_EXITING: u32 = 0x0000_0004;

/// Arguments of `sched_switch`: `preempt, prev, next` and, since 5.18, `prev_state`.
#[btf_tracepoint(function = "sched_switch")]
pub fn sched_switch(ctx: BtfTracePointContext) -> i32 {
    // The argument, not the field: by now a waker may have changed the field.
    let state = if offset!(switch_has_state) != 0 { Some(ctx.arg::<u32>(3)) } else { None };
    switch::<Direct>(ctx.arg::<u32>(0) != 0, ctx.arg(1), ctx.arg(2), state);
    0
}

/// Stands in for [`sched_switch`] where the kernel refuses it.
#[raw_tracepoint(tracepoint = "sched_switch")]
pub fn sched_switch_raw(ctx: RawTracePointContext) -> i32 {
    let state = if offset!(switch_has_state) != 0 { Some(ctx.arg::<u32>(3)) } else { None };
    switch::<Probed>(ctx.arg::<u32>(0) != 0, ctx.arg(1), ctx.arg(2), state);
    0
}

/// Argument of `sched_waking`: the thread that is being woken.
#[btf_tracepoint(function = "sched_waking")]
pub fn sched_waking(ctx: BtfTracePointContext) -> i32 {
    waking::<Direct>(ctx.arg(0));
    0
}

/// Stands in for [`sched_waking`] where the kernel refuses it.
#[raw_tracepoint(tracepoint = "sched_waking")]
pub fn sched_waking_raw(ctx: RawTracePointContext) -> i32 {
    waking::<Probed>(ctx.arg(0));
    0
}

#[inline(always)]
fn switch<A: Access>(preempted: bool, prev: *const u8, next: *const u8, state: Option<u32>) {
    // SAFETY: both point at a `task_struct`.
    let (prev_tid, next_tid) =
        unsafe { (A::read::<u32>(prev, offset!(task_pid)), A::read::<u32>(next, offset!(task_pid))) };
    let (leaves, returns) = (is_target(prev_tid), is_target(next_tid));
    if !leaves && !returns {
        return;
    }
    // SAFETY: no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    if leaves {
        // SAFETY: as above.
        let state = state.unwrap_or_else(|| unsafe { A::read(prev, offset!(task_state)) });
        leave::<A>(prev, prev_tid, next_tid, preempted, state, now);
    }
    if returns {
        resume(next_tid, prev_tid, now);
    }
}

/// A target thread leaves the CPU. It is still the current task.
#[inline(always)]
fn leave<A: Access>(task: *const u8, tid: u32, next_tid: u32, preempted: bool, state: u32, now: u64) {
    let Some(slot) = find_or_begin(tid) else { return };
    // SAFETY: `task` points at a `task_struct`.
    let (pid, waits) =
        unsafe { (A::read::<u32>(task, offset!(task_tgid)), A::read::<u8>(task, offset!(task_iowait_byte))) };
    let task = Current::task();
    let registers = task.registers();
    let call = registers.call();
    // A thread can be preempted between announcing its sleep and sleeping: then its state says asleep, but it is not.
    let mut flags = if preempted || state == 0 { FLAG_PREEMPTED } else { 0 };
    if u32::from(waits) & offset!(task_iowait_mask) != 0 {
        flags |= FLAG_IOWAIT;
    }
    // SAFETY: map values stay in place, and only this program writes these fields.
    unsafe {
        let off = &raw mut (*slot).record.off;
        if (*off).off_ns != 0 {
            // It left before and was never seen to return: some kernels do not trace every switch. If user space only
            // thought that there was a wait, there is nothing to tell.
            if (*off).flags & FLAG_SEEDED == 0 {
                return_unseen(slot, now);
            }
            (*off).wake_ns = 0;
        }
        let mut kind = Kind::OffCpu;
        if flags & FLAG_PREEMPTED == 0 {
            let open = call_file(task, registers, call);
            if !open.is_null() {
                kind = Kind::OffCpuFile;
                update_file_id(open, &raw mut (*slot).record.file, &raw mut (*slot).sb);
                files::name_once(open, &(*slot).record.file, pid, call.arg0 as u32);
            } else if call.nr == NO_SYSCALL {
                if (*slot).fault != 0 {
                    kind = Kind::OffCpuFile;
                }
            } else {
                // In state S, too: FUSE waits for its server that way.
                files::blocked_path(tid, pid, now, i32::from(call.nr));
            }
        }
        if flags & FLAG_PREEMPTED == 0 {
            (*slot).fault = 0;
        }
        (*off).kind = kind as u32;
        (*off).pid = pid;
        (*off).flags = flags;
        (*off).off_ns = now;
        (*off).arg0 = match call.nr {
            // How long it may wait says more than where its list of descriptors lies.
            POLL => timeout_ms(registers.read(offset!(regs_dx))),
            EPOLL_WAIT | EPOLL_PWAIT => timeout_ms(registers.read(offset!(regs_r10))),
            _ => call.arg0,
        };
        (*off).next_tid = next_tid;
        (*off).syscall = call.nr;
        (*off).state = state as u16;
    }
}

/// The time-out argument of `poll` and `epoll_wait`, an `int` of milliseconds, sign-extended; negative is none.
#[inline(always)]
fn timeout_ms(argument: u64) -> u64 {
    argument as i32 as i64 as u64
}

/// The waking that comes before a sleeper has slept comes this much before it at most, ns.
const EARLY: u64 = 10_000;

/// Ends an interval whose end was not traced. Where the waking was, the wait is known, and the thread ran again soon after;
/// a waking just before `now` may be meant for the wait that begins now. Without one, the interval is lost.
#[inline(never)]
fn return_unseen(state: *mut State, now: u64) -> i32 {
    // SAFETY: map values stay in place, and the thread itself runs here.
    let (off_ns, wake_ns) = unsafe { ((*state).record.off.off_ns, (*state).record.off.wake_ns) };
    if wake_ns > off_ns && now.wrapping_sub(wake_ns) > EARLY {
        finish(state, 0, wake_ns);
    } else {
        count_alone(Counter::BadInterval);
    }
    0
}

/// A target thread runs again: its interval is complete.
#[inline(always)]
fn resume(tid: u32, prev_tid: u32, now: u64) {
    match states::at_home(tid) {
        Some(state) => finish(state, prev_tid, now),
        None => {
            resume_elsewhere(tid, prev_tid, now);
        }
    }
}

/// The same for a thread whose state is not at home. Its own function, since that is rare.
#[inline(never)]
fn resume_elsewhere(tid: u32, prev_tid: u32, now: u64) -> i32 {
    if let Some(state) = states::elsewhere(tid) {
        finish(state, prev_tid, now);
        states::move_home(tid);
    }
    0
}

/// Writes the record.
#[inline(always)]
fn finish(state: *mut State, prev_tid: u32, now: u64) {
    // SAFETY: map values stay in place. Nobody else writes to the state of a thread that is being switched in: it cannot
    // be woken before it has slept again.
    let state = unsafe { &mut (*state).record };
    if state.off.off_ns == 0 {
        return;
    }
    state.off.on_ns = now;
    // SAFETY: no preconditions.
    state.off.cpu = unsafe { bpf_get_smp_processor_id() } as u16;
    state.off.prev_tid = prev_tid;
    if state.settle() {
        count_alone(Counter::OffCpuEmitted);
        if state.off.flags & tracer_ebpf::FLAG_EARLY_WAKE != 0 {
            count_alone(Counter::EarlyWake);
        }
        let written = if state.off.kind == Kind::OffCpuFile as u32 {
            EVENTS.output::<OffCpuFile>(&*state, NO_WAKEUP)
        } else {
            EVENTS.output::<OffCpu>(&state.off, NO_WAKEUP)
        };
        if written.is_err() {
            count_alone(Counter::OffCpuDropped);
        }
    } else {
        count_alone(Counter::BadInterval);
    }
    state.off.off_ns = 0;
    state.off.wake_ns = 0;
}

/// Some thread, or an interrupt, wakes a thread.
#[inline(always)]
fn waking<A: Access>(task: *const u8) {
    // SAFETY: `task` points at a `task_struct`.
    let tid = unsafe { A::read::<u32>(task, offset!(task_pid)) };
    if !is_target(tid) {
        return;
    }
    // A thread without a state has not left the CPU since the attach. This waking came before it slept; it is only lost
    // as the early waking of its first interval.
    let Some(slot) = states::find(tid) else { return };
    let waker = Current::task();
    let (waker_tid, waker_pid) = (waker.read::<u32>(offset!(task_pid)), waker.read::<u32>(offset!(task_tgid)));
    let task_flags = waker.read::<u32>(offset!(task_flags));
    let mut flags = 0;
    let mut syscall = NO_SYSCALL;
    if task_flags & PF_KTHREAD != 0 {
        // The idle task is one too.
        flags |= FLAG_WAKER_KTHREAD;
    } else {
        syscall = waker.registers().call_number();
    }
    // User code wakes nobody, so that a waking from there comes from an interrupt, and this one runs on the thread's own
    // stack, which is empty then. (In a page fault a thread might wake one that waits for its memory map: a D state.)
    let from_user = syscall == NO_SYSCALL && task_flags & (PF_KTHREAD | PF_EXITING) == 0;
    if from_user || waker_tid == 0 || on_interrupt_stack(waker) {
        flags |= FLAG_WAKER_INTERRUPT;
    }
    // SAFETY: map values stay in place, and only wakings, one at a time for each thread, write these fields.
    unsafe {
        let off = &raw mut (*slot).record.off;
        (*off).waker_tid = waker_tid;
        (*off).waker_pid = waker_pid;
        (*off).waker_syscall = syscall;
        (*off).pad = flags;
        (*off).wake_ns = bpf_ktime_get_ns();
    }
}

/// Whether this program runs in an interrupt, hard or soft, that interrupted the kernel.
#[inline(always)]
fn on_interrupt_stack(task: Current) -> bool {
    if offset!(task_stack) == ABSENT || offset!(thread_size) == ABSENT {
        return false;
    }
    let stack = low_half(task.read::<u64>(offset!(task_stack)));
    frame_address().wrapping_sub(stack) >= offset!(thread_size)
}

/// Low half of what may be a pointer to the verifier: a 32-bit move makes a number of it.
#[inline(always)]
fn low_half(pointer: u64) -> u32 {
    let half: u64;
    // SAFETY: copies one register to another.
    unsafe {
        core::arch::asm!("w0 = w1", in("r1") pointer, out("r0") half, options(nomem, nostack, preserves_flags));
    }
    half as u32
}

/// Where this function's own stack frame lies, low half. x86 runs interrupts on stacks of their own, so in one this is far
/// from the current task's stack.
///
/// Its own function, never inlined: programs that use 64 bytes of stack or more get a private one from 6.13 on, away from
/// any task's; this one uses none. The low half suffices, and the verifier lets a 32-bit move make a number of a pointer.
#[inline(never)]
fn frame_address() -> u32 {
    let address: u64;
    // SAFETY: copies a register that is always readable.
    unsafe { core::arch::asm!("w0 = w10", out("r0") address, options(nomem, nostack, preserves_flags)) };
    address as u32
}
