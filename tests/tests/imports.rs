//! A run judged by a profiler's trace reads as it does by the workload's own busy file, whatever form the trace has. Needs root,
//! to record.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails like the test")]

use flate2::{Compression, write::GzEncoder};
use gpustall::recording::Reader;
use gpustall_tests::recording::{command, one_sentence, report, stderr};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A recorded run of the demo, and the GPU's busy times in it, CLOCK_MONOTONIC.
struct Run {
    recording: PathBuf,
    busy_file: PathBuf,
    busy: Vec<(u64, u64)>,
    /// Wall minus monotonic clock at the start.
    wall: u64,
}

fn run() -> &'static Run {
    static MADE: OnceLock<Run> = OnceLock::new();
    MADE.get_or_init(|| {
        // In cargo's folder: what a static holds is never dropped.
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let (recording, busy_file) = (folder.join("imports.gpustall"), folder.join("imports.busy"));
        for old in [&recording, &busy_file] {
            let _ = fs::remove_file(old);
        }
        let mut c = command(["demo", "disk", "--json", "--duration", "3s", "--output"]).unwrap();
        let output = c.arg(&recording).arg("--keep-busy").arg(&busy_file).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let started = Reader::open(&recording).unwrap().header().started;
        let busy = busy_times(&fs::read_to_string(&busy_file).unwrap());
        assert!(busy.len() >= 10, "{} busy times", busy.len());
        Run { recording, busy_file, busy, wall: started.wall.0 - started.mono.0 }
    })
}

fn busy_times(text: &str) -> Vec<(u64, u64)> {
    let changes: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let time = |v: &Value| v["t_ns"].as_u64().unwrap();
    changes.chunks_exact(2).map(|pair| (time(&pair[0]), time(&pair[1]))).collect()
}

fn judged(trace: &Path) -> Value {
    report(&run().recording, &["--gpu-trace", trace.to_str().unwrap()]).unwrap()
}

/// Asserts that two values hold the same, numbers to the microsecond.
fn assert_same(a: &Value, b: &Value, place: &str) {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            assert!((a - b).abs() <= 1.001e-6, "{place}: {a} and {b}");
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{place}");
            a.iter().zip(b).enumerate().for_each(|(n, (a, b))| assert_same(a, b, &format!("{place}[{n}]")));
        }
        (Value::Object(a), Value::Object(b)) => {
            a.iter().for_each(|(key, a)| assert_same(a, &b[key], &format!("{place}.{key}")));
        }
        _ => assert_eq!(a, b, "{place}"),
    }
}

/// Asserts that GPU 0 and its gaps are the same in two reports.
fn assert_same_gpu(a: &Value, b: &Value) {
    let pick = |v: &Value| {
        let gpu = &v["gpus"][0];
        let gaps: Vec<&Value> = v["gaps"].as_array().unwrap().iter().filter(|g| g["gpu"] == 0).collect();
        let keys = ["active_from_s", "active_to_s", "busy_s", "idle_s", "before_s", "after_s", "gap_count", "causes"];
        let told: Vec<&Value> = keys.iter().map(|k| &gpu[k]).collect();
        // The order of two gaps of nearly the same length may turn.
        let mut gaps: Vec<Value> = gaps.into_iter().cloned().collect();
        gaps.sort_by(|a, b| a["start_s"].as_f64().unwrap().total_cmp(&b["start_s"].as_f64().unwrap()));
        json!({ "told": told, "bottleneck": gpu["verdict"]["bottleneck"], "gaps": gaps })
    };
    assert_same(&pick(a), &pick(b), "report");
}

fn assert_noted(report: &Value, words: &str) {
    let notes = report["notes"].as_array().unwrap();
    assert!(notes.iter().any(|n| n.as_str().unwrap().contains(words)), "{words:?} is not in {notes:#?}");
}

