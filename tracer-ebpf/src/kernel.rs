//! Reading the kernel's own structures, at the offsets that user space found in the running kernel's BTF.

use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::helpers::generated::{
    bpf_get_current_task, bpf_get_current_task_btf, bpf_probe_read_kernel, bpf_task_pt_regs,
};
use core::mem::MaybeUninit;
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
        unsafe {
            let mut value = MaybeUninit::<T>::uninit();
            // On failure the helper fills the room with zeros.
            bpf_probe_read_kernel(
                value.as_mut_ptr().cast(),
                size_of::<T>() as u32,
                object.wrapping_add(offset as usize).cast(),
            );
            value.assume_init()
        }
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

/// The current task.
#[derive(Clone, Copy)]
pub struct Current(*const u8);

impl Current {
    /// Asks for it: a call, so once for each run of a program.
    #[inline(always)]
    pub fn task() -> Current {
        // SAFETY: no preconditions.
        unsafe {
            if offset!(has_pt_regs_helper) != 0 {
                Current(bpf_get_current_task_btf().cast_const().cast())
            } else {
                Current(bpf_get_current_task() as *const u8)
            }
        }
    }

    /// Reads a member of its `task_struct`.
    #[inline(always)]
    pub fn read<T: Copy + Default>(self, offset: u32) -> T {
        // SAFETY: offsets are those of `task_struct`.
        unsafe {
            if offset!(has_pt_regs_helper) != 0 { Direct::read(self.0, offset) } else { Probed::read(self.0, offset) }
        }
    }

    /// The user registers saved at its last entry into the kernel.
    #[inline(always)]
    pub fn registers(self) -> Registers {
        if offset!(has_pt_regs_helper) != 0 {
            // SAFETY: the helper takes any task.
            Registers(unsafe { bpf_task_pt_regs(self.0.cast_mut().cast()) } as *const u8)
        } else {
            let stack = self.read::<u64>(offset!(task_stack)) as *const u8;
            Registers(stack.wrapping_add(offset!(regs_from_stack) as usize))
        }
    }
}

/// Saved user registers of the current task. Meaningless for a kernel thread, which has none.
#[derive(Clone, Copy)]
pub struct Registers(*const u8);

impl Registers {
    /// Reads one.
    #[inline(always)]
    pub fn read(self, register: u32) -> u64 {
        // SAFETY: the offset is that of a register in `pt_regs`.
        unsafe {
            if offset!(has_pt_regs_helper) != 0 {
                Direct::read(self.0, register)
            } else {
                Probed::read(self.0, register)
            }
        }
    }

    /// The system call, number only.
    #[inline(always)]
    pub fn call_number(self) -> i16 {
        call_number(self.read(offset!(regs_orig_ax)))
    }

    /// The system call with its first argument.
    #[inline(always)]
    pub fn call(self) -> Call {
        let nr = self.call_number();
        let arg0 = if nr == NO_SYSCALL { 0 } else { self.read(offset!(regs_di)) };
        Call { nr, arg0 }
    }
}

/// Reads a member of the current task.
#[inline(always)]
pub fn current<T: Copy + Default>(offset: u32) -> T {
    Current::task().read(offset)
}

/// The system call that a task is in, with its first argument, from the registers saved at its entry.
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
    Current::task().registers().read(register)
}

/// The current task's system call, number only.
#[inline(always)]
pub fn current_call_number() -> i16 {
    Current::task().registers().call_number()
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
pub fn call_file(task: Current, registers: Registers, call: Call) -> *const u8 {
    let fd = match call.nr {
        NO_SYSCALL => return core::ptr::null(),
        // SAFETY: the helper checks the address.
        POLL | PPOLL => match unsafe { bpf_probe_read_user(call.arg0 as *const u32) } {
            Ok(fd) => fd,
            Err(_) => return core::ptr::null(),
        },
        SENDFILE => registers.read(offset!(regs_si)) as u32,
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
    file_of(task, fd)
}

/// The open file behind a descriptor of the current task; null if there is none.
#[inline(always)]
fn file_of(task: Current, fd: u32) -> *const u8 {
    if offset!(task_files) == ABSENT || offset!(files_fdt) == ABSENT {
        return core::ptr::null();
    }
    let (max_fds, slots): (u32, u64);
    if offset!(has_pt_regs_helper) != 0 {
        // The verifier follows these types, so plain loads will do: half the cost of a look at the file.
        // SAFETY: offsets are those of the members that the comments name.
        unsafe {
            let files = task.read::<u64>(offset!(task_files)) as *const u8;
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
        let files = task.read::<u64>(offset!(task_files)) as *const u8;
        let table = probe::<u64>(files, offset!(files_fdt)) as *const u8;
        (max_fds, slots) = (probe(table, offset!(fdt_max_fds)), probe(table, offset!(fdt_fd)));
    }
    if fd >= max_fds {
        return core::ptr::null();
    }
    probe::<u64>((slots as *const u8).wrapping_add(fd as usize * 8), 0) as *const u8
}

/// As much of an inode or a super block as one read fetches: on current kernels all that is asked for.
const HEAD: usize = 80;

/// The start of a structure, fetched at once: a read costs about as much for eighty bytes as for eight.
struct Head(MaybeUninit<[u64; HEAD / 8]>);

impl Head {
    #[inline(always)]
    fn of(object: *const u8) -> Head {
        let mut head = MaybeUninit::uninit();
        // SAFETY: the helper checks the address, and fills the room with zeros if it cannot read from there.
        unsafe { bpf_probe_read_kernel((&raw mut head).cast(), HEAD as u32, object.cast()) };
        Head(head)
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
    let mut id = FileId::default();
    // SAFETY: a valid place to write to.
    unsafe { update_file_id(file, &raw mut id, core::ptr::null_mut()) };
    id
}

/// Writes the identity of an open file over one that was read from the super block at `known`. The super block, which files
/// in a row mostly share, is read only if it is another one.
///
/// # Safety
/// `id` must be valid; `known` may be null, or else must be valid too.
#[inline(always)]
pub unsafe fn update_file_id(file: *const u8, id: *mut FileId, known: *mut u64) {
    let inode = probe::<u64>(file, offset!(file_inode)) as *const u8;
    // SAFETY: the caller's promise.
    unsafe { update_inode_id(inode, id, known) }
}

/// The same by the file's inode.
///
/// # Safety
/// As for [`update_file_id`].
#[inline(always)]
pub unsafe fn update_inode_id(inode: *const u8, id: *mut FileId, known: *mut u64) {
    let head = Head::of(inode);
    let sb = head.member::<u64>(inode, offset!(inode_sb));
    // SAFETY: the caller's promise.
    unsafe {
        (*id).ino = head.member(inode, offset!(inode_ino));
        (*id).rdev = head.member(inode, offset!(inode_rdev));
        (*id).mode = head.member(inode, offset!(inode_mode));
        if known.is_null() || sb == 0 || sb != *known {
            // `s_magic` is an `unsigned long`; little-endian, so its low half comes first.
            (*id).dev = probe(sb as *const u8, offset!(sb_dev));
            (*id).magic = probe(sb as *const u8, offset!(sb_magic));
            if !known.is_null() {
                *known = sb;
            }
        }
    }
}
