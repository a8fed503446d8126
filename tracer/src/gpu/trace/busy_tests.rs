//! Busy files: good, untidy and bad ones.

use super::*;

const END: MonoNs = MonoNs(1_000);

fn read(text: &str) -> Result<Vec<GpuActivity>, TraceError> {
    super::read(Path::new("/tmp/busy.jsonl"), text.as_bytes(), END).map(|(activity, _)| activity)
}

fn lines(list: &[(u64, u32, bool)]) -> String {
    list.iter().map(|&(t, gpu, busy)| busy_line(MonoNs(t), GpuIndex(gpu), busy)).collect()
}

fn spans(a: &GpuActivity) -> Vec<(u64, u64)> {
    let Activity::Intervals(list) = &a.activity else { panic!("windows from a busy file") };
    list.iter().map(|i| (i.start.0, i.end.0)).collect()
}

/// The sentence, without the temporary file's name.
fn failure(text: &str) -> String {
    let e = read(text).unwrap_err().to_string();
    assert!(!e.contains('\n'), "{e}");
    e.split(' ').filter(|w| !w.starts_with("/tmp")).collect::<Vec<_>>().join(" ")
}

#[test]
fn changes_become_intervals_per_gpu() {
    let all = read(&lines(&[
        (100, 0, true),
        (150, 1, true),
        (200, 0, false),
        (300, 0, true),
        (400, 0, false),
        (450, 1, false),
    ]));
    let all = all.unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(spans(&all[0]), [(100, 200), (300, 400)]);
    assert_eq!(spans(&all[1]), [(150, 450)]);
    assert_eq!(all[0].source, GpuSource::Trace);
}

#[test]
fn order_repetition_and_empty_lines_do_not_matter() {
    let tidy = lines(&[(100, 0, true), (200, 0, false), (300, 0, true), (400, 0, false)]);
    let untidy =
        lines(&[(300, 0, true), (310, 0, true), (100, 0, true), (400, 0, false), (200, 0, false), (250, 0, false)]);
    assert_eq!(read(&tidy).unwrap(), read(&format!("\n{untidy}\n \n")).unwrap());
}

#[test]
fn an_idle_moment_of_no_length_joins_its_neighbours() {
    let all = read(&lines(&[
        (100, 0, true),
        (200, 0, false),
        (200, 0, true),
        (300, 0, false),
        (400, 0, true),
        (400, 0, false),
    ]));
    assert_eq!(spans(&all.unwrap()[0]), [(100, 300)]);
}

#[test]
fn an_open_interval_ends_with_the_recording_or_the_file() {
    assert_eq!(spans(&read(&lines(&[(100, 0, true)])).unwrap()[0]), [(100, 1_000)]);
    let late = read(&lines(&[(100, 0, true), (1_500, 1, true), (2_000, 1, false)])).unwrap();
    assert_eq!(spans(&late[0]), [(100, 2_000)]);
}

#[test]
fn a_torn_last_line_is_left_out_and_a_whole_one_is_not() {
    let text = lines(&[(100, 0, true), (200, 0, false)]);
    assert_eq!(spans(&read(&format!("{text}{{\"t_ns\": 30")).unwrap()[0]), [(100, 200)]);
    assert_eq!(spans(&read(text.trim_end()).unwrap()[0]), [(100, 200)]);
    assert_eq!(failure(&format!("{text}{{\"t_ns\": 30\n")).split(" of").next(), Some("line 3"));
}

#[test]
fn what_is_not_a_busy_file_is_refused_in_one_sentence() {
    let cases = [
        ("", "the GPU trace is empty; give a file that was written while the GPU worked"),
        (" \n\n", "the GPU trace is empty; give a file that was written while the GPU worked"),
        ("hello", "line 1 of the GPU trace is not a JSON object;"),
        ("[1, 2]\n", "line 1 of the GPU trace is not a JSON object;"),
        (
            "{\"t_ns\": 1, \"gpu\": 0, \"busy\": true}\n\u{0}\u{1}binary\n",
            "line 2 of the GPU trace is not a JSON object;",
        ),
        ("{\"gpu\": 0, \"busy\": true}", "line 1 of the GPU trace field \"t_ns\" is missing;"),
        ("{\"t_ns\": -5, \"gpu\": 0, \"busy\": true}", "line 1 of the GPU trace field \"t_ns\" is negative;"),
        (
            "{\"t_ns\": 1.5, \"gpu\": 0, \"busy\": true}",
            "line 1 of the GPU trace field \"t_ns\" must be a whole number:",
        ),
        (
            "{\"t_ns\": \"5\", \"gpu\": 0, \"busy\": true}",
            "line 1 of the GPU trace field \"t_ns\" must be a whole number:",
        ),
        (
            "{\"t_ns\": 18446744073709551615, \"gpu\": 0, \"busy\": true}",
            "line 1 of the GPU trace field \"t_ns\" is too large",
        ),
        ("{\"t_ns\": 1e30, \"gpu\": 0, \"busy\": true}", "line 1 of the GPU trace field \"t_ns\" is too large"),
        ("{\"t_ns\": 5, \"busy\": true}", "line 1 of the GPU trace field \"gpu\" is missing;"),
        ("{\"t_ns\": 5, \"gpu\": -1, \"busy\": true}", "line 1 of the GPU trace field \"gpu\" must be the index"),
        ("{\"t_ns\": 5, \"gpu\": 0}", "line 1 of the GPU trace field \"busy\" is missing;"),
        ("{\"t_ns\": 5, \"gpu\": 0, \"busy\": 1}", "line 1 of the GPU trace field \"busy\" must be true or false"),
    ];
    for (text, expected) in cases {
        let e = failure(text);
        assert!(e.starts_with(expected), "{text:?} gave: {e}");
    }
}

#[test]
fn an_endless_line_is_refused_without_being_read() {
    assert!(failure(&"x".repeat(1 << 20)).starts_with("line 1 of the GPU trace is not a JSON object"));
}

#[test]
fn activity_of_another_time_is_refused_with_both_ranges() {
    let s = 1_000_000_000;
    let activity = read(&lines(&[(10 * s, 0, true), (12 * s, 0, false)])).unwrap();
    assert!(check_overlap(&activity, MonoNs(11 * s), MonoNs(20 * s)).is_ok());
    assert!(check_overlap(&activity, MonoNs(5 * s), MonoNs(11 * s)).is_ok());
    let e = check_overlap(&activity, MonoNs(12 * s), MonoNs(20 * s)).unwrap_err().to_string();
    assert!(e.contains("covers 10.000 s to 12.000 s, the recording 12.000 s to 20.000 s"), "{e}");
    assert!(e.contains("the same run"), "{e}");

    let epoch = 1_750_000_000 * s;
    let activity = read(&lines(&[(epoch, 0, true), (epoch + s, 0, false)])).unwrap();
    let e = check_overlap(&activity, MonoNs(12 * s), MonoNs(20 * s)).unwrap_err().to_string();
    assert!(e.contains("looks like wall-clock time"), "{e}");
}

#[test]
fn activity_without_a_busy_moment_is_refused() {
    let activity = read(&lines(&[(100, 0, false)])).unwrap();
    let e = check_overlap(&activity, MonoNs(0), MonoNs(1_000)).unwrap_err();
    assert!(matches!(e, TraceError::NeverBusy), "{e}");
}
