//! Files of every kind, from their first byte to their place in the recording.

use super::nsight::tests::export;
use super::*;
use crate::recording::ClockReading;
use crate::units::{BootNs, MonoNs, WallNs};
use flate2::{Compression, write::GzEncoder};
use std::io::Write as _;
use std::path::PathBuf;

const S: u64 = 1_000_000_000;
const WALL: u64 = 1_750_000_000 * S;

/// A recording from 1,000 s to 1,060 s.
fn clocks() -> RecordingClocks {
    let at = |s: u64| ClockReading { mono: MonoNs(s * S), boot: BootNs((s + 300) * S), wall: WallNs(WALL + s * S) };
    RecordingClocks { start: at(1_000), end: Some(at(1_060)), span: (MonoNs(1_000 * S), MonoNs(1_060 * S)) }
}

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

fn read(bytes: &[u8]) -> Result<ImportedTrace, TraceError> {
    read_trace(file(bytes).path(), &clocks())
}

fn failure(bytes: &[u8]) -> String {
    let e = read(bytes).unwrap_err().to_string();
    assert!(!e.contains('\n'), "{e}");
    e
}

fn spans(t: &ImportedTrace) -> Vec<(u32, u64, u64)> {
    let list = |a: &GpuActivity| match &a.activity {
        Activity::Intervals(list) => list.iter().map(|i| (a.gpu.0, i.start.0, i.end.0)).collect::<Vec<_>>(),
        Activity::Windows(_) => panic!("windows from a trace"),
    };
    t.activity.iter().flat_map(list).collect()
}

/// Work of GPU 0 from 1,000 s + 1 s to + 2 s, and from 1,000 s + 55 s to + 59 s, as a Chrome trace whose times count from `base`.
fn chrome(base: Option<u64>, first_ns: u64) -> String {
    let events: Vec<String> = [(1, 1), (55, 4)]
        .map(|(at, s)| {
            let ts = (first_ns + at * S) as f64 / 1e3;
            format!("{{\"ph\": \"X\", \"cat\": \"kernel\", \"ts\": {ts:.3}, \"dur\": {}, \"pid\": 0}}", s * 1_000_000)
        })
        .to_vec();
    let base = base.map_or(String::new(), |b| format!("\"baseTimeNanoseconds\": {b}, "));
    format!("{{\"schemaVersion\": 1, {base}\"traceEvents\": [{}]}}", events.join(",\n"))
}

fn expected() -> Vec<(u32, u64, u64)> {
    vec![(0, 1_001 * S, 1_002 * S), (0, 1_055 * S, 1_059 * S)]
}

#[test]
fn every_clock_of_a_chrome_trace_finds_its_place() {
    for (text, clock) in [
        (chrome(Some(WALL), 1_000 * S), "wall"),
        (chrome(Some(WALL + 1_000 * S), 0), "wall"),
        (chrome(None, WALL + 1_000 * S), "wall"),
        // Times that were not made relative although a base is told.
        (chrome(Some(WALL), WALL + 1_000 * S), "wall"),
        (chrome(None, 1_300 * S), "boot"),
        (chrome(None, 1_000 * S), "monotonic"),
    ] {
        let t = read(text.as_bytes()).unwrap();
        assert_eq!((t.kind, spans(&t)), (TraceKind::Chrome, expected()), "{text}");
        let note = format!(
            "GPU activity comes from a PyTorch profiler trace: 2 kernels, copies and memsets, stamped by the {clock} clock."
        );
        assert_eq!(t.notes, [note]);
    }
}

#[test]
fn a_base_behind_the_events_counts_and_a_trace_cut_before_it_cannot_be_placed() {
    let text = chrome(None, 1_000 * S);
    let late =
        format!("{}, \"displayTimeUnit\": \"ms\", \"baseTimeNanoseconds\": {WALL}}}", text.trim_end_matches('}'));
    assert_eq!(spans(&read(late.as_bytes()).unwrap()), expected());
    let relative = chrome(None, 0);
    let e = failure(&relative.as_bytes()[..relative.len() - 2]);
    assert!(e.contains("do not overlap; the trace is cut off before it says when it began"), "{e}");
    assert!(failure(relative.as_bytes()).contains("does not say when it began"));
}

