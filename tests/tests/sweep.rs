//! Reports of whole and of damaged recordings: the same whatever the size of the parts in which they are read, and sound
//! whatever is wrong with them. `GPUSTALL_FUZZ_CASES=2000` tries more damage than the usual short run.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails like the test")]

use gpustall::events::{
    Event, FileOpen, GpuDevice, GpuWindow, ImageId, ImageName, NamedFile, OpenOutcome, TaskEvent, TaskWhat,
};
use gpustall::recording::Header;
use gpustall::report::{Options, Report, of_file};
use gpustall::units::{GpuIndex, MonoNs, Nanos, Tid};
use gpustall_tests::damage::{self, Damage, KINDS};
use gpustall_tests::recording::{command, stderr};
use gpustall_tests::synthetic::Job;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A recording of real processes that hand data through pipes; made once, as root.
fn real() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        // In cargo's folder: what a static holds is never dropped.
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sweep.gpustall");
        let script = "for i in $(seq 80); do cat /etc/passwd | sort | md5sum >/dev/null; done";
        let mut c = command(["record", "--no-gpu", "--quiet", "--overwrite", "-o"]).unwrap();
        let output = c.arg(&file).args(["--", "sh", "-c", script]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        file
    })
}

/// Length of an NVML window.
const WINDOW: u64 = 167_000_000;

/// A made-up job with all that attribution looks at: births and ends, samples, opens, names, windows.
fn job(seed: u64, intervals: usize) -> (Header, Vec<Event>) {
    let mut job = Job::new(seed, 3, 8);
    let header = job.header();
    let start = header.started.mono;
    let rows: Vec<_> = job.by_ref().take(intervals).collect();
    let end = rows.iter().map(|r| r.on).max().unwrap();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut events = Vec::new();
    let mut threads = BTreeMap::new();
    for r in &rows {
        threads.entry(r.tid).or_insert(r.pid);
    }
    for (n, (tid, pid)) in threads.iter().enumerate() {
        let what = match n % 4 {
            3 => TaskWhat::Forked { parent: Tid(header.target.pid.0) },
            _ => TaskWhat::Found { parent: header.target.pid },
        };
        let time = if n % 4 == 3 { start + Nanos(300_000_000) } else { start };
        events.push(Event::Task(TaskEvent { time, tid: *tid, pid: *pid, what, comm: "python3".to_owned() }));
    }
    let device = GpuDevice {
        gpu: GpuIndex(0),
        name: "made up".to_owned(),
        uuid: None,
        pci: None,
        memory_bytes: None,
        pcie_max: None,
        power_limit_mw: None,
    };
    events.push(Event::GpuDevice(device));
    for (n, path) in ["/usr/lib/libcuda.so.1", "/usr/lib/libjpeg.so.62"].into_iter().enumerate() {
        events.push(Event::ImageName(ImageName { id: ImageId(n as u32 + 1), path: path.to_owned() }));
    }
    let samples = job.samples(start, (end.since(start).0 / 500_000) as usize);
    events.extend(samples.into_iter().filter(|s| s.time <= end).map(Event::CpuSample));
    for (n, row) in rows.iter().enumerate() {
        if row.syscall.0 == 257 {
            let outcome = (n % 3 == 0).then_some(OpenOutcome { latency: Nanos(9_000), result: 3, flags: 0 });
            let path = format!("/data/{}/{}.jpg", n % 7, n % 91);
            let (tid, pid, syscall) = (row.tid, row.pid, row.syscall);
            events.push(Event::Open(FileOpen { time: row.off, tid, pid, syscall, path, outcome }));
        }
        if let Some(file) = row.file.filter(|_| n % 11 == 0) {
            events.push(Event::NamedFile(NamedFile { file, path: format!("/data/{}.jpg", file.ino) }));
        }
    }
    let mut at = start.0;
    while at + WINDOW < end.0 {
        let utilization = rng.u32(0..60) as f32;
        events.push(Event::GpuWindow(GpuWindow {
            gpu: GpuIndex(0),
            start: MonoNs(at),
            end: MonoNs(at + WINDOW),
            utilization,
        }));
        at += WINDOW;
    }
    events.extend(rows.into_iter().map(Event::OffCpu));
    // As they come out of the rings.
    events.sort_by_key(when);
    (header, events)
}

