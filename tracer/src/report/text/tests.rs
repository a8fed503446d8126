use super::*;
use crate::attribution::Cause;
use crate::diagnosis::{Bottleneck, Verdict};
use crate::report::fixtures::{disk_bound, labels};
use crate::report::*;
use proptest::prelude::*;
use unicode_width::UnicodeWidthStr;

fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_answer_comes_first() {
    let text = render(&disk_bound(), 100, false);
    let first = text.lines().next().unwrap();
    assert_eq!(first, "GPU 0 was idle 61 % of 60 s. 52 points of that: workers waited for disk.");
    let squeezed = squeezed(&text);
    let order = [
        "Storage held the training back.",
        "Bottleneck: storage I/O. At most 2.1× faster (an epoch 52 % shorter) if this went away (disk).",
        "- Workers were blocked 9.6 ms per read, 3,200 reads.",
        "- Move the data set to a local NVMe disk.",
        "cause points of time of idle time",
        "disk 52 85 % 31.1 s",
    ];
    let mut from = 0;
    for part in order {
        let at = squeezed[from..].find(part).unwrap_or_else(|| panic!("`{part}` is missing or out of order:\n{text}"));
        from += at;
    }
    assert!(text.lines().count() <= 100, "{} lines", text.lines().count());
}

#[test]
fn a_summary_that_tells_the_share_is_not_repeated() {
    let mut report = disk_bound();
    report.verdict.summary = "GPU 0 was idle 61 % of the time: workers waited for vda.".into();
    let text = render(&report, 100, false);
    assert_eq!(text.matches("was idle 61 %").count(), 1, "{text}");
    assert!(text.starts_with(&report.verdict.summary));
}

#[test]
fn points_of_the_table_sum_to_the_idle_share() {
    let text = render(&disk_bound(), 100, false);
    let points: f64 = text
        .lines()
        .skip_while(|l| !l.contains("points of time"))
        .skip(1)
        .take(3)
        .map(|l| l.split_whitespace().find_map(|w| w.parse::<f64>().ok()).unwrap())
        .sum();
    assert_eq!(points, 61.0, "{text}");
}

#[test]
fn facts_read_as_sentences() {
    let text = squeezed(&render(&disk_bound(), 160, false));
    for part in [
        "at 12.500 s: 420 ms – disk: feeder 4000 ran (host code, 10 ms); then worker 4711 read /data/train/a.jpg \
         (disk, 390 ms); then worker 4711 ran (preprocessing, 20 ms)",
        "feeder ← worker: disk 300 31.1 s 104 ms 85 %",
        "worker 2 18 s 2 s 59 s 43 s 15 % read 80 s",
        "vda virtual read 3,200 53 400 MiB 11 µs 60 µs 213 µs 66/34/0 %",
        "Threads were blocked 9.6 ms per read (3,200 waits), but the block layer took only 71 µs per request: requests \
         were held back before it",
        "wait for a CPU: worker 90,000 22 µs",
        "GPU idle stretch: GPU 0 339 107 ms",
        "99 backup outside 1.5 s /usr/bin/backup --all",
        "worker: libjpeg.so.62 60 %, read 40 % (1,000 samples)",
        "GPU 0: its PCIe link runs at generation 3 of 5.",
        "No event was lost.",
        "61 s of pid 4000 (python3 train.py --epochs 90) on trainer, Linux 6.18.0",
    ] {
        assert!(text.contains(part), "`{part}` is missing:\n{text}");
    }
}

#[test]
fn a_healthy_block_layer_is_remarked_only_where_threads_waited_longer() {
    let mut report = disk_bound();
    report.histograms[0].mean = 1_200_000;
    report.devices[0].mean_device_ms = 1.0;
    assert!(!squeezed(&render(&report, 100, false)).contains("held back before"));
}

#[test]
fn reads_without_any_block_device_are_remarked() {
    let mut report = disk_bound();
    report.devices.clear();
    let text = squeezed(&render(&report, 100, false));
    assert!(text.contains("no block device served reads"), "{text}");
}

