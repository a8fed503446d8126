//! Where the running kernel keeps what the kernel programs read, and how its tracepoints pass their arguments.
//!
//! Rust cannot emit CO-RE relocations, so user space resolves every offset from BTF at start and hands them over as a
//! read-only global. Shapes follow from what BTF says, never from a version number.

use super::btf::{Btf, BtfError, Member, TypeId};
use tracer_ebpf::{ABSENT, KernelOffsets};

/// Why the kernel's structures cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum OffsetError {
    /// The BTF itself cannot be read.
    #[error(transparent)]
    Btf(#[from] BtfError),
    /// A structure or member that gpustall cannot do without is not there.
    #[error(
        "this kernel has no {0}, which gpustall needs; only x86-64 kernels from 5.10 on are supported (see `uname -rm`)"
    )]
    Missing(String),
    /// Several types of this name disagree.
    #[error("this kernel's BTF has several types with {0} at different places; please report it with `uname -a`")]
    Ambiguous(String),
    /// A member is a bit-field, or is none, against what the kernel programs expect.
    #[error("{0} of this kernel is not laid out as gpustall expects; please report it with `uname -a`")]
    Layout(String),
}

/// `THREAD_SIZE` of x86-64 without KASAN (`arch/x86/include/asm/page_64_types.h`), where BTF does not say.
const USUAL_THREAD_SIZE: u32 = 16384;
/// Room that kernels with FRED leave at the top of each stack (`TOP_OF_KERNEL_STACK_PADDING`, `asm/thread_info.h`).
const FRED_PADDING: u32 = 16;

