//! Block requests of the whole machine: competitors on the target's disk matter as much as its own requests.
//!
//! A request is followed by its address from its start (in the submitter's context) over its issue to its completion,
//! which rarely run in that context, and becomes one record at the end.

use crate::kernel::{Access, Direct, Probed, current, offset};
use crate::maps::{NO_WAKEUP, RARE, count};
use crate::target::is_target;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::{btf_tracepoint, map};
use aya_ebpf::maps::HashMap;
use aya_ebpf::programs::BtfTracePointContext;
use tracer_ebpf::{ABSENT, BLOCK_BY_KTHREAD, BLOCK_BY_TARGET, BLOCK_NO_START, BlockRequest, Counter, Kind};

/// Requests under way, laid out as the records that they become. `issue_ns` is 0 until the request is issued.
#[map]
static REQUESTS: HashMap<u64, BlockRequest> = HashMap::with_max_entries(16_384, 0);

/// `PF_KTHREAD` (`linux/sched.h`).
const PF_KTHREAD: u32 = 0x0020_0000;

/// Kernels from 6.4: the request gets its first data, in the context of the submitter.
#[btf_tracepoint(function = "block_io_start")]
pub fn block_io_start(ctx: BtfTracePointContext) -> i32 {
    let rq: *const u8 = ctx.arg(0);
    start(rq, now());
    0
}

/// Older kernels: the request is put into its queue, in the context of the submitter. Without an I/O scheduler most
/// requests skip this.
#[btf_tracepoint(function = "block_rq_insert")]
pub fn block_rq_insert(ctx: BtfTracePointContext) -> i32 {
    let rq = request(&ctx);
    // A request that the device refused is put back; it started long ago.
    if let Some(r) = REQUESTS.get_ptr(rq as u64)
        // SAFETY: the value stays in place while it is in the map, and only this request's own events touch it.
        && unsafe { (*r).issue_ns } != 0
    {
        return 0;
    }
    start(rq, queued(rq));
    0
}

/// The device gets the request; used with `block_io_start`. A request without a start is the block layer's own flush, or
/// was under way when the tracer came: nobody can tell who submitted it.
#[btf_tracepoint(function = "block_rq_issue")]
pub fn block_rq_issue(ctx: BtfTracePointContext) -> i32 {
    let rq = request(&ctx);
    if !issue(rq) {
        let mut r = fields(rq);
        r.flags = BLOCK_NO_START | BLOCK_BY_KTHREAD;
        r.issue_ns = now();
        r.start_ns = r.issue_ns;
        keep(rq, &r);
    }
    0
}

/// The device gets the request; used with `block_rq_insert`. A request that was never in a queue went straight to the
/// device, in the context of the submitter.
#[btf_tracepoint(function = "block_rq_issue")]
pub fn block_rq_issue_old(ctx: BtfTracePointContext) -> i32 {
    let rq = request(&ctx);
    if !issue(rq) {
        start(rq, queued(rq));
        issue(rq);
    }
    0
}

/// The request became part of another one and disappears without a completion.
#[btf_tracepoint(function = "block_rq_merge")]
pub fn block_rq_merge(ctx: BtfTracePointContext) -> i32 {
    let _ = REQUESTS.remove(request(&ctx) as u64);
    0
}

/// The device is done with `nr_bytes` of the request. It may report a request in several parts.
#[btf_tracepoint(function = "block_rq_complete")]
pub fn block_rq_complete(ctx: BtfTracePointContext) -> i32 {
    let rq: *const u8 = ctx.arg(0);
    let done: u32 = ctx.arg(2);
    let Some(r) = REQUESTS.get_ptr_mut(rq as u64) else { return 0 };
    // SAFETY: `rq` is the tracepoint's request. `__data_len` still counts the part that is done now.
    let left: u32 = unsafe { Direct::read(rq, offset!(rq_len)) };
    if done < left {
        return 0;
    }
    // SAFETY: as above; the copy in the ring is made before the value is removed.
    unsafe {
        // A flush that the block layer answers through its own flush request is never issued itself.
        if (*r).issue_ns != 0 {
            (*r).complete_ns = now();
            if RARE.output::<BlockRequest>(&*r, NO_WAKEUP).is_err() {
                count(Counter::BlockDropped);
            }
        }
    }
    let _ = REQUESTS.remove(rq as u64);
    0
}

