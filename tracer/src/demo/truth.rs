//! The truth log: what the workload itself knows about where its time went, one JSON object a line. Tests judge the
//! tracer by it; the tracer never reads it.

use super::error::DemoError;
use crate::units::{MonoNs, Nanos};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// One line.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Entry {
    /// A batch as the main process saw it.
    Step {
        /// Number of the batch; batches are taken in this order.
        batch: u64,
        /// Worker that owed it.
        worker: usize,
        /// Main began to wait for it.
        wait_start_ns: MonoNs,
        /// Main had it.
        wait_end_ns: MonoNs,
        /// The GPU began to work on it.
        compute_start_ns: MonoNs,
        /// The GPU was done.
        compute_end_ns: MonoNs,
    },
    /// A sample as its worker saw it.
    Sample {
        /// Batch it belongs to.
        batch: u64,
        /// Worker.
        worker: usize,
        /// The worker's process.
        pid: u32,
        /// Reading began.
        read_start_ns: MonoNs,
        /// Reading ended.
        read_end_ns: MonoNs,
        /// CPU time while reading.
        read_cpu_ns: Nanos,
        /// Run-queue time while reading.
        read_delay_ns: Nanos,
        /// The transform (decoding) began.
        transform_start_ns: MonoNs,
        /// The transform ended.
        transform_end_ns: MonoNs,
        /// CPU time of the transform.
        transform_cpu_ns: Nanos,
        /// Run-queue time during the transform.
        transform_delay_ns: Nanos,
    },
    /// A worker put a batch where main finds it; the message to main follows.
    Put {
        /// Batch.
        batch: u64,
        /// Worker.
        worker: usize,
        /// The worker's process.
        pid: u32,
        /// It began to.
        start_ns: MonoNs,
        /// It was done.
        end_ns: MonoNs,
        /// Run-queue time in between.
        delay_ns: Nanos,
    },
}

/// Collects entries and writes them when all is over: a log that is written during the run could itself hold up the
/// run.
#[derive(Default)]
pub struct TruthLog {
    entries: Vec<Entry>,
}

impl TruthLog {
    /// Notes one.
    pub fn note(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// Appends all of it to `path`, which several processes share, in one `write`.
    pub fn append_to(&self, path: &Path) -> Result<(), DemoError> {
        let failed = |source| DemoError::File { what: "write to", path: PathBuf::from(path), source };
        let mut text = Vec::new();
        for entry in &self.entries {
            serde_json::to_writer(&mut text, entry).map_err(|e| failed(e.into()))?;
            text.push(b'\n');
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        file.write_all(&text).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_flat_objects_with_their_kind() {
        let entry =
            Entry::Put { batch: 3, worker: 1, pid: 9, start_ns: MonoNs(5), end_ns: MonoNs(7), delay_ns: Nanos(1) };
        let value = serde_json::to_value(&entry).unwrap();
        let expected = serde_json::json!({"kind": "put", "batch": 3, "worker": 1, "pid": 9, "start_ns": 5, "end_ns": 7, "delay_ns": 1});
        assert_eq!(value, expected);
    }
}
