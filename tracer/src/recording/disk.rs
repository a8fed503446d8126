//! The two threads behind a writer: one encodes, one writes, so that a slow disk holds up neither the kernel's ring
//! buffers nor the encoder until a bounded queue of compressed blocks is full.

use super::encoder::BlockEncoder;
use super::{Batch, WriteError};
use crate::events::OffCpu;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Batches waiting to be encoded; a full one of off-CPU intervals takes 1.1 MiB.
const BATCHES: usize = 4;
/// Compressed blocks waiting for the disk, some 80 kB each: about a minute at 10,000 intervals a second.
const BLOCKS: usize = 64;

/// What the threads tell.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes of whole blocks in the file.
    pub bytes: AtomicU64,
    failure: Mutex<Option<WriteError>>,
}

impl Progress {
    /// Why writing stopped, if it did.
    pub(super) fn failure(&self) -> Option<WriteError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fail(&self, error: WriteError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// The way of batches to the disk.
pub(super) struct Pipeline {
    batches: SyncSender<Batch>,
    spare: Receiver<Vec<OffCpu>>,
    threads: [JoinHandle<()>; 2],
}

impl Pipeline {
    /// Starts the threads and writes `beginning`; returns when that is in the file.
    pub(super) fn start(
        file: File,
        path: PathBuf,
        encoder: BlockEncoder,
        beginning: Vec<u8>,
        progress: &Arc<Progress>,
    ) -> Result<Pipeline, WriteError> {
        let start = |error: io::Error| WriteError::Start { path: path.clone(), reason: error.to_string() };
        let (batches, batch_queue) = sync_channel(BATCHES);
        let (blocks, block_queue) = sync_channel(BLOCKS);
        let (give_back, spare) = sync_channel(BATCHES);
        let (begun, wait) = sync_channel(1);
        let disk = Disk { file, path: path.clone(), written: 0, progress: Arc::clone(progress) };
        let writing = Builder::new()
            .name("gpustall-write".to_owned())
            .spawn(move || disk.run(beginning, &begun, block_queue))
            .map_err(start)?;
        let encoding = Builder::new()
            .name("gpustall-encode".to_owned())
            .spawn(move || encode(encoder, batch_queue, blocks, give_back))
            .map_err(start)?;
        // The sender is dropped when the beginning could not be written, and `progress` then has the reason.
        if wait.recv().is_err() {
            let lost = || WriteError::Start { path: path.clone(), reason: "the writing thread ended".to_owned() };
            return Err(progress.failure().unwrap_or_else(lost));
        }
        Ok(Pipeline { batches, spare, threads: [encoding, writing] })
    }

    /// Hands on a batch; waits while the queue is full. False when writing has stopped.
    pub(super) fn send(&self, batch: Batch) -> bool {
        self.batches.send(batch).is_ok()
    }

    /// Memory for the next batch of off-CPU intervals.
    pub(super) fn spare(&self) -> Vec<OffCpu> {
        self.spare.try_recv().unwrap_or_default()
    }

    /// Waits until all that was sent is in the file.
    pub(super) fn finish(self) {
        drop(self.batches);
        for thread in self.threads {
            // A thread that failed has left its reason in the progress.
            let _ = thread.join();
        }
    }
}

fn encode(
    mut encoder: BlockEncoder,
    batches: Receiver<Batch>,
    blocks: SyncSender<Vec<u8>>,
    give_back: SyncSender<Vec<OffCpu>>,
) {
    for batch in batches {
        let mut out = Vec::new();
        encoder.encode(&batch, &mut out);
        if blocks.send(out).is_err() {
            return;
        }
        if let Batch::OffCpu(mut rows) = batch {
            rows.clear();
            // Full or closed: the memory is simply freed.
            let _ = give_back.try_send(rows);
        }
    }
}

struct Disk {
    file: File,
    path: PathBuf,
    /// Bytes of whole blocks in the file.
    written: u64,
    progress: Arc<Progress>,
}

impl Disk {
    fn run(mut self, beginning: Vec<u8>, begun: &SyncSender<()>, blocks: Receiver<Vec<u8>>) {
        block_size_limit_signal();
        let result = self.write(&beginning).and_then(|()| {
            // The receiver waits for exactly this.
            let _ = begun.send(());
            blocks.iter().try_for_each(|block| self.write(&block))?;
            self.sync()
        });
        if let Err(error) = result {
            // Cuts off what there is of the block that failed, so that the file ends with a whole one.
            let _ = self.file.set_len(self.written);
            self.progress.fail(WriteError::writing(&self.path, &error, self.written));
        }
    }

    fn write(&mut self, block: &[u8]) -> io::Result<()> {
        self.file.write_all(block)?;
        self.written += block.len() as u64;
        self.progress.bytes.store(self.written, Ordering::Relaxed);
        Ok(())
    }

    /// Some file systems report a full disk only here. Devices and pipes have nothing to synchronise.
    fn sync(&self) -> io::Result<()> {
        if self.file.metadata()?.is_file() { self.file.sync_all() } else { Ok(()) }
    }
}

/// Beyond RLIMIT_FSIZE the kernel sends SIGXFSZ to the writing thread, which kills the process; blocked, the write
/// fails with EFBIG instead. Blocked in this thread alone, so that a launched command does not inherit it.
fn block_size_limit_signal() {
    // SAFETY: the set is initialised by sigemptyset before use, and all pointers are valid for the calls.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGXFSZ);
        libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
    }
}
