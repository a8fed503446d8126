//! Writes a recording while it is made.

use super::disk::{Pipeline, Progress};
use super::encoder::BlockEncoder;
use super::{Batch, Header, Trailer, WriteError};
use crate::events::{BlockRequest, CpuSample, Event, OffCpu};
use crate::units::{MonoNs, Nanos};
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Rows of a full columnar block. More would cost memory and gain less than a tenth of a byte a row.
const ROWS: usize = 8_192;
/// Events of a full block of JSON lines.
const EVENTS: usize = 1_024;
/// A block is closed when its first event has waited this long: with a tick every 100 ms, no event waits for more than
/// a second.
const SEAL_AFTER: Nanos = Nanos::from_millis(900);

/// Writes a recording. Encoding, compression and the disk are left to two threads of its own.
///
/// Dropping a writer keeps what was pushed but leaves the recording without its closing block.
pub struct Writer {
    path: PathBuf,
    now: MonoNs,
    off_cpu: Pending<OffCpu>,
    samples: Pending<CpuSample>,
    requests: Pending<BlockRequest>,
    others: Pending<Event>,
    intervals: u64,
    events: u64,
    pipeline: Option<Pipeline>,
    progress: Arc<Progress>,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Size of the file.
    pub bytes: u64,
    /// Off-CPU intervals in it.
    pub intervals: u64,
    /// All events in it, intervals included.
    pub events: u64,
}

/// Events that are not in a block yet.
struct Pending<T> {
    rows: Vec<T>,
    /// Time of the last tick before the first of them.
    since: MonoNs,
}

impl<T> Pending<T> {
    fn new() -> Pending<T> {
        Pending { rows: Vec::new(), since: MonoNs(0) }
    }

    /// Adds a row; true when the block is full.
    fn push(&mut self, row: T, now: MonoNs, full: usize) -> bool {
        if self.rows.is_empty() {
            self.since = now;
        }
        self.rows.push(row);
        self.rows.len() >= full
    }

    fn is_due(&self, now: MonoNs) -> bool {
        !self.rows.is_empty() && now.since(self.since) >= SEAL_AFTER
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("path", &self.path).field("events", &self.events).finish_non_exhaustive()
    }
}

impl Writer {
    /// Creates the file and writes its header. An existing file is refused unless `overwrite`.
    pub fn create(path: &Path, header: &Header, overwrite: bool) -> Result<Writer, WriteError> {
        let (encoder, beginning) = match BlockEncoder::begin(header) {
            Ok(Ok(begun)) => begun,
            Ok(Err(bytes)) => return Err(WriteError::HeaderTooLarge { path: path.to_owned(), bytes }),
            Err(error) => return Err(WriteError::Start { path: path.to_owned(), reason: error.to_string() }),
        };
        let (file, is_new) = open(path, overwrite)?;
        let progress = Arc::new(Progress::default());
        let pipeline = Pipeline::start(file, path.to_owned(), encoder, beginning, &progress).inspect_err(|_| {
            // A file that cannot hold even the header is of no use, and would be in the way of the next try.
            if is_new {
                let _ = fs::remove_file(path);
            }
        })?;
        Ok(Writer {
            path: path.to_owned(),
            now: header.started.mono,
            off_cpu: Pending::new(),
            samples: Pending::new(),
            requests: Pending::new(),
            others: Pending::new(),
            intervals: 0,
            events: 0,
            pipeline: Some(pipeline),
            progress,
        })
    }