#[test]
fn without_gpu_evidence_that_is_said_first_and_the_rest_is_shown() {
    for no_gpu in [true, false] {
        let mut report = disk_bound();
        report.gpus[0].source = "none".into();
        if no_gpu {
            report.gpus.clear();
        }
        let text = render(&report, 100, false);
        assert!(text.starts_with("No GPU evidence"), "{text}");
        report.verdict.summary = "There is no GPU evidence in this recording.".into();
        assert!(render(&report, 100, false).starts_with("There is no GPU evidence in this recording.\n"));
        assert!(text.contains("Threads by role") && text.contains("Block devices") && text.contains("/data/train"));
        assert!(!text.contains("Bottleneck"));
    }
}

#[test]
fn several_gpus_have_a_line_each_the_idlest_first() {
    let mut report = disk_bound();
    for (index, idle) in [(1, 0.9), (2, 0.1), (3, 0.7)] {
        let mut gpu = report.gpus[0].clone();
        (gpu.index, gpu.idle_share, gpu.idle_s, gpu.busy_s) = (index, idle, 60.0 * idle, 60.0 - 60.0 * idle);
        report.gpus.push(gpu);
    }
    let text = render(&report, 100, false);
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("`{part}` is missing:\n{text}"));
    let order = ["GPU 1: idle 90 %", "GPU 3: idle 70 %", "GPU 0: idle 61 %", "GPU 2: idle 10 %"].map(at);
    assert!(order.is_sorted(), "{text}");
    assert!(text.contains("Why 4 GPUs were idle"));
}

#[test]
fn losses_are_doubt_near_the_answer() {
    let mut report = disk_bound();
    report.recording.lost_events = 12_345;
    report.overhead.lost = [("off_cpu".to_owned(), 12_345)].into();
    let text = render(&report, 100, false);
    let doubt = text.find("Doubt: 12,345 events were lost").expect("doubt is shown");
    assert!(doubt < text.find("Evidence").unwrap());
    assert!(text.contains("12,345 events were lost (off_cpu 12,345)."));
}

#[test]
fn names_cannot_drive_the_terminal() {
    let mut report = disk_bound();
    report.threads[1].comm = "\u{1b}]0;evil\u{7}".into();
    report.files[0].path = "/data/\u{1b}[2J\n\u{202e}x".into();
    report.recording.target.command = "a\rb".into();
    report.gap_groups[0].chain = "\u{9b}31m".into();
    for colour in [false, true] {
        let text = render(&report, 160, colour);
        let odd: Vec<char> = text.chars().filter(|c| c.is_control() && *c != '\n').collect();
        assert!(odd.iter().all(|c| colour && *c == '\u{1b}'), "{odd:?}");
        assert!(!text.contains("\u{1b}]") && !text.contains("\u{1b}[2J") && !text.contains('\u{202e}'));
        assert!(text.contains("\\u{1b}]0;evil\\u{7}"));
    }
}

/// Text that a kernel or a file system could hand over.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-z/_.]{1,12}",
        ".{0,20}",
        any::<String>(),
        "(/[日本語データa-z ]{1,30}){1,12}",
        Just("\u{1b}[31m\u{7}\r\n\t".to_owned()),
        Just("👩‍👩‍👧\u{fe0f}❤️".repeat(20)),
    ]
}

/// Any finite number, the extremes included.
fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        0.0..100.0f64,
        Just(0.0),
        Just(f64::MAX),
        Just(f64::MIN),
        Just(f64::MIN_POSITIVE),
        any::<f64>().prop_filter("finite", |x| x.is_finite()),
    ]
}

fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![0..1000u64, Just(u64::MAX), any::<u64>()]
}

fn any_cause() -> impl Strategy<Value = Cause> {
    prop::sample::select(vec![Cause::Disk, Cause::CpuThrottled, Cause::Preprocessing, Cause::Memory, Cause::Unknown])
}

fn any_causes() -> impl Strategy<Value = Vec<CauseShare>> {
    prop::collection::vec(
        (any_cause(), any_number(), any_number()).prop_map(|(cause, seconds, share)| CauseShare {
            cause,
            seconds,
            share,
        }),
        0..12,
    )
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(any_text(), 0..10)
}

