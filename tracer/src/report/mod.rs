//! The report: one model, printed as text for people and as JSON for programs.

mod assemble;
mod escape;
mod evidence;
mod feeding;
mod from_file;
mod json;
mod model;
pub mod tables;
mod text;
mod words;

#[cfg(test)]
mod fixtures;

pub use assemble::{Parts, assemble};
pub use escape::printable;
pub use from_file::{Options, ReportError, of_file};
pub use json::to_json;

pub use model::{
    CauseShare, ChainLink, Competitor, DeviceReport, Gap, GapGroup, GpuReport, HistogramSummary, HotImage, Overhead,
    PathWait, RecordingInfo, Report, SCHEMA, TargetInfo, ThreadReport, TopWait,
};
pub use text::render;