    /// Adds an event. Waits only when the disk has been too slow for so long that all queues are full.
    pub fn push(&mut self, event: Event) -> Result<(), WriteError> {
        let now = self.now;
        self.events += 1;
        match event {
            Event::OffCpu(row) => {
                self.intervals += 1;
                if self.off_cpu.push(row, now, ROWS) { self.seal_off_cpu() } else { Ok(()) }
            }
            Event::CpuSample(row) => {
                if self.samples.push(row, now, ROWS) {
                    self.seal_samples()
                } else {
                    Ok(())
                }
            }
            Event::Block(row) => {
                if self.requests.push(row, now, ROWS) {
                    self.seal_requests()
                } else {
                    Ok(())
                }
            }
            other => {
                if self.others.push(other, now, EVENTS) {
                    self.seal_others()
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Closes blocks whose first event has waited for nearly a second, so that a crash loses no more. Call it at least
    /// every 100 ms, also when there is nothing to push. Tells when writing has stopped.
    pub fn tick(&mut self, now: MonoNs) -> Result<(), WriteError> {
        self.now = now;
        if self.off_cpu.is_due(now) {
            self.seal_off_cpu()?;
        }
        if self.samples.is_due(now) {
            self.seal_samples()?;
        }
        if self.requests.is_due(now) {
            self.seal_requests()?;
        }
        if self.others.is_due(now) {
            self.seal_others()?;
        }
        match self.progress.failure() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Writes what is left and the closing block, and waits until all of it is on the disk.
    pub fn finish(mut self, trailer: &Trailer) -> Result<Written, WriteError> {
        self.seal_all()?;
        self.send(Batch::Trailer(trailer.clone()))?;
        if let Some(pipeline) = self.pipeline.take() {
            pipeline.finish();
        }
        match self.progress.failure() {
            Some(error) => Err(error),
            None => Ok(Written { bytes: self.bytes_written(), intervals: self.intervals, events: self.events }),
        }
    }

    /// Size of the file so far.
    pub fn bytes_written(&self) -> u64 {
        self.progress.bytes.load(Ordering::Relaxed)
    }

    fn seal_all(&mut self) -> Result<(), WriteError> {
        self.seal_off_cpu()?;
        self.seal_samples()?;
        self.seal_requests()?;
        self.seal_others()
    }

    fn seal_off_cpu(&mut self) -> Result<(), WriteError> {
        let spare = self.pipeline.as_ref().map(Pipeline::spare).unwrap_or_default();
        let rows = std::mem::replace(&mut self.off_cpu.rows, spare);
        self.send(Batch::OffCpu(rows))
    }

    fn seal_samples(&mut self) -> Result<(), WriteError> {
        let rows = std::mem::take(&mut self.samples.rows);
        self.send(Batch::CpuSample(rows))
    }

    fn seal_requests(&mut self) -> Result<(), WriteError> {
        let rows = std::mem::take(&mut self.requests.rows);
        self.send(Batch::Block(rows))
    }

    fn seal_others(&mut self) -> Result<(), WriteError> {
        let rows = std::mem::take(&mut self.others.rows);
        self.send(Batch::Other(rows))
    }

    fn send(&self, batch: Batch) -> Result<(), WriteError> {
        let is_trailer = matches!(batch, Batch::Trailer(_));
        if batch.is_empty() && !is_trailer {
            return Ok(());
        }
        if self.pipeline.as_ref().is_some_and(|p| p.send(batch)) {
            return Ok(());
        }
        // The threads end early only after they have left a reason.
        Err(self.progress.failure().unwrap_or_else(|| WriteError::Write {
            path: self.path.clone(),
            reason: "the writing thread ended".to_owned(),
            written: self.bytes_written(),
        }))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Whatever made the caller give up, the reason has been told already.
        let _ = self.seal_all();
        if let Some(pipeline) = self.pipeline.take() {
            pipeline.finish();
        }
    }
}

/// Opens the file for writing; true if it was not there before.
fn open(path: &Path, overwrite: bool) -> Result<(File, bool), WriteError> {
    if path.is_dir() {
        return Err(WriteError::IsFolder { path: path.to_owned() });
    }
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => Ok((file, true)),
        Err(error) if overwrite && error.kind() == std::io::ErrorKind::AlreadyExists => {
            File::create(path).map(|file| (file, false)).map_err(|e| WriteError::creating(path, &e))
        }
        Err(error) => Err(WriteError::creating(path, &error)),
    }
}