/// A Chrome trace as PyTorch's profiler writes it: times in µs from a base, to the nanosecond.
fn chrome(events: impl Iterator<Item = (u32, u32, u64, u64)>, base: u64) -> String {
    let mut text = format!(
        "{{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [\n    {{\"id\": 0, \"name\": \"Imported GPU\"}}\n  ],\n  \
         \"displayTimeUnit\": \"ms\",\n  \"baseTimeNanoseconds\": {base},\n  \"traceEvents\": [\n"
    );
    for (device, stream, start, end) in events {
        let (ts, dur) = (start - base, end - start);
        write!(
            text,
            "  {{\n    \"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"k\", \"pid\": {device}, \"tid\": {stream},\n    \
             \"ts\": {}.{:03}, \"dur\": {}.{:03},\n    \"args\": {{\n      \"device\": {device}, \"stream\": {stream}\n    }}\n  }},\n",
            ts / 1000,
            ts % 1000,
            dur / 1000,
            dur % 1000
        )
        .unwrap();
    }
    text + "  {\n    \"name\": \"Record Window End\", \"ph\": \"i\", \"s\": \"g\", \"pid\": \"\", \"tid\": \"\", \"ts\": 1\n  }\n  ]\n}\n"
}

/// An Nsight Systems export: times in ns from the start of the session.
fn nsight(path: &Path, events: impl Iterator<Item = (u32, u32, u64, u64)>, session: u64) {
    let mut db = Connection::open(path).unwrap();
    db.execute_batch(&format!(
        "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
         INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES ({session}, '', '');
         CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT);
         INSERT INTO TARGET_INFO_GPU VALUES (1, 0, 'Imported GPU');
         CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
             contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, globalPid INTEGER);"
    ))
    .unwrap();
    let all = db.transaction().unwrap();
    for (device, stream, start, end) in events {
        let row = ((start - session) as i64, (end - session) as i64, device, stream);
        all.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?1, ?2, ?3, 1, ?4, NULL)", row).unwrap();
    }
    all.commit().unwrap();
}

#[test]
fn every_form_of_a_trace_gives_the_same_gaps_and_causes() {
    let folder = tempfile::tempdir().unwrap();
    let run = run();
    let expected = judged(&run.busy_file);
    assert_noted(&expected, "a busy file");
    let base = run.wall + run.busy[0].0 - 5_000_000_000;
    let events = || run.busy.iter().map(|(a, b)| (0, 7, a + run.wall, b + run.wall));
    let text = chrome(events(), base);

    let json = folder.path().join("trace.pt.trace.json");
    fs::write(&json, &text).unwrap();
    // The name says nothing: a kind is told by its content.
    let gz = folder.path().join("trace");
    let mut packer = GzEncoder::new(File::create(&gz).unwrap(), Compression::default());
    packer.write_all(text.as_bytes()).unwrap();
    packer.finish().unwrap();
    let busy_gz = folder.path().join("busy.gz");
    let mut packer = GzEncoder::new(File::create(&busy_gz).unwrap(), Compression::default());
    packer.write_all(&fs::read(&run.busy_file).unwrap()).unwrap();
    packer.finish().unwrap();
    let sqlite = folder.path().join("report.sqlite");
    nsight(&sqlite, events(), base);

    for (file, kind) in [
        (&json, "PyTorch profiler trace"),
        (&gz, "PyTorch profiler trace"),
        (&sqlite, "Nsight Systems export"),
        (&busy_gz, "busy file"),
    ] {
        let told = judged(file);
        assert_same_gpu(&expected, &told);
        assert_eq!(told["gpus"][0]["source"], "trace");
        assert_noted(&told, kind);
        if kind != "busy file" {
            assert_eq!(told["gpus"][0]["name"], "Imported GPU");
            assert_noted(&told, "by the wall clock");
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4, "a reader leaves nothing beside a trace");
}

#[test]
fn several_devices_and_streams_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    let run = run();
    // Each busy time as three overlapping kernels on two streams, in the order of streams, as a profiler writes them; and a
    // second device that is busy for one stretch.
    let pieces = |(a, b): (u64, u64)| {
        let third = (b - a) / 3;
        [(0, 7, a, a + 2 * third), (0, 13, a + third, b), (0, 7, b - third, b)]
            .map(|(d, s, a, b)| (d, s, a + run.wall, b + run.wall))
    };
    let mut events: Vec<(u32, u32, u64, u64)> = run.busy.iter().copied().flat_map(pieces).collect();
    let (first, last) = (run.busy[0].0 + run.wall, run.busy[run.busy.len() - 1].1 + run.wall);
    events.extend([(1, 7, first, first + 1_000_000), (1, 7, last - 1_000_000, last)]);
    events.sort_by_key(|e| (e.1, e.2));
    let json = folder.path().join("trace.json");
    fs::write(&json, chrome(events.iter().copied(), first - 1_000_000)).unwrap();
    let sqlite = folder.path().join("report.sqlite");
    nsight(&sqlite, events.iter().copied(), first - 1_000_000);
    let expected = judged(&run.busy_file);
    for file in [json, sqlite] {
        let told = judged(&file);
        assert_same_gpu(&expected, &told);
        let gpus = told["gpus"].as_array().unwrap();
        assert_eq!(gpus.len(), 2);
        assert_eq!((&gpus[1]["index"], &gpus[1]["gap_count"]), (&json!(1), &json!(1)));
        assert!((gpus[1]["busy_s"].as_f64().unwrap() - 0.002).abs() < 1e-6, "{}", gpus[1]);
    }
}

