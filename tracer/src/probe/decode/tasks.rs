//! Task lifecycle.

use super::{exactly, text};
use crate::events::{TaskEvent, TaskWhat};
use crate::units::{MonoNs, Pid, Tid};
use tracer_ebpf as raw;

/// Decodes [`raw::Task`].
pub fn decode(bytes: &[u8]) -> Option<TaskEvent> {
    let r = exactly::<raw::Task>(bytes)?;
    let other = Tid(r.other_tid);
    let what = match r.what {
        w if w == raw::TaskKind::Fork as u16 => TaskWhat::Forked { parent: other },
        w if w == raw::TaskKind::Exec as u16 => TaskWhat::Exec { old_tid: other },
        w if w == raw::TaskKind::Exit as u16 => TaskWhat::Exited,
        w if w == raw::TaskKind::Rename as u16 => TaskWhat::Renamed,
        _ => return None,
    };
    Some(TaskEvent { time: MonoNs(r.time_ns), tid: Tid(r.tid), pid: Pid(r.pid), what, comm: text(&r.comm) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(r: &raw::Task) -> &[u8] {
        // SAFETY: plain bytes of a live structure without padding.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(r).cast::<u8>(), size_of_val(r)) }
    }

    #[test]
    fn names_end_at_the_first_nul() {
        let r = raw::Task {
            kind: raw::Kind::Task as u32,
            tid: 3,
            pid: 2,
            other_tid: 1,
            time_ns: 9,
            what: raw::TaskKind::Fork as u16,
            pad: [0; 3],
            comm: *b"pt\0garbage\0\0\0\0\0\0",
        };
        let e = decode(bytes(&r)).unwrap();
        assert_eq!((e.comm.as_str(), e.what), ("pt", TaskWhat::Forked { parent: Tid(1) }));
        assert_eq!(decode(&bytes(&r)[1..]), None);
        assert_eq!(decode(bytes(&raw::Task { what: 99, ..r })), None);
        assert_eq!(decode(bytes(&raw::Task { comm: [b'x'; 16], ..r })).unwrap().comm.len(), 16);
    }
}