/// Resolves all that the kernel programs need from the kernel's BTF, the content of `/sys/kernel/btf/vmlinux`.
pub fn resolve(btf: &[u8]) -> Result<KernelOffsets, OffsetError> {
    let btf = Btf::parse(btf)?;
    let task = Layout::new(&btf, "task_struct", &["pid", "tgid", "comm", "stack", "flags", "files", "in_iowait"])?;
    let files = Layout::new(&btf, "files_struct", &["fdt"])?;
    let fdt = Layout::new(&btf, "fdtable", &["max_fds", "fd"])?;
    let file = Layout::new(&btf, "file", &["f_inode", "f_path"])?;
    let inode = Layout::new(&btf, "inode", &["i_ino", "i_mode", "i_rdev", "i_sb"])?;
    // Pages became folios in 5.16; a kernel without either member only leaves mapped files without a name.
    let folio = Layout::new(&btf, "folio", &["mapping"]).or_else(|_| Layout::new(&btf, "page", &["mapping"]));
    let mapping = Layout::new(&btf, "address_space", &["host"])?;
    let sb = Layout::new(&btf, "super_block", &["s_dev", "s_magic"])?;
    let dentry = Layout::new(&btf, "dentry", &["d_parent", "d_name"])?;
    let rq = Layout::new(&btf, "request", &["q", "__sector", "__data_len", "cmd_flags"])?;
    let queue = Layout::new(&btf, "request_queue", &[])?;
    let disk = Layout::new(&btf, "gendisk", &["major", "first_minor"])?;
    let regs = Layout::new(&btf, "pt_regs", &["orig_ax", "di", "si", "dx", "r10", "ip"])?;

    let iowait = task.need(&["in_iowait"])?;
    let thread_size = btf.union_size("thread_union").unwrap_or(USUAL_THREAD_SIZE);
    let fred = ["fred_info", "fred_frame"].iter().any(|name| btf.structs(name).next().is_some());
    let regs_size = regs.size()?;
    let has_helper = btf.enum_has("bpf_func_id", "BPF_FUNC_task_pt_regs");
    let (rq_disk, queue_disk) = (rq.byte_or_absent(&["rq_disk"])?, queue.byte_or_absent(&["disk"])?);
    if rq_disk == ABSENT && queue_disk == ABSENT {
        return Err(OffsetError::Missing("request_queue.disk or request.rq_disk".into()));
    }
    Ok(KernelOffsets {
        task_pid: task.byte(&["pid"])?,
        task_tgid: task.byte(&["tgid"])?,
        // `state` became `__state` in 5.14 (kernel commit 2f064a59a11f).
        task_state: match task.byte_or_absent(&["__state"])? {
            ABSENT => task.byte(&["state"])?,
            new => new,
        },
        task_comm: task.byte(&["comm"])?,
        task_stack: task.byte(&["stack"])?,
        task_flags: task.byte(&["flags"])?,
        task_files: task.byte(&["files"])?,
        task_iowait_byte: iowait.bit / 8,
        task_iowait_mask: match iowait.width {
            Some(1) => 1 << (iowait.bit % 8),
            None => 0xff,
            Some(_) => return Err(OffsetError::Layout(task.path(&["in_iowait"]))),
        },
        files_fdt: files.byte(&["fdt"])?,
        fdt_max_fds: fdt.byte(&["max_fds"])?,
        fdt_fd: fdt.byte(&["fd"])?,
        file_inode: file.byte(&["f_inode"])?,
        file_dentry: file.byte(&["f_path", "dentry"])?,
        inode_ino: inode.byte(&["i_ino"])?,
        inode_mode: inode.byte(&["i_mode"])?,
        inode_rdev: inode.byte(&["i_rdev"])?,
        inode_sb: inode.byte(&["i_sb"])?,
        sb_dev: sb.byte(&["s_dev"])?,
        sb_magic: sb.byte(&["s_magic"])?,
        folio_mapping: folio.map_or(Ok(ABSENT), |f| f.byte_or_absent(&["mapping"]))?,
        mapping_host: mapping.byte(&["host"])?,
        dentry_parent: dentry.byte(&["d_parent"])?,
        dentry_name: dentry.byte(&["d_name", "name"])?,
        rq_q: rq.byte(&["q"])?,
        rq_sector: rq.byte(&["__sector"])?,
        rq_len: rq.byte(&["__data_len"])?,
        rq_flags: rq.byte(&["cmd_flags"])?,
        // The disk moved from the request to its queue in 5.17 (f3fa33acca9f).
        rq_disk,
        rq_start: rq.byte_or_absent(&["start_time_ns"])?,
        queue_disk,
        disk_major: disk.byte(&["major"])?,
        disk_minor: disk.byte(&["first_minor"])?,
        regs_orig_ax: regs.byte(&["orig_ax"])?,
        regs_di: regs.byte(&["di"])?,
        regs_si: regs.byte(&["si"])?,
        regs_dx: regs.byte(&["dx"])?,
        regs_r10: regs.byte(&["r10"])?,
        regs_ip: regs.byte(&["ip"])?,
        regs_from_stack: thread_size
            .checked_sub(regs_size)
            .and_then(|left| left.checked_sub(if fred { FRED_PADDING } else { 0 }))
            .ok_or_else(|| OffsetError::Layout("union thread_union".into()))?,
        thread_size,
        switch_has_state: switch_has_state(&btf)?,
        rq_arg: request_argument(&btf)?,
        has_pt_regs_helper: has_helper.into(),
    })
}

/// `sched_switch(preempt, prev, next)` got the previous state as a fourth argument in 5.18.
fn switch_has_state(btf: &Btf<'_>) -> Result<u32, OffsetError> {
    let params =
        btf.tracepoint("sched_switch").ok_or_else(|| OffsetError::Missing("tracepoint sched_switch".into()))?;
    match params.len() {
        3 => Ok(0),
        4.. => Ok(1),
        _ => Err(OffsetError::Layout("tracepoint sched_switch".into())),
    }
}

/// Up to 5.10 the queue came before the request; late stable releases of 5.10 and all later kernels have none.
fn request_argument(btf: &Btf<'_>) -> Result<u32, OffsetError> {
    let place = |name: &str| {
        let params = btf.tracepoint(name).ok_or_else(|| OffsetError::Missing(format!("tracepoint {name}")))?;
        match params.iter().position(|p| p == b"request") {
            Some(i @ 0..=1) => Ok(i as u32),
            _ => Err(OffsetError::Layout(format!("tracepoint {name}"))),
        }
    };
    let (issue, insert) = (place("block_rq_issue")?, place("block_rq_insert")?);
    if issue == insert { Ok(issue) } else { Err(OffsetError::Layout("tracepoint block_rq_insert".into())) }
}

/// All structures of one name that have the members by which the right one is known. BTF often holds several: copies
/// that deduplication left over, and foreign ones that only share the name.
struct Layout<'b, 'd> {
    btf: &'b Btf<'d>,
    name: &'static str,
    ids: Vec<TypeId>,
}