#[test]
fn a_trace_of_each_process_makes_one_picture() {
    let folder = tempfile::tempdir().unwrap();
    let run = run();
    let base = run.wall + run.busy[0].0 - 1_000_000;
    // Each process saw every other kernel.
    let files: Vec<PathBuf> = (0..2)
        .map(|rank| {
            let file = folder.path().join(format!("rank{rank}.json"));
            let own = run.busy.iter().skip(rank).step_by(2).map(|(a, b)| (0, 7, a + run.wall, b + run.wall));
            fs::write(&file, chrome(own, base)).unwrap();
            file
        })
        .collect();
    let [one, two] = [0, 1].map(|rank| files[rank].to_str().unwrap());
    let told = report(&run.recording, &["--gpu-trace", one, "--gpu-trace", two]).unwrap();
    assert_same_gpu(&judged(&run.busy_file), &told);
    assert_noted(&told, "rank1.json: GPU activity comes from a PyTorch profiler trace");
}

#[test]
fn between_traces_of_parts_of_a_run_nothing_is_known() {
    // As a profiler's schedule writes them: one file for some steps, another for some later ones.
    let folder = tempfile::tempdir().unwrap();
    let run = run();
    let base = run.wall + run.busy[0].0 - 1_000_000;
    let n = run.busy.len();
    let parts = [&run.busy[..n / 3], &run.busy[n - n / 3..]];
    let files: Vec<PathBuf> = (0..2)
        .map(|k| {
            let file = folder.path().join(format!("part{k}.json"));
            let spans = parts[k].iter().map(|(a, b)| (0, 7, a + run.wall, b + run.wall));
            fs::write(&file, chrome(spans, base)).unwrap();
            file
        })
        .collect();
    let [one, two] = [0, 1].map(|k| files[k].to_str().unwrap());
    let told = report(&run.recording, &["--gpu-trace", one, "--gpu-trace", two]).unwrap();
    let inside = |part: &[(u64, u64)]| part.windows(2).map(|w| w[1].0 - w[0].1).sum::<u64>() as f64 / 1e9;
    let idle = inside(parts[0]) + inside(parts[1]);
    let gpu = &told["gpus"][0];
    let said = gpu["idle_s"].as_f64().unwrap();
    assert!((said - idle).abs() < 0.001, "{said} of {idle} s idle");
    assert_eq!(gpu["gap_count"].as_u64().unwrap() as usize, 2 * (n / 3) - 2);
    assert_noted(&told, "Between its traces nothing is known of GPU 0 for");
}

#[test]
fn a_trace_of_another_day_is_refused_with_both_ranges() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let run = run();
    let yesterday = run.busy[0].0 + run.wall - 86_400_000_000_000;
    fs::write(file.path(), chrome([(0, 7, yesterday, yesterday + 1_000_000_000)].into_iter(), yesterday)).unwrap();
    let mut c = command(["report", "--json", "--gpu-trace"]).unwrap();
    let output = c.arg(file.path()).arg(&run.recording).output().unwrap();
    let said = one_sentence(&output, 1).unwrap();
    let times: Vec<&str> = said.split_whitespace().filter(|w| w.contains('T') && w.contains("Z")).collect();
    assert!(said.contains("do not overlap") && times.len() == 4, "{said}");
}

#[test]
fn a_profile_of_the_cpu_alone_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let python = Path::new("/usr/bin/python3");
    let has_torch = Command::new(python).args(["-c", "import torch"]).stderr(Stdio::null()).status();
    if !has_torch.is_ok_and(|s| s.success()) {
        eprintln!("skipped: python3-torch is not installed");
        return;
    }
    let script = "import sys, torch