/// Begins to follow a request. A leftover under the same address (its request was merged away) is overwritten.
#[inline(always)]
fn start(rq: *const u8, start_ns: u64) {
    let mut r = fields(rq);
    let id = bpf_get_current_pid_tgid();
    r.tid = id as u32;
    r.pid = (id >> 32) as u32;
    r.start_ns = start_ns;
    if current::<u32>(offset!(task_flags)) & PF_KTHREAD != 0 {
        r.flags = BLOCK_BY_KTHREAD;
    } else if is_target(r.tid) || is_target(r.pid) {
        // io_uring's workers are threads that never pass through the fork tracepoint; their process is known.
        r.flags = BLOCK_BY_TARGET;
    }
    keep(rq, &r);
}

/// Notes the issue. False if the request is not followed.
#[inline(always)]
fn issue(rq: *const u8) -> bool {
    let Some(kept) = REQUESTS.get_ptr_mut(rq as u64) else { return false };
    let f = fields(rq);
    // SAFETY: the value stays in place while it is in the map, and only this request's own events touch it.
    unsafe {
        // It may have grown by merging since its start. A second issue, of what was left or of all of it, moves only
        // the time: place and length are those of the whole.
        if (*kept).issue_ns == 0 || f.bytes > (*kept).bytes {
            (*kept).sector = f.sector;
            (*kept).bytes = f.bytes;
            (*kept).cmd_flags = f.cmd_flags;
        }
        (*kept).issue_ns = now();
    }
    true
}

#[inline(always)]
fn keep(rq: *const u8, r: &BlockRequest) {
    if REQUESTS.insert(rq as u64, r, 0).is_err() {
        count(Counter::RequestFull);
    }
}

/// What the request says of itself.
#[inline(always)]
fn fields(rq: *const u8) -> BlockRequest {
    // SAFETY: `rq` is the tracepoint's request.
    let (sector, bytes, cmd_flags) = unsafe {
        (Direct::read(rq, offset!(rq_sector)), Direct::read(rq, offset!(rq_len)), Direct::read(rq, offset!(rq_flags)))
    };
    BlockRequest { kind: Kind::BlockRequest as u32, dev: device(rq), sector, bytes, cmd_flags, ..Default::default() }
}

/// The disk, also for a request to one of its partitions.
#[inline(always)]
fn device(rq: *const u8) -> u32 {
    // SAFETY: members of the tracepoint's request, of its queue and of its disk. The pointers found on the way may be
    // null for a device that is going away, hence the probing loads.
    unsafe {
        let disk: u64 = if offset!(rq_disk) != ABSENT {
            Direct::read(rq, offset!(rq_disk))
        } else {
            let queue: u64 = Direct::read(rq, offset!(rq_q));
            Probed::read(queue as *const u8, offset!(queue_disk))
        };
        let disk = disk as *const u8;
        Probed::read::<u32>(disk, offset!(disk_major)) << 20 | Probed::read::<u32>(disk, offset!(disk_minor))
    }
}

/// When the request was made, as the kernel notes it for its own statistics (the same clock); now where it does not.
#[inline(always)]
fn queued(rq: *const u8) -> u64 {
    let now = now();
    if offset!(rq_start) == ABSENT {
        return now;
    }
    // SAFETY: `rq` is the tracepoint's request.
    let made: u64 = unsafe { Direct::read(rq, offset!(rq_start)) };
    if made != 0 && made <= now { made } else { now }
}

/// The request among a tracepoint's arguments. The side that does not apply is pruned, so that no program reaches beyond
/// its tracepoint's arguments.
#[inline(always)]
fn request(ctx: &BtfTracePointContext) -> *const u8 {
    if offset!(rq_arg) == 1 { ctx.arg(1) } else { ctx.arg(0) }
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: no arguments.
    unsafe { bpf_ktime_get_ns() }
}
