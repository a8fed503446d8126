//! The records that gpustall's kernel programs write and its user space reads: plain `#[repr(C)]` types, one group per
//! event family, and the read-only configuration that user space fills in before the programs are loaded.
//!
//! All times are nanoseconds of `CLOCK_MONOTONIC` (`bpf_ktime_get_ns`). All ids are those of the initial pid namespace:
//! a *tid* names a thread (`task_struct.pid`), a *pid* its process (`task_struct.tgid`).
//!
//! Every record starts with a [`Kind`] as `u32`, which also fixes its size.
#![no_std]

/// What a record is; the first four bytes of each.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`OffCpu`] without the file.
    OffCpu = 1,
    /// [`OffCpuFile`]: the same, and the file behind the descriptor that the thread blocked on.
    OffCpuFile = 2,
    /// [`CpuSample`].
    CpuSample = 3,
    /// [`BlockRequest`].
    BlockRequest = 4,
    /// [`FileOpen`].
    FileOpen = 5,
    /// [`FilePath`].
    FilePath = 6,
    /// [`Task`].
    Task = 7,
}

/// Absent offset: the running kernel has no such field.
pub const ABSENT: u32 = u32::MAX;

/// Value of [`OffCpu::syscall`] and [`CpuSample::syscall`] outside any system call: user code, or a page fault.
pub const NO_SYSCALL: i16 = -1;
/// In a sample: outside any system call, yet in the kernel, hence in a page fault.
pub const PAGE_FAULT: i16 = -2;

/// The interval began before the tracer was attached; its start is the time of the attach.
pub const FLAG_SEEDED: u16 = 1 << 0;
/// The thread was counted as waiting for disk (`task_struct.in_iowait`) when it left the CPU.
pub const FLAG_IOWAIT: u16 = 1 << 1;
/// The waking came from an interrupt (timer, device, network): there is no waking thread.
pub const FLAG_WAKER_INTERRUPT: u16 = 1 << 2;
/// The waking thread is a kernel thread (`PF_KTHREAD`).
pub const FLAG_WAKER_KTHREAD: u16 = 1 << 3;
/// First time on a CPU after the fork: the interval starts when the thread was made runnable.
pub const FLAG_NEW: u16 = 1 << 4;
/// The wait had not ended when the recording stopped; `on_ns` is the time of the stop.
pub const FLAG_PENDING: u16 = 1 << 5;
/// The waking came before the thread had left the CPU; `wake_ns` equals `off_ns`.
pub const FLAG_EARLY_WAKE: u16 = 1 << 6;
/// The thread left the CPU while still runnable: preempted, or it called `sched_yield`.
pub const FLAG_PREEMPTED: u16 = 1 << 7;

/// One time off the CPU of one target thread: from the switch away from it to the switch back to it.
///
/// Blocked time is `off_ns..wake_ns`, run-queue time `wake_ns..on_ns`. A preempted thread is on the run queue all along.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct OffCpu {
    /// [`Kind::OffCpu`] or [`Kind::OffCpuFile`].
    pub kind: u32,
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// CPU on which it runs again.
    pub cpu: u16,
    /// `FLAG_*`.
    pub flags: u16,
    /// It left the CPU.
    pub off_ns: u64,
    /// It was woken; 0 when there was no waking (preempted).
    pub wake_ns: u64,
    /// It runs again.
    pub on_ns: u64,
    /// First argument of the system call it was in (a descriptor, a futex address); 0 outside system calls. For [`POLL`],
    /// [`EPOLL_WAIT`] and [`EPOLL_PWAIT`] the time-out instead, milliseconds as a sign-extended `int`, negative for none.
    pub arg0: u64,
    /// Waking thread; 0 if none, or if an interrupt hit the idle task.
    pub waker_tid: u32,
    /// Process of the waking thread.
    pub waker_pid: u32,
    /// Thread that got the CPU when this one left it; 0 is the idle task.
    pub next_tid: u32,
    /// Thread that had the CPU before this one got it back; 0 is the idle task.
    pub prev_tid: u32,
    /// System call it was in when it left the CPU (x86-64 numbers), or [`NO_SYSCALL`].
    pub syscall: i16,
    /// System call that the waking thread was in, or [`NO_SYSCALL`].
    pub waker_syscall: i16,
    /// Scheduler state at the switch, masked to 16 bits (1 interruptible, 2 uninterruptible, 0 runnable).
    pub state: u16,
    /// Unused, zero.
    pub pad: u16,
}

