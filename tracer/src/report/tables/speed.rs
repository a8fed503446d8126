//! How long the tables of a large recording take. Prints, and asserts only what the answers must be.
//! `cargo test --release -p gpustall tables::speed -- --ignored --nocapture`

use super::fixtures::*;
use crate::events::{Event, SleepState};
use crate::timeline::{Interval, Timeline};
use crate::units::Nanos;
use std::time::Instant;

/// So many intervals in so many threads, as a disk-bound job would leave them: reads, futex waits, preemptions.
fn large(threads: u32, each: usize) -> Timeline {
    let mut events: Vec<Event> = (0..1_000).map(|n| named(n + 1, &format!("/data/{}/{n}.jpg", n % 50))).collect();
    for tid in 10..10 + threads {
        // One of each kind lets the builder intern files; the rest are copies moved in time.
        events.push(Event::OffCpu(disk_read(tid, 0, 1, 2, u64::from(tid % 1_000) + 1)));
        events.push(Event::OffCpu(blocked(tid, 3, 4, 5, 202, SleepState::Interruptible)));
        events.push(Event::OffCpu(preempted(tid, 6, 7, 99)));
    }
    let mut timeline = timeline(events);
    for (n, line) in timeline.threads.iter_mut().enumerate() {
        let pattern: Vec<Interval> = line.intervals.clone();
        line.intervals = (0..each)
            .map(|i| {
                let mut interval = pattern[i % pattern.len()];
                let base = START + Nanos(i as u64 * 3_000);
                interval.off = base;
                interval.wake = if i % 3 == 2 { base } else { base + Nanos(500 + (i * 7 + n) as u64 % 1_000) };
                interval.on = base + Nanos(1_600 + (i * 13) as u64 % 1_000);
                interval
            })
            .collect();
        line.died = line.intervals.last().map_or(line.died, |i| i.on);
    }
    timeline.span.1 = timeline.threads.iter().map(|t| t.died).max().unwrap_or(timeline.span.1);
    timeline
}

fn timed<T>(what: &str, f: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let out = f();
    println!("{what:>12}: {:>7.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    out
}

#[test]
#[ignore = "takes 1 GB of memory; prints times"]
fn tables_of_ten_million_intervals() {
    let (threads_n, each) = (20, 500_000);
    let timeline = timed("making", || large(threads_n, each));
    let role = |ix: crate::timeline::ThreadIx| if ix.0.is_multiple_of(4) { "feeder" } else { "worker" };
    let whole = Instant::now();
    let tables = timed("filling", || filled(&timeline, &role));
    let rows = timed("threads", || tables.threads(&timeline));
    let paths = timed("paths", || tables.paths(&timeline));
    let all = timed("histograms", || tables.histograms(&[], &[]));
    let others = timed("competitors", || tables.competitors(&timeline));
    timed("devices", || tables.devices(&timeline, &[]));
    timed("images", || tables.hot_images(&timeline));
    let count = tables.intervals();
    println!("{:>12}: {:>7.1} ms for {count} intervals", "all", whole.elapsed().as_secs_f64() * 1e3);
    assert_eq!(count, u64::from(threads_n) * each as u64);
    assert_eq!(rows.len(), threads_n as usize);
    let waits: u64 = paths.files.iter().map(|f| f.waits).sum();
    assert_eq!(waits, u64::from(threads_n) * each.div_ceil(3) as u64);
    let queued: u64 = all.iter().filter(|h| h.name == "run_queue").map(|h| h.count).sum();
    assert_eq!(queued, count);
    assert_eq!(others[0].tid, 99);
}
