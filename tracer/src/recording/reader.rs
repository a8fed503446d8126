//! Reads a recording block by block.

use super::block::{BlockHeader, Family, PROLOGUE_LEN, Prologue};
use super::compress::Expander;
use super::fetch::{BlockRef, Fetcher};
use super::scan::Scanner;
use super::{Batch, Damage, FORMAT_VERSION, Header, ReadError, off_cpu, others, requests, samples};
use crate::events::OffCpu;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Reads a recording from its beginning to its end; memory does not grow with its length.
///
/// All that is whole is used: after damage the reader goes on at the next whole block, and [`Reader::damage`] says what
/// was left out.
pub struct Reader {
    header: Header,
    scanner: Scanner,
    expander: Expander,
    /// Which recording blocks must belong to.
    recording: u32,
    /// Number that the next block must have.
    next: u64,
    damage: Damage,
    finished: bool,
    /// Memory of a batch that was given back.
    spare: Vec<OffCpu>,
    /// The file once more, for reading blocks at their places.
    file: Option<File>,
}

/// What comes next in a recording that is only looked through.
#[derive(Debug)]
pub enum Piece {
    /// A block of a hot family (intervals, samples, requests), not decoded.
    Block(BlockRef),
    /// Any other block, and its content.
    Batch(BlockRef, Batch),
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("header", &self.header).field("damage", &self.damage).finish_non_exhaustive()
    }
}

impl Reader {
    /// Opens a recording and reads its header.
    pub fn open(path: &Path) -> Result<Reader, ReadError> {
        // Before it is opened: opening a pipe waits for somebody to write to it, and a device may have no end.
        let kind = path.metadata().map_err(|e| ReadError::reading(path, &e))?.file_type();
        if kind.is_dir() {
            return Err(ReadError::IsFolder { path: path.to_owned() });
        }
        if !kind.is_file() {
            return Err(ReadError::NotAFile { path: path.to_owned() });
        }
        let file = File::open(path).map_err(|e| ReadError::reading(path, &e))?;
        let again = file.try_clone().map_err(|e| ReadError::reading(path, &e))?;
        Ok(Reader { file: Some(again), ..Reader::over(Box::new(file), path)? })
    }

    /// Reads a recording from any stream; `path` is only for the texts of errors.
    pub(super) fn over(source: Box<dyn Read + Send>, path: &Path) -> Result<Reader, ReadError> {
        let damaged = || ReadError::HeaderDamaged { path: path.to_owned() };
        let newer = |found| ReadError::Newer { path: path.to_owned(), found, known: FORMAT_VERSION };
        let mut scanner = Scanner::new(source);
        let mut expander =
            Expander::new().map_err(|e| ReadError::Read { path: path.to_owned(), reason: e.to_string() })?;

        let first = scanner.peek(PROLOGUE_LEN);
        let (empty, prologue) = (first.is_empty(), Prologue::read(first));
        if let Some(error) = scanner.error() {
            return Err(ReadError::reading(path, error));
        }
        if empty {
            return Err(ReadError::Empty { path: path.to_owned() });
        }
        if let Prologue::Version(version) = prologue
            && version > FORMAT_VERSION
        {
            return Err(newer(version));
        }
        scanner.advance(PROLOGUE_LEN);
        let block = match prologue {
            // With a damaged prologue, a header block right behind it is proof enough. Looking any further would read a
            // foreign file, which may be huge, to its end.
            Prologue::Foreign => {
                scanner.next_block_within(0).ok_or_else(|| ReadError::Foreign { path: path.to_owned() })?
            }
            _ => scanner.next_block().ok_or_else(damaged)?,
        };
        if block.family != Family::Header.code() {
            return Err(damaged());
        }
        // A layout that this version does not know, under a format version that it does.
        Family::from_code(block.family, block.layout).ok_or_else(|| newer(FORMAT_VERSION + 1))?;
        let raw = expander.expand(block.codec, scanner.payload(), block.raw_len as usize).ok_or_else(damaged)?;
        let header = serde_json::from_slice(raw).map_err(|_| damaged())?;
        Ok(Reader {
            header,
            scanner,
            expander,
            recording: block.recording,
            next: u64::from(block.sequence) + 1,
            damage: Damage { prologue: !matches!(prologue, Prologue::Version(_)), ..Damage::default() },
            finished: false,
            spare: Vec::new(),
            file: None,
        })
    }

    /// What the recording says about itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What is wrong with the recording, as far as it was read; complete after [`Reader::next_batch`] gave `None`.
    pub fn damage(&self) -> &Damage {
        &self.damage
    }

    /// The content of the next whole block; `None` at the end.
    pub fn next_batch(&mut self) -> Option<Batch> {
        loop {
            let (family, block) = self.next_block()?;
            if let Some(batch) = self.take(family, &block) {
                return Some(batch);
            }
        }
    }