fn any_verdict() -> impl Strategy<Value = Verdict> {
    let bottleneck = prop::sample::select(vec![Bottleneck::None, Bottleneck::StorageIo, Bottleneck::NoWork]);
    let cause = prop::option::of(any_cause());
    (bottleneck, cause, any_number(), any_text(), texts(), texts(), prop::option::of(any_number())).prop_map(
        |(bottleneck, cause, share, summary, evidence, advice, speedup_bound)| Verdict {
            bottleneck,
            cause,
            share,
            summary,
            evidence,
            advice,
            speedup_bound,
        },
    )
}

fn any_gpu() -> impl Strategy<Value = GpuReport> {
    let source = prop::sample::select(vec!["nvml", "trace", "none", "simulated"]);
    let numbers = prop::array::uniform7(any_number());
    (any::<u32>(), any_text(), source, numbers, any_count(), any_causes(), any_verdict(), texts()).prop_map(
        |(index, name, source, n, gap_count, causes, verdict, state)| GpuReport {
            of_job: true,
            index,
            name,
            source: source.into(),
            evidence: "windows".into(),
            active_from_s: n[0],
            active_to_s: n[1],
            busy_s: n[2],
            idle_s: n[3],
            idle_share: n[4],
            certain_share: n[4],
            waited_for: Vec::new(),
            before_s: n[5],
            after_s: n[6],
            gap_count,
            causes,
            verdict,
            state,
        },
    )
}

fn any_gap() -> impl Strategy<Value = Gap> {
    let link = (any_number(), any_number(), any::<u32>(), any_text(), any_cause(), any_text())
        .prop_map(|(start_s, end_s, tid, role, cause, what)| ChainLink { start_s, end_s, tid, role, cause, what });
    (any::<u32>(), any_number(), any_number(), any_cause(), prop::collection::vec(link, 0..6))
        .prop_map(|(gpu, start_s, end_s, cause, chain)| Gap { gpu, start_s, end_s, cause, chain })
}

fn any_histogram() -> impl Strategy<Value = HistogramSummary> {
    let names = vec!["run_queue", "blocked_read", "file_open", "gpu_busy", "block_io_latency", "odd"];
    let label = prop_oneof![Just("role".to_owned()), Just("gpu".to_owned()), any_text()];
    let labels = prop::collection::btree_map(label, any_text(), 0..3);
    (prop::sample::select(names), labels, any_count(), prop::array::uniform5(any_count())).prop_map(
        |(name, labels, count, n)| HistogramSummary {
            name: name.into(),
            labels,
            unit: "ns".into(),
            count,
            mean: n[0],
            p50: n[1],
            p90: n[2],
            p99: n[3],
            max: n[4],
        },
    )
}

fn any_thread() -> impl Strategy<Value = ThreadReport> {
    let wait = prop::option::of((any_text(), any_number()).prop_map(|(syscall, seconds)| TopWait { syscall, seconds }));
    (any::<u32>(), any::<u32>(), any_text(), any_text(), prop::array::uniform6(any_number()), wait).prop_map(
        |(tid, pid, comm, role, n, top_wait)| ThreadReport {
            tid,
            pid,
            comm,
            role,
            alive_s: n[0],
            running_s: n[1],
            runqueue_s: n[2],
            disk_s: n[3],
            blocked_s: n[4],
            max_runqueue_ms: n[5],
            top_wait,
        },
    )
}

fn any_path() -> impl Strategy<Value = PathWait> {
    (any_text(), any_number(), any_count(), any_count(), prop::option::of(any_number()), any_count()).prop_map(
        |(path, blocked_s, waits, opens, mean_open_ms, files)| PathWait {
            path,
            blocked_s,
            waits,
            opens,
            mean_open_ms,
            files,
        },
    )
}

fn any_device() -> impl Strategy<Value = DeviceReport> {
    let operation = prop_oneof![Just("read".to_owned()), any_text()];
    (any_text(), any_text(), operation, prop::array::uniform3(any_number()), prop::array::uniform5(any_count()))
        .prop_map(|(device, kind, operation, n, c)| DeviceReport {
            device,
            kind,
            operation,
            requests: c[0],
            per_second: n[0],
            bytes: c[1],
            mean_queue_ms: n[1],
            mean_device_ms: n[2],
            by_target: c[2],
            by_kernel: c[3],
            by_others: c[4],
        })
}

