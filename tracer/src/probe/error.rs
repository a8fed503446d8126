//! Why tracing could not start.

use super::offsets::OffsetError;
use crate::units::Pid;
use std::io;

/// Why tracing could not start; each text says what failed and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// There is no such process.
    #[error("no process has the id {0}; find the training process with `pgrep -af python` or `nvidia-smi`")]
    NoSuchProcess(Pid),
    /// The id is that of a thread.
    #[error("{0} is a thread of process {1}; trace the process with --pid {1}")]
    Thread(Pid, Pid),
    /// It ended while the kernel programs were being attached.
    #[error("process {0} ended before tracing could start; start the job again and attach while it runs")]
    Died(Pid),
    /// It is a kernel thread.
    #[error("{0} is a kernel thread, which uses no GPU; give the id of the training process (`nvidia-smi` lists it)")]
    KernelThread(Pid),
    /// It is gpustall.
    #[error("{0} is gpustall itself; give the id of the training process")]
    Own(Pid),
    /// gpustall runs in a pid namespace of its own.
    #[error(
        "gpustall runs inside a container with its own process ids, which the kernel programs do not know; run it on \
         the host, or start the container with the host's (docker run --pid=host --privileged)"
    )]
    PidNamespace,
    /// The kernel does not let this user load programs.
    #[error(
        "the kernel does not permit loading tracing programs ({0}); run gpustall with sudo, or give it CAP_BPF and \
         CAP_PERFMON"
    )]
    NotPermitted(io::Error),
    /// As root, and still not permitted.
    #[error(
        "the kernel refuses tracing programs even from root ({0}); lockdown or a container's security profile is in \
         the way (see /sys/kernel/security/lockdown, or run on the host)"
    )]
    LockedDown(io::Error),
    /// No type information.
    #[error(
        "this kernel has no type information ({path}: {error}); use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as \
         the current ones of all large distributions are"
    )]
    NoBtf {
        /// File that should hold it.
        path: &'static str,
        /// Why it cannot be read.
        error: String,
    },
    /// A structure has not the expected shape.
    #[error(transparent)]
    Offsets(#[from] OffsetError),
    /// A program without which there is nothing to record was refused.
    #[error(
        "the kernel refused the program {program} ({error}); gpustall needs Linux 5.10 or later on x86-64; run again \
         with -v for the kernel's own words"
    )]
    Refused {
        /// Which one.
        program: &'static str,
        /// The kernel's error, without the verifier's log.
        error: String,
    },
    /// The object or its maps could not be set up.
    #[error("the kernel programs could not be set up ({0}); run again with -v for details")]
    Setup(String),
    /// /proc could not be read.
    #[error("cannot read {path}: {error}; gpustall needs /proc mounted and readable")]
    Proc {
        /// File or folder.
        path: String,
        /// Why not.
        error: io::Error,
    },
}
