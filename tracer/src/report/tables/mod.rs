//! Tables of the report that need no attribution but the roles of threads. They are filled part by part, one pass over the
//! intervals, nothing allocated per interval.

mod competitors;
mod devices;
mod distribution;
mod files;
mod histograms;
mod images;
mod overhead;
mod threads;
mod waits;

pub use files::{Opens, PathTables};
pub use overhead::overhead;
pub use waits::{BlockActivity, WaitKind, wait_kind};

use crate::gpu::GpuActivity;
use crate::host::BlockDevice;
use crate::report::{Competitor, DeviceReport, HistogramSummary, HotImage, ThreadReport};
use crate::timeline::{ThreadIx, Timeline};

/// Role of each thread of a timeline (`worker`, `feeder` …).
pub type Roles<'a> = dyn Fn(ThreadIx) -> &'static str + 'a;

/// What the tables are made from: sums whose size does not grow with the recording.
#[derive(Debug, Default)]
pub struct Tables {
    opens: Opens,
    /// By line.
    threads: Vec<threads::Sums>,
    roles: histograms::OfRoles,
    waits: files::Waits,
    competitors: competitors::Waits,
    requests: devices::Requests,
    images: images::Samples,
    intervals: u64,
}

impl Tables {
    /// Nothing but the opens of a recording, which were seen before.
    pub fn new(opens: Opens) -> Tables {
        Tables { opens, ..Tables::default() }
    }

    /// Adds what belongs to the next part of a recording, going back in time, or all of a whole one.
    pub fn add(&mut self, tl: &Timeline, roles: &Roles<'_>) {
        let blocks = BlockActivity::new(tl);
        self.threads.resize_with(tl.threads.len(), threads::Sums::default);
        for ((ix, line), thread) in tl.lines().zip(&mut self.threads) {
            let own = tl.own_intervals(line);
            self.intervals += own.len() as u64;
            let mut role = self.roles.line(ix, roles(ix));
            // The latest first, as the parts come.
            for i in own.iter().rev() {
                let kind = wait_kind(tl, &blocks, i);
                thread.add(i, kind);
                role.add(i, kind);
                self.competitors.add(i);
                if kind.is_storage() {
                    self.waits.add(tl, line, i, kind);
                }
            }
            self.images.add(roles(ix), tl.own_samples(line));
        }
        for request in tl.own_blocks() {
            self.requests.add(request);
        }
    }

    /// Intervals that were counted.
    pub fn intervals(&self) -> u64 {
        self.intervals
    }

    /// One row per thread.
    pub fn threads(&self, tl: &Timeline) -> Vec<ThreadReport> {
        threads::rows(tl, &self.threads, &self.roles)
    }

    /// Storage waits and opens by path.
    pub fn paths(&self, tl: &Timeline) -> PathTables {
        files::tables(tl, &self.waits, &self.opens)
    }

    /// All histograms of the report, in a fixed order; none without values. `disks` is what the recording's header says of
    /// the machine.
    pub fn histograms(&self, disks: &[BlockDevice], gpus: &[&GpuActivity]) -> Vec<HistogramSummary> {
        let mut out = self.requests.histograms(disks);
        self.roles.histograms(&mut out);
        self.opens.histogram(&mut out);
        for gpu in gpus {
            histograms::stretches(gpu, &mut out);
        }
        out
    }

    /// One row per device and operation.
    pub fn devices(&self, tl: &Timeline, disks: &[BlockDevice]) -> Vec<DeviceReport> {
        self.requests.rows(tl, disks)
    }

    /// Who had the CPU while threads waited for it.
    pub fn competitors(&self, tl: &Timeline) -> Vec<Competitor> {
        self.competitors.rows(tl)
    }

    /// Where running threads spent their CPU time.
    pub fn hot_images(&self, tl: &Timeline) -> Vec<HotImage> {
        self.images.rows(tl)
    }
}

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod speed;
