//! What the kernel programs count, and what of it has been reported.

use crate::events::{Loss, LossKind};
use crate::units::MonoNs;
use aya::Pod;
use aya::maps::{MapData, MapError, PerCpuArray};
use tracer_ebpf::{COUNTERS, Counter};

/// Which counters mean a loss.
const LOSSES: [(Counter, LossKind); 9] = [
    (Counter::OffCpuDropped, LossKind::OffCpu),
    (Counter::SampleDropped, LossKind::CpuSample),
    (Counter::BlockDropped, LossKind::Block),
    (Counter::FileDropped, LossKind::File),
    (Counter::TaskDropped, LossKind::Task),
    (Counter::StateFull, LossKind::StateFull),
    (Counter::RequestFull, LossKind::RequestFull),
    (Counter::BadInterval, LossKind::BadInterval),
    (Counter::TidOutOfRange, LossKind::TidOutOfRange),
];

/// All counters of one CPU.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Slots(pub [u64; COUNTERS as usize]);
// SAFETY: an array of integers.
unsafe impl Pod for Slots {}

/// The counters, and how far each loss has been reported.
pub struct Losses {
    map: PerCpuArray<MapData, Slots>,
    reported: [u64; LOSSES.len()],
    /// Found by user space since the last report.
    own: Vec<(LossKind, u64)>,
}

impl Losses {
    /// Starts from zero.
    pub fn new(map: PerCpuArray<MapData, Slots>) -> Losses {
        Losses { map, reported: [0; LOSSES.len()], own: Vec::new() }
    }

    /// Adds a loss that user space noticed.
    pub fn add(&mut self, kind: LossKind, count: u64) {
        if count > 0 {
            self.own.push((kind, count));
        }
    }

    /// Sums of all CPUs.
    pub fn totals(&self) -> Result<[u64; COUNTERS as usize], MapError> {
        let mut sums = [0; COUNTERS as usize];
        for cpu in self.map.get(&0, 0)?.iter() {
            for (sum, n) in sums.iter_mut().zip(cpu.0) {
                *sum += n;
            }
        }
        Ok(sums)
    }

    /// Passes on what was lost since the last time.
    pub fn report(&mut self, time: MonoNs, sink: &mut dyn FnMut(Loss)) {
        let mut own: Vec<(LossKind, u64)> = std::mem::take(&mut self.own);
        match self.totals() {
            Ok(totals) => {
                for ((counter, kind), reported) in LOSSES.iter().zip(&mut self.reported) {
                    let total = totals[*counter as usize];
                    own.push((*kind, total.saturating_sub(*reported)));
                    *reported = total;
                }
            }
            Err(e) => log::warn!("cannot read how much was lost: {e}"),
        }
        for (kind, count) in own.into_iter().filter(|(_, n)| *n > 0) {
            sink(Loss { time, kind, count });
        }
    }
}