/// Identity of a file as the kernel sees it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileId {
    /// Inode number.
    pub ino: u64,
    /// Device of the file system, kernel encoding (`major << 20 | minor`).
    pub dev: u32,
    /// Device that the file stands for, for device nodes (same encoding); otherwise 0.
    pub rdev: u32,
    /// File-system magic (`super_block.s_magic`, low 32 bits; the values of `linux/magic.h`).
    pub magic: u32,
    /// `i_mode`: type and permissions.
    pub mode: u16,
    /// Unused, zero.
    pub pad: u16,
}

/// [`OffCpu`] with the file behind the descriptor in its first argument (for `poll`: behind the first descriptor polled).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct OffCpuFile {
    /// The interval; its kind is [`Kind::OffCpuFile`].
    pub off: OffCpu,
    /// The file, read when the thread left the CPU.
    pub file: FileId,
}

impl OffCpuFile {
    /// Turns the state of a thread that runs again (or whose recording ends) into a record: drops the waking of a thread
    /// that was runnable all along, moves one that came before the switch-out to `off_ns`, and adds the waker's flags,
    /// which wait in `pad` so that the waker and the switch-out never write the same field. False if the times run
    /// backwards, so that there is no record to make.
    #[inline(always)]
    pub fn settle(&mut self) -> bool {
        let off = &mut self.off;
        if off.flags & FLAG_PREEMPTED != 0 || off.wake_ns == 0 {
            off.wake_ns = 0;
            off.waker_tid = 0;
            off.waker_pid = 0;
            off.waker_syscall = NO_SYSCALL;
        } else {
            off.flags |= off.pad;
            if off.wake_ns < off.off_ns {
                off.flags |= FLAG_EARLY_WAKE;
                off.wake_ns = off.off_ns;
            }
        }
        off.pad = 0;
        off.off_ns <= off.on_ns && off.wake_ns <= off.on_ns
    }
}

/// The interval that a target thread is in, as the maps keep it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// The record that it becomes. `off_ns` is 0 while the thread runs.
    pub record: OffCpuFile,
    /// Address of the super block that `record.file.dev` and `record.file.magic` were read from; 0 if from none.
    pub sb: u64,
    /// 1 if `record.file` is the file that the thread has just faulted a page of; it may be about to wait for it.
    pub fault: u64,
}

/// Slots of the array of states, a power of two: the state of a thread is in the slot of its id modulo this number, or else
/// in a hash map.
pub const HOMES: u32 = 16_384;

/// One sample of what a running target thread was doing.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuSample {
    /// [`Kind::CpuSample`].
    pub kind: u32,
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// CPU it ran on.
    pub cpu: u16,
    /// System call it was in, [`NO_SYSCALL`] for user code, or [`PAGE_FAULT`].
    pub syscall: i16,
    /// Time of the sample.
    pub time_ns: u64,
    /// User-space instruction pointer: where user code was, or from where it entered the kernel.
    pub user_ip: u64,
    /// File behind the first argument, where the system call takes a descriptor; otherwise zeros.
    pub file: FileId,
}

/// The submitter of a [`BlockRequest`] is a kernel thread (write-back, throttled or merged work), so nobody in particular.
pub const BLOCK_BY_KTHREAD: u16 = 1 << 0;
/// The submitter of a [`BlockRequest`] belongs to the target.
pub const BLOCK_BY_TARGET: u16 = 1 << 1;
/// The time at which the request entered its queue is not known; `start_ns` equals `issue_ns`.
pub const BLOCK_NO_START: u16 = 1 << 2;

/// One block request, written when it completes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockRequest {
    /// [`Kind::BlockRequest`].
    pub kind: u32,
    /// Device, kernel encoding (`major << 20 | minor`).
    pub dev: u32,
    /// The request entered the queue.
    pub start_ns: u64,
    /// It was handed to the device.
    pub issue_ns: u64,
    /// It completed.
    pub complete_ns: u64,
    /// First sector (512 bytes each).
    pub sector: u64,
    /// Length in bytes.
    pub bytes: u32,
    /// Operation and flags (`request.cmd_flags`; the low 8 bits are `enum req_op`).
    pub cmd_flags: u32,
    /// Thread that submitted it.
    pub tid: u32,
    /// Process of that thread.
    pub pid: u32,
    /// `BLOCK_*`.
    pub flags: u16,
    /// Unused, zero.
    pub pad: [u16; 3],
}

