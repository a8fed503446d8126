//! Lifecycle of target threads: a fork extends the target in the kernel, so that no child is missed; an exit ends it.
//!
//! All `raw_tracepoint` programs: these events are rare, so the cheaper typed loads would gain nothing.

use crate::kernel::{current_call_number, offset, probe};
use crate::maps::{NO_WAKEUP, RARE, count};
use crate::states::{find_or_begin, release};
use crate::target::{is_target, mark, unmark};
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use tracer_ebpf::{Counter, FLAG_NEW, Kind, NO_SYSCALL, OffCpu, Task, TaskKind};

/// Arguments of `sched_process_fork`: `parent, child`. The parent is the current task; the child has not run yet.
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn sched_process_fork(ctx: RawTracePointContext) -> i32 {
    let child: *const u8 = ctx.arg(1);
    let who = bpf_get_current_pid_tgid();
    let parent_tid = who as u32;
    if !is_target(parent_tid) {
        return 0;
    }
    let tid = probe::<u32>(child, offset!(task_pid));
    let pid = probe::<u32>(child, offset!(task_tgid));
    if !mark(tid) {
        count(Counter::TidOutOfRange);
        aya_log_ebpf::warn!(&ctx, "thread {} of process {} is beyond the target map: not followed", tid, pid);
        return 0;
    }
    // SAFETY: no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    if let Some(state) = find_or_begin(tid) {
        let off = OffCpu {
            kind: Kind::OffCpu as u32,
            tid,
            pid,
            flags: FLAG_NEW,
            off_ns: now,
            wake_ns: now,
            waker_tid: parent_tid,
            waker_pid: (who >> 32) as u32,
            waker_syscall: current_call_number(),
            syscall: NO_SYSCALL,
            ..OffCpu::default()
        };
        // SAFETY: map values stay in place. The child has not run yet, so that nobody else writes to its state.
        unsafe { (*state).record.off = off };
    }
    // The child's name is the parent's until it takes one of its own.
    emit(TaskKind::Fork, tid, pid, parent_tid, now, probe(child, offset!(task_comm)));
    0
}

/// Arguments of `sched_process_exec`: `task, old_pid, binprm`. A thread that is not its process's main thread takes over
/// the main thread's id; `old_pid` is the one it had.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn sched_process_exec(ctx: RawTracePointContext) -> i32 {
    let task: *const u8 = ctx.arg(0);
    let old_tid: u32 = ctx.arg(1);
    if !is_target(old_tid) {
        return 0;
    }
    let tid = probe::<u32>(task, offset!(task_pid));
    if tid != old_tid {
        // The main thread's exit has unmarked its id; nobody exits under the old id any more.
        mark(tid);
        unmark(old_tid);
        release(old_tid);
    }
    // SAFETY: no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    let pid = probe(task, offset!(task_tgid));
    emit(TaskKind::Exec, tid, pid, old_tid, now, probe(task, offset!(task_comm)));
    0
}

/// First argument of `sched_process_exit`: the task, which is the current one.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn sched_process_exit(ctx: RawTracePointContext) -> i32 {
    let task: *const u8 = ctx.arg(0);
    let tid = probe::<u32>(task, offset!(task_pid));
    if !is_target(tid) {
        return 0;
    }
    unmark(tid);
    release(tid);
    // SAFETY: no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    let pid = probe(task, offset!(task_tgid));
    emit(TaskKind::Exit, tid, pid, 0, now, probe(task, offset!(task_comm)));
    0
}

/// Arguments of `task_rename`: `task, name`. The task still has its old name.
#[raw_tracepoint(tracepoint = "task_rename")]
pub fn task_rename(ctx: RawTracePointContext) -> i32 {
    let task: *const u8 = ctx.arg(0);
    let tid = probe::<u32>(task, offset!(task_pid));
    if !is_target(tid) {
        return 0;
    }
    // SAFETY: no preconditions.
    let now = unsafe { bpf_ktime_get_ns() };
    emit(TaskKind::Rename, tid, probe(task, offset!(task_tgid)), 0, now, probe(ctx.arg(1), 0));
    0
}

#[inline(always)]
fn emit(what: TaskKind, tid: u32, pid: u32, other_tid: u32, time_ns: u64, comm: [u8; 16]) {
    let task = Task { kind: Kind::Task as u32, tid, pid, other_tid, time_ns, what: what as u16, pad: [0; 3], comm };
    if RARE.output::<Task>(&task, NO_WAKEUP).is_err() {
        count(Counter::TaskDropped);
    }
}