impl<'b, 'd> Layout<'b, 'd> {
    fn new(btf: &'b Btf<'d>, name: &'static str, marks: &[&str]) -> Result<Layout<'b, 'd>, OffsetError> {
        let has_all = |id: &TypeId| marks.iter().all(|m| btf.member(*id, &[m]).is_some());
        let ids: Vec<_> = btf.structs(name).filter(has_all).collect();
        if !ids.is_empty() {
            return Ok(Layout { btf, name, ids });
        }
        // Name the member that is missing rather than the whole structure.
        let lacking = marks.iter().find(|m| !btf.structs(name).any(|id| btf.member(id, &[m]).is_some()));
        Err(OffsetError::Missing(match lacking {
            Some(member) if btf.structs(name).next().is_some() => format!("{name}.{member}"),
            _ => format!("struct {name}"),
        }))
    }

    fn path(&self, path: &[&str]) -> String {
        format!("{}.{}", self.name, path.join("."))
    }

    fn find(&self, path: &[&str]) -> Result<Option<Member>, OffsetError> {
        let mut found: Option<Member> = None;
        for m in self.ids.iter().filter_map(|id| self.btf.member(*id, path)) {
            match found {
                Some(f) if (f.bit, f.width) != (m.bit, m.width) => return Err(OffsetError::Ambiguous(self.path(path))),
                _ => found = Some(m),
            }
        }
        Ok(found)
    }

    fn need(&self, path: &[&str]) -> Result<Member, OffsetError> {
        self.find(path)?.ok_or_else(|| OffsetError::Missing(self.path(path)))
    }

    /// Offset in bytes of an ordinary member.
    fn byte(&self, path: &[&str]) -> Result<u32, OffsetError> {
        match self.need(path)? {
            Member { bit, width: None, .. } if bit % 8 == 0 => Ok(bit / 8),
            _ => Err(OffsetError::Layout(self.path(path))),
        }
    }

    fn byte_or_absent(&self, path: &[&str]) -> Result<u32, OffsetError> {
        if self.find(path)?.is_none() { Ok(ABSENT) } else { self.byte(path) }
    }

