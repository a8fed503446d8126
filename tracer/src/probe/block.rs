//! Attaches the block-request programs, in the set that the running kernel can have.

use super::ProbeStatus;
use super::attach::{attach_typed, explain, short};
use super::load::Loaded;
use aya::programs::ProgramError;

/// Attaches the programs, the end of a request before its start: one that is followed must also be forgotten. Tracing
/// goes on without them; then disks have no latencies.
pub fn attach(loaded: &mut Loaded) -> Vec<ProbeStatus> {
    let mut status = Vec::new();
    let mut on = |program: &str, tracepoint: &'static str, fallback: bool| {
        let result = attach_typed(&mut loaded.ebpf, &loaded.btf, program, tracepoint);
        if let Err(error) = &result {
            explain(tracepoint, error);
        }
        let attached = result.is_ok();
        if attached || !fallback {
            status.push(ProbeStatus { name: tracepoint, failure: result.err().map(|e: ProgramError| short(&e)) });
        }
        attached
    };
    if on("block_rq_complete", "block_rq_complete", false) {
        // Merges that go unseen only leave an entry behind until the address is used again (before 5.9).
        on("block_rq_merge", "block_rq_merge", false);
        // `block_io_start` exists since 6.4.
        if on("block_io_start", "block_io_start", true) {
            on("block_rq_issue", "block_rq_issue", false);
        } else if on("block_rq_insert", "block_rq_insert", false) {
            on("block_rq_issue_old", "block_rq_issue", false);
        }
    }
    status
}
