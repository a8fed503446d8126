//! Reading the kernel's own structures, at the offsets that user space found in the running kernel's BTF.

use aya_ebpf::helpers::generated::{bpf_get_current_task, bpf_get_current_task_btf, bpf_task_pt_regs};
use aya_ebpf::helpers::{bpf_probe_read_kernel, bpf_probe_read_user};
use core::ptr::read_volatile;
use tracer_ebpf::{ABSENT, FileId, KernelOffsets, NO_SYSCALL, POLL, PPOLL, SENDFILE};

/// Filled in before the load. The map behind it is frozen, so that the verifier knows every value and drops the branches
/// that do not apply to this kernel.
#[unsafe(no_mangle)]
pub static OFFSETS: KernelOffsets =
    // SAFETY: a structure of plain integers.
    unsafe { core::mem::zeroed() };

/// Value of one field of [`OFFSETS`].
macro_rules! offset {
    ($field:ident) => {
        $crate::kernel::load(&raw const $crate::kernel::OFFSETS.$field)
    };
}
pub(crate) use offset;

/// Behind [`offset!`]: a volatile load, or the compiler would use the zeros above.
#[inline(always)]
pub fn load(field: *const u32) -> u32 {
    // SAFETY: the macro names a field of a live static.
    unsafe { read_volatile(field) }
}

/// How a program may read what a pointer from the tracepoint points at.
pub trait Access {
    /// Reads a member of a kernel structure.
    ///
    /// # Safety
    /// `object` must come from the tracepoint, and `offset` must be that of a member of type `T`.
    unsafe fn read<T: Copy + Default>(object: *const u8, offset: u32) -> T;
}

/// For `tp_btf` programs (5.5), whose arguments the verifier knows by type: plain loads, a third of the cost.
pub struct Direct;

impl Access for Direct {
    #[inline(always)]
    unsafe fn read<T: Copy + Default>(object: *const u8, offset: u32) -> T {
        // SAFETY: the verifier checks the load against the type of the object.
        unsafe { read_volatile(object.wrapping_add(offset as usize).cast()) }
    }
}

/// For `raw_tracepoint` programs, and for pointers found on the way: a load that may fail and then gives zero.
pub struct Probed;

impl Access for Probed {
    #[inline(always)]
    unsafe fn read<T: Copy + Default>(object: *const u8, offset: u32) -> T {
        // SAFETY: the helper checks the address.
        unsafe { bpf_probe_read_kernel(object.wrapping_add(offset as usize).cast::<T>()) }.unwrap_or_default()
    }
}

/// Reads a member at an offset that may be absent.
#[inline(always)]
pub fn probe<T: Copy + Default>(object: *const u8, offset: u32) -> T {
    if offset == ABSENT {
        return T::default();
    }
    // SAFETY: the helper checks the address.
    unsafe { Probed::read(object, offset) }
}

/// The current task's `task_struct`, for reads that may fail.
#[inline(always)]
pub fn current_task() -> *const u8 {
    // SAFETY: no preconditions.
    unsafe { bpf_get_current_task() as *const u8 }
}

/// Reads a member of the current task.
#[inline(always)]
pub fn current<T: Copy + Default>(offset: u32) -> T {
    // SAFETY: offsets are those of `task_struct`.
    unsafe {
        if offset!(has_pt_regs_helper) != 0 {
            Direct::read(bpf_get_current_task_btf().cast_const().cast(), offset)
        } else {
            Probed::read(current_task(), offset)
        }
    }
}

/// The system call that the current task is in, with its first arguments, from the registers saved at its entry.
#[derive(Clone, Copy)]
pub struct Call {
    /// x86-64 number, or [`NO_SYSCALL`]: user code, or an exception such as a page fault.
    pub nr: i16,
    /// First argument.
    pub arg0: u64,
}

/// Reads one saved user register of the current task.
#[inline(always)]
pub fn user_register(register: u32) -> u64 {
    // SAFETY: the offset is that of a register in `pt_regs`.
    unsafe {
        if offset!(has_pt_regs_helper) != 0 {
            let regs = bpf_task_pt_regs(bpf_get_current_task_btf()) as *const u8;
            Direct::read(regs, register)
        } else {
            let stack: u64 = Probed::read(current_task(), offset!(task_stack));
            Probed::read(stack as *const u8, offset!(regs_from_stack).wrapping_add(register))
        }
    }
}

/// The current task's system call. Meaningless for a kernel thread, which has no user registers.
#[inline(always)]
pub fn current_call() -> Call {
    let nr = call_number(user_register(offset!(regs_orig_ax)));
    let arg0 = if nr == NO_SYSCALL { 0 } else { user_register(offset!(regs_di)) };
    Call { nr, arg0 }
}