/// The open was seen because it blocked, not through the open probe; `result` and `latency_ns` are unknown (0).
pub const OPEN_BLOCKED: u32 = 1 << 0;
/// Longest path recorded, with its closing NUL; longer ones are cut.
pub const PATH_MAX: usize = 256;

/// One file open by a target thread, or any other path-taking system call that blocked. Written with only as many bytes
/// of `path` as are used (`path_len`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FileOpen {
    /// [`Kind::FileOpen`].
    pub kind: u32,
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// `OPEN_*`.
    pub flags: u32,
    /// Start of the call; with [`OPEN_BLOCKED`] the `off_ns` of the interval that the call blocked in.
    pub time_ns: u64,
    /// How long the call took.
    pub latency_ns: u64,
    /// Descriptor, or negated errno.
    pub result: i32,
    /// Open flags (`O_*`).
    pub open_flags: u32,
    /// System call number.
    pub syscall: i16,
    /// Bytes of the path that follow, without NUL.
    pub path_len: u16,
    /// Unused, zero.
    pub pad: u32,
    /// The path as the caller gave it.
    pub path: [u8; PATH_MAX],
}

/// Most path components recorded in a [`FilePath`], from the file upwards.
pub const PATH_PARTS: usize = 10;
/// Bytes kept of each path component, with its closing NUL.
pub const PART_MAX: usize = 40;

/// Where a file lies inside its mount, read from the dentries the first time a target thread blocks on it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FilePath {
    /// [`Kind::FilePath`].
    pub kind: u32,
    /// Components in use.
    pub parts: u32,
    /// The file.
    pub file: FileId,
    /// Process that used it.
    pub pid: u32,
    /// Descriptor through which it was used.
    pub fd: u32,
    /// Names, the file's own first, then its directories; each closed by NUL.
    pub names: [[u8; PART_MAX]; PATH_PARTS],
}

/// What happened to a task.
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// `other_tid` made `tid` (a thread if their pids agree, a process otherwise).
    Fork = 1,
    /// `tid` runs another program; `other_tid` is its thread id before the exec.
    Exec = 2,
    /// `tid` ended.
    Exit = 3,
    /// `tid` has a new name.
    Rename = 4,
}

/// Lifecycle of a target thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Task {
    /// [`Kind::Task`].
    pub kind: u32,
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Parent thread (fork) or former thread id (exec); otherwise 0.
    pub other_tid: u32,
    /// When.
    pub time_ns: u64,
    /// [`TaskKind`].
    pub what: u16,
    /// Unused, zero.
    pub pad: [u16; 3],
    /// Name (`comm`), closed by NUL; bytes after the NUL are garbage.
    pub comm: [u8; 16],
}

/// `poll`, whose first argument points at an array of `struct pollfd`.
pub const POLL: i16 = 7;
/// `epoll_wait`; its time-out is the fourth argument, that of [`POLL`] the third.
pub const EPOLL_WAIT: i16 = 232;
/// `epoll_pwait`, with its time-out in the same place.
pub const EPOLL_PWAIT: i16 = 281;
/// `ppoll`, likewise.
pub const PPOLL: i16 = 271;
/// `sendfile`, which reads from the descriptor in its *second* argument.
pub const SENDFILE: i16 = 40;

/// The system calls that wait on the descriptor in their first argument, one bit for each x86-64 number below 512.
pub const FD_CALLS: [u64; 8] = fd_calls();

const fn fd_calls() -> [u64; 8] {
    let calls: [u16; 43] = [
        0, 1, 5, 16, 17, 18, 19, 20, // read write fstat ioctl pread64 pwrite64 readv writev
        42, 43, 44, 45, 46, 47, 48, // connect accept sendto recvfrom sendmsg recvmsg shutdown
        72, 73, 74, 75, 77, 78, // fcntl flock fsync fdatasync ftruncate getdents
        91, 93, 187, 217, 221, 232, // fchmod fchown readahead getdents64 fadvise64 epoll_wait
        275, 276, 277, 278, 281, 285, 288, // splice tee sync_file_range vmsplice epoll_pwait fallocate accept4
        295, 296, 299, 306, 307, 326, // preadv pwritev recvmmsg syncfs sendmmsg copy_file_range
        327, 328, 441, // preadv2 pwritev2 epoll_pwait2
    ];
    let mut bits = [0; 8];
    let mut i = 0;
    while i < calls.len() {
        bits[calls[i] as usize / 64] |= 1 << (calls[i] % 64);
        i += 1;
    }
    bits
}

