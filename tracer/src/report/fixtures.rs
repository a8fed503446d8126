//! Hand-made reports for tests.

use super::*;
use crate::attribution::Cause;
use crate::diagnosis::{Bottleneck, Verdict};
use std::collections::BTreeMap;

pub(super) fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

/// A minute of a job whose workers wait for a throttled disk: the GPU idles 61 % of its 60 active seconds.
pub(super) fn disk_bound() -> Report {
    let causes = vec![
        CauseShare { cause: Cause::Disk, seconds: 31.11, share: 0.85 },
        CauseShare { cause: Cause::Preprocessing, seconds: 3.66, share: 0.1 },
        CauseShare { cause: Cause::CpuStarved, seconds: 1.83, share: 0.05 },
    ];
    let verdict = Verdict {
        bottleneck: Bottleneck::StorageIo,
        cause: Some(Cause::Disk),
        share: 0.85,
        summary: "Storage held the training back.".into(),
        evidence: vec!["Workers were blocked 9.6 ms per read, 3,200 reads.".into()],
        advice: vec!["Move the data set to a local NVMe disk.".into()],
        speedup_bound: Some(2.08),
    };
    let link = |start_s, end_s, tid, role: &str, cause, what: &str| ChainLink {
        start_s,
        end_s,
        tid,
        role: role.into(),
        cause,
        what: what.into(),
    };
    let thread = |tid, pid, role: &str, disk_s: f64, top: &str| ThreadReport {
        tid,
        pid,
        comm: "python3".into(),
        role: role.into(),
        alive_s: 61.0,
        running_s: 9.0,
        runqueue_s: 1.0,
        disk_s,
        blocked_s: 51.0,
        max_runqueue_ms: 12.5,
        top_wait: Some(TopWait { syscall: top.into(), seconds: disk_s.max(40.0) }),
    };
    let path = |path: &str, blocked_s, waits, files| PathWait {
        path: path.into(),
        blocked_s,
        waits,
        opens: 100,
        mean_open_ms: Some(0.4),
        files,
    };
    let histogram = |name: &str, pairs: &[(&str, &str)], count, mean| HistogramSummary {
        name: name.into(),
        labels: labels(pairs),
        unit: "ns".into(),
        count,
        mean,
        p50: mean,
        p90: mean * 2,
        p99: mean * 3,
        max: mean * 4,
    };
    Report {
        schema: SCHEMA.into(),
        recording: RecordingInfo {
            duration_s: 61.0,
            host: "trainer".into(),
            kernel: "6.18.0".into(),
            target: TargetInfo { pid: 4000, command: "python3 train.py --epochs 90".into() },
            started_at: "2026-11-30T10:00:00Z".into(),
            started_mono_ns: 1_000_000_000_000,
            lost_events: 0,
            complete: true,
        },
        gpus: vec![GpuReport {
            index: 0,
            name: "NVIDIA H200".into(),
            source: "nvml".into(),
            evidence: "windows".into(),
            active_from_s: 0.6,
            active_to_s: 60.6,
            busy_s: 23.4,
            idle_s: 36.6,
            idle_share: 0.61,
            certain_share: 0.93,
            of_job: true,
            waited_for: Vec::new(),
            before_s: 0.6,
            after_s: 0.4,
            gap_count: 340,
            causes: causes.clone(),
            verdict: verdict.clone(),
            state: vec!["its PCIe link runs at generation 3 of 5.".into()],
        }],
        causes,
        verdict,
        gaps: vec![Gap {
            gpu: 0,
            start_s: 12.5,
            end_s: 12.92,
            cause: Cause::Disk,
            chain: vec![
                link(12.5, 12.51, 4000, "feeder", Cause::HostCode, "ran"),
                link(12.51, 12.9, 4711, "worker", Cause::Disk, "read /data/train/a.jpg"),
                link(12.9, 12.92, 4711, "worker", Cause::Preprocessing, "ran"),
            ],
        }],
        gap_groups: vec![GapGroup {
            chain: "feeder ← worker: disk".into(),
            count: 300,
            seconds: 31.11,
            cause: Cause::Disk,
        }],
        histograms: vec![
            histogram("blocked_read", &[("role", "worker")], 3_200, 9_600_000),
            histogram("block_io_latency", &[("device", "vda"), ("operation", "read")], 3_200, 71_000),
            histogram("run_queue", &[("role", "worker")], 90_000, 22_000),
            histogram("file_open", &[], 400, 400_000),
            histogram("gpu_busy", &[("gpu", "0")], 340, 68_000_000),
            histogram("gpu_idle", &[("gpu", "0")], 339, 107_000_000),
        ],
        threads: vec![
            thread(4000, 4000, "feeder", 0.0, "poll"),
            thread(4711, 4711, "worker", 30.0, "read"),
            thread(4712, 4712, "worker", 29.0, "read"),
        ],
        files: vec![path("/data/train/a.jpg", 0.39, 12, 1)],
        directories: vec![path("/data/train", 59.0, 3_200, 1_600)],
        devices: vec![DeviceReport {
            device: "vda".into(),
            kind: "virtual".into(),
            operation: "read".into(),
            requests: 3_200,
            per_second: 52.5,
            bytes: 419_430_400,
            mean_queue_ms: 0.011,
            mean_device_ms: 0.06,
            by_target: 2_100,
            by_kernel: 1_100,
            by_others: 0,
        }],
        competitors: vec![Competitor {
            tid: 99,
            comm: "backup".into(),
            command: "/usr/bin/backup --all".into(),
            in_target: false,
            seconds: 1.5,
        }],
        hot_images: vec![
            HotImage { role: "worker".into(), image: "libjpeg.so.62".into(), share: 0.6, samples: 600 },
            HotImage { role: "worker".into(), image: "read".into(), share: 0.4, samples: 400 },
        ],
        overhead: Overhead {
            recorder_cpu_s: Some(0.31),
            recorder_peak_rss: Some(40 << 20),
            recording_bytes: 1 << 20,
            intervals: 96_000,
            bytes_per_interval: 10.9,
            lost: BTreeMap::new(),
            program_ns: BTreeMap::new(),
        },
        notes: vec!["GPU activity is known from NVML windows of 167 ms.".into()],
    }
}