/// The current task's system call, number only.
#[inline(always)]
pub fn current_call_number() -> i16 {
    call_number(user_register(offset!(regs_orig_ax)))
}

#[inline(always)]
fn call_number(orig_ax: u64) -> i16 {
    // Entry from an exception stores -1; x32 numbers (bit 30) are no x86-64 numbers.
    if orig_ax < 1024 { orig_ax as i16 } else { NO_SYSCALL }
}

/// The table as memory, rather than spread over the instructions.
static FD_CALLS: [u64; 8] = tracer_ebpf::FD_CALLS;

/// The open file that the current task's system call works on, where it takes a descriptor; null otherwise.
#[inline(always)]
pub fn call_file(call: Call) -> *const u8 {
    let fd = match call.nr {
        NO_SYSCALL => return core::ptr::null(),
        // SAFETY: the helper checks the address.
        POLL | PPOLL => match unsafe { bpf_probe_read_user(call.arg0 as *const u32) } {
            Ok(fd) => fd,
            Err(_) => return core::ptr::null(),
        },
        SENDFILE => user_register(offset!(regs_si)) as u32,
        nr => {
            let nr = nr as u16 as usize;
            // SAFETY: the mask keeps the index inside.
            let word = unsafe { read_volatile((&raw const FD_CALLS).cast::<u64>().add(nr / 64 & 7)) };
            if nr >= 512 || word >> (nr % 64) & 1 == 0 {
                return core::ptr::null();
            }
            call.arg0 as u32
        }
    };
    file_of(fd)
}

/// The open file behind a descriptor of the current task; null if there is none.
#[inline(always)]
pub fn file_of(fd: u32) -> *const u8 {
    if offset!(task_files) == ABSENT || offset!(files_fdt) == ABSENT {
        return core::ptr::null();
    }
    let (max_fds, slots): (u32, u64);
    if offset!(has_pt_regs_helper) != 0 {
        // The verifier follows these types, so plain loads will do: half the cost of a look at the file.
        // SAFETY: offsets are those of the members that the comments name.
        unsafe {
            let task = bpf_get_current_task_btf().cast_const().cast::<u8>();
            let files = Direct::read::<u64>(task, offset!(task_files)) as *const u8;
            if files.is_null() {
                return files;
            }
            let table = Direct::read::<u64>(files, offset!(files_fdt)) as *const u8;
            if table.is_null() {
                return table;
            }
            (max_fds, slots) = (Direct::read(table, offset!(fdt_max_fds)), Direct::read(table, offset!(fdt_fd)));
        }
    } else {
        let files = current::<u64>(offset!(task_files)) as *const u8;
        let table = probe::<u64>(files, offset!(files_fdt)) as *const u8;
        (max_fds, slots) = (probe(table, offset!(fdt_max_fds)), probe(table, offset!(fdt_fd)));
    }
    if fd >= max_fds {
        return core::ptr::null();
    }
    probe::<u64>((slots as *const u8).wrapping_add(fd as usize * 8), 0) as *const u8
}

/// As much of an inode or a super block as one read fetches.
const HEAD: usize = 112;

/// The start of a structure, fetched at once: a read costs about as much for a hundred bytes as for eight.
struct Head([u64; HEAD / 8]);

impl Head {
    #[inline(always)]
    fn of(object: *const u8) -> Head {
        // SAFETY: the helper checks the address.
        Head(unsafe { bpf_probe_read_kernel(object.cast()) }.unwrap_or_default())
    }

    /// A member: from the part that was fetched, else by a read of its own. The verifier knows which.
    #[inline(always)]
    fn member<T: Copy + Default>(&self, object: *const u8, offset: u32) -> T {
        if offset as usize + size_of::<T>() > HEAD {
            return probe(object, offset);
        }
        // SAFETY: inside the array, as was just checked; members are aligned by themselves.
        unsafe { read_volatile((&raw const self.0).cast::<u8>().add(offset as usize).cast()) }
    }
}

/// Identity of an open file.
#[inline(always)]
pub fn file_id(file: *const u8) -> FileId {
    let inode = probe::<u64>(file, offset!(file_inode)) as *const u8;
    let head = Head::of(inode);
    let sb = head.member::<u64>(inode, offset!(inode_sb)) as *const u8;
    let (ino, rdev) = (head.member(inode, offset!(inode_ino)), head.member(inode, offset!(inode_rdev)));
    let mode = head.member(inode, offset!(inode_mode));
    let head = Head::of(sb);
    // `s_magic` is an `unsigned long`; little-endian, so its low half comes first.
    let (dev, magic) = (head.member(sb, offset!(sb_dev)), head.member(sb, offset!(sb_magic)));
    FileId { ino, dev, rdev, magic, mode, pad: 0 }
}
