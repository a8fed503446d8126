//! Finds whole blocks in a stream of bytes, whatever lies between them, in memory bounded by one block.

use super::block::{BlockHeader, HEADER_LEN, MARKER};
use memchr::memmem::Finder;
use std::io::{self, Read};

/// Bytes asked from the file at once.
const CHUNK: usize = 256 << 10;
/// Payload bytes that may be checked in vain before damaged blocks are skipped whole. After damage, blocks are also
/// looked for inside the payload of a block whose checksum is wrong, since bytes may be missing from it; without a
/// limit, a file made of overlapping false blocks would take time that grows with the square of its size.
const PATIENCE: u64 = 256 << 20;

/// Walks over the blocks of a stream.
pub(super) struct Scanner {
    source: Box<dyn Read + Send>,
    buf: Vec<u8>,
    /// Start of what is not used up in `buf`.
    pos: usize,
    /// Where `buf` begins in the stream.
    base: u64,
    /// Bytes of the block that was given last; used up by the next call.
    current: usize,
    at_end: bool,
    error: Option<io::Error>,
    marker: Finder<'static>,
    /// Bytes since the last whole block that belong to none.
    run: u64,
    /// Bytes between whole blocks that belong to none.
    skipped: u64,
    wasted: u64,
}

impl Scanner {
    /// Walks over this stream.
    pub(super) fn new(source: Box<dyn Read + Send>) -> Scanner {
        Scanner {
            source,
            buf: Vec::new(),
            pos: 0,
            base: 0,
            current: 0,
            at_end: false,
            error: None,
            marker: Finder::new(&MARKER),
            run: 0,
            skipped: 0,
            wasted: 0,
        }
    }

    /// Up to `len` bytes that come next, fewer only at the end of the stream, without using them up.
    pub(super) fn peek(&mut self, len: usize) -> &[u8] {
        self.fill(len);
        let rest = self.buf.get(self.pos..).unwrap_or_default();
        rest.get(..len).unwrap_or(rest)
    }

    /// Uses up bytes that `peek` gave.
    pub(super) fn advance(&mut self, len: usize) {
        self.pos = self.buf.len().min(self.pos + len);
    }

    /// The next whole block with a right checksum; `None` at the end of the stream.
    pub(super) fn next_block(&mut self) -> Option<BlockHeader> {
        self.next_block_within(u64::MAX)
    }

    /// The same, if no more than `most` bytes that belong to no block precede it; else `None`, in bounded time.
    pub(super) fn next_block_within(&mut self, most: u64) -> Option<BlockHeader> {
        self.pos += std::mem::take(&mut self.current);
        while self.run <= most {
            if !self.fill(HEADER_LEN) {
                self.skip(self.buf.len() - self.pos);
                return None;
            }
            let Some(header) = BlockHeader::read(self.buf.get(self.pos..).unwrap_or_default()) else {
                self.skip_to_marker();
                continue;
            };
            let len = HEADER_LEN + header.stored_len as usize;
            if !self.fill(len) {
                self.skip_to_marker();
                continue;
            }
            let payload = self.buf.get(self.pos + HEADER_LEN..self.pos + len).unwrap_or_default();
            if crc32fast::hash(payload) != header.payload_crc {
                self.wasted += len as u64;
                if self.wasted > PATIENCE {
                    self.skip(len)
                } else {
                    self.skip_to_marker()
                }
                continue;
            }
            self.current = len;
            self.skipped += std::mem::take(&mut self.run);
            return Some(header);
        }
        None
    }

    /// Payload of the block that was given last.
    pub(super) fn payload(&self) -> &[u8] {
        self.buf.get(self.pos + HEADER_LEN..self.pos + self.current).unwrap_or_default()
    }

    /// Where the payload of the block that was given last begins in the stream.
    pub(super) fn payload_position(&self) -> u64 {
        self.base + (self.pos + HEADER_LEN) as u64
    }

    /// Bytes between whole blocks that belong to none.
    pub(super) fn skipped_bytes(&self) -> u64 {
        self.skipped
    }

    /// Bytes after the last whole block, at the end of the stream.
    pub(super) fn torn_bytes(&self) -> u64 {
        self.run
    }

    /// Payload bytes that were checked in vain.
    #[cfg(test)]
    pub(super) fn wasted_bytes(&self) -> u64 {
        self.wasted
    }

    /// Why the stream ended early, if it did.
    pub(super) fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// Reads all that is left, only to count it.
    pub(super) fn count_rest(&mut self) -> u64 {
        self.pos += std::mem::take(&mut self.current);
        let buffered = (self.buf.len() - self.pos) as u64;
        self.pos = self.buf.len();
        match io::copy(&mut self.source, &mut io::sink()) {
            Ok(rest) => buffered + rest,
            Err(_) => buffered,
        }
    }

    fn skip(&mut self, len: usize) {
        self.pos += len;
        self.run += len as u64;
    }

    /// Goes at least one byte forward, to where the next block may begin.
    fn skip_to_marker(&mut self) {
        let rest = self.buf.get(self.pos + 1..).unwrap_or_default();
        let step = match self.marker.find(rest) {
            Some(at) => at + 1,
            // The last bytes may be the beginning of a marker.
            None => rest.len().saturating_sub(MARKER.len() - 1) + 1,
        };
        self.skip(step);
    }

    /// Whether at least `want` bytes could be had.
    fn fill(&mut self, want: usize) -> bool {
        while self.buf.len() - self.pos < want && !self.at_end {
            if self.pos > 0 {
                self.buf.drain(..self.pos);
                self.base += self.pos as u64;
                self.pos = 0;
            }
            match self.source.by_ref().take(CHUNK as u64).read_to_end(&mut self.buf) {
                Ok(n) => self.at_end = n < CHUNK,
                Err(error) => {
                    self.at_end = true;
                    self.error = Some(error);
                }
            }
        }
        self.buf.len() - self.pos >= want
    }
}
