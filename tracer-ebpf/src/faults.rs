//! The file behind a page fault: a wait for a mapped page tells no descriptor.

use crate::kernel::{Current, offset, probe, update_inode_id};
use crate::states;
use crate::target::is_target;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use tracer_ebpf::{ABSENT, NO_SYSCALL};

/// First argument of `mm_filemap_add_to_page_cache`: the folio, before 5.16 the page, that the current thread makes room
/// for in the page cache, just before it is read from the disk. Runs only where the page cache misses.
#[raw_tracepoint(tracepoint = "mm_filemap_add_to_page_cache")]
pub fn mm_filemap_add_to_page_cache(ctx: RawTracePointContext) -> i32 {
    let tid = bpf_get_current_pid_tgid() as u32;
    if !is_target(tid) || offset!(folio_mapping) == ABSENT {
        return 0;
    }
    // Inside a system call the descriptor tells the file.
    if Current::task().registers().call_number() != NO_SYSCALL {
        return 0;
    }
    let Some(state) = states::find(tid) else { return 0 };
    let mapping = probe::<u64>(ctx.arg(0), offset!(folio_mapping)) as *const u8;
    let inode = probe::<u64>(mapping, offset!(mapping_host)) as *const u8;
    // SAFETY: map values stay in place. The thread itself runs here, so that it is not being switched out, which is
    // where else these fields are written.
    unsafe {
        update_inode_id(inode, &raw mut (*state).record.file, &raw mut (*state).sb);
        (*state).fault = 1;
    }
    0
}
