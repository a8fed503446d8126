//! What one block holds.

use super::Trailer;
use crate::events::{BlockRequest, CpuSample, Event, OffCpu};

/// The content of one block, in the order in which it was pushed.
#[derive(Clone, Debug, PartialEq)]
pub enum Batch {
    /// Off-CPU intervals.
    OffCpu(Vec<OffCpu>),
    /// On-CPU samples.
    CpuSample(Vec<CpuSample>),
    /// Block requests.
    Block(Vec<BlockRequest>),
    /// Events of every other family.
    Other(Vec<Event>),
    /// The recording was ended cleanly; nothing follows.
    Trailer(Trailer),
}

impl Batch {
    /// Number of events in it.
    pub fn len(&self) -> usize {
        match self {
            Batch::OffCpu(rows) => rows.len(),
            Batch::CpuSample(rows) => rows.len(),
            Batch::Block(rows) => rows.len(),
            Batch::Other(events) => events.len(),
            Batch::Trailer(_) => 0,
        }
    }

    /// Whether there is no event in it, as in the trailer.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its events one by one, whatever their family; none for the trailer.
    pub fn into_events(self) -> Vec<Event> {
        match self {
            Batch::OffCpu(rows) => rows.into_iter().map(Event::OffCpu).collect(),
            Batch::CpuSample(rows) => rows.into_iter().map(Event::CpuSample).collect(),
            Batch::Block(rows) => rows.into_iter().map(Event::Block).collect(),
            Batch::Other(events) => events,
            Batch::Trailer(_) => Vec::new(),
        }
    }
}
