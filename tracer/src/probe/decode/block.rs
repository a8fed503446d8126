//! Block requests.

use super::exactly;
use crate::events::{BlockOp, BlockRequest, Submitter};
use crate::units::{DevId, MonoNs, Pid, Tid};
use tracer_ebpf as raw;

/// `enum req_op` (`linux/blk_types.h`); unchanged since 4.9.
const OP_MASK: u32 = 0xff;
const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 2;
const DISCARD: u32 = 3;
const SECURE_ERASE: u32 = 5;
const ZONE_APPEND: u32 = 7;
const WRITE_ZEROES: u32 = 9;

/// Decodes [`raw::BlockRequest`].
pub fn decode(bytes: &[u8]) -> Option<BlockRequest> {
    let r = exactly::<raw::BlockRequest>(bytes)?;
    let (tid, pid) = (Tid(r.tid), Pid(r.pid));
    Some(BlockRequest {
        dev: DevId::from_kernel(r.dev),
        op: op(r.cmd_flags),
        bytes: r.bytes,
        sector: r.sector,
        start: (r.flags & raw::BLOCK_NO_START == 0).then_some(MonoNs(r.start_ns)),
        issue: MonoNs(r.issue_ns),
        complete: MonoNs(r.complete_ns),
        submitter: if r.flags & raw::BLOCK_BY_KTHREAD != 0 {
            Submitter::KernelThread { tid }
        } else if r.flags & raw::BLOCK_BY_TARGET != 0 {
            Submitter::Target { tid, pid }
        } else {
            Submitter::Other { tid, pid }
        },
    })
}

fn op(cmd_flags: u32) -> BlockOp {
    match cmd_flags & OP_MASK {
        READ => BlockOp::Read,
        WRITE | ZONE_APPEND | WRITE_ZEROES => BlockOp::Write,
        FLUSH => BlockOp::Flush,
        DISCARD | SECURE_ERASE => BlockOp::Discard,
        _ => BlockOp::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::bytes;
    use super::*;

    fn record() -> raw::BlockRequest {
        raw::BlockRequest {
            kind: raw::Kind::BlockRequest as u32,
            dev: 7 << 20 | 3,
            start_ns: 10,
            issue_ns: 30,
            complete_ns: 100,
            sector: 2048,
            bytes: 4096,
            cmd_flags: 0x800, // REQ_SYNC
            tid: 8,
            pid: 6,
            flags: raw::BLOCK_BY_TARGET,
            pad: [0; 3],
        }
    }

    #[test]
    fn a_read_has_queue_and_device_time() {
        let b = decode(bytes(&record())).unwrap();
        assert_eq!((b.queue().0, b.device().0, b.total().0), (20, 70, 90));
        assert_eq!((b.op, b.bytes, b.sector, b.dev), (BlockOp::Read, 4096, 2048, DevId { major: 7, minor: 3 }));
        assert_eq!(b.submitter, Submitter::Target { tid: Tid(8), pid: Pid(6) });
    }

    #[test]
    fn kernel_threads_are_a_class_of_their_own() {
        let by = |flags| decode(bytes(&raw::BlockRequest { flags, ..record() })).unwrap();
        assert_eq!(by(raw::BLOCK_BY_KTHREAD).submitter, Submitter::KernelThread { tid: Tid(8) });
        assert_eq!(by(0).submitter, Submitter::Other { tid: Tid(8), pid: Pid(6) });
        let unknown = by(raw::BLOCK_BY_KTHREAD | raw::BLOCK_NO_START);
        assert_eq!((unknown.start, unknown.queue().0), (None, 0));
    }

    #[test]
    fn operations_come_from_the_low_byte() {
        let ops = [0x801, 0x2, 0x3, 0x5, 0x9, 0x22].map(op);
        use BlockOp::*;
        assert_eq!(ops, [Write, Flush, Discard, Discard, Write, Other]);
    }

    #[test]
    fn another_size_is_no_request() {
        let r = record();
        assert_eq!(decode(&bytes(&r)[..size_of_val(&r) - 1]), None);
    }
}
