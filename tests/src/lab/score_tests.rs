//! Accounts small enough to be worked out on paper.

use super::*;

const MS: u64 = 1_000_000;

/// Busy times in ms.
fn busy(gpu: u32, spans: &[(u64, u64)]) -> String {
    let line = |t: u64, on| format!("{{\"t_ns\":{},\"gpu\":{gpu},\"busy\":{on}}}\n", t * MS);
    spans.iter().map(|(start, end)| line(*start, true) + &line(*end, false)).collect()
}

fn feeder(tid: u32, gpu: u32, t: u64) -> String {
    format!("{{\"feeder\":{tid},\"gpu\":{gpu},\"t_ns\":{}}}\n", t * MS)
}

/// An entry with times in ms.
fn entry(tid: u32, doing: &str, item: &str, start: u64, end: u64, cpu: u64, delay: u64) -> String {
    format!(
        "{{\"pid\":1,\"tid\":{tid},\"doing\":\"{doing}\",\"item\":\"{item}\",\"start_ns\":{},\"end_ns\":{},\"cpu_ns\":{},\
         \"delay_ns\":{}}}\n",
        start * MS,
        end * MS,
        cpu * MS,
        delay * MS
    )
}

/// Causes in ms.
fn scored(busy: &str, truth: &str) -> Vec<(&'static str, f64)> {
    scored_with(busy, truth, &[])
}

