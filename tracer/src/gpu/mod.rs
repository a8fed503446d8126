//! GPU evidence: NVML samples and imported traces, in one model.

mod evidence;

pub use evidence::{Activity, BusyInterval, GpuActivity, GpuSource};
