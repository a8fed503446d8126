//! The recording: one append-only file that survives a crash and can be read elsewhere.

mod header;

pub use header::{ClockReading, Cost, FORMAT_VERSION, Header, ProbeStatus, ProgramCost, Target, Trailer};
