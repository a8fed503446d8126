//! Block devices: what each was asked, by whom, and how long queue and device took.

use super::distribution::Distribution;
use crate::events::{BlockOp, BlockRequest, Submitter};
use crate::host::BlockDevice;
use crate::report::{DeviceReport, HistogramSummary};
use crate::timeline::Timeline;
use crate::units::{DevId, Nanos};
use std::collections::BTreeMap;

/// Requests of one operation on one device.
#[derive(Debug, Default)]
struct Traffic {
    requests: u64,
    bytes: u64,
    queue: Nanos,
    /// Requests whose time in the queue is known.
    queued: u64,
    device: Nanos,
    by_target: u64,
    by_kernel: u64,
    by_others: u64,
    /// Times in all, in the queue and in the device.
    times: [Distribution; 3],
}

/// Requests by device and operation.
#[derive(Debug, Default)]
pub(super) struct Requests(BTreeMap<(DevId, BlockOp), Traffic>);

impl Requests {
    pub(super) fn add(&mut self, b: &BlockRequest) {
        let t = self.0.entry((b.dev, b.op)).or_default();
        t.requests += 1;
        t.bytes = t.bytes.saturating_add(u64::from(b.bytes));
        t.queue += b.queue();
        t.queued += u64::from(b.start.is_some());
        t.device += b.device();
        match b.submitter {
            Submitter::Target { .. } => t.by_target += 1,
            Submitter::KernelThread { .. } => t.by_kernel += 1,
            Submitter::Other { .. } => t.by_others += 1,
        }
        let [all, queue, device] = &mut t.times;
        all.add(b.total());
        device.add(b.device());
        // Where the start is not known, there is no queue time to tell.
        if b.start.is_some() {
            queue.add(b.queue());
        }
    }

    /// One row per device and operation, longest total time in queue and device first. `disks` is what the recording's
    /// header says of the machine.
    pub(super) fn rows(&self, tl: &Timeline, disks: &[BlockDevice]) -> Vec<DeviceReport> {
        let mut traffic: Vec<(&(DevId, BlockOp), &Traffic)> = self.0.iter().collect();
        traffic.sort_by_key(|(key, t)| (std::cmp::Reverse(t.queue + t.device), **key));
        let length = tl.duration().secs();
        let row = |((dev, op), t): (&(DevId, BlockOp), &Traffic)| DeviceReport {
            device: device_name(disks, *dev),
            kind: disks.iter().find(|d| d.dev == *dev).map_or("unknown", BlockDevice::kind).to_owned(),
            operation: operation_name(*op).to_owned(),
            requests: t.requests,
            per_second: if length > 0.0 { t.requests as f64 / length } else { 0.0 },
            bytes: t.bytes,
            mean_queue_ms: mean(t.queue, t.queued),
            mean_device_ms: mean(t.device, t.requests),
            by_target: t.by_target,
            by_kernel: t.by_kernel,
            by_others: t.by_others,
        };
        traffic.into_iter().map(row).collect()
    }

    /// Time of requests: in all, in the queue, in the device.
    pub(super) fn histograms(&self, disks: &[BlockDevice]) -> Vec<HistogramSummary> {
        let mut out = Vec::new();
        for (n, name) in ["block_io_latency", "block_io_queue", "block_io_device"].into_iter().enumerate() {
            for ((dev, op), t) in &self.0 {
                let labels = [("device", &*device_name(disks, *dev)), ("operation", operation_name(*op))];
                out.extend(t.times.get(n).and_then(|times| times.summary(name, &labels)));
            }
        }
        out
    }
}

fn mean(total: Nanos, n: u64) -> f64 {
    if n == 0 { 0.0 } else { total.millis() / n as f64 }
}

/// Name of a device, or its number where the recording does not tell.
fn device_name(disks: &[BlockDevice], dev: DevId) -> String {
    disks.iter().find(|d| d.dev == dev).map_or_else(|| dev.to_string(), |d| d.name.clone())
}

/// Name of an operation.
fn operation_name(op: BlockOp) -> &'static str {
    match op {
        BlockOp::Read => "read",
        BlockOp::Write => "write",
        BlockOp::Flush => "flush",
        BlockOp::Discard => "discard",
        BlockOp::Other => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::*;
    use super::*;
    use crate::events::{BlockRequest, Event};
    use crate::units::{Pid, Tid};

    fn disk(name: &str, model: &str, rotational: bool) -> BlockDevice {
        BlockDevice {
            dev: DevId { major: 254, minor: 0 },
            name: name.into(),
            disk: None,
            rotational,
            model: (!model.is_empty()).then(|| model.into()),
            size_bytes: 0,
            scheduler: None,
            backing_file: None,
        }
    }

    #[test]
    fn kinds_look_through_virtual_disks_that_call_themselves_rotational() {
        let cases = [
            (disk("vda", "", true), "virtual"),
            (disk("sda", "QEMU HARDDISK", true), "virtual"),
            (disk("nvme0n1", "Amazon Elastic Block Store", false), "virtual"),
            (disk("nvme1n1", "Samsung SSD 990 PRO", false), "solid state"),
            (disk("sdb", "ST16000NM001G", true), "rotational"),
            (disk("loop3", "", false), "loop"),
        ];
        for (disk, kind) in cases {
            assert_eq!(disk.kind(), kind, "{}", disk.name);
        }
    }

    #[test]
    fn requests_are_summed_by_device_and_operation() {
        let write = BlockRequest {
            op: BlockOp::Write,
            submitter: Submitter::KernelThread { tid: Tid(50) },
            ..request(0, 1, 2, 1)
        };
        let other = BlockRequest {
            start: None,
            submitter: Submitter::Other { tid: Tid(60), pid: Pid(60) },
            ..request(10, 10, 30, 1)
        };
        let timeline = timeline([Event::Block(request(0, 2, 10, 1)), Event::Block(other), Event::Block(write)]);
        let rows = devices(&timeline, &[disk("vda", "", true)]);
        assert_eq!(rows.len(), 2);
        let r = &rows[0];
        assert_eq!((&*r.device, &*r.kind, &*r.operation), ("vda", "virtual", "read"));
        assert_eq!((r.requests, r.per_second, r.bytes), (2, 2.0, 8_192));
        assert_eq!((r.mean_queue_ms, r.mean_device_ms), (2.0, 14.0));
        assert_eq!((r.by_target, r.by_kernel, r.by_others), (1, 0, 1));
        assert_eq!((&*rows[1].operation, rows[1].by_kernel), ("write", 1));
        assert_eq!(devices(&timeline, &[])[0].kind, "unknown");
    }
}
