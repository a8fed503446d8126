//! `gpustall report` as a person or a script meets it: whole and damaged recordings, GPU traces, parts, and pipes. Needs
//! root, to record.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails like the test")]

use gpustall::recording::Reader;
use gpustall_tests::recording::{command, one_sentence, report, run, stderr, whole};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// The oldest recording that must stay readable.
const VERSION_1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/version-1.gpustall");

/// A recording of a shell that sleeps, reads and computes for about a second; made once.
fn recorded() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        // In cargo's folder: what a static holds is never dropped.
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report.gpustall");
        let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.05; cat /etc/passwd >/dev/null; done";
        let mut c = command(["record", "--no-gpu", "--quiet", "--overwrite", "-o"]).unwrap();
        let output = c.arg(&file).args(["--", "sh", "-c", script]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        whole(&file).unwrap();
        file
    })
}

/// Start and end of that recording, CLOCK_MONOTONIC.
fn span() -> (u64, u64) {
    let start = Reader::open(recorded()).unwrap().header().started.mono.0;
    (start, whole(recorded()).unwrap().1.ended.mono.0)
}

fn text(file: &Path, more: &[&str]) -> Output {
    command(["report"]).unwrap().args(more).arg(file).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A trace with these changes of GPU 0.
fn trace(folder: &Path, changes: &[(u64, bool)]) -> PathBuf {
    let file = folder.join("busy.jsonl");
    let lines: Vec<String> =
        changes.iter().map(|(t, busy)| format!("{}\n", json!({"t_ns": t, "gpu": 0, "busy": busy}))).collect();
    fs::write(&file, lines.concat()).unwrap();
    file
}

#[test]
fn what_is_no_recording_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let cases = [
        (folder.path().join("none"), "there is no file"),
        (write("empty", b""), "empty"),
        (
            write("picture.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0"),
            "not a gpustall recording",
        ),
        (
            write("notes.txt", "just some text, longer than a prologue would be\n".repeat(9).as_bytes()),
            "not a gpustall",
        ),
        (write("short", b"g"), "not a gpustall recording"),
        (folder.path().to_owned(), "folder"),
        (PathBuf::from("/dev/null"), "no ordinary file"),
        (PathBuf::from("/dev/zero"), "no ordinary file"),
    ];
    for (path, why) in cases {
        for more in [&[][..], &["--json"]] {
            let output = text(&path, more);
            let said = one_sentence(&output, 1).unwrap_or_else(|e| panic!("{}: {e:#}", path.display()));
            assert!(said.contains(why) && said.contains(path.to_str().unwrap()), "{said}");
            assert!(output.stdout.is_empty(), "{}", stdout(&output));
        }
    }
    let said = one_sentence(&run(["report"]).unwrap(), 2).unwrap();
    assert!(said.contains("FILE"), "{said}");
}

/// A damaged copy gives one sentence, or a report that says it is not complete and why.
fn assert_told(bytes: &[u8], what: &str) -> bool {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, bytes).unwrap();
    let output = text(file.path(), &["--json"]);
    if output.status.code() == Some(1) {
        one_sentence(&output, 1).unwrap_or_else(|e| panic!("{what}: {e:#}"));
        return false;
    }
    assert!(output.status.success() && output.stderr.is_empty(), "{what}: {} {}", output.status, stderr(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["recording"]["complete"], false, "{what}");
    let notes = json["notes"].to_string();
    assert!(["damaged", "cleanly", "not used", "skipped"].iter().any(|w| notes.contains(w)), "{what}: {notes}");
    true
}

/// So many places, spread over a file.
fn places(len: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |i| i * (len - 1) / (count - 1))
}

#[test]
fn a_recording_cut_off_anywhere_is_told() {
    let bytes = fs::read(recorded()).unwrap();
    let reports =
        places(bytes.len(), 25).filter(|n| assert_told(&bytes[..*n], &format!("the first {n} bytes"))).count();
    assert!(reports >= 5, "only {reports} of 25 gave a report");
    let old = fs::read(VERSION_1).unwrap();
    places(old.len(), 15).for_each(|n| {
        assert_told(&old[..n], &format!("the first {n} bytes of version 1"));
    });
}

