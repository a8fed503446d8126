//! What can go wrong with GPU evidence, in sentences for the person at the terminal.

use std::path::PathBuf;

/// Why there is no evidence from NVML. Recording goes on without it; each text is the one sentence to show.
#[derive(Debug, thiserror::Error)]
pub enum GpuUnavailable {
    /// The driver's library is not installed.
    #[error(
        "GPU utilization is not recorded, everything else is: the NVIDIA driver's library {library} was not found; install \
         the driver, or name the library with --nvml-lib PATH"
    )]
    NoDriver {
        /// What was looked for.
        library: PathBuf,
    },
    /// The library that the person named cannot be loaded.
    #[error(
        "GPU utilization is not recorded, everything else is: the library {library} given with --nvml-lib cannot be loaded \
         ({why}); check the path"
    )]
    BadLibrary {
        /// As given.
        library: PathBuf,
        /// What the loader said.
        why: String,
    },
    /// It loads, but is something else.
    #[error(
        "GPU utilization is not recorded, everything else is: {library} is not an NVML library (it lacks nvmlInit_v2); give \
         the path of libnvidia-ml.so.1 with --nvml-lib"
    )]
    NotNvml {
        /// What was loaded.
        library: PathBuf,
    },
    /// The library is there, the driver behind it does not answer.
    #[error("GPU utilization is not recorded, everything else is: NVML cannot start ({why}); {advice}")]
    Init {
        /// NVML's reason.
        why: String,
        /// What to do.
        advice: &'static str,
    },
    /// The driver runs and knows no GPU.
    #[error(
        "GPU utilization is not recorded, everything else is: the NVIDIA driver runs but shows no GPU; check with nvidia-smi \
         whether one is visible here"
    )]
    NoGpu,
    /// The system has no thread for it.
    #[error(
        "GPU utilization is not recorded, everything else is: no thread could be started for it ({0}); raise the limit on \
         processes (ulimit -u)"
    )]
    NoThread(std::io::Error),
}

/// What is wrong with a GPU trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It cannot be read.
    #[error("the GPU trace {path} cannot be read ({why}); check the path given with --gpu-trace")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        why: std::io::Error,
    },
    /// It is a directory.
    #[error("the GPU trace {path} is a directory; give the file itself with --gpu-trace")]
    Directory {
        /// The path.
        path: PathBuf,
    },
    /// There is nothing in it.
    #[error("the GPU trace {path} is empty; give a file that was written while the GPU worked")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A line is no JSON object.
    #[error(
        "line {line} of the GPU trace {path} is not a JSON object; a busy file has one object a line, such as \
         {{\"t_ns\": 123456789, \"gpu\": 0, \"busy\": true}}"
    )]
    NotJson {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
    },
    /// It is none of the kinds that are read.
    #[error(
        "the GPU trace {path} is of no known kind: give a PyTorch profiler trace (JSON, also gzipped), an Nsight Systems report \
         exported with nsys export --type sqlite, or a busy file"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A gzip file without anything whole in it.
    #[error("the GPU trace {path} is a damaged gzip file: nothing in it can be read; write or copy it again")]
    DamagedGzip {
        /// The file.
        path: PathBuf,
    },
    /// A gzipped SQLite file: SQLite reads back and forth.
    #[error("the GPU trace {path} is a gzipped SQLite file: unpack it with gunzip and give that file")]
    PackedSqlite {
        /// The file.
        path: PathBuf,
    },
    /// A Chrome trace that breaks off before there is GPU work in it.
    #[error(
        "the GPU trace {path} is {} at line {line}, before any GPU work: write it again, and end the profiler before the program \
         ends", if *.cut { "cut off" } else { "damaged" }
    )]
    DamagedEarly {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        /// It ends there.
        cut: bool,
    },
    /// A Chrome trace that does not tell when it began, although it has a place for it.
    #[error(
        "the GPU trace {path} has a \"baseTimeNanoseconds\" that is no whole number, so when its events happened is not known; write \
         the trace again"
    )]
    Base {
        /// The file.
        path: PathBuf,
    },
    /// A Chrome trace without GPU work.
    #[error("the GPU trace {path} has {events} events, but {}", no_gpu_work(*.events, *.absurd))]
    NoGpuWork {
        /// The file.
        path: PathBuf,
        /// Events of all kinds.
        events: u64,
        /// GPU work that makes no sense.
        absurd: u64,
    },
    /// SQLite cannot read it.
    #[error(
        "the GPU trace {path} cannot be read as an SQLite file ({why}); export the report again with nsys export --type sqlite"
    )]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        why: String,
    },
    /// An SQLite file without CUDA activity.
    #[error(
        "the GPU trace {path} is an SQLite file without GPU work{}; profile with nsys profile --trace=cuda and export the report \
         with nsys export --type sqlite", if *.nsight { "" } else { ", and not from Nsight Systems" }
    )]
    NoCuda {
        /// The file.
        path: PathBuf,
        /// It comes from Nsight Systems.
        nsight: bool,
    },
    /// A field is missing or makes no sense.
    #[error("line {line} of the GPU trace {path}: field \"{field}\" {problem}")]
    Field {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        /// Its name.
        field: &'static str,
        /// What is wrong and what is expected.
        problem: &'static str,
    },
    /// No GPU was ever busy in it.
    #[error("the GPU trace has no busy time; give a trace that was written while the GPU worked")]
    NeverBusy,
    /// It is about another time.
    #[error(
        "the GPU trace covers {:.3} s to {:.3} s, the recording {:.3} s to {:.3} s of CLOCK_MONOTONIC: they do not overlap; {hint}",
        trace.0, trace.1, recording.0, recording.1
    )]
    NoOverlap {
        /// First and last busy moment, seconds.
        trace: (f64, f64),
        /// Start and end of the recording, seconds.
        recording: (f64, f64),
        /// What to do.
        hint: &'static str,
    },
    /// It is about another time, by the wall clock.
    #[error(
        "the GPU trace covers {} to {}, the recording {} to {} of the wall clock: they do not overlap; {hint}",
        trace.0, trace.1, recording.0, recording.1
    )]
    NoOverlapWall {
        /// First and last busy moment, UTC.
        trace: (String, String),
        /// Start and end of the recording, UTC.
        recording: (String, String),
        /// What to do.
        hint: &'static str,
    },
}

fn no_gpu_work(events: u64, absurd: u64) -> &'static str {
    match (events, absurd) {
        (0, _) => "a trace of a run with GPU work is needed: write it after the profiler has recorded something",
        (_, 0) => {
            "no GPU work: it was recorded on the CPU only; profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
        }
        _ => "no GPU work that makes sense: times or durations are missing or negative; write the trace again",
    }
}
