//! Off-CPU intervals.

use super::exactly;
use crate::events::{FileRef, FileType, OffCpu, SleepState, Syscall, Waker, Wakeup};
use crate::units::{DevId, MonoNs, Pid, Tid};
use tracer_ebpf as raw;

/// `TASK_INTERRUPTIBLE` and `TASK_UNINTERRUPTIBLE`. Both may come with others: killable waits add 0x100, freezable ones
/// 0x2000, waits that do not count as load 0x400 (`linux/sched.h`).
const INTERRUPTIBLE: u16 = 1;
const UNINTERRUPTIBLE: u16 = 2;

/// Decodes [`raw::OffCpu`] or [`raw::OffCpuFile`], told apart by their size.
pub fn decode(bytes: &[u8]) -> Option<OffCpu> {
    let kind = u32::from_ne_bytes(bytes.first_chunk().copied()?);
    if kind == raw::Kind::OffCpuFile as u32 {
        exactly::<raw::OffCpuFile>(bytes).map(|r| off_cpu(&r))
    } else {
        let off = exactly::<raw::OffCpu>(bytes)?;
        Some(off_cpu(&raw::OffCpuFile { off, file: raw::FileId::default() }))
    }
}

/// Translates a record; the file counts only if the kind says that there is one.
pub fn off_cpu(record: &raw::OffCpuFile) -> OffCpu {
    let r = &record.off;
    let file = (r.kind == raw::Kind::OffCpuFile as u32).then(|| file(&record.file));
    let has = |flag: u16| r.flags & flag != 0;
    let state = if has(raw::FLAG_NEW) {
        SleepState::New
    } else if has(raw::FLAG_PREEMPTED) {
        SleepState::Preempted
    } else {
        match r.state & (INTERRUPTIBLE | UNINTERRUPTIBLE) {
            INTERRUPTIBLE => SleepState::Interruptible,
            UNINTERRUPTIBLE => SleepState::Uninterruptible,
            _ => SleepState::Other,
        }
    };
    OffCpu {
        tid: Tid(r.tid),
        pid: Pid(r.pid),
        cpu: r.cpu,
        off: MonoNs(r.off_ns),
        wakeup: (r.wake_ns != 0).then(|| Wakeup { at: MonoNs(r.wake_ns), by: waker(r, file.as_ref()) }),
        on: MonoNs(r.on_ns),
        state,
        iowait: has(raw::FLAG_IOWAIT),
        syscall: Syscall(r.syscall),
        arg0: r.arg0,
        file,
        next_tid: Tid(r.next_tid),
        prev_tid: Tid(r.prev_tid),
        seeded: has(raw::FLAG_SEEDED),
        pending: has(raw::FLAG_PENDING),
    }
}

fn waker(r: &raw::OffCpu, file: Option<&FileRef>) -> Waker {
    let by_thread = Waker::Thread { tid: Tid(r.waker_tid), pid: Pid(r.waker_pid), syscall: Syscall(r.waker_syscall) };
    if r.flags & raw::FLAG_WAKER_KTHREAD != 0 && r.flags & raw::FLAG_WAKER_INTERRUPT == 0 {
        Waker::KernelThread { tid: Tid(r.waker_tid) }
    } else if r.flags & raw::FLAG_WAKER_INTERRUPT != 0 && !is_loopback(r, file) || r.waker_tid == 0 {
        Waker::Interrupt
    } else {
        by_thread
    }
}

/// Data sent over loopback is delivered in a soft interrupt that runs at the end of the sender's own system call, so
/// that the sender looks interrupted. It is the waker all the same if the sleeper waits for a socket.
fn is_loopback(r: &raw::OffCpu, file: Option<&FileRef>) -> bool {
    // write, writev, sendfile, connect, sendto, sendmsg, shutdown, splice, sendmmsg
    const SENDS: [i16; 9] = [1, 20, 40, 42, 44, 46, 48, 275, 307];
    // poll, epoll_wait, ppoll, epoll_pwait, epoll_pwait2, select, pselect6: they may well wait for a socket.
    const POLLS: [i16; 7] = [7, 232, 271, 281, 441, 23, 270];
    let on_socket = file.is_some_and(|f| f.file_type() == FileType::Socket) || POLLS.contains(&r.syscall);
    on_socket && SENDS.contains(&r.waker_syscall)
}

