//! On-CPU samples.

use super::{exactly, sched};
use crate::events::{CpuSample, ImageId, Syscall};
use crate::units::{MonoNs, Pid, Tid};
use tracer_ebpf as raw;

/// Decodes [`raw::CpuSample`]. The image is not known yet; `probe::samples` finds it.
pub fn decode(bytes: &[u8]) -> Option<CpuSample> {
    let r = exactly::<raw::CpuSample>(bytes)?;
    Some(CpuSample {
        time: MonoNs(r.time_ns),
        tid: Tid(r.tid),
        pid: Pid(r.pid),
        cpu: r.cpu,
        syscall: Syscall(r.syscall),
        user_ip: r.user_ip,
        image: ImageId::default(),
        // Every file has a mode.
        file: (r.file.mode != 0 || r.file.ino != 0).then(|| sched::file(&r.file)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::bytes;
    use super::*;

    #[test]
    fn a_sample_in_user_code_has_no_call_and_no_file() {
        let mut r = raw::CpuSample { kind: raw::Kind::CpuSample as u32, tid: 5, syscall: -1, ..Default::default() };
        let s = decode(bytes(&r)).unwrap();
        assert!(s.syscall.is_none() && s.file.is_none());
        r.syscall = 1;
        r.file = raw::FileId { ino: 9, mode: 0o100_644, ..Default::default() };
        let s = decode(bytes(&r)).unwrap();
        assert_eq!((s.syscall, s.file.unwrap().ino), (Syscall(1), 9));
        assert_eq!(decode(&bytes(&r)[1..]), None);
    }
}
