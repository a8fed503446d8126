//! Turns batches into the bytes of blocks.

use super::block::{BlockHeader, Family, LAYOUT, MAX_RAW};
use super::compress::Compressor;
use super::off_cpu::{self, OffCpuEncoder};
use super::requests::{self, RequestEncoder};
use super::samples::{self, SampleEncoder};
use super::{Batch, Header, block, others};
use crate::events::Event;
use std::io;

/// A block of JSON lines is closed when its content has grown to this size.
const LINES_PER_BLOCK: usize = 1 << 20;

/// Numbers and encodes the blocks of one recording.
pub(super) struct BlockEncoder {
    recording: u32,
    sequence: u32,
    compressor: Compressor,
    raw: Vec<u8>,
    edges: Vec<usize>,
    off_cpu: OffCpuEncoder,
    samples: SampleEncoder,
    requests: RequestEncoder,
}

impl BlockEncoder {
    /// A new recording, and the bytes that it begins with: prologue and header block. The error is the size of a header
    /// that no block can hold.
    pub(super) fn begin(header: &Header) -> io::Result<Result<(BlockEncoder, Vec<u8>), usize>> {
        let raw = serde_json::to_vec(header)?;
        if raw.len() > MAX_RAW {
            return Ok(Err(raw.len()));
        }
        let mut encoder = BlockEncoder {
            recording: crc32fast::hash(&raw),
            sequence: 0,
            compressor: Compressor::new()?,
            raw,
            edges: Vec::new(),
            off_cpu: OffCpuEncoder::default(),
            samples: SampleEncoder::default(),
            requests: RequestEncoder::default(),
        };
        let mut out = block::prologue().to_vec();
        encoder.edges.push(encoder.raw.len());
        encoder.block(Family::Header, 1, (header.started.mono.0, header.started.mono.0), &mut out);
        Ok(Ok((encoder, out)))
    }

    /// Appends the blocks of a batch to `out`; as a rule one.
    pub(super) fn encode(&mut self, batch: &Batch, out: &mut Vec<u8>) {
        self.raw.clear();
        self.edges.clear();
        match batch {
            Batch::OffCpu(rows) => {
                let span = off_cpu::span(rows);
                self.off_cpu.encode(rows, span.0, &mut self.raw, &mut self.edges);
                self.block(Family::OffCpu, rows.len(), span, out);
            }
            Batch::CpuSample(rows) => {
                let span = samples::span(rows);
                self.samples.encode(rows, span.0, &mut self.raw, &mut self.edges);
                self.block(Family::CpuSample, rows.len(), span, out);
            }
            Batch::Block(rows) => {
                let span = requests::span(rows);
                self.requests.encode(rows, span.0, &mut self.raw, &mut self.edges);
                self.block(Family::Block, rows.len(), span, out);
            }
            Batch::Other(events) => self.lines(events, out),
            Batch::Trailer(trailer) => {
                if serde_json::to_writer(&mut self.raw, trailer).is_ok() {
                    self.edges.push(self.raw.len());
                    let end = trailer.ended.mono.0;
                    self.block(Family::Trailer, 1, (end, end), out);
                }
            }
        }
    }

    /// JSON lines, in as many blocks as they need.
    fn lines(&mut self, events: &[Event], out: &mut Vec<u8>) {
        let mut count = 0;
        let mut span: Option<(u64, u64)> = None;
        for (i, event) in events.iter().enumerate() {
            let before = self.raw.len();
            if others::write_line(event, &mut self.raw) {
                if self.raw.len() - before > MAX_RAW - LINES_PER_BLOCK {
                    // No event comes near this size; one that did could not be read back.
                    log::warn!("an event of {} bytes is too large for a recording", self.raw.len() - before);
                    self.raw.truncate(before);
                } else {
                    count += 1;
                    span = match (span, others::span(event)) {
                        (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
                        (a, b) => a.or(b),
                    };
                }
            }
            if count > 0 && (self.raw.len() >= LINES_PER_BLOCK || i + 1 == events.len()) {
                self.edges.push(self.raw.len());
                self.block(Family::Others, count, span.take().unwrap_or((0, 0)), out);
                count = 0;
                self.raw.clear();
                self.edges.clear();
            }
        }
    }

    /// Appends the block of the content in `raw`.
    fn block(&mut self, family: Family, count: usize, (first, last): (u64, u64), out: &mut Vec<u8>) {
        let (codec, stored) = self.compressor.compress(&self.raw, &self.edges);
        let header = BlockHeader {
            family: family.code(),
            codec,
            layout: LAYOUT,
            recording: self.recording,
            sequence: self.sequence,
            count: count as u32,
            raw_len: self.raw.len() as u32,
            stored_len: stored.len() as u32,
            first,
            last,
            payload_crc: crc32fast::hash(stored),
        };
        header.write(out);
        out.extend_from_slice(stored);
        self.sequence = self.sequence.wrapping_add(1);
    }
}
