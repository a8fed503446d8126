//! GPU evidence: NVML samples and imported traces, in one model.

mod clock;
mod doubt;
mod driver;
mod error;
mod evidence;
pub mod lag;
mod nvml;
mod samples;
mod state;
mod thread;
mod trace;
mod windows;

pub use clock::StampClock;
pub use doubt::{Doubt, doubt};
pub use error::{GpuUnavailable, TraceError};
pub use evidence::{Activity, BusyInterval, GpuActivity, GpuSource};
pub use nvml::{DEFAULT_LIBRARY, NvmlSource};
pub use samples::{RawSample, WindowBuilder};
pub use state::{is_throttled, state_sentences};
pub use thread::{GpuThread, spawn};
pub use trace::{ImportedTrace, RecordingClocks, TraceKind, busy_line, check_overlap, merge_traces, read_trace};
pub use windows::{begin_work, end_work, pool, probable_begin, probable_end, windows_to_activity};
