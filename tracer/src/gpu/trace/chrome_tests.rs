//! Chrome traces as PyTorch's profiler has written them over the years, and damaged ones.

use super::*;

fn trace(text: &str) -> ChromeTrace {
    read(text.as_bytes(), Path::new("/tmp/trace.json")).unwrap()
}

fn failure(text: &str) -> String {
    read(text.as_bytes(), Path::new("/tmp/trace.json")).unwrap_err().to_string()
}

/// Spans of a device, nanoseconds.
fn spans(t: &mut ChromeTrace, device: u32) -> Vec<(i64, i64)> {
    t.work.finish().remove(&device).unwrap_or_default().iter().map(|s| (s.start, s.end)).collect()
}

/// Processes of the devices.
fn pids(t: &ChromeTrace) -> Vec<(u32, Vec<u32>)> {
    t.work.pids.iter().map(|(device, pids)| (*device, pids.iter().map(|p| p.0).collect())).collect()
}

/// The head that PyTorch 2.3 and later write.
const HEAD: &str = r#"{
  "schemaVersion": 1,
  "deviceProperties": [
    {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150000000000, "computeMajor": 9},
    {"id": 1, "name": "NVIDIA H200 NVL"}
  ],
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1750000000000000000,
  "traceEvents": ["#;

#[test]
fn a_trace_of_today_is_read() {
    let text = format!(
        "{HEAD}
  {{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 42, \"tid\": 42, \"ts\": 100.000, \"dur\": 900.5, \"args\": {{\"External id\": 1}}}},
  {{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 42, \"tid\": 42, \"ts\": 110.000, \"dur\": 5}},
  {{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"sgemm\", \"pid\": 0, \"tid\": 7, \"ts\": 1000.001, \"dur\": 20.500,
    \"args\": {{\"device\": 0, \"context\": 1, \"stream\": 7, \"grid\": [1, 2, 3], \"nested\": {{\"device\": 9}}}}}},
  {{\"ph\": \"X\", \"cat\": \"gpu_memcpy\", \"name\": \"Memcpy HtoD\", \"pid\": 1, \"tid\": 8, \"ts\": 2000.000, \"dur\": 10.000, \"args\": {{\"device\": 1}}}},
  {{\"ph\": \"X\", \"cat\": \"gpu_memset\", \"name\": \"Memset\", \"pid\": 1, \"tid\": 8, \"ts\": 3000, \"dur\": 1, \"args\": {{}}}},
  {{\"ph\": \"X\", \"cat\": \"gpu_user_annotation\", \"name\": \"step\", \"pid\": 0, \"tid\": 7, \"ts\": 0, \"dur\": 9000, \"args\": {{\"device\": 0}}}},
  {{\"ph\": \"s\", \"cat\": \"ac2g\", \"id\": 1, \"pid\": 42, \"tid\": 42, \"ts\": 110.000}},
  {{\"ph\": \"X\", \"cat\": \"Trace\", \"ts\": 0, \"dur\": 9999, \"pid\": \"Spans\", \"tid\": \"PyTorch Profiler\", \"name\": \"x\"}},
  {{\"name\": \"Record Window End\", \"ph\": \"i\", \"s\": \"g\", \"pid\": \"\", \"tid\": \"\", \"ts\": 5}}
  ], \"traceName\": \"/tmp/x.json\"}}"
    );
    let mut t = trace(&text);
    assert_eq!((t.base_ns, t.events), (Some(1_750_000_000_000_000_000), 9));
    assert_eq!((t.work.used, t.work.absurd, t.work.cut.clone()), (3, 0, None));
    assert_eq!(t.work.names[&0], "NVIDIA H200");
    assert_eq!(pids(&t), [(0, vec![42]), (1, vec![42])]);
    let all = t.work.finish();
    assert_eq!(all[&0].iter().map(|s| (s.start, s.end)).collect::<Vec<_>>(), [(1_000_001, 1_020_501)]);
    assert_eq!(
        all[&1].iter().map(|s| (s.start, s.end)).collect::<Vec<_>>(),
        [(2_000_000, 2_010_000), (3_000_000, 3_001_000)]
    );
}

#[test]
fn the_first_releases_and_bare_arrays_are_read() {
    let kernel = r#"{"ph": "X", "cat": "Kernel", "ts": 1619000000000005, "dur": 7, "pid": 3, "tid": "stream 7", "args": {"device": 3}}"#;
    let copy = r#"{"ph": "X", "cat": "Memcpy", "ts": "1619000000000105", "dur": "7.5", "pid": 3, "tid": 7}"#;
    for text in
        [format!("[{kernel},\n{copy}]"), format!("{{\"traceEvents\": [{kernel},{copy}], \"schemaVersion\": 1}}")]
    {
        let mut t = trace(&text);
        assert_eq!(t.base_ns, None);
        let expected = [
            (1_619_000_000_000_005_000, 1_619_000_000_000_012_000),
            (1_619_000_000_000_105_000, 1_619_000_000_000_112_500),
        ];
        assert_eq!(spans(&mut t, 3), expected);
    }
}

#[test]
fn streams_of_one_device_are_one() {
    let event = |stream: u32, ts: u32, dur: u32| {
        format!(
            r#"{{"ph": "X", "cat": "kernel", "ts": {ts}, "dur": {dur}, "pid": 0, "tid": {stream}, "args": {{"device": 0, "stream": {stream}}}}}"#
        )
    };
    let list = [event(7, 0, 10), event(7, 20, 10), event(13, 5, 17), event(13, 40, 1)];
    assert_eq!(spans(&mut trace(&format!("[{}]", list.join(","))), 0), [(0, 30_000), (40_000, 41_000)]);
}

#[test]
fn odd_events_are_counted_and_do_not_end_the_reading() {
    let odd = [
        r#"{"ph": "X", "cat": "kernel", "ts": 5, "dur": -3, "pid": 0}"#,
        r#"{"ph": "X", "cat": "kernel", "ts": "NaN", "dur": 3, "pid": 0}"#,
        r#"{"ph": "X", "cat": "kernel", "ts": 1e300, "dur": 3, "pid": 0}"#,
        r#"{"ph": "X", "cat": "kernel", "ts": 18446744073709551615, "dur": 3, "pid": 0}"#,
        r#"{"ph": "X", "cat": "kernel", "ts": 5, "dur": 1e15, "pid": 0}"#,
        r#"{"ph": "X", "cat": "kernel", "dur": 3, "pid": 0}"#,
        r#"{"ph": "X", "cat": "kernel", "ts": 5, "pid": 0}"#,
        r#"{"ph": "X", "cat": "kernel", "ts": 5, "dur": 3, "pid": "GPU"}"#,
        r#"{"ph": "X", "cat": "kernel", "ts": null, "dur": {"a": [1]}, "pid": true, "args": [1, 2]}"#,
    ];
    let no_gpu_work = [
        "null",
        "7",
        "[1, {}]",
        "{}",
        r#"{"ph": 5, "cat": ["kernel"], "args": "x"}"#,
        r#"{"ph": "X", "cat": "kernel", "ts": 5, "dur": 0, "pid": 0}"#,
    ];
    let good = r#"{"ph": "X", "cat": "kernel", "ts": 5, "dur": 3, "pid": 0}"#;
    let all: Vec<&str> = odd.iter().chain(&no_gpu_work).copied().chain([good]).collect();
    let mut t = trace(&format!("{{\"traceEvents\": [{}]}}", all.join(",\n")));
    assert_eq!((t.work.absurd, t.events), (odd.len() as u64, all.len() as u64));
    assert_eq!(spans(&mut t, 0), [(5_000, 8_000)]);
}

#[test]
fn a_cut_trace_counts_up_to_its_last_whole_event() {
    let event =
        |ts: u32| format!(r#"{{"ph": "X", "cat": "kernel", "ts": {ts}, "dur": 5, "pid": 0, "args": {{"device": 0}}}}"#);
    let whole = format!("{HEAD}{},{},{}]}}", event(0), event(10), event(20));
    let events_begin = HEAD.len() + event(0).len();
    for cut in events_begin + 1..whole.len() - 1 {
        let mut t = trace(&whole[..cut]);
        assert!(t.work.cut.as_ref().unwrap().contains("cut off"), "{:?}", t.work.cut);
        let used = spans(&mut t, 0).len();
        let ends = [event(0).len(), event(0).len() + 1 + event(10).len(), whole.len() - HEAD.len() - 2];
        // The closing brace makes an event whole.
        assert_eq!(used, ends.iter().filter(|end| cut - HEAD.len() >= **end).count(), "{cut}");
    }
    for cut in [HEAD.len() - 30, HEAD.len(), HEAD.len() + 10] {
        assert!(failure(&whole[..cut]).contains("cut off"), "{}", failure(&whole[..cut]));
    }
}

#[test]
fn a_damaged_trace_counts_up_to_the_damage() {
    let event = r#"{"ph": "X", "cat": "kernel", "ts": 0, "dur": 5, "pid": 0}"#;
    let mut t = trace(&format!("[{event},\n{event},\n{{\"name\": \"bad \"quotes\"\"}},\n{event}]"));
    assert_eq!(t.work.cut.as_deref(), Some("The trace is damaged at line 3: only what comes before is used."));
    assert_eq!((t.work.used, spans(&mut t, 0)), (2, vec![(0, 5_000)]));
    let e = failure("{\"traceEvents\": [\n{\"ts\": NaN}]}");
    assert!(e.contains("is damaged at line 2, before any GPU work"), "{e}");
    assert!(failure("{\"traceEvents\": 7}").contains("damaged at line 1"));
}

#[test]
fn a_deep_nest_is_refused_and_not_followed() {
    let e = failure(&format!("{{\"traceEvents\": [{}", "[".repeat(100_000)));
    assert!(e.contains("damaged at line 1") || e.contains("cut off"), "{e}");
}

#[test]
fn the_process_is_the_one_that_calls_cuda() {
    let event =
        |cat: &str, pid: &str| format!(r#"{{"ph": "X", "cat": "{cat}", "ts": 5, "dur": 3, "pid": {pid}, "tid": 1}}"#);
    let of = |events: &[(&str, &str)]| {
        let list: Vec<String> = events.iter().map(|(cat, pid)| event(cat, pid)).collect();
        pids(&trace(&format!("[{}]", list.join(","))))
    };
    // As the first releases wrote it; names of tracks, spans and process 0 are no processes.
    assert_eq!(of(&[("Kernel", "0"), ("Operator", "42"), ("Runtime", "42")]), [(0, vec![42])]);
    assert_eq!(of(&[("Trace", "\"Spans\""), ("overhead", "-1"), ("cuda_runtime", "0"), ("kernel", "0")]), []);
    // A helper beside it does work of its own on the CPU.
    assert_eq!(of(&[("cpu_op", "41"), ("cuda_driver", "42"), ("kernel", "0")]), [(0, vec![42])]);
    // A trace of launches that were not profiled.
    assert_eq!(of(&[("cpu_op", "42"), ("kernel", "0"), ("kernel", "1")]), [(0, vec![42]), (1, vec![42])]);
    // The traces of two processes in one: both fed the one device; of two devices it is not known.
    let two = [("cuda_runtime", "42"), ("cuda_runtime", "43"), ("kernel", "0")];
    assert_eq!(of(&two), [(0, vec![42, 43])]);
    assert_eq!(of(&[&two[..], &[("kernel", "1")]].concat()), []);
    // Flows and marks begin at the process, but are no work of it.
    assert_eq!(
        pids(&trace(&format!(
            r#"[{}, {{"ph": "s", "cat": "ac2g", "id": 1, "pid": 42, "ts": 5}}]"#,
            event("kernel", "0")
        ))),
        []
    );
}

#[test]
fn a_base_that_is_no_number_is_refused() {
    let event = r#"{"ph": "X", "cat": "kernel", "ts": 0, "dur": 5, "pid": 0}"#;
    for base in [r#""abc""#, "null", "[1]", "1.5", "18446744073709551615", r#""""#] {
        for text in [
            format!("{{\"baseTimeNanoseconds\": {base}, \"traceEvents\": [{event}]}}"),
            format!("{{\"traceEvents\": [{event}], \"baseTimeNanoseconds\": {base}}}"),
        ] {
            let e = failure(&text);
            assert!(e.contains("\"baseTimeNanoseconds\" that is no whole number") && !e.contains('\n'), "{e}");
        }
    }
    let text = format!("{{\"baseTimeNanoseconds\": \"1750000000000000000\", \"traceEvents\": [{event}]}}");
    assert_eq!(trace(&text).base_ns, Some(1_750_000_000_000_000_000));
}