#[test]
fn a_flipped_bit_anywhere_is_told() {
    let bytes = fs::read(recorded()).unwrap();
    let mut reports = 0;
    for (i, place) in places(bytes.len(), 25).enumerate() {
        let mut bytes = bytes.clone();
        bytes[place] ^= 1 << (i % 8);
        reports += usize::from(assert_told(&bytes, &format!("bit {} of byte {place} flipped", i % 8)));
    }
    assert!(reports >= 5, "only {reports} of 25 gave a report");
    let old = fs::read(VERSION_1).unwrap();
    for (i, place) in places(old.len(), 15).enumerate() {
        let mut bytes = old.clone();
        bytes[place] ^= 1 << (i % 8);
        assert_told(&bytes, &format!("bit {} of byte {place} of version 1 flipped", i % 8));
    }
}

#[test]
fn the_first_version_stays_readable() {
    let json = report(Path::new(VERSION_1), &[]).unwrap();
    assert_eq!(json["recording"]["complete"], true, "{json:#}");
    let output = text(Path::new(VERSION_1), &[]);
    assert!(output.status.success() && output.stdout.len() > 100, "{}", stderr(&output));
}

#[test]
fn without_gpu_evidence_it_says_so_first() {
    let json = report(recorded(), &[]).unwrap();
    assert_eq!(json["verdict"]["bottleneck"], "none", "{}", json["verdict"]);
    assert_eq!(json["gpus"], json!([]));
    assert_eq!(json["gaps"], json!([]));
    assert_eq!(json["causes"], json!([]));
    assert!(!json["threads"].as_array().unwrap().is_empty());
    let page = stdout(&text(recorded(), &[]));
    let first: Vec<&str> = page.lines().filter(|l| !l.trim().is_empty()).take(4).collect();
    assert!(first.iter().any(|l| l.to_lowercase().contains("gpu") && l.contains("no")), "{page}");
}

#[test]
fn a_gpu_trace_that_cannot_be_used_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("busy.jsonl");
    let (start, end) = span();
    let wall = 1_900_000_000_000_000_000u64;
    let seconds = |t: u64| format!("{:.3} s", t as f64 / 1e9);
    let cases: Vec<(String, Vec<String>)> = vec![
        ("not JSON\n".into(), vec!["line 1".into()]),
        ("".into(), vec!["busy.jsonl".into()]),
        ("\n\n".into(), vec!["busy.jsonl".into()]),
        (format!("{{\"t_ns\": {start}, \"gpu\": 0, \"busy\": true}}\n{{\"t_ns\": 5\n"), vec!["line 2".into()]),
        ("{\"t_ns\": \"x\", \"gpu\": 0, \"busy\": true}\n".into(), vec!["t_ns".into()]),
        ("{\"t_ns\": -5, \"gpu\": 0, \"busy\": true}\n".into(), vec!["t_ns".into()]),
        ("{\"t_ns\": 5, \"gpu\": -1, \"busy\": true}\n".into(), vec!["gpu".into()]),
        ("{\"t_ns\": 5, \"gpu\": 0, \"busy\": 1}\n".into(), vec!["busy".into()]),
        ("{\"t_ns\": 5, \"gpu\": 0}\n".into(), vec!["busy".into()]),
        ("[1, 2]\n".into(), vec!["line 1".into()]),
        ("{\"traceEvents\": []}\n".into(), vec!["busy.jsonl".into()]),
        (format!("{{\"t_ns\": {start}, \"gpu\": 0, \"busy\": false}}\n"), vec!["no busy time".into()]),
        // Both ranges are shown.
        (
            "{\"t_ns\": 1000000000, \"gpu\": 0, \"busy\": true}\n{\"t_ns\": 2500000000, \"gpu\": 0, \"busy\": false}\n"
                .into(),
            vec!["1.000 s".into(), "2.500 s".into(), seconds(start), seconds(end)],
        ),
        (
            format!(
                "{{\"t_ns\": {wall}, \"gpu\": 0, \"busy\": true}}\n{{\"t_ns\": {}, \"gpu\": 0, \"busy\": false}}\n",
                wall + 1_000_000_000
            ),
            vec!["wall".into(), seconds(wall), seconds(start), seconds(end)],
        ),
    ];
    for (content, words) in cases {
        fs::write(&file, &content).unwrap();
        let output = text(recorded(), &["--json", "--gpu-trace", file.to_str().unwrap()]);
        let said = one_sentence(&output, 1).unwrap_or_else(|e| panic!("{content:?}: {e:#}"));
        assert!(words.iter().all(|w| said.contains(w)), "{content:?}: {said} has not all of {words:?}");
        assert!(output.stdout.is_empty());
    }
    for missing in [folder.path().join("none"), folder.path().to_owned()] {
        let output = text(recorded(), &["--gpu-trace", missing.to_str().unwrap()]);
        assert!(one_sentence(&output, 1).unwrap().contains(missing.to_str().unwrap()));
    }
}