/// Translates a file's identity.
pub fn file(f: &raw::FileId) -> FileRef {
    FileRef {
        ino: f.ino,
        dev: DevId::from_kernel(f.dev),
        rdev: DevId::from_kernel(f.rdev),
        magic: f.magic,
        mode: f.mode,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(edit: impl Fn(&mut raw::OffCpuFile)) -> raw::OffCpuFile {
        let off = raw::OffCpu {
            kind: raw::Kind::OffCpu as u32,
            tid: 7,
            pid: 5,
            off_ns: 100,
            wake_ns: 200,
            on_ns: 250,
            waker_tid: 9,
            waker_pid: 8,
            syscall: 0,
            waker_syscall: 1,
            state: 1,
            ..raw::OffCpu::default()
        };
        let mut r = raw::OffCpuFile { off, file: raw::FileId::default() };
        edit(&mut r);
        r
    }

    #[test]
    fn a_blocked_read_has_a_waker_and_two_parts() {
        let o = off_cpu(&record(|_| {}));
        assert_eq!((o.blocked().0, o.run_queue().0, o.state), (100, 50, SleepState::Interruptible));
        let by = Waker::Thread { tid: Tid(9), pid: Pid(8), syscall: Syscall(1) };
        assert_eq!(o.wakeup, Some(Wakeup { at: MonoNs(200), by }));
        assert_eq!(o.file, None);
    }

    #[test]
    fn states_are_masked() {
        let state = |s: u16| off_cpu(&record(|r| r.off.state = s)).state;
        assert_eq!(state(0x2001), SleepState::Interruptible);
        assert_eq!(state(0x0102), SleepState::Uninterruptible);
        assert_eq!(state(0x0402), SleepState::Uninterruptible);
        assert_eq!(state(0x0004), SleepState::Other);
    }

    #[test]
    fn an_interrupt_is_no_thread_unless_it_delivers_over_loopback() {
        let by = |edit: &dyn Fn(&mut raw::OffCpuFile)| off_cpu(&record(edit)).wakeup.unwrap().by;
        let interrupted = |r: &mut raw::OffCpuFile| r.off.flags = raw::FLAG_WAKER_INTERRUPT;
        assert_eq!(by(&interrupted), Waker::Interrupt);
        let socket = |r: &mut raw::OffCpuFile| {
            r.off.kind = raw::Kind::OffCpuFile as u32;
            r.off.flags = raw::FLAG_WAKER_INTERRUPT;
            r.off.waker_syscall = 44;
            r.file.mode = 0o140_777;
        };
        assert!(matches!(by(&socket), Waker::Thread { .. }));
        assert_eq!(by(&|r| (socket(r), r.file.mode = 0o010_600).1), Waker::Interrupt);
        assert_eq!(by(&|r| r.off.flags = raw::FLAG_WAKER_KTHREAD), Waker::KernelThread { tid: Tid(9) });
        let idle = |r: &mut raw::OffCpuFile| {
            r.off.flags = raw::FLAG_WAKER_KTHREAD | raw::FLAG_WAKER_INTERRUPT;
            r.off.waker_tid = 0;
        };
        assert_eq!(by(&idle), Waker::Interrupt);
    }

    #[test]
    fn settling_moves_early_wakings_and_drops_those_of_the_preempted() {
        let mut early = record(|r| (r.off.wake_ns, r.off.pad) = (99, raw::FLAG_WAKER_KTHREAD));
        assert!(early.settle());
        assert_eq!((early.off.wake_ns, early.off.pad), (100, 0));
        assert_eq!(early.off.flags, raw::FLAG_EARLY_WAKE | raw::FLAG_WAKER_KTHREAD);
        let mut preempted = record(|r| r.off.flags = raw::FLAG_PREEMPTED);
        assert!(preempted.settle());
        let o = off_cpu(&preempted);
        assert_eq!((o.wakeup, o.state, o.blocked().0, o.run_queue().0), (None, SleepState::Preempted, 0, 150));
        assert!(!record(|r| r.off.on_ns = 99).settle());
        assert!(!record(|r| r.off.wake_ns = 251).settle());
    }

    #[test]
    fn sizes_must_fit_the_kind() {
        let r = record(|_| {});
        // SAFETY: plain bytes of a live structure without padding.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const r).cast::<u8>(), size_of_val(&r)) };
        let short = size_of::<raw::OffCpu>();
        assert!(decode(&bytes[..short]).is_some());
        for len in (0..=bytes.len()).filter(|l| *l != short) {
            assert!(decode(&bytes[..len]).is_none(), "{len}");
        }
    }
}