from torch.profiler import profile, ProfilerActivity
with profile(activities=[ProfilerActivity.CPU]) as p:
    a = torch.ones(64, 64)
    for _ in range(20): a = (a @ a) / 64
p.export_chrome_trace(sys.argv[1])
p.export_chrome_trace(sys.argv[2])";
    let (plain, gz) = (folder.path().join("cpu.json"), folder.path().join("cpu.json.gz"));
    let output = Command::new(python).args(["-c", script]).args([&plain, &gz]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    for file in [plain, gz] {
        let mut c = command(["report", "--json", "--gpu-trace"]).unwrap();
        let said = one_sentence(&c.arg(&file).arg(&run().recording).output().unwrap(), 1).unwrap();
        assert!(said.contains("no GPU work: it was recorded on the CPU only; profile with activities="), "{said}");
    }
}

/// Peak resident memory in KiB and time of a report on the run, with this trace.
#[allow(clippy::zombie_processes, reason = "wait4 collects it, with what it used")]
fn cost(trace: &Path) -> (i64, Duration) {
    let begin = Instant::now();
    let mut c = command(["report", "--json", "--gpu-trace"]).unwrap();
    let child = c.arg(trace).arg(&run().recording).stdout(Stdio::null()).spawn().unwrap();
    // SAFETY: both are plain data for which all zeroes is a value, and outlive the call.
    let (mut status, mut usage) = (0, unsafe { std::mem::zeroed::<libc::rusage>() });
    // SAFETY: waits for a child that nobody else waits for.
    let waited = unsafe { libc::wait4(child.id() as i32, &mut status, 0, &mut usage) };
    assert_eq!((waited, status), (child.id() as i32, 0));
    (usage.ru_maxrss, begin.elapsed())
}

#[test]
fn a_long_trace_takes_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let run = run();
    let (first, last) = (run.busy[0].0 + run.wall, run.busy[run.busy.len() - 1].1 + run.wall);
    let base = first - 1_000_000;
    let file = folder.path().join("long.json");
    let mut out = BufWriter::new(File::create(&file).unwrap());
    writeln!(out, "{{\"schemaVersion\": 1, \"baseTimeNanoseconds\": {base}, \"traceEvents\": [").unwrap();
    // As a profiler writes it: an operator and a launch on the CPU for each kernel, gaps of a few µs between kernels.
    let (mut written, mut n, kernels) = (0u64, 0u64, 290_000u64);
    let step = (last - first) / kernels;
    while n < kernels {
        let (ts, dur) = (1_000_000 + n * step, step * 3 / 4);
        let event = format!(
            "{{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::addmm\", \"pid\": 4000, \"tid\": 4000, \"ts\": {0}.{1:03}, \"dur\": 12.345, \
             \"args\": {{\"External id\": {n}, \"Sequence number\": {n}, \"Fwd thread id\": 0, \"Record function id\": 0, \"Ev Idx\": {n}}}}},\n\
             {{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 4000, \"tid\": 4000, \"ts\": {0}.{1:03}, \"dur\": 4.321, \
             \"args\": {{\"External id\": {n}, \"cbid\": 211, \"correlation\": {n}}}}},\n\
             {{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>\", \
             \"pid\": 0, \"tid\": 7, \"ts\": {0}.{1:03}, \"dur\": {2}.{3:03}, \"args\": {{\"External id\": {n}, \"queued\": 0, \"device\": 0, \
             \"context\": 1, \"stream\": 7, \"correlation\": {n}, \"registers per thread\": 32, \"grid\": [1024, 1, 1]}}}},\n",
            ts / 1000,
            ts % 1000,
            dur / 1000,
            dur % 1000
        );
        out.write_all(event.as_bytes()).unwrap();
        written += event.len() as u64;
        n += 1;
    }
    out.write_all(b"{}]}").unwrap();
    drop(out);
    assert!(written >= 200_000_000, "{written} bytes");
    let (base_kib, base_time) = cost(&run.busy_file);
    let (kib, time) = cost(&file);
    println!(
        "{} MB: {} MiB above {} MiB, {time:.1?} against {base_time:.1?}",
        written / 1_000_000,
        (kib - base_kib) / 1024,
        base_kib / 1024
    );
    assert!(kib - base_kib < 64 * 1024, "{kib} KiB against {base_kib} KiB");
}
