//! What the probe tests trace: one small behaviour for each sub-command.
//!
//! It says `ready` and its thread id, waits for a line (so that the tracer can attach), acts, says what it did as
//! `name value...` lines, and ends.

mod wakes;

use std::fs::{self, File};
use std::io::{self, BufRead, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, exit};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

type Done = io::Result<()>;

fn main() -> Done {
    let args: Vec<String> = std::env::args().collect();
    let arg = |i: usize| args.get(i).map(String::as_str).unwrap_or_default();
    match arg(1) {
        "sleep" => sleep(),
        "polls" => wakes::polls(),
        "unix" => wakes::unix(),
        "eventfd" => wakes::eventfd(),
        "pipe" => pipe(arg(2).parse().unwrap_or(100)),
        "futex" => futex(),
        "join" => join(),
        "loopback" => wakes::loopback(),
        "direct" => direct(arg(2)),
        "spin" => spin(arg(2).parse().unwrap_or(0), arg(3).parse().unwrap_or(200)),
        "tree" => tree(),
        "exec-thread" => exec_thread(),
        "rename" => rename(),
        "hang" => hang(arg(2)),
        "storm" => storm(),
        "forks" => forks(),
        other => {
            eprintln!("no such behaviour: {other:?}");
            exit(2);
        }
    }
}

/// Lets the tracer attach.
fn ready() -> Done {
    say("ready", &[u64::from(tid())]);
    wait_line()
}

fn wait_line() -> Done {
    io::stdin().lock().read_line(&mut String::new()).map(drop)
}

fn say(name: &str, values: &[u64]) {
    let values: Vec<_> = values.iter().map(u64::to_string).collect();
    println!("{name} {}", values.join(" "));
    let _ = io::stdout().flush();
}

fn tid() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() as u32 }
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the answer.
    unsafe { libc::clock_gettime(id, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn mono() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// How often this thread has slept and how often it was preempted, from the scheduler's own books.
fn switches() -> (u64, u64) {
    // SAFETY: a structure of integers, filled in by the call.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        (usage.ru_nvcsw as u64, usage.ru_nivcsw as u64)
    }
}

/// Waits until a thread sleeps, so that what comes next will have to wake it, however busy the machine is.
fn until_asleep(tid: u32) {
    loop {
        let stat = fs::read_to_string(format!("/proc/{tid}/stat")).unwrap_or_default();
        if stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with('S')) {
            return;
        }
        thread::sleep(Duration::from_micros(200));
    }
}

fn sleep() -> Done {
    ready()?;
    for ms in [5, 20, 40] {
        let slept = switches().0;
        let before = mono();
        thread::sleep(Duration::from_millis(ms));
        let after = mono();
        say("slept", &[ms * 1_000_000, before, after, switches().0 - slept]);
    }
    Ok(())
}

fn new_pipe() -> io::Result<(File, File)> {
    let mut fds = [0; 2];
    // SAFETY: room for two descriptors, which are ours afterwards.
    unsafe {
        if libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(fds[0]).into(), OwnedFd::from_raw_fd(fds[1]).into()))
    }
}

/// Forks; the child runs `child` and ends. In a process with threads, `child` must be safe in a signal handler.
fn fork(child: impl FnOnce()) -> io::Result<u32> {
    // SAFETY: what the child may do is the caller's care.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            child();
            // SAFETY: ends without running the parent's destructors.
            unsafe { libc::_exit(0) }
        }
        pid => Ok(pid as u32),
    }
}

fn wait_child(pid: u32) {
    // SAFETY: no pointers that matter.
    unsafe { libc::waitpid(pid as i32, std::ptr::null_mut(), 0) };
}

/// Ping-pong between two processes. The partner answers when main waits.
fn pipe(rounds: u32) -> Done {
    ready()?;
    let (mut ask_out, mut ask_in) = new_pipe()?;
    let (mut answer_out, mut answer_in) = new_pipe()?;
    let mut byte = [0];
    let main = tid();
    let child = fork(|| {
        for _ in 0..rounds {
            let mut byte = [0];
            let _ = ask_out.read_exact(&mut byte);
            until_asleep(main);
            let _ = answer_in.write_all(&byte);
        }
    })?;
    for _ in 0..rounds {
        ask_in.write_all(&byte)?;
        answer_out.read_exact(&mut byte)?;
    }
    let inode = fs::metadata(format!("/proc/self/fd/{}", answer_out.as_raw_fd()))?;
    use std::os::unix::fs::MetadataExt;
    say("partner", &[u64::from(child), answer_out.as_raw_fd() as u64, inode.ino()]);
    wait_child(child);
    Ok(())
}

