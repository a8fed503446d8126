//! What the tracer knows: one file per event family, decoded from the kernel's records or read by user space, in types
//! that the rest of the program understands without knowing the kernel.

mod block;
mod files;
mod gpu;
mod host;
mod loss;
mod samples;
mod sched;
pub mod syscalls;
mod tasks;

pub use block::{BlockOp, BlockRequest, Submitter};
pub use files::{FileOpen, FileRef, FileType, NamedFile, OpenOutcome};
pub use gpu::{GpuDevice, GpuProcess, GpuState, GpuWindow};
pub use host::{CgroupCpu, HostSample, Pressure};
pub use loss::{Loss, LossKind};
pub use samples::{CpuSample, ImageId, ImageName};
pub use sched::{OffCpu, SleepState, Syscall, Waker, Wakeup};
pub use tasks::{TaskEvent, TaskWhat, ThreadName};

/// Anything that a recording holds besides its header.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A thread was off the CPU.
    OffCpu(OffCpu),
    /// What a running thread was doing.
    CpuSample(CpuSample),
    /// A block request completed.
    Block(BlockRequest),
    /// A file was opened.
    Open(FileOpen),
    /// Where a file lies.
    NamedFile(NamedFile),
    /// Name of an image (executable or library) that samples refer to.
    ImageName(ImageName),
    /// A task was made, renamed, replaced or ended.
    Task(TaskEvent),
    /// Name of a thread outside the target (a competitor or waker), or of a target thread as of the stop.
    ThreadName(ThreadName),
    /// A GPU that is watched.
    GpuDevice(GpuDevice),
    /// GPU utilization over a window.
    GpuWindow(GpuWindow),
    /// Memory, power, clocks and throttle reasons of a GPU at one moment.
    GpuState(GpuState),
    /// A process that uses a GPU.
    GpuProcess(GpuProcess),
    /// State of the host at one moment.
    Host(HostSample),
    /// Events that did not make it into the recording.
    Loss(Loss),
}
