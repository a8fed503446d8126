//! On-CPU samples: as many as the thread ran, in the call and in the image that it ran.

use anyhow::{Context, Result};
use gpustall::events::{CpuSample, Event, FileType, ImageName, Syscall};
use gpustall_tests::traced::{Traced, traced};

const WORKLOAD: &str = env!("CARGO_BIN_EXE_io-workload");

fn samples(t: &Traced) -> Vec<CpuSample> {
    t.events.iter().filter_map(|e| if let Event::CpuSample(s) = e { Some(*s) } else { None }).collect()
}

fn image(t: &Traced, s: &CpuSample) -> Option<String> {
    let names = t.events.iter().filter_map(|e| if let Event::ImageName(n) = e { Some(n) } else { None });
    names.filter(|n| n.id == s.image).map(|n: &ImageName| n.path.clone()).next()
}

/// The default rate, of the thread's own running time.
fn rate_is_right(found: usize, cpu_ns: u64) -> bool {
    let due = cpu_ns as f64 * 199.0 / 1e9;
    (found as f64 - due).abs() < due * 0.15 + 3.0
}

#[test]
fn a_busy_thread_is_sampled_as_often_as_it_runs_and_in_its_own_code() -> Result<()> {
    let t = traced(WORKLOAD, &["spin", "1000"], |_| {})?;
    t.attached("cpu_sample")?;
    let tid = t.fact("tid")? as u32;
    let all = samples(&t);
    let mine: Vec<_> = all.iter().filter(|s| s.tid.0 == tid).collect();
    assert!(rate_is_right(mine.len(), t.fact("cpu_ns")?), "{} samples in {} ns", mine.len(), t.fact("cpu_ns")?);
    assert!(all.iter().all(|s| s.pid == t.pid), "only target threads are sampled");
    let user: Vec<_> = mine.iter().filter(|s| s.syscall.is_none()).collect();
    let own = user.iter().filter(|s| image(&t, s).as_deref() == Some(WORKLOAD)).count();
    assert!(own * 10 > mine.len() * 9, "{own} of {} in the workload's own code", mine.len());
    assert!(user.iter().all(|s| image(&t, s).is_some() && s.file.is_none()));
    Ok(())
}

#[test]
fn a_thread_inside_a_call_shows_the_call_and_the_file() -> Result<()> {
    let t = traced(WORKLOAD, &["zero", "600"], |_| {})?;
    let tid = t.fact("tid")? as u32;
    let all = samples(&t);
    let mine: Vec<_> = all.iter().filter(|s| s.tid.0 == tid).collect();
    assert!(rate_is_right(mine.len(), t.fact("cpu_ns")?), "{} samples", mine.len());
    let inside: Vec<_> = mine.iter().filter(|s| s.syscall == Syscall(libc::SYS_pread64 as i16)).collect();
    assert!(inside.len() * 10 > mine.len() * 9, "{} of {} in pread64", inside.len(), mine.len());
    for s in inside {
        let file = s.file.context("pread64 takes a descriptor")?;
        assert_eq!((file.file_type(), file.rdev.major, file.rdev.minor), (FileType::CharDevice, 1, 5));
    }
    Ok(())
}

#[test]
fn no_samples_when_they_are_off() -> Result<()> {
    let t = traced(WORKLOAD, &["spin", "100"], |o| o.sample_hz = 0)?;
    assert_eq!(samples(&t).len(), 0);
    Ok(())
}

#[test]
fn a_thread_inside_page_faults_shows_that() -> Result<()> {
    let t = traced(WORKLOAD, &["fault", "600"], |_| {})?;
    let tid = t.fact("tid")? as u32;
    let all = samples(&t);
    let mine: Vec<_> = all.iter().filter(|s| s.tid.0 == tid).collect();
    assert!(rate_is_right(mine.len(), t.fact("cpu_ns")?), "{} samples", mine.len());
    // The rest is in madvise, which gives the pages back, and in the loop itself, on its way into and out of faults.
    let inside = mine.iter().filter(|s| s.syscall == Syscall::FAULT).count();
    let given_back = mine.iter().filter(|s| s.syscall == Syscall(libc::SYS_madvise as i16)).count();
    assert!(inside > mine.len() / 2, "{inside} of {} in page faults", mine.len());
    let own = mine.iter().filter(|s| s.syscall == Syscall::NONE).count();
    // One or two may fall into the calls around: starting, printing.
    let known = inside + given_back + own;
    assert!(known + 2 >= mine.len(), "{inside} in faults, {given_back} in madvise, {own} outside of {}", mine.len());
    assert!(own < mine.len() / 4, "{own} of {} outside the kernel", mine.len());
    Ok(())
}
