//! On-CPU samples: what a target thread was doing when the CPU's clock event found it running.

use crate::kernel::{Current, call_file, file_id, offset};
use crate::maps::{EVENTS, NO_WAKEUP, count};
use crate::target::is_target;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::{bpf_get_smp_processor_id, bpf_ktime_get_ns};
use aya_ebpf::macros::perf_event;
use aya_ebpf::programs::PerfEventContext;
use tracer_ebpf::{Counter, CpuSample, FileId, Kind, NO_SYSCALL, PAGE_FAULT};

/// One tick of a CPU's sampling clock.
#[perf_event]
pub fn cpu_sample(ctx: PerfEventContext) -> u32 {
    let id = bpf_get_current_pid_tgid();
    let tid = id as u32;
    if !is_target(tid) {
        return 0;
    }
    let Some(mut entry) = EVENTS.reserve::<CpuSample>(0) else {
        count(Counter::SampleDropped);
        return 0;
    };
    // The saved registers are those of the last entry from user space: the system call, or this very interrupt.
    let task = Current::task();
    let registers = task.registers();
    let call = registers.call();
    let file = call_file(task, registers, call);
    // SAFETY: the context begins with the registers of what was interrupted.
    let ip = unsafe { (*ctx.ctx).regs.rip };
    // Kernel addresses are those of the upper half.
    let syscall = if call.nr == NO_SYSCALL && ip as i64 <= 0 { PAGE_FAULT } else { call.nr };
    // SAFETY: no arguments.
    let (cpu, time_ns) = unsafe { (bpf_get_smp_processor_id() as u16, bpf_ktime_get_ns()) };
    entry.write(CpuSample {
        kind: Kind::CpuSample as u32,
        tid,
        pid: (id >> 32) as u32,
        cpu,
        syscall,
        time_ns,
        user_ip: registers.read(offset!(regs_ip)),
        file: if file.is_null() { FileId::default() } else { file_id(file) },
    });
    entry.submit(NO_WAKEUP);
    0
}