/// Whether a system call waits on the descriptor in its first argument.
pub const fn waits_on_fd(nr: i16) -> bool {
    nr >= 0 && nr < 512 && FD_CALLS[nr as usize / 64] >> (nr as usize % 64) & 1 != 0
}

/// Slots of the per-CPU counter map.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Off-CPU intervals written or dropped.
    OffCpuEmitted = 0,
    /// Off-CPU intervals lost to a full ring.
    OffCpuDropped = 1,
    /// Samples lost to a full ring.
    SampleDropped = 2,
    /// Block requests lost to a full ring.
    BlockDropped = 3,
    /// Opens and paths lost to a full ring.
    FileDropped = 4,
    /// Task events lost to a full ring.
    TaskDropped = 5,
    /// Threads whose state could not be kept since the state map was full.
    StateFull = 6,
    /// Requests that could not be followed since the request map was full.
    RequestFull = 7,
    /// Intervals discarded since their times ran backwards or their end was not seen.
    BadInterval = 8,
    /// Wakings that came before the sleeper's own switch-out.
    EarlyWake = 9,
    /// Threads outside the range of the target map.
    TidOutOfRange = 10,
}

/// Number of counter slots.
pub const COUNTERS: u32 = 32;
/// Tids a value of the target map covers: one byte per tid, 1 for a target.
pub const TARGET_CHUNK: usize = 4096;

/// Offsets in the running kernel's structures and the shapes of its tracepoints, resolved from BTF by user space and read
/// by the kernel programs as a read-only global, so that the verifier prunes what does not apply. An absent field is
/// [`ABSENT`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is the offset in bytes of the kernel member that it is named after")]
pub struct KernelOffsets {
    pub task_pid: u32,
    pub task_tgid: u32,
    pub task_state: u32,
    pub task_comm: u32,
    pub task_stack: u32,
    pub task_flags: u32,
    pub task_files: u32,
    pub task_iowait_byte: u32,
    /// Mask of the iowait bit inside its byte.
    pub task_iowait_mask: u32,
    pub files_fdt: u32,
    pub fdt_max_fds: u32,
    pub fdt_fd: u32,
    pub file_inode: u32,
    /// `file.f_path.dentry`.
    pub file_dentry: u32,
    pub inode_ino: u32,
    pub inode_mode: u32,
    pub inode_rdev: u32,
    pub inode_sb: u32,
    pub sb_dev: u32,
    pub sb_magic: u32,
    /// `folio.mapping`, before 5.16 `page.mapping`; may be [`ABSENT`].
    pub folio_mapping: u32,
    /// `address_space.host`.
    pub mapping_host: u32,
    pub dentry_parent: u32,
    /// `dentry.d_name.name`.
    pub dentry_name: u32,
    pub rq_q: u32,
    pub rq_sector: u32,
    pub rq_len: u32,
    pub rq_flags: u32,
    pub rq_disk: u32,
    pub rq_start: u32,
    pub queue_disk: u32,
    pub disk_major: u32,
    pub disk_minor: u32,
    pub regs_orig_ax: u32,
    pub regs_di: u32,
    pub regs_si: u32,
    /// `pt_regs.dx`: third argument.
    pub regs_dx: u32,
    /// `pt_regs.r10`: fourth argument.
    pub regs_r10: u32,
    pub regs_ip: u32,
    /// Distance of the saved user registers from `task.stack`, used where the helper is missing (before 5.15).
    pub regs_from_stack: u32,
    /// Size of a kernel stack (`THREAD_SIZE`).
    pub thread_size: u32,
    /// 1 where `sched_switch` passes the previous state as its fourth argument.
    pub switch_has_state: u32,
    /// Argument number of the request in `block_rq_issue` and `block_rq_insert`.
    pub rq_arg: u32,
    /// 1 where `bpf_task_pt_regs` exists (5.15).
    pub has_pt_regs_helper: u32,
}