/// When an event is recorded.
fn when(event: &Event) -> MonoNs {
    match event {
        Event::OffCpu(o) => o.on,
        Event::CpuSample(s) => s.time,
        Event::Open(o) => o.time,
        Event::GpuWindow(w) => w.end,
        Event::Task(t) => t.time,
        _ => MonoNs(0),
    }
}

/// Busy times of a GPU as a trace: most gaps are short, now and then one is a quarter of the recording.
fn trace(path: &Path, from: MonoNs, to: MonoNs, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut text = String::new();
    let unit = to.since(from).0.max(1_000) / 1_000;
    let mut t = from.0 + 5 * unit;
    while t < to.0 || text.is_empty() {
        writeln!(text, r#"{{"t_ns":{t},"gpu":0,"busy":true}}"#).unwrap();
        t += rng.u64(1..=4 * unit);
        writeln!(text, r#"{{"t_ns":{t},"gpu":0,"busy":false}}"#).unwrap();
        t += if rng.u8(0..60) == 0 { rng.u64(50 * unit..250 * unit) } else { rng.u64(1..=8 * unit) };
    }
    std::fs::write(path, text).unwrap();
}

/// Sums that do not depend on where a recording is cut into parts.
fn same(a: &Report, b: &Report, what: &str) {
    assert_eq!(a.causes, b.causes, "{what}");
    assert_eq!(a.gpus, b.gpus, "{what}");
    assert_eq!(a.gap_groups, b.gap_groups, "{what}");
    assert_eq!(a.gaps, b.gaps, "{what}");
    assert_eq!(a, b, "{what}");
}

#[test]
fn a_report_does_not_depend_on_the_parts_in_which_the_recording_is_read() {
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..2 {
        let (header, events) = job(seed, 25_000);
        let end = events.iter().map(when).max().unwrap();
        let file = folder.path().join("job.gpustall");
        damage::write(&file, &header, &events, Some(end), Nanos(40_000_000)).unwrap();
        let busy = folder.path().join("busy.jsonl");
        trace(&busy, header.started.mono, end, seed);
        let second = Nanos(1_000_000_000);
        for gpu_trace in [Vec::new(), vec![busy]] {
            for (from, to) in [(None, None), (Some(second), None), (Some(second), Some(Nanos(2_345_678_901)))] {
                let options = Options { gpu_trace: gpu_trace.clone(), from, to, ..Options::default() };
                let whole = of_file(&file, &Options { part_rows: Some(usize::MAX), ..options.clone() }).unwrap();
                damage::adds_up(&whole).unwrap();
                assert!(whole.gpus[0].idle_s > 0.1 && whole.causes.len() > 2, "{:?}", whole.causes);
                for part_rows in [9_000, 2_000, 300] {
                    let parts = of_file(&file, &Options { part_rows: Some(part_rows), ..options.clone() }).unwrap();
                    same(&whole, &parts, &format!("seed {seed}, {part_rows} rows, {from:?} to {to:?}, {gpu_trace:?}"));
                }
            }
        }
    }
}

#[test]
fn a_real_recording_reads_the_same_in_parts() {
    let busy = tempfile::NamedTempFile::new().unwrap();
    let report = |gpu_trace: Option<&Path>, rows| {
        let gpu_trace = gpu_trace.map(Path::to_owned).into_iter().collect();
        of_file(real(), &Options { gpu_trace, part_rows: Some(rows), ..Options::default() }).unwrap()
    };
    let whole = report(None, usize::MAX);
    assert!(whole.overhead.intervals > 200, "{:?}", whole.overhead);
    let start = MonoNs(whole.recording.started_mono_ns);
    trace(busy.path(), start, start + Nanos((whole.recording.duration_s * 1e9) as u64), 1);
    for gpu_trace in [None, Some(busy.path())] {
        let whole = report(gpu_trace, usize::MAX);
        for rows in [1, 10, 100] {
            same(&whole, &report(gpu_trace, rows), &format!("{rows} rows, {gpu_trace:?}"));
        }
    }
}

/// Cases of damage to try.
fn cases(usual: u64) -> u64 {
    std::env::var("GPUSTALL_FUZZ_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// Whole recordings to do damage to.
fn wholes() -> Vec<(Header, Vec<Event>)> {
    vec![damage::read(real()).unwrap(), job(7, 4_000), job(8, 1_500)]
}

#[test]
fn damaged_events_give_a_sound_report() {
    let folder = tempfile::tempdir().unwrap();
    let (file, busy) = (folder.path().join("damaged.gpustall"), folder.path().join("busy.jsonl"));
    let wholes = wholes();
    for case in 0..cases(15) {
        let mut rng = fastrand::Rng::with_seed(case);
        let (header, mut events) = wholes[case as usize % wholes.len()].clone();
        let end = events.iter().map(when).max().unwrap();
        let mut done: Vec<Damage> = vec![KINDS[case as usize % KINDS.len()]];
        done.extend((0..rng.usize(0..3)).filter_map(|_| rng.choice(KINDS)));
        for kind in &done {
            kind.apply(&mut events, &mut rng);
        }
        let ended = rng.bool().then_some(end);
        damage::write(&file, &header, &events, ended, Nanos(50_000_000)).unwrap();
        trace(&busy, header.started.mono, end, case);
        // Windows and a trace, each read in parts every other time.
        let small = case / 2 % 2 == 0;
        for (gpu_trace, in_parts) in [(Vec::new(), small), (vec![busy.clone()], !small)] {
            let part_rows = in_parts.then_some(300);
            let options = Options { gpu_trace: gpu_trace.clone(), part_rows, ..Options::default() };
            let told = format!("case {case}: {done:?}, {options:?}");
            let report = match damage::sound_report(&file, &options) {
                Ok(report) => report,
                // So little is left that the trace lies outside.
                Err(e) if !gpu_trace.is_empty() && format!("{e:#}").contains("do not overlap") => continue,
                Err(e) => panic!("{told}: {e:#}"),
            };
            assert_eq!(report.recording.complete, ended.is_some(), "{told}");
            let losses: u64 = events.iter().map(|e| if let Event::Loss(l) = e { l.count } else { 0 }).sum();
            assert_eq!(report.recording.lost_events, losses, "{told}");
            if losses > 0 {
                assert!(
                    report.notes.iter().any(|n| n.contains("were lost") || n.contains("were left out")),
                    "{told}: {:?}",
                    report.notes
                );
            }
        }
    }
}

#[test]
fn a_file_with_flipped_bytes_gives_a_sound_report_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut files: Vec<PathBuf> = vec![real().to_owned()];
    let (header, events) = job(9, 3_000);
    let end = events.iter().map(when).max().unwrap();
    files.push(folder.path().join("whole.gpustall"));
    damage::write(&files[1], &header, &events, Some(end), Nanos(20_000_000)).unwrap();
    let damaged = folder.path().join("damaged.gpustall");
    let mut reports = 0;
    let cases = cases(12);
    for case in 0..cases {
        let mut rng = fastrand::Rng::with_seed(case);
        let mut bytes = std::fs::read(&files[case as usize % files.len()]).unwrap();
        match rng.u8(0..4) {
            0 => bytes.truncate(rng.usize(0..bytes.len())),
            1 => {
                let at = rng.usize(0..bytes.len());
                let upto = (at + rng.usize(1..5_000)).min(bytes.len());
                bytes.drain(at..upto);
            }
            2 => {
                // A piece of the file comes twice.
                let at = rng.usize(0..bytes.len());
                let piece = bytes[at..(at + rng.usize(1..20_000)).min(bytes.len())].to_vec();
                let to = rng.usize(0..bytes.len());
                bytes.splice(to..to, piece);
            }
            _ => {
                for _ in 0..rng.usize(1..4) {
                    let at = rng.usize(0..bytes.len());
                    bytes[at] ^= 1 << rng.u8(0..8);
                }
            }
        }
        std::fs::write(&damaged, &bytes).unwrap();
        for part_rows in [None, Some(200)] {
            let report = match of_file(&damaged, &Options { part_rows, ..Options::default() }) {
                Ok(report) => report,
                Err(e) => {
                    // The header is gone: a sentence about the file.
                    assert!(e.to_string().contains("damaged.gpustall"), "case {case}: {e}");
                    continue;
                }
            };
            damage::adds_up(&report).unwrap_or_else(|e| panic!("case {case}: {e:#}"));
            assert!(!report.recording.complete && !report.notes.is_empty(), "case {case}: {:?}", report.notes);
            reports += 1;
        }
    }
    assert!(reports > cases, "only {reports} reports of {cases} files read twice");
}

#[test]
fn a_part_without_gpu_evidence_is_told_from_a_recording_without() {
    let folder = tempfile::tempdir().unwrap();
    let (header, mut events) = job(5, 5_000);
    let (start, end) = (header.started.mono, events.iter().map(when).max().unwrap());
    // The first 300 ms are without windows.
    let from = start + Nanos(300_000_000);
    events.retain(|e| !matches!(e, Event::GpuWindow(w) if w.start < from));
    let windows = || events.iter().filter_map(|e| if let Event::GpuWindow(w) = e { Some(*w) } else { None });
    let first = windows().map(|w| w.start).min().unwrap();
    let file = folder.path().join("job.gpustall");
    damage::write(&file, &header, &events, Some(end), Nanos(40_000_000)).unwrap();
    let busy = folder.path().join("busy.jsonl");
    let line = |t: MonoNs, busy| format!("{{\"t_ns\": {}, \"gpu\": 0, \"busy\": {busy}}}\n", t.0);
    std::fs::write(&busy, [line(first, true), line(first + Nanos(1_500_000), false)].concat()).unwrap();
    let judged = |to: MonoNs, gpu_trace: Vec<PathBuf>| {
        of_file(&file, &Options { to: Some(to.since(start)), gpu_trace, ..Options::default() }).unwrap()
    };

    for (trace, until) in
        [(Vec::new(), windows().map(|w| w.end).max().unwrap()), (vec![busy], first + Nanos(1_500_000))]
    {
        let r = judged(start + Nanos(1), trace.clone());
        let said = format!(
            "There is no GPU evidence in the chosen part of this recording (0 s to 1 ns): it lies outside of it, from {} to {}, so",
            Nanos(first.since(start).0),
            Nanos(until.since(start).0)
        );
        assert!(r.verdict.summary.starts_with(&said), "{}\n{said}", r.verdict.summary);
        assert!(r.gpus.is_empty() && r.verdict.advice == ["Choose another part with --from and --to."], "{r:#?}");
        assert!(!r.notes.iter().any(|n| n.contains("No GPU was watched")), "{:?}", r.notes);
        let page = gpustall::report::render(&r, 400, false);
        assert!(page.starts_with(&said) && page.matches("no GPU evidence").count() == 1, "{page}");
        // A part that reaches into the evidence by a millisecond is told in milliseconds.
        let r = judged(first + Nanos(1_000_000), trace);
        let summary = &r.gpus[0].verdict.summary;
        assert!(summary.contains(" 1.0 ms"), "{summary}");
        let page = gpustall::report::render(&r, 400, false);
        assert!(!page.contains("of 0.0 s") && !page.contains("of 0 s"), "{page}");
    }
    // Before a GPU's work, but with evidence, it did nothing; that is said once.
    let two = folder.path().join("two.jsonl");
    let later = first + Nanos(50_000_000);
    let all = [(first, true), (first + Nanos(1_000_000), false), (later, true), (later + Nanos(1_000_000), false)];
    std::fs::write(&two, all.map(|(t, busy)| line(t, busy)).concat()).unwrap();
    let part = |from: u64, to: u64| Options {
        from: Some(Nanos(first.since(start).0 + from)),
        to: Some(Nanos(first.since(start).0 + to)),
        gpu_trace: vec![two.clone()],
        ..Options::default()
    };
    let page = gpustall::report::render(&of_file(&file, &part(10_000_000, 12_000_000)).unwrap(), 400, false);
    assert!(page.starts_with("GPU 0 did no work during the 2.0 ms of the recording.\n"), "{page}");
    assert!(!page.contains("idle 0 %") && !page.contains("Why GPU 0 was idle"), "{page}");
}
