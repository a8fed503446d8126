//! Makes a recording of a made-up job, for measuring what reads recordings:
//! `cargo run --release -p gpustall-tests --example make_recording -- 10000000 big.gpustall`

use anyhow::{Context, bail};
use gpustall::events::Event;
use gpustall::recording::{ClockReading, Cost, Trailer, Writer};
use gpustall_tests::synthetic::Job;
use std::path::Path;

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(count), Some(path)) = (args.next(), args.next()) else {
        bail!("usage: make_recording INTERVALS FILE");
    };
    let count: usize = count.parse().with_context(|| format!("{count} is not a number of intervals"))?;
    let mut job = Job::new(1, 6, 16);
    let mut writer = Writer::create(Path::new(&path), &job.header(), true)?;
    let mut end = job.header().started.mono;
    for row in job.by_ref().take(count) {
        end = row.on;
        writer.push(Event::OffCpu(row))?;
        writer.tick(end)?;
    }
    let ended = ClockReading { mono: end, ..job.header().started };
    let trailer = Trailer { ended, reason: "duration".to_owned(), command_status: None, cost: Cost::default() };
    let written = writer.finish(&trailer)?;
    let seconds = ended.mono.since(job.header().started.mono).secs();
    println!(
        "{} intervals in {seconds:.1} s, {} bytes, {:.2} bytes an interval",
        written.intervals,
        written.bytes,
        written.bytes as f64 / written.intervals as f64
    );
    Ok(())
}