fn scored_with(busy: &str, truth: &str, rows: &[(&'static str, Parts)]) -> Vec<(&'static str, f64)> {
    let score = score(&Account::parse(busy, truth).unwrap(), rows).unwrap();
    let sum: f64 = score.causes.values().sum();
    assert!((sum - score.idle_ns()).abs() < 1.0, "{score:?}");
    score.causes.iter().map(|(cause, ns)| (*cause, (ns / 1e3).round() / 1e3)).collect()
}

#[test]
fn a_wait_is_replaced_by_the_owed_items_entries_and_no_others() {
    let log = feeder(1, 0, 0)
        + &entry(1, "wait", "5", 10, 109, 0, 1)
        + &entry(1, "host", "", 109, 110, 1, 0)
        + &entry(2, "read", "5", 20, 100, 8, 16)
        + &entry(2, "decode", "5", 100, 108, 5, 3)
        + &entry(3, "decode", "6", 5, 110, 105, 0);
    let got = scored(&busy(0, &[(0, 10), (110, 120)]), &log);
    // The read: 8 running, 16 queue, 56 blocked. Before it, its worker logged nothing. At the end main waited for a CPU.
    assert_eq!(
        got,
        [
            ("cpu_starved", 16.0 + 3.0 + 1.0),
            ("disk", 56.0),
            ("host_code", 1.0),
            ("preprocessing", 13.0),
            ("unlogged", 10.0)
        ]
    );
}

#[test]
fn an_entry_is_clipped_to_the_gap_and_its_parts_are_spread() {
    let log = feeder(1, 0, 0) + &entry(1, "wait", "1", 0, 50, 0, 0) + &entry(2, "read", "1", 0, 50, 10, 0);
    assert_eq!(scored(&busy(0, &[(0, 40), (50, 60)]), &log), [("disk", 8.0), ("preprocessing", 2.0)]);
}

#[test]
fn nested_waits_are_followed() {
    // Main waits for the batch, its worker for two pieces, which two threads make one after the other.
    let log = feeder(1, 0, 0)
        + &entry(1, "wait", "b", 10, 60, 0, 0)
        + &entry(2, "read", "b", 10, 20, 0, 0)
        + &entry(2, "wait", "b/1", 20, 50, 0, 0)
        + &entry(2, "handover", "b", 50, 60, 10, 0)
        + &entry(3, "decode", "b/1", 20, 35, 15, 0)
        + &entry(4, "pin", "b/1", 35, 50, 15, 0);
    let got = scored(&busy(0, &[(0, 10), (60, 70)]), &log);
    assert_eq!(got, [("disk", 10.0), ("ipc", 10.0), ("pin_memory", 15.0), ("preprocessing", 15.0)]);
}

#[test]
fn of_parallel_threads_the_last_to_end_counts_then_what_was_before_it() {
    let log = feeder(1, 0, 0)
        + &entry(1, "wait", "1", 10, 40, 0, 0)
        + &entry(2, "decode", "1", 10, 30, 20, 0)
        + &entry(3, "read", "1", 20, 40, 0, 0);
    let got = scored(&busy(0, &[(0, 10), (40, 50)]), &log);
    assert_eq!(got, [("disk", 20.0), ("preprocessing", 10.0)]);
}

#[test]
fn before_an_item_its_thread_was_busy_with_others() {
    let log = feeder(1, 0, 0)
        + &entry(1, "wait", "2", 10, 40, 0, 0)
        + &entry(2, "read", "1", 5, 25, 0, 0)
        + &entry(2, "decode", "2", 25, 40, 15, 0);
    let got = scored(&busy(0, &[(0, 10), (40, 50)]), &log);
    assert_eq!(got, [("disk", 15.0), ("preprocessing", 15.0)]);
}

#[test]
fn an_entry_that_outlasts_the_wait_explains_its_end() {
    // The receiver ran as soon as the bytes were there, the sender returned from its write later.
    let log = feeder(1, 0, 0)
        + &entry(1, "wait", "1", 10, 40, 0, 0)
        + &entry(2, "decode", "1", 10, 35, 25, 0)
        + &entry(2, "handover", "1", 35, 45, 10, 0);
    let got = scored(&busy(0, &[(0, 10), (40, 50)]), &log);
    assert_eq!(got, [("ipc", 5.0), ("preprocessing", 25.0)]);
}

#[test]
fn a_wait_for_a_thread_is_whatever_that_thread_did() {
    let log = feeder(1, 0, 0)
        + "{\"tid\":1,\"doing\":\"wait\",\"thread\":2,\"start_ns\":10000000,\"end_ns\":40000000,\"cpu_ns\":0,\
           \"delay_ns\":5000000}\n"
        + &entry(2, "decode", "7", 5, 30, 25, 0)
        + &entry(2, "read", "8", 30, 60, 0, 0);
    let got = scored(&busy(0, &[(0, 10), (40, 50)]), &log);
    assert_eq!(got, [("cpu_starved", 5.0), ("disk", 5.0), ("preprocessing", 20.0)]);
}

#[test]
fn waits_in_a_circle_end_as_unlogged() {
    let log = feeder(1, 0, 0)
        + &entry(1, "wait", "1", 10, 40, 0, 0)
        + &entry(2, "wait", "2", 10, 30, 0, 0)
        + &entry(2, "decode", "1", 30, 40, 10, 0)
        + &entry(1, "host", "2", 40, 50, 10, 0);
    let got = scored(&busy(0, &[(0, 10), (40, 50)]), &log);
    assert_eq!(got, [("preprocessing", 10.0), ("unlogged", 20.0)]);
}

#[test]
fn each_gpu_has_its_feeder_and_feeders_change() {
    let log = feeder(1, 0, 0)
        + &feeder(2, 1, 0)
        + &feeder(3, 0, 55)
        + &entry(1, "host", "", 10, 20, 10, 0)
        + &entry(3, "sleep", "", 50, 60, 0, 0)
        + &entry(2, "checkpoint", "", 10, 30, 1, 1);
    let busy = busy(0, &[(0, 10), (20, 50), (60, 61)]) + &busy(1, &[(0, 10), (30, 40)]);
    let got = scored(&busy, &log);
    assert_eq!(got, [("checkpoint", 20.0), ("host_code", 10.0), ("sleep", 10.0)]);
}

#[test]
fn a_scenarios_rows_replace_the_tables() {
    let log = feeder(1, 0, 0) + &entry(1, "read", "", 10, 20, 2, 3);
    let busy = busy(0, &[(0, 10), (20, 30)]);
    let rows = [("read", ["preprocessing", "cpu_throttled", "network_storage"])];
    let got = scored_with(&busy, &log, &rows);
    assert_eq!(got, [("cpu_throttled", 3.0), ("network_storage", 5.0), ("preprocessing", 2.0)]);
}

#[test]
fn accounts_that_contradict_themselves_are_refused() {
    let overlap = entry(1, "host", "", 0, 20, 0, 0) + &entry(1, "host", "", 10, 30, 0, 0);
    let backwards = entry(1, "host", "", 20, 10, 0, 0);
    for (busy, log, why) in [
        ("", overlap.as_str(), "overlap"),
        ("", &backwards, "ends before"),
        ("", "{}", "bad line in the truth log"),
        ("{\"t_ns\":1,\"busy\":false}", "", "repeats a state"),
        ("{\"t_ns\":5,\"busy\":true}\n{\"t_ns\":1,\"busy\":false}", "", "back in time"),
    ] {
        let error = format!("{:#}", Account::parse(busy, log).unwrap_err());
        assert!(error.contains(why), "{error}");
    }
    let account = Account::parse(&busy(0, &[(0, 10), (20, 30)]), "").unwrap();
    assert!(score(&account, &[]).unwrap_err().to_string().contains("no thread feeds GPU 0"));
    let unknown = feeder(1, 0, 0) + &entry(1, "dream", "", 10, 20, 0, 0);
    let account = Account::parse(&busy(0, &[(0, 10), (20, 30)]), &unknown).unwrap();
    assert!(score(&account, &[]).unwrap_err().to_string().contains("no row \"dream\""));
}