fn any_tail() -> impl Strategy<Value = (Vec<Competitor>, Vec<HotImage>, Overhead, Vec<String>, RecordingInfo)> {
    let competitor = (any::<u32>(), any_text(), any_text(), any::<bool>(), any_number())
        .prop_map(|(tid, comm, command, in_target, seconds)| Competitor { tid, comm, command, in_target, seconds });
    let image = (any_text(), any_text(), any_number(), any_count())
        .prop_map(|(role, image, share, samples)| HotImage { role, image, share, samples });
    let cost = (any_number(), any_number(), prop::array::uniform3(any_count()), any_text(), any_number()).prop_map(
        |(cpu, per_interval, n, name, ns)| Overhead {
            recorder_cpu_s: Some(cpu),
            recorder_peak_rss: Some(n[0]).filter(|rss| rss % 2 == 0),
            recording_bytes: n[1],
            intervals: n[2],
            bytes_per_interval: per_interval,
            lost: [(name.clone(), n[0])].into(),
            program_ns: [(name, ns)].into(),
        },
    );
    let info = (any_number(), any_text(), any_text(), any_count(), any::<bool>()).prop_map(
        |(duration_s, host, command, lost_events, complete)| RecordingInfo {
            duration_s,
            kernel: host.clone(),
            started_at: host.clone(),
            host,
            target: TargetInfo { pid: 1, command },
            started_mono_ns: lost_events,
            lost_events,
            complete,
        },
    );
    (prop::collection::vec(competitor, 0..8), prop::collection::vec(image, 0..12), cost, texts(), info)
}

fn any_report() -> impl Strategy<Value = Report> {
    let group = (any_text(), any_count(), any_number(), any_cause())
        .prop_map(|(chain, count, seconds, cause)| GapGroup { chain, count, seconds, cause });
    (
        prop::collection::vec(any_gpu(), 0..5),
        (any_causes(), any_verdict()),
        prop::collection::vec(any_gap(), 0..4),
        prop::collection::vec(group, 0..4),
        prop::collection::vec(any_histogram(), 0..10),
        prop::collection::vec(any_thread(), 0..10),
        prop::collection::vec(any_path(), 0..6),
        prop::collection::vec(any_device(), 0..4),
        any_tail(),
    )
        .prop_map(|(gpus, (causes, verdict), gaps, gap_groups, histograms, threads, files, devices, tail)| {
            let (competitors, hot_images, overhead, notes, recording) = tail;
            Report {
                schema: SCHEMA.into(),
                recording,
                gpus,
                causes,
                verdict,
                gaps,
                gap_groups,
                histograms,
                threads,
                directories: files.clone(),
                files,
                devices,
                competitors,
                hot_images,
                overhead,
                notes,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn any_report_fits_any_width(report in any_report(), width in 60usize..160) {
        let text = render(&report, width, false);
        for line in text.lines() {
            prop_assert!(line.width() <= width, "{} columns of {width}: {line:?}", line.width());
            prop_assert!(!line.chars().any(char::is_control), "{line:?}");
        }
        prop_assert!(text.lines().count() < 1_000_000);
    }
}

#[test]
fn numbers_that_do_not_exist_and_narrow_pages_do_no_harm() {
    let mut report = disk_bound();
    report.gpus[0].idle_share = f64::NAN;
    report.gpus[0].causes[0].seconds = f64::INFINITY;
    report.histograms.push(HistogramSummary { labels: labels(&[]), ..report.histograms[0].clone() });
    report.devices[0].mean_queue_ms = f64::NAN;
    for width in [0, 1, 40, 60, 1000] {
        let text = render(&report, width, false);
        assert!(text.lines().all(|l| l.width() <= width.max(40)), "{text}");
    }
}

/// Prints a report for a person to look at: `cargo test -p gpustall look -- --ignored --nocapture`.
#[test]
#[ignore = "prints a report"]
fn look() {
    print!("{}", render(&disk_bound(), 100, std::env::var_os("COLOUR").is_some()));
    println!("{}", to_json(&disk_bound()));
}
