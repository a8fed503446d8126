//! Throughput of the recording, through its public interface and a file in memory: intervals a second written and read.
//!
//! `cargo bench -p gpustall --bench recording`

#![allow(missing_docs, clippy::unwrap_used, reason = "criterion's macros and a benchmark's set-up")]

#[path = "../../tests/src/synthetic.rs"]
#[allow(dead_code, reason = "shared with the integration tests")]
mod synthetic;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gpustall::events::{Event, OffCpu};
use gpustall::recording::{Cost, Header, Reader, Trailer, Writer};
use std::hint::black_box;
use std::path::{Path, PathBuf};

const ROWS: usize = 500_000;

fn write(path: &Path, header: &Header, rows: &[OffCpu]) {
    let mut writer = Writer::create(path, header, true).unwrap();
    for row in rows {
        writer.push(Event::OffCpu(*row)).unwrap();
    }
    let trailer =
        Trailer { ended: header.started, reason: "duration".to_owned(), command_status: None, cost: Cost::default() };
    writer.finish(&trailer).unwrap();
}

fn recording(c: &mut Criterion) {
    let mut job = synthetic::Job::new(1, 6, 16);
    let header = job.header();
    let rows: Vec<OffCpu> = job.by_ref().take(ROWS).collect();
    let memory = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
    let folder = tempfile::tempdir_in(memory).unwrap();
    let path = folder.path().join("bench.gpustall");

    let mut group = c.benchmark_group("recording");
    group.sample_size(10).throughput(Throughput::Elements(ROWS as u64));
    group.bench_function("write", |b| b.iter(|| write(&path, &header, &rows)));
    write(&path, &header, &rows);
    println!("{:.2} bytes an interval", path.metadata().unwrap().len() as f64 / ROWS as f64);
    group.bench_function("read", |b| {
        b.iter(|| {
            let mut reader = Reader::open(&path).unwrap();
            let mut seen = 0;
            while let Some(batch) = reader.next_batch() {
                seen += batch.len();
                reader.recycle(black_box(batch));
            }
            assert_eq!(seen, ROWS);
        });
    });
    group.finish();
}

criterion_group!(benches, recording);
criterion_main!(benches);
