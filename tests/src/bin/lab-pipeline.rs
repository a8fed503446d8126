//! A Rust training pipeline of the lab: named threads read and decode, main feeds a simulated GPU; batches go through channels.
//! It keeps the account that docs/lab.md describes.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// A training job in Rust
#[derive(Parser)]
struct Args {
    #[arg(long)]
    data: PathBuf,
    #[arg(long)]
    busy_file: PathBuf,
    #[arg(long)]
    truth: PathBuf,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    #[arg(long)]
    wait_go: bool,
    /// Stand-in libcuda to wait in
    #[arg(long)]
    cuda: PathBuf,
    #[arg(long, default_value_t = 10.0)]
    compute_ms: f64,
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// CPU time of decoding a batch
    #[arg(long, default_value_t = 25.0)]
    work_ms: f64,
}

const FILES: u64 = 64;
const FILE_BYTES: usize = 256 << 10;
/// Longest entry of decoding: only the sums of an entry are known.
const PIECE_MS: f64 = 2.5;

fn clock(id: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the answer.
    unsafe { libc::clock_gettime(id, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Wall clock, CPU time, run-queue time and voluntary context switches of a thread.
#[derive(Clone, Copy)]
struct Stamp {
    wall: u64,
    cpu: u64,
    delay: u64,
    blocks: u64,
}

/// What one thread did, end to end; written when the work is over.
struct Account {
    tid: i32,
    schedstat: File,
    last: Stamp,
    entries: String,
    path: PathBuf,
}

impl Account {
    fn new(path: &Path) -> Result<Account> {
        let schedstat = File::open("/proc/thread-self/schedstat").context("this kernel keeps no schedstat")?;
        let last = stamp(&schedstat)?;
        // SAFETY: no preconditions.
        let tid = unsafe { libc::gettid() };
        Ok(Account { tid, schedstat, last, entries: String::new(), path: path.to_owned() })
    }

    fn skip(&mut self) -> Result<()> {
        self.last = stamp(&self.schedstat)?;
        Ok(())
    }

    fn did(&mut self, what: &str, item: Option<u64>) -> Result<()> {
        let (from, to) = (self.last, stamp(&self.schedstat)?);
        let item = item.map_or("null".to_owned(), |n| format!("\"{n}\""));
        self.entries.push_str(&format!(
            "{{\"pid\":{},\"tid\":{},\"doing\":\"{what}\",\"item\":{item},\"start_ns\":{},\"end_ns\":{},\"cpu_ns\":{},\"delay_ns\":{},\"blocks\":{}}}\n",
            std::process::id(), self.tid, from.wall, to.wall, to.cpu - from.cpu, to.delay - from.delay, to.blocks - from.blocks
        ));
        self.last = to;
        Ok(())
    }

    fn write(self) -> Result<()> {
        append(&self.path, &self.entries)
    }
}

fn stamp(schedstat: &File) -> Result<Stamp> {
    let delay = || -> Result<u64> {
        let mut text = [0; 96];
        let n = schedstat.read_at(&mut text, 0)?;
        let text = std::str::from_utf8(&text[..n])?;
        Ok(text.split_whitespace().nth(1).context("schedstat has three fields")?.parse()?)
    };
    // Again if the CPU was lost in between: the times would not belong together.
    loop {
        let before = delay()?;
        let stamp = Stamp {
            wall: clock(libc::CLOCK_MONOTONIC),
            cpu: clock(libc::CLOCK_THREAD_CPUTIME_ID),
            delay: delay()?,
            blocks: voluntary_switches(),
        };
        if stamp.delay == before {
            return Ok(stamp);
        }
    }
}

/// How often this thread gave its CPU away to wait.
fn voluntary_switches() -> u64 {
    // SAFETY: an all-zero rusage is a valid one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: room for the answer.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nvcsw.max(0) as u64
}

fn append(path: &Path, text: &str) -> Result<()> {
    OpenOptions::new().append(true).create(true).open(path)?.write_all(text.as_bytes())?;
    Ok(())
}

/// So many rounds of work over some bytes.
fn decode(data: &[u8], rounds: u64) -> u64 {
    (0..rounds).fold(1, |sum, n| {
        let at = n as usize * 64 % (data.len() - 4096);
        data[at..at + 4096].iter().fold(sum, |s: u64, b| s.wrapping_mul(31).wrapping_add(u64::from(*b)))
    })
}

fn rounds_per_ms() -> f64 {
    let data = vec![7; 64 << 10];
    let best = (0..7).map(|_| {
        let start = clock(libc::CLOCK_THREAD_CPUTIME_ID);
        std::hint::black_box(decode(&data, 400));
        clock(libc::CLOCK_THREAD_CPUTIME_ID) - start
    });
    400.0 / (best.min().unwrap_or(1) as f64 / 1e6)
}

type Batch = Result<u64>;

fn worker(args: &Args, per_ms: f64, orders: &Receiver<u64>, results: &SyncSender<Batch>) -> Result<()> {
    let mut account = Account::new(&args.truth)?;
    let pieces = (args.work_ms / PIECE_MS).ceil().max(1.0);
    let rounds = (args.work_ms / pieces * per_ms) as u64;
    for batch in orders {
        account.skip()?;
        let mut data = Vec::new();
        File::open(args.data.join(format!("sample-{}.bin", batch % FILES)))?.read_to_end(&mut data)?;
        account.did("read", Some(batch))?;
        let mut sum = 0;
        for _ in 0..pieces as u64 {
            sum ^= decode(&data, rounds);
            account.did("decode", Some(batch))?;
        }
        if results.send(Ok(sum)).is_err() {
            break;
        }
        account.did("handover", Some(batch))?;
    }
    account.write()
}

/// The stand-in libcuda.
struct Gpu {
    launch: extern "C" fn(u64) -> i32,
    wait: extern "C" fn() -> i32,
    busy_file: PathBuf,
}

impl Gpu {
    fn new(args: &Args) -> Result<Gpu> {
        let path = CString::new(args.cuda.as_os_str().as_encoded_bytes())?;
        // SAFETY: a library of this repository, whose functions have these types.
        unsafe {
            let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
            ensure!(!library.is_null(), "cannot load {}", args.cuda.display());
            let symbol = |name: &std::ffi::CStr| libc::dlsym(library, name.as_ptr());
            let (init, flags) = (symbol(c"cuInit"), symbol(c"cuCtxSetFlags"));
            let (launch, wait) = (symbol(c"standinLaunch"), symbol(c"cuCtxSynchronize"));
            ensure!([init, flags, launch, wait].iter().all(|s| !s.is_null()), "the stand-in lacks a function");
            type OfNumber = extern "C" fn(u32) -> i32;
            ensure!(std::mem::transmute::<*mut libc::c_void, OfNumber>(init)(0) == 0, "cuInit failed");
            // CU_CTX_SCHED_BLOCKING_SYNC
            ensure!(std::mem::transmute::<*mut libc::c_void, OfNumber>(flags)(4) == 0, "cuCtxSetFlags failed");
            Ok(Gpu {
                launch: std::mem::transmute::<*mut libc::c_void, extern "C" fn(u64) -> i32>(launch),
                wait: std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> i32>(wait),
                busy_file: args.busy_file.clone(),
            })
        }
    }

    fn set(&self, busy: bool) -> Result<()> {
        let (t, pid) = (clock(libc::CLOCK_MONOTONIC), std::process::id());
        append(&self.busy_file, &format!("{{\"t_ns\":{t},\"gpu\":0,\"busy\":{busy},\"pid\":{pid}}}\n"))
    }

    /// Entries end and begin at both edges of the busy time.
    fn compute(&self, ms: f64, account: &mut Account) -> Result<()> {
        account.did("host", None)?;
        self.set(true)?;
        account.did("host", None)?;
        ensure!((self.launch)((ms * 1e6) as u64) == 0 && (self.wait)() == 0, "the simulated GPU failed");
        account.skip()?;
        self.set(false)?;
        account.did("host", None)
    }
}

fn main() -> Result<()> {
    let args = Args::parse();
    std::fs::create_dir_all(&args.data)?;
    for n in 0..FILES {
        let bytes: Vec<u8> = (0..FILE_BYTES).map(|i| (i as u64).wrapping_mul(n + 3) as u8).collect();
        std::fs::write(args.data.join(format!("sample-{n}.bin")), bytes)?;
    }
    let (per_ms, gpu) = (rounds_per_ms(), Gpu::new(&args)?);
    thread::scope(|scope| -> Result<()> {
        let mut lanes = Vec::new();
        for n in 0..args.workers {
            let (orders, inbox) = sync_channel::<u64>(4);
            let (outbox, results) = sync_channel::<Batch>(4);
            let args = &args;
            thread::Builder::new().name(format!("reader-{n}")).spawn_scoped(scope, move || {
                if let Err(error) = worker(args, per_ms, &inbox, &outbox) {
                    let _ = outbox.send(Err(error));
                }
            })?;
            lanes.push((orders, results));
        }
        let count = lanes.len() as u64;
        let lane = |batch: u64| &lanes[(batch % count) as usize];
        let mut account = Account::new(&args.truth)?;
        for batch in 0..2 * count {
            lane(batch).0.send(batch)?;
        }
        println!("ready");
        std::io::stdout().flush()?;
        if args.wait_go && std::io::stdin().read_line(&mut String::new())? == 0 {
            return Ok(());
        }
        let t = clock(libc::CLOCK_MONOTONIC);
        append(&args.truth, &format!("{{\"feeder\":{},\"gpu\":0,\"t_ns\":{t}}}\n", account.tid))?;
        account.skip()?;
        let end = Instant::now() + Duration::from_secs_f64(args.seconds);
        for batch in 0.. {
            if Instant::now() >= end {
                break;
            }
            account.did("host", None)?;
            lane(batch).1.recv()??;
            account.did("wait", Some(batch))?;
            lane(batch).0.send(batch + 2 * count)?;
            gpu.compute(args.compute_ms, &mut account)?;
        }
        drop(lanes);
        account.write()
    })
}
