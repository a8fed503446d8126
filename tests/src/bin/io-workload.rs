//! A process that does exactly what its arguments say and then tells what it did, for the tests of the tracer.
//!
//! It prints `ready`, waits for a line on standard input, works, prints one line of facts as JSON, and ends when its
//! standard input is closed, so that its descriptors and mappings can be looked at until then.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    println!("ready");
    let mut go = String::new();
    io::stdin().lock().read_line(&mut go)?;
    let facts = work(&args)?;
    println!("{facts}");
    io::stdin().lock().read_to_end(&mut vec![])?;
    Ok(())
}

fn work(args: &[&str]) -> Result<Value> {
    match args {
        ["direct-read", path, count, size] => direct(path, count.parse()?, size.parse()?, false),
        ["direct-write", path, count, size] => direct(path, count.parse()?, size.parse()?, true),
        ["write-fsync", path, bytes] => write_fsync(path, bytes.parse()?),
        ["open", flags, paths @ ..] => Ok(open(flags.parse()?, paths)),
        ["cold-read", path] => cold_read(path),
        ["map", path] => map(path),
        ["stat", path] => {
            // The error counts as an answer too.
            let found = fs::symlink_metadata(path).is_ok();
            Ok(json!({ "found": found }))
        }
        ["spin", ms] => Ok(busy(Duration::from_millis(ms.parse()?), || {
            // About 0.1 ms between two looks at the clock, which is a system call.
            (0..100_000).fold(1, |x: u64, i| std::hint::black_box(x.wrapping_mul(31).wrapping_add(i)))
        })),
        ["fault", ms] => fault(Duration::from_millis(ms.parse()?)),
        ["zero", ms] => {
            // A large enough piece keeps the thread inside the call nearly all of the time.
            let zero = File::open("/dev/zero")?;
            let mut buffer = vec![0; 8 << 20];
            let mut facts = busy(Duration::from_millis(ms.parse()?), || zero.read_at(&mut buffer, 0).is_ok() as u64);
            facts["fd"] = json!(zero.as_raw_fd());
            Ok(facts)
        }
        _ => bail!("no such workload: {args:?}"),
    }
}

/// Reads or writes the first `count` places, a megabyte apart, past the page cache.
fn direct(path: &str, count: u64, size: usize, write: bool) -> Result<Value> {
    let file = OpenOptions::new().read(true).write(write).custom_flags(libc::O_DIRECT).open(path).context("open")?;
    let mut room = vec![0_u8; size + 4096];
    let skip = room.as_ptr().align_offset(4096);
    let buffer = &mut room[skip..skip + size];
    for i in 0..count {
        if write { file.write_all_at(buffer, i << 20)? } else { file.read_exact_at(buffer, i << 20)? }
    }
    Ok(json!({ "tid": tid() }))
}

fn write_fsync(path: &str, bytes: usize) -> Result<Value> {
    let mut file = File::create(path)?;
    file.write_all(&vec![7; bytes])?;
    file.sync_all()?;
    Ok(json!({ "tid": tid() }))
}

/// Opens each path with raw `openat`, keeps the descriptors, and tells what came of it and how long it took.
fn open(flags: i32, paths: &[&str]) -> Value {
    let opened: Vec<Value> = paths
        .iter()
        .map(|path| {
            let path = CString::new(*path).unwrap_or_default();
            let start = Instant::now();
            // SAFETY: a closed string.
            let fd = unsafe { libc::openat(libc::AT_FDCWD, path.as_ptr(), flags, 0o600) };
            let took = start.elapsed().as_nanos() as u64;
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
            json!({ "result": if fd < 0 { -errno } else { fd }, "ns": took })
        })
        .collect();
    json!({ "opened": opened })
}

/// Reads a whole file that was dropped from the page cache before.
fn cold_read(path: &str) -> Result<Value> {
    let c = CString::new(path)?;
    // SAFETY: a closed string.
    let fd = unsafe { libc::open(c.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        bail!("open {path}: {}", io::Error::last_os_error());
    }
    // SAFETY: ours from here on; leaked below, so that it stays open until the end.
    let mut file = unsafe { File::from_raw_fd(fd) };
    let mut bytes = 0;
    let mut buffer = vec![0; 128 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => bytes += n,
        }
    }
    std::mem::forget(file);
    Ok(json!({ "tid": tid(), "bytes": bytes, "fd": fd }))
}

/// Maps a whole file and looks at one byte of every 64 KiB. The descriptor is closed before.
fn map(path: &str) -> Result<Value> {
    const STEP: usize = 64 << 10;
    let file = File::open(path)?;
    let length = usize::try_from(file.metadata()?.len())?;
    // SAFETY: a new mapping of a whole file that nobody cuts; it is kept until the end.
    let bytes = unsafe {
        let at = libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd(), 0);
        if at == libc::MAP_FAILED {
            bail!("mmap {path}: {}", io::Error::last_os_error());
        }
        libc::madvise(at, length, libc::MADV_RANDOM);
        std::slice::from_raw_parts(at.cast::<u8>(), length)
    };
    drop(file);
    let sum: u64 = bytes.iter().step_by(STEP).map(|b| u64::from(*b)).sum();
    Ok(json!({ "tid": tid(), "looks": length.div_ceil(STEP), "sum": sum }))
}

/// Touches fresh pages over and over.
fn fault(cpu: Duration) -> Result<Value> {
    const LENGTH: usize = 16 << 20;
    // SAFETY: a new private mapping.
    let at = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(std::ptr::null_mut(), LENGTH, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if at == libc::MAP_FAILED {
        bail!("mmap: {}", io::Error::last_os_error());
    }
    // SAFETY: inside the mapping, which nobody else uses; pages that were given back are zero when they are touched again.
    Ok(busy(cpu, || unsafe {
        libc::madvise(at, LENGTH, libc::MADV_NOHUGEPAGE);
        for page in (0..LENGTH).step_by(4096) {
            at.cast::<u8>().add(page).write_volatile(1);
        }
        libc::madvise(at, LENGTH, libc::MADV_DONTNEED);
        1
    }))
}

/// Works until the *thread* has run for so long, however busy the machine is.
fn busy(cpu: Duration, mut step: impl FnMut() -> u64) -> Value {
    let start = thread_cpu();
    let mut sum = 0_u64;
    while thread_cpu() - start < cpu {
        sum = sum.wrapping_add(step());
    }
    json!({ "tid": tid(), "cpu_ns": (thread_cpu() - start).as_nanos() as u64, "sum": sum })
}

fn thread_cpu() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut t) };
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

fn tid() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }
}