    /// The same, but blocks of the hot families are only named, for [`Reader::fetcher`] to read in any order.
    pub fn next_piece(&mut self) -> Option<Piece> {
        loop {
            let (family, block) = self.next_block()?;
            let named = BlockRef::new(family, block, self.scanner.payload_position());
            if named.is_hot() {
                return Some(Piece::Block(named));
            }
            if let Some(batch) = self.take(family, &block) {
                return Some(Piece::Batch(named, batch));
            }
        }
    }

    /// Reads blocks of this recording at their places. The error is that of opening the file a second time.
    pub fn fetcher(&self) -> std::io::Result<Fetcher> {
        match &self.file {
            Some(file) => Fetcher::new(file.try_clone()?),
            None => Err(std::io::Error::from(std::io::ErrorKind::Unsupported)),
        }
    }

    /// The next whole block of this recording, of a family that is known.
    fn next_block(&mut self) -> Option<(Family, BlockHeader)> {
        while !self.finished {
            let block = self.scanner.next_block();
            self.damage.skipped_bytes = self.scanner.skipped_bytes();
            let Some(block) = block else {
                self.end(true);
                return None;
            };
            if !self.belongs(&block) {
                self.damage.stray_blocks += 1;
                continue;
            }
            let sequence = u64::from(block.sequence);
            self.damage.lost_blocks += sequence - self.next;
            self.next = sequence + 1;
            match Family::from_code(block.family, block.layout) {
                Some(family) => return Some((family, block)),
                None => self.damage.unknown_blocks += 1,
            }
        }
        None
    }

    /// Decodes the block that was found last; the trailer ends the recording.
    fn take(&mut self, family: Family, block: &BlockHeader) -> Option<Batch> {
        let batch = self.decode(family, block);
        match &batch {
            None => self.damage.undecodable_blocks += 1,
            Some(Batch::Trailer(_)) => self.end(false),
            Some(_) => {}
        }
        batch
    }

    /// Gives back a batch that is no longer needed, so that its memory serves the next one.
    pub fn recycle(&mut self, batch: Batch) {
        if let Batch::OffCpu(mut rows) = batch {
            rows.clear();
            self.spare = rows;
        }
    }

    /// Whether a block is of this recording and none that was there before.
    fn belongs(&self, block: &BlockHeader) -> bool {
        block.recording == self.recording && u64::from(block.sequence) >= self.next
    }

    fn decode(&mut self, family: Family, block: &BlockHeader) -> Option<Batch> {
        let raw = self.expander.expand(block.codec, self.scanner.payload(), block.raw_len as usize)?;
        let count = block.count as usize;
        match family {
            Family::OffCpu => {
                let mut rows = std::mem::take(&mut self.spare);
                off_cpu::decode(raw, count, block.first, &mut rows)?;
                Some(Batch::OffCpu(rows))
            }
            Family::CpuSample => {
                let mut rows = Vec::new();
                samples::decode(raw, count, block.first, &mut rows)?;
                Some(Batch::CpuSample(rows))
            }
            Family::Block => {
                let mut rows = Vec::new();
                requests::decode(raw, count, block.first, &mut rows)?;
                Some(Batch::Block(rows))
            }
            Family::Others => {
                let mut events = Vec::new();
                self.damage.unknown_events += others::decode(raw, &mut events);
                Some(Batch::Other(events))
            }
            Family::Trailer => serde_json::from_slice(raw).ok().map(Batch::Trailer),
            // A second header would be another recording.
            Family::Header => None,
        }
    }

    fn end(&mut self, missing_trailer: bool) {
        self.finished = true;
        self.damage.missing_trailer = missing_trailer;
        self.damage.torn_bytes = self.scanner.torn_bytes();
        if !missing_trailer {
            self.damage.bytes_after_end = self.scanner.count_rest();
        }
        self.damage.read_error = self.scanner.error().map(ToString::to_string);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Bytes without end, and how many of them were read.
    struct Endless(Arc<AtomicU64>);

    impl Read for Endless {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            buf.fill(0);
            self.0.fetch_add(buf.len() as u64, Ordering::Relaxed);
            Ok(buf.len())
        }
    }

    #[test]
    fn a_foreign_file_is_refused_without_reading_it_all() {
        let read = Arc::default();
        let error = Reader::over(Box::new(Endless(Arc::clone(&read))), Path::new("test.gpustall")).unwrap_err();
        assert_eq!(error, ReadError::Foreign { path: "test.gpustall".into() });
        let read = read.load(Ordering::Relaxed);
        assert!(read <= 1 << 20, "{read} bytes were read");
    }

    #[test]
    fn pipes_and_devices_are_refused_unopened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        // Opened, the pipe would wait for a writer that never comes, and the device has no end.
        for path in [pipe.as_path(), Path::new("/dev/zero")] {
            assert_eq!(Reader::open(path).unwrap_err(), ReadError::NotAFile { path: path.to_owned() });
        }
        let error = Reader::open(folder.path()).unwrap_err();
        assert_eq!(error, ReadError::IsFolder { path: folder.path().to_owned() });
    }
}