/// As fast as it goes, on one CPU: each operation is two switches.
fn storm() -> Done {
    pin(0)?;
    ready()?;
    let (mut ask_out, mut ask_in) = new_pipe()?;
    let (mut answer_out, mut answer_in) = new_pipe()?;
    let mut byte = [0];
    let rounds = 5000;
    let child = fork(|| {
        for _ in 0..rounds {
            let mut byte = [0];
            let _ = ask_out.read_exact(&mut byte);
            let _ = answer_in.write_all(&byte);
        }
    })?;
    for _ in 0..rounds {
        ask_in.write_all(&byte)?;
        answer_out.read_exact(&mut byte)?;
    }
    wait_child(child);
    say("rounds", &[rounds]);
    Ok(())
}

/// One thread waits on a condition that the other sets.
fn futex() -> Done {
    ready()?;
    let pair = Arc::new((Mutex::new(0u32), Condvar::new()));
    let theirs = Arc::clone(&pair);
    let main = tid();
    let setter = thread::spawn(move || {
        for turn in 1..=5 {
            until_asleep(main);
            let (value, changed) = &*theirs;
            if let Ok(mut v) = value.lock() {
                *v = turn;
            }
            changed.notify_one();
        }
        tid()
    });
    let (value, changed) = &*pair;
    for turn in 1..=5 {
        let Ok(mut v) = value.lock() else { break };
        while *v < turn {
            v = match changed.wait(v) {
                Ok(v) => v,
                Err(_) => return Ok(()),
            };
        }
    }
    let setter = setter.join().unwrap_or(0);
    say("setter", &[u64::from(setter)]);
    Ok(())
}

/// The parent waits for a child that burns CPU and is killed meanwhile.
fn join() -> Done {
    ready()?;
    let child = fork(|| {
        loop {
            std::hint::black_box(0);
        }
    })?;
    let main = tid();
    let killer = fork(|| {
        thread::sleep(Duration::from_millis(20));
        until_asleep(main);
        // SAFETY: the child is not reaped before its parent has waited for it.
        unsafe { libc::kill(child as i32, libc::SIGKILL) };
    })?;
    wait_child(child);
    wait_child(killer);
    say("killed", &[u64::from(child)]);
    Ok(())
}

/// Reads a file past the page cache.
fn direct(path: &str) -> Done {
    ready()?;
    let file = fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?;
    let layout = std::alloc::Layout::from_size_align(1 << 16, 4096).map_err(io::Error::other)?;
    // SAFETY: the layout has a size.
    let buffer = unsafe { std::alloc::alloc(layout) };
    let mut reads = 0;
    let mut offset = 0;
    loop {
        // SAFETY: as much room as is asked for.
        let n = unsafe { libc::pread(file.as_raw_fd(), buffer.cast(), 1 << 16, offset) };
        if n <= 0 {
            break;
        }
        reads += 1;
        offset += n as i64;
    }
    say("reads", &[reads, file.as_raw_fd() as u64]);
    Ok(())
}

fn pin(cpu: usize) -> Done {
    // SAFETY: a valid set for this thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        match libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// CPU time and run delay of this thread so far, from the scheduler's own books.
fn schedstat() -> io::Result<(u64, u64)> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let mut words = text.split_ascii_whitespace().map(|w| w.parse().unwrap_or(0));
    Ok((words.next().unwrap_or(0), words.next().unwrap_or(0)))
}

/// The scheduler's books on this thread at one moment: no switch was between these.
struct Books {
    now: u64,
    cpu: u64,
    run_delay: u64,
    slept: u64,
    preempted: u64,
}

fn books() -> io::Result<Books> {
    loop {
        let (slept, preempted) = switches();
        let (now, (cpu, run_delay)) = (mono(), schedstat()?);
        if switches() == (slept, preempted) {
            return Ok(Books { now, cpu, run_delay, slept, preempted });
        }
    }
}