#[test]
fn causes_of_all_gaps_sum_to_the_idle_time() {
    let folder = tempfile::tempdir().unwrap();
    let (start, end) = span();
    // Busy for 20 ms of each 70, from a little after the start to a little before the end.
    let (mut changes, mut t, mut busy) = (Vec::new(), start + 30_000_000, 0u64);
    while t + 50_000_000 < end {
        changes.extend([(t, true), (t + 20_000_000, false)]);
        busy += 20_000_000;
        t += 70_000_000;
    }
    let count = changes.len() / 2;
    assert!(count > 4, "the recording is too short");
    let file = trace(folder.path(), &changes);
    let json = report(recorded(), &["--gpu-trace", file.to_str().unwrap()]).unwrap();
    let gpu = &json["gpus"][0];
    let number = |v: &Value| v.as_f64().unwrap_or_else(|| panic!("{v} is no number"));
    let sum = |list: &Value, key: &str| list.as_array().unwrap().iter().map(|c| number(&c[key])).sum::<f64>();
    assert_eq!(gpu["source"], "trace");
    assert_eq!(gpu["gap_count"], count as u64 - 1, "{gpu:#}");
    assert!((number(&gpu["busy_s"]) - busy as f64 / 1e9).abs() < 1e-6, "{gpu:#}");
    let idle = (count as f64 - 1.0) * 0.05;
    assert!((number(&gpu["idle_s"]) - idle).abs() < 1e-6, "{gpu:#}");
    for causes in [&gpu["causes"], &json["causes"]] {
        assert!((sum(causes, "seconds") - idle).abs() < 1e-6, "{causes:#}");
        assert!((sum(causes, "share") - 1.0).abs() < 1e-6, "{causes:#}");
    }
    for gap in json["gaps"].as_array().unwrap() {
        let links = gap["chain"].as_array().unwrap();
        let length: f64 = links.iter().map(|l| number(&l["end_s"]) - number(&l["start_s"])).sum();
        assert!((length - (number(&gap["end_s"]) - number(&gap["start_s"]))).abs() < 1e-6, "{gap:#}");
    }
    assert_ne!(json["verdict"]["bottleneck"], "none", "{}", json["verdict"]);
}