    fn size(&self) -> Result<u32, OffsetError> {
        let mut sizes = self.ids.iter().filter_map(|id| self.btf.size(*id));
        let first = sizes.next().ok_or_else(|| OffsetError::Missing(format!("struct {}", self.name)))?;
        if sizes.all(|s| s == first) { Ok(first) } else { Err(OffsetError::Ambiguous(format!("struct {}", self.name))) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::btf::tests::Blob;
    use super::*;

    /// A kernel of the newest layout with `long` members 8 bytes apart; `edit` may drop or rename members.
    fn kernel(edit: impl Fn(&str, &mut Vec<&'static str>), queue_argument: bool, helper: bool) -> Vec<u8> {
        let mut b = Blob::default();
        let long = b.int("long", 8);
        let path = b.structure("path", 16, &[("mnt", long, 0), ("dentry", long, 64)]);
        let qstr = b.structure("qstr", 16, &[("hash", long, 0), ("name", long, 64)]);
        let mut ids = std::collections::HashMap::new();
        for (name, members) in [
            ("task_struct", vec!["pid", "tgid", "__state", "comm", "stack", "flags", "files", "in_iowait"]),
            ("files_struct", vec!["fdt"]),
            ("fdtable", vec!["max_fds", "fd"]),
            ("file", vec!["f_inode", "f_path"]),
            ("inode", vec!["i_ino", "i_mode", "i_rdev", "i_sb"]),
            ("super_block", vec!["s_dev", "s_magic"]),
            ("folio", vec!["flags", "mapping"]),
            ("address_space", vec!["host"]),
            ("dentry", vec!["d_parent", "d_name"]),
            ("request", vec!["q", "__sector", "__data_len", "cmd_flags", "start_time_ns"]),
            ("request_queue", vec!["disk"]),
            ("gendisk", vec!["major", "first_minor"]),
            ("pt_regs", vec!["orig_ax", "di", "si", "dx", "r10", "ip"]),
        ] {
            let mut members = members;
            edit(name, &mut members);
            let ty = |m: &str| match m {
                "f_path" => path,
                "d_name" => qstr,
                _ => long,
            };
            let list: Vec<_> = members.iter().enumerate().map(|(i, m)| (*m, ty(m), i as u32 * 64)).collect();
            ids.insert(name, b.structure(name, list.len() as u32 * 8, &list));
        }
        let (rq, q) = (b.pointer(ids["request"]), b.pointer(ids["request_queue"]));
        let request: &[u32] = if queue_argument { &[q, rq] } else { &[rq] };
        b.tracepoint("block_rq_issue", request);
        b.tracepoint("block_rq_insert", request);
        b.tracepoint("sched_switch", if queue_argument { &[0, 0, 0] } else { &[0, 0, 0, 0] });
        b.enumeration("bpf_func_id", if helper { &["BPF_FUNC_task_pt_regs"] } else { &["BPF_FUNC_unspec"] });
        b.finish()
    }

    #[test]
    fn a_new_kernel_resolves() {
        let k = resolve(&kernel(|_, _| {}, false, true)).unwrap();
        assert_eq!((k.task_pid, k.task_tgid, k.task_state, k.task_comm), (0, 8, 16, 24));
        assert_eq!((k.task_iowait_byte, k.task_iowait_mask), (56, 0xff));
        assert_eq!((k.file_dentry, k.dentry_name), (8 + 8, 8 + 8));
        assert_eq!((k.rq_disk, k.queue_disk, k.rq_start), (ABSENT, 0, 32));
        assert_eq!((k.folio_mapping, k.mapping_host), (8, 0));
        assert_eq!((k.switch_has_state, k.rq_arg, k.has_pt_regs_helper), (1, 0, 1));
        assert_eq!((k.thread_size, k.regs_from_stack), (16384, 16384 - 6 * 8), "six registers in this pt_regs");
    }

    #[test]
    fn an_old_kernel_resolves() {
        let old = |name: &str, m: &mut Vec<&'static str>| match name {
            "task_struct" => m[2] = "state",
            "request" => m.push("rq_disk"),
            "request_queue" => m[0] = "nothing",
            _ => {}
        };
        let k = resolve(&kernel(old, true, false)).unwrap();
        assert_eq!((k.task_state, k.rq_disk, k.queue_disk), (16, 40, ABSENT));
        assert_eq!((k.switch_has_state, k.rq_arg, k.has_pt_regs_helper), (0, 1, 0));
    }

    #[test]
    fn what_is_missing_is_named() {
        let without = |name: &'static str, member: &'static str| {
            kernel(move |n, m| m.retain(|x| !(n == name && *x == member)), false, true)
        };
        let missing = |blob: &[u8]| match resolve(blob) {
            Err(OffsetError::Missing(what)) => what,
            other => panic!("{other:?}"),
        };
        assert_eq!(missing(&without("task_struct", "pid")), "task_struct.pid");
        assert_eq!(missing(&without("task_struct", "__state")), "task_struct.state");
        assert_eq!(missing(&without("inode", "i_sb")), "inode.i_sb");
        assert_eq!(missing(&without("request_queue", "disk")), "request_queue.disk or request.rq_disk");
        assert_eq!(missing(&Blob::default().finish()), "struct task_struct");
    }

    #[test]
    fn damaged_blobs_give_errors_and_never_panic() {
        let whole = kernel(|_, _| {}, false, true);
        for len in 0..whole.len() {
            assert!(resolve(&whole[..len]).is_err(), "cut to {len}");
        }
        // Any single flipped bit: an answer or an error, but it comes back.
        for bit in 0..whole.len() * 8 {
            let mut bad = whole.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let _ = resolve(&bad);
        }
    }

    #[test]
    fn the_running_kernel_resolves() {
        let blob = std::fs::read("/sys/kernel/btf/vmlinux").expect("the running kernel needs BTF");
        let k = resolve(&blob).unwrap();
        assert_eq!(k.task_iowait_mask.count_ones(), 1, "in_iowait is one bit");
        assert_eq!(k.regs_orig_ax, 15 * 8, "x86-64 system call ABI");
        assert_ne!(k.folio_mapping, ABSENT);
        assert_eq!((k.regs_di, k.regs_dx, k.regs_r10), (14 * 8, 12 * 8, 7 * 8));
        assert_eq!(k.regs_ip, 16 * 8);
        assert_eq!(k.task_tgid, k.task_pid + 4);
        assert!(k.regs_from_stack < k.thread_size && k.thread_size.is_multiple_of(4096));
    }
}