/// Burns so much CPU time on one CPU, in portions with short sleeps between them.
fn spin(cpu: usize, ms: u64) -> Done {
    pin(cpu)?;
    ready()?;
    let start = books()?;
    for _ in 0..10 {
        let end = clock(libc::CLOCK_THREAD_CPUTIME_ID) + ms * 100_000;
        while clock(libc::CLOCK_THREAD_CPUTIME_ID) < end {
            std::hint::black_box(0);
        }
        thread::sleep(Duration::from_millis(2));
    }
    let end = books()?;
    say("spun", &[start.now, end.now, end.cpu - start.cpu, end.run_delay - start.run_delay]);
    say("switched", &[end.slept - start.slept, end.preempted - start.preempted]);
    Ok(())
}

/// A child with a thread and a child of its own, which runs another program.
fn tree() -> Done {
    ready()?;
    let (mut from, mut to) = new_pipe()?;
    let child = fork(|| {
        let thread = thread::spawn(|| {
            thread::sleep(Duration::from_millis(5));
            tid()
        });
        let thread = thread.join().unwrap_or(0);
        let mut grandchild = match Command::new("sleep").arg("0.02").spawn() {
            Ok(c) => c,
            Err(_) => return,
        };
        let _ = writeln!(to, "{thread} {}", grandchild.id());
        let _ = grandchild.wait();
    })?;
    report_tree(&mut from, child)?;
    wait_child(child);
    Ok(())
}

fn report_tree(from: &mut File, child: u32) -> Done {
    let mut line = String::new();
    let mut byte = [0];
    while from.read(&mut byte)? == 1 && byte[0] != b'\n' {
        line.push(char::from(byte[0]));
    }
    println!("tree {child} {line}");
    Ok(())
}

/// Forks one short-lived child after the other, before the tracer comes and while it attaches, until it is told to stop.
fn forks() -> Done {
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    say("ready", &[u64::from(tid())]);
    let forker = thread::spawn(move || -> Done {
        let mut children = Vec::new();
        while !seen.load(std::sync::atomic::Ordering::Relaxed) {
            let before = mono();
            // It only sleeps and ends, which is safe after a fork of a process with threads.
            let child = fork(|| {
                let t = libc::timespec { tv_sec: 0, tv_nsec: 3_000_000 };
                // SAFETY: a valid time.
                unsafe { libc::nanosleep(&raw const t, std::ptr::null_mut()) };
            })?;
            thread::sleep(Duration::from_micros(500));
            children.push((child, before));
            while children.len() > 20 {
                let (child, before) = children.remove(0);
                wait_child(child);
                say("child", &[u64::from(child), before, mono()]);
            }
        }
        for (child, before) in children {
            wait_child(child);
            say("child", &[u64::from(child), before, mono()]);
        }
        Ok(())
    });
    wait_line()?;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    forker.join().unwrap_or(Ok(()))
}

/// A thread other than the main one runs another program.
fn exec_thread() -> Done {
    ready()?;
    let thread = thread::spawn(|| {
        say("thread", &[u64::from(tid())]);
        thread::sleep(Duration::from_millis(5));
        let error = Command::new("sleep").arg("0.03").exec();
        eprintln!("exec: {error}");
    });
    let _ = thread.join();
    Ok(())
}

fn rename() -> Done {
    ready()?;
    // SAFETY: a string that ends with NUL.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"pt_data_worker".as_ptr()) };
    thread::sleep(Duration::from_millis(5));
    Ok(())
}

/// Waits in different ways before the tracer comes, and goes on when it is told to.
fn hang(how: &str) -> Done {
    let (mut out, input) = new_pipe()?;
    use std::os::unix::fs::MetadataExt;
    let inode = fs::metadata(format!("/proc/self/fd/{}", out.as_raw_fd()))?.ino();
    let poll = how == "poll";
    let waiter = thread::spawn(move || {
        say("waiter", &[u64::from(tid()), out.as_raw_fd() as u64, inode]);
        if poll {
            let mut entry = libc::pollfd { fd: out.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid entry.
            unsafe { libc::poll(&raw mut entry, 1, -1) };
        }
        let mut byte = [0];
        let _ = out.read(&mut byte);
        // The next wait lasts until the tracer has stopped.
        let _ = out.read(&mut byte);
    });
    ready()?;
    let mut input = input;
    input.write_all(&[0])?;
    say("woken", &[u64::from(tid()), mono()]);
    wait_line()?;
    drop(input);
    let _ = waiter.join();
    Ok(())
}