#[test]
fn a_part_of_the_recording_can_be_asked_for() {
    let whole_s = report(recorded(), &[]).unwrap()["recording"]["duration_s"].as_f64().unwrap();
    let length = |more: &[&str]| report(recorded(), more).unwrap()["recording"]["duration_s"].as_f64().unwrap();
    assert!((length(&["--from", "200ms", "--to", "500ms"]) - 0.3).abs() < 1e-6);
    assert!((length(&["--from", "200ms"]) - (whole_s - 0.2)).abs() < 1e-6);
    assert!((length(&["--to", "0.25"]) - 0.25).abs() < 1e-6);
    assert!((length(&["--to", "10m"]) - whole_s).abs() < 1e-6);
    let shown = format!("{:.1}", (whole_s * 10.0).floor() / 10.0);
    let start = shown.trim_end_matches(|c: char| c != '.');
    for part in [&["--from", "1h"][..], &["--from", "1h", "--to", "2h"], &["--from", "1e15"]] {
        let said = one_sentence(&text(recorded(), part), 1).unwrap();
        assert!(said.contains(&format!("is {start}")), "{said} (it is {whole_s} s long)");
    }
    let wrong = [
        (&["--from", "500ms", "--to", "200ms"][..], "--from (500 ms) is after --to (200 ms)"),
        (&["--from", "300ms", "--to", "300ms"], "the same"),
        (&["--to", "0"], "--to"),
        (&["--from", "soon"], "write it like 60s"),
        (&["--from", "-1"], "write it like 60s"),
        (&["--to", "-1.5"], "write it like 60s"),
        (&["--to", ""], "--to"),
    ];
    for (part, word) in wrong {
        let said = one_sentence(&text(recorded(), part), 2).unwrap();
        assert!(said.contains(word) && !said.contains("tip:"), "{said}");
    }
    for command in ["record", "demo"] {
        let said = one_sentence(&run([command, "--duration", "-3"]).unwrap(), 2).unwrap();
        assert!(said.contains("write it like 60s") && !said.contains("tip:"), "{said}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    for json in ["--json", "--"] {
        let mut c = command(["report", json]).unwrap();
        let mut child = c.arg(recorded()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Closed before anything was written.
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{} {}", output.status, stderr(&output));
    }
}

#[test]
fn a_full_disk_is_told() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = command(["report"]).unwrap().arg(recorded()).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    one_sentence(&output.wait_with_output().unwrap(), 1).unwrap();
}

#[test]
fn json_has_every_key_of_its_schema() {
    let folder = tempfile::tempdir().unwrap();
    let (start, _) = span();
    let at = |ms: u64| start + ms * 1_000_000;
    let file = trace(folder.path(), &[(at(50), true), (at(100), false), (at(300), true), (at(350), false)]);
    let json = report(recorded(), &["--gpu-trace", file.to_str().unwrap()]).unwrap();
    assert_eq!(json["schema"], "gpustall.report/1");
    let has = |value: &Value, keys: &[&str]| {
        let object = value.as_object().unwrap_or_else(|| panic!("{value} is no object"));
        for key in keys {
            assert!(object.contains_key(*key), "no {key} in {value:#}");
        }
    };
    has(
        &json,
        &["schema", "recording", "gpus", "causes", "verdict", "gaps", "histograms", "threads", "overhead", "notes"],
    );
    has(
        &json["recording"],
        &["duration_s", "host", "kernel", "target", "started_at", "started_mono_ns", "lost_events", "complete"],
    );
    has(&json["recording"]["target"], &["pid", "command"]);
    has(
        &json["gpus"][0],
        &["index", "name", "source", "busy_s", "idle_s", "idle_share", "gap_count", "causes", "verdict"],
    );
    has(&json["causes"][0], &["cause", "seconds", "share"]);
    for verdict in [&json["verdict"], &json["gpus"][0]["verdict"]] {
        has(verdict, &["bottleneck", "cause", "share", "summary", "evidence", "advice"]);
    }
    has(&json["gaps"][0], &["gpu", "start_s", "end_s", "cause", "chain"]);
    has(&json["gaps"][0]["chain"][0], &["start_s", "end_s", "tid", "role", "cause", "what"]);
    has(&json["histograms"][0], &["name", "labels", "unit", "count", "p50", "p90", "p99", "max"]);
    has(&json["threads"][0], &["tid", "pid", "comm", "role", "running_s", "runqueue_s", "disk_s", "blocked_s"]);
    assert_eq!(json["histograms"][0]["unit"], "ns");
    let started: u64 = json["recording"]["started_mono_ns"].as_u64().unwrap();
    assert_eq!(started, start);
    assert_eq!(json["recording"]["target"]["command"].as_str().unwrap().split(' ').next(), Some("sh"));
}

#[test]
fn only_a_terminal_gets_colours() {
    let page = stdout(&text(recorded(), &[]));
    assert!(!page.contains('\u{1b}'), "{page}");
    let on_terminal = |colours: &str| {
        let line = format!(
            "{colours} {} report {}",
            gpustall_tests::binary::gpustall().unwrap().display(),
            recorded().display()
        );
        let mut c = Command::new("script");
        c.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).env_remove("NO_COLOR");
        stdout(&c.output().unwrap())
    };
    assert!(on_terminal("").contains("\u{1b}["));
    assert!(!on_terminal("NO_COLOR=1").contains('\u{1b}'));
}

#[test]
fn names_with_control_characters_are_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("a\u{1b}[31mred\nb");
    let data = folder.path().join("data\u{1b}]0;title\u{7}");
    fs::copy("/bin/sleep", &program).unwrap();
    fs::write(&data, "x").unwrap();
    let file = folder.path().join("r.gpustall");
    let mut c = command(["record", "--no-gpu", "--quiet", "--opens", "all", "-o"]).unwrap();
    c.arg(&file).args(["--", "sh", "-c", "cat \"$1\" >/dev/null; \"$0\" 0.1"]).arg(&program).arg(&data);
    let output = c.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let page = stdout(&text(&file, &[]));
    assert!(page.contains("a\\u{1b}[31mred\\nb"), "{page}");
    assert!(!page.contains(|c: char| c.is_control() && c != '\n'), "{page:?}");
    let json = stdout(&text(&file, &["--json"]));
    assert!(!json.contains(|c: char| c.is_control() && c != '\n'), "{json:?}");
    let threads = serde_json::from_str::<Value>(&json).unwrap()["threads"].clone();
    assert!(threads.as_array().unwrap().iter().any(|t| t["comm"] == "a\u{1b}[31mred\nb"), "{threads:#}");
    // The same where the name is part of a message.
    let missing = folder.path().join("none\u{1b}[2J\nx");
    one_sentence(&text(&missing, &[]), 1).unwrap();
}