#[test]
fn gzip_and_a_byte_order_mark_do_not_matter() {
    let text = chrome(Some(WALL), 1_000 * S);
    let marked = [BOM, text.as_bytes()].concat();
    for bytes in [packed(text.as_bytes()), marked.clone(), packed(&marked)] {
        assert_eq!(spans(&read(&bytes).unwrap()), expected());
    }
    // Several gzip members, as parallel packers write them.
    let (a, b) = text.split_at(70);
    assert_eq!(spans(&read(&[packed(a.as_bytes()), packed(b.as_bytes())].concat()).unwrap()), expected());
    let busy = format!(
        "{}{}",
        busy_line(MonoNs(1_001 * S), GpuIndex(0), true),
        busy_line(MonoNs(1_002 * S), GpuIndex(0), false)
    );
    let t = read(&packed(busy.as_bytes())).unwrap();
    assert_eq!((t.kind, spans(&t)), (TraceKind::Busy, vec![(0, 1_001 * S, 1_002 * S)]));
}

#[test]
fn a_cut_gzip_file_is_used_up_to_the_cut() {
    let event = |i: u64| {
        // Names that do not compress, so that the cut hits events.
        let name = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!(
            "{{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"{name:x}\", \"ts\": {}, \"dur\": 5, \"pid\": 0}}",
            i * 10
        )
    };
    let events: Vec<String> = (0..20_000).map(event).collect();
    let text = format!("{{\"baseTimeNanoseconds\": {}, \"traceEvents\": [{}]}}", WALL + 1_010 * S, events.join(","));
    let gz = packed(text.as_bytes());
    let t = read(&gz[..gz.len() / 2]).unwrap();
    let used = spans(&t).len();
    assert!((5_000..15_000).contains(&used), "{used}");
    assert!(t.notes.iter().any(|n| n.contains("cut off")), "{:?}", t.notes);
    assert!(t.notes.iter().any(|n| n.starts_with("The trace tells of 10.000 s to 10.")), "{:?}", t.notes);

    let lines: String = (0..20_000)
        .map(|i: u64| {
            busy_line(
                MonoNs(1_001 * S + i.wrapping_mul(7_919) % 1_000_003 + i * 1_000_000),
                GpuIndex(0),
                i.is_multiple_of(2),
            )
        })
        .collect();
    let gz = packed(lines.as_bytes());
    let t = read(&gz[..gz.len() / 2]).unwrap();
    assert!(spans(&t).len() > 3_000 && t.notes.iter().any(|n| n.contains("cut off")), "{:?}", t.notes);
    assert!(failure(&gz[..6]).contains("damaged gzip file"), "{}", failure(&gz[..6]));
}

#[test]
fn an_nsight_export_finds_its_place() {
    let tables = |start: u64, more: &str| {
        export(&format!(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER);
             INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({}, {}, 0), ({}, {}, 0); {more}",
            start + S,
            start + 2 * S,
            start + 55 * S,
            start + 59 * S
        ))
    };
    let session = |ns: u64| {
        format!(
            "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER);
             INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES ({ns})"
        )
    };
    for (file, clock) in [
        (tables(0, &session(WALL + 1_000 * S)), "wall"),
        // --ts-normalize=true
        (tables(WALL + 1_000 * S, &session(WALL + 1_000 * S)), "wall"),
        (tables(WALL + 1_000 * S, ""), "wall"),
        (tables(1_000 * S, ""), "monotonic"),
    ] {
        let t = read_trace(file.path(), &clocks()).unwrap();
        assert_eq!((t.kind, spans(&t)), (TraceKind::Nsight, expected()));
        assert!(
            t.notes[0].contains(&format!(
                "Nsight Systems export: 2 kernels, copies and memsets, stamped by the {clock} clock"
            ))
        );
    }
    let e = read_trace(tables(0, "").path(), &clocks()).unwrap_err().to_string();
    assert!(e.contains("does not say when it began"), "{e}");
    // Times since the session's start fit the monotonic clock by chance: the session is of another day.
    let e = read_trace(tables(1_000 * S, &session(WALL - 86_400 * S)).path(), &clocks()).unwrap_err().to_string();
    assert!(e.contains("do not overlap"), "{e}");
}

