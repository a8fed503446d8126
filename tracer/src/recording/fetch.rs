//! Reads single blocks at their places, in any order.

use super::block::{BlockHeader, Family};
use super::compress::Expander;
use super::off_cpu::Shared;
use super::{off_cpu, others, requests, samples};
use crate::events::{BlockRequest, CpuSample, Event, OffCpu};
use crate::units::MonoNs;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Where a block lies in its file, and what its header says of it.
#[derive(Clone, Copy, Debug)]
pub struct BlockRef {
    family: Family,
    header: BlockHeader,
    /// Start of the payload in the file.
    at: u64,
}

impl BlockRef {
    pub(super) fn new(family: Family, header: BlockHeader, at: u64) -> BlockRef {
        BlockRef { family, header, at }
    }

    /// It holds intervals, samples or requests.
    pub(super) fn is_hot(&self) -> bool {
        matches!(self.family, Family::OffCpu | Family::CpuSample | Family::Block)
    }

    /// It holds off-CPU intervals.
    pub fn is_off_cpu(&self) -> bool {
        self.family == Family::OffCpu
    }

    /// It holds on-CPU samples.
    pub fn is_samples(&self) -> bool {
        self.family == Family::CpuSample
    }

    /// It holds block requests.
    pub fn is_requests(&self) -> bool {
        self.family == Family::Block
    }

    /// Number of events in it.
    pub fn count(&self) -> usize {
        self.header.count as usize
    }

    /// Earliest and latest moment that an event in it tells of; zero if none tells any.
    pub fn span(&self) -> (MonoNs, MonoNs) {
        (MonoNs(self.header.first), MonoNs(self.header.last))
    }
}

/// Reads blocks of one file. Every method gives `None` if the block cannot be read, is no longer what it was when it was
/// found, or is of another family; what was shown of it until then must not be used.
pub struct Fetcher {
    file: File,
    expander: Expander,
    stored: Vec<u8>,
    samples: Vec<CpuSample>,
    requests: Vec<BlockRequest>,
}

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetcher").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Fetcher {
    pub(super) fn new(file: File) -> io::Result<Fetcher> {
        let expander = Expander::new()?;
        Ok(Fetcher { file, expander, stored: Vec::new(), samples: Vec::new(), requests: Vec::new() })
    }

    /// Shows each interval of a block to `each`, with the numbers of what it shares with others of the block.
    #[inline]
    pub fn off_cpu(&mut self, block: &BlockRef, each: impl FnMut(Shared, &OffCpu)) -> Option<()> {
        if !block.is_off_cpu() {
            return None;
        }
        let raw = content(&self.file, &mut self.stored, &mut self.expander, block)?;
        off_cpu::visit(raw, block.count(), block.header.first, each)
    }

    /// The samples of a block.
    pub fn samples(&mut self, block: &BlockRef) -> Option<&[CpuSample]> {
        if !block.is_samples() {
            return None;
        }
        let raw = content(&self.file, &mut self.stored, &mut self.expander, block)?;
        self.samples.clear();
        samples::decode(raw, block.count(), block.header.first, &mut self.samples)?;
        Some(&self.samples)
    }

    /// The requests of a block.
    pub fn requests(&mut self, block: &BlockRef) -> Option<&[BlockRequest]> {
        if !block.is_requests() {
            return None;
        }
        let raw = content(&self.file, &mut self.stored, &mut self.expander, block)?;
        self.requests.clear();
        requests::decode(raw, block.count(), block.header.first, &mut self.requests)?;
        Some(&self.requests)
    }

    /// The events of a block of rare families.
    pub fn others(&mut self, block: &BlockRef) -> Option<Vec<Event>> {
        if block.family != Family::Others {
            return None;
        }
        let raw = content(&self.file, &mut self.stored, &mut self.expander, block)?;
        let mut events = Vec::new();
        others::decode(raw, &mut events);
        Some(events)
    }
}

/// Content of a block, checked anew: somebody may have written to the file since.
fn content<'a>(file: &File, stored: &'a mut Vec<u8>, expander: &'a mut Expander, block: &BlockRef) -> Option<&'a [u8]> {
    let header = &block.header;
    stored.resize(header.stored_len as usize, 0);
    file.read_exact_at(stored, block.at).ok()?;
    if crc32fast::hash(stored) != header.payload_crc {
        return None;
    }
    expander.expand(header.codec, stored, header.raw_len as usize)
}
