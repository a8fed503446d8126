//! Diagnosis: from causes to a verdict with evidence and advice.

mod bottleneck;

pub use bottleneck::Bottleneck;
