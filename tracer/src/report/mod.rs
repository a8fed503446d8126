//! The report: one model, printed as text for people and as JSON for programs.

mod model;

pub use model::{
    CauseShare, ChainLink, Competitor, DeviceReport, Gap, GapGroup, GpuReport, HistogramSummary, HotImage, Overhead,
    PathWait, RecordingInfo, Report, SCHEMA, TargetInfo, ThreadReport, TopWait,
};