#[test]
fn a_trace_of_another_time_is_refused_with_both_ranges() {
    let e = failure(chrome(Some(WALL + 3_000 * S), 0).as_bytes());
    assert!(
        e.contains(
            "covers 2025-06-15T15:56:41.000Z to 2025-06-15T15:57:39.000Z, the recording 2025-06-15T15:23:20.000Z to \
             2025-06-15T15:24:20.000Z of the wall clock: they do not overlap; give the trace of the same run"
        ),
        "{e}"
    );
}

#[test]
fn what_a_trace_leaves_open_is_noted() {
    let text = "[{\"ph\": \"X\", \"cat\": \"kernel\", \"ts\": 1010000000, \"dur\": 5000000, \"pid\": 0},
                 {\"ph\": \"X\", \"cat\": \"kernel\", \"ts\": 1010000000, \"dur\": -5, \"pid\": 0}]";
    let t = read(text.as_bytes()).unwrap();
    assert!(t.notes.iter().any(|n| n.starts_with("1 of the trace's events on GPUs made no sense")), "{:?}", t.notes);
    assert!(t.notes.iter().any(|n| n.contains("10.000 s to 15.000 s of the recording")), "{:?}", t.notes);

    let mut c = clocks();
    c.end = c.end.map(|e| ClockReading { wall: WallNs(e.wall.0 + 7 * S), ..e });
    let t = read_trace(file(chrome(Some(WALL), 1_000 * S).as_bytes()).path(), &c).unwrap();
    assert!(
        t.notes.iter().any(|n| n.starts_with("The wall clock was set by 7.000 s while recording")),
        "{:?}",
        t.notes
    );
}

#[test]
fn what_is_no_trace_is_refused_in_one_sentence() {
    let sqlite = std::fs::read(export("CREATE TABLE t (x)").path()).unwrap();
    let cpu_only = "{\"schemaVersion\": 1, \"traceEvents\": [{\"ph\": \"X\", \"cat\": \"cpu_op\", \"ts\": 1, \"dur\": 1, \"pid\": 7}]}";
    let absurd = "{\"schemaVersion\": 1, \"traceEvents\": [{\"ph\": \"X\", \"cat\": \"kernel\", \"ts\": 1, \"dur\": -1, \"pid\": 7}]}";
    for (bytes, expected) in [
        (b"".to_vec(), "is empty"),
        (b" \n\n".to_vec(), "is empty"),
        (packed(b""), "is empty"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec(), "is of no known kind: give a PyTorch profiler trace"),
        (b"\xff\xfe{\0\"\0".to_vec(), "is of no known kind"),
        (packed(&packed(b"[]")), "is of no known kind"),
        (packed(&sqlite), "gunzip"),
        (sqlite, "not from Nsight Systems"),
        (b"\x1f\x8b nonsense that is no gzip".to_vec(), "damaged gzip file"),
        (b"hello".to_vec(), "line 1"),
        (b"[1, 2]\n".to_vec(), "line 1"),
        (b"[]".to_vec(), "has 0 events"),
        (b"{\"traceEvents\": []}".to_vec(), "has 0 events"),
        (b"{\"traceEvents\": [".to_vec(), "cut off at line 1"),
        (cpu_only.into(), "has 1 events, but no GPU work: it was recorded on the CPU only; profile with activities="),
        (absurd.into(), "has 1 events, but no GPU work that makes sense"),
    ] {
        let e = failure(&bytes);
        assert!(e.contains(expected), "{:?} gave: {e}", String::from_utf8_lossy(&bytes));
    }
    for (path, expected) in [("/", "is a directory"), ("/nowhere/x.json", "cannot be read (No such file")] {
        let e = read_trace(&PathBuf::from(path), &clocks()).unwrap_err().to_string();
        assert!(e.contains(expected), "{e}");
    }
}

proptest::proptest! {
    /// Whatever bytes follow the mark of a kind, there is an answer.
    #[test]
    fn no_file_makes_it_panic(kind in 0_usize..6, bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
        let marks: [&[u8]; 6] = [b"", b"\x1f\x8b\x08", b"SQLite format 3\0", b"{\"traceEvents\": [", b"[{\"ph\": ", b"{\"t_ns\": "];
        let _ = read(&[marks[kind], &bytes].concat());
    }
}
