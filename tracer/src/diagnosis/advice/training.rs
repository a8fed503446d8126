//! The training loop itself: its own code, sleeps, the driver, checkpoints, the start of workers.

use super::storage::write_limit;
use crate::attribution::{Cause, Role, Totals};
use crate::diagnosis::cpu_use::Starts;
use crate::diagnosis::facts::Facts;
use crate::diagnosis::words::{call_name, percent, seconds};
use crate::units::Nanos;

/// From this share of the feeder's CPU time on, a library is where it goes.
const HOT: f64 = 0.3;

/// What the loop did while the GPU was idle.
#[derive(Clone, Debug, Default)]
pub struct Loop {
    /// Where the feeder's CPU time went: library and share.
    pub hot: Option<(String, f64)>,
    /// There are workers, and CPUs for more work in them.
    pub workers_have_room: bool,
    /// The thread that slept: a worker, or one of the training process; and the call in which it did most.
    pub sleeper: Option<(Role, Option<i16>)>,
}

impl Loop {
    pub(super) fn of(f: &Facts<'_>, totals: &Totals) -> Loop {
        let slept = totals.details.iter().filter(|(d, _)| d.cause == Cause::Sleep);
        let most = slept.max_by_key(|(d, n)| (**n, std::cmp::Reverse(**d)));
        Loop {
            hot: f.hot_images(Role::Feeder).into_iter().next().filter(|(_, share)| *share >= HOT),
            workers_have_room: f.at.roles.of_any(Role::Worker) && super::more_workers(f, totals).is_some(),
            sleeper: most.map(|(d, _)| (d.role, d.syscall.map(|s| s.0))),
        }
    }
}

/// Advice where the feeder ran code of its own.
pub fn host_code(l: &Loop) -> Vec<String> {
    let mut out = Vec::new();
    match &l.hot {
        Some((image, share)) if image.starts_with("python") || image.starts_with("libpython") => out.push(format!(
            "Take Python code out of the training loop ({} of its CPU time): no logging, metrics or progress bar at every step, and whole arrays in place of loops.",
            percent(*share)
        )),
        Some((image, share)) if image.contains("torch") || image.contains("cuda") => out.push(format!(
            "Launch less: {} of the loop's CPU time was in {image}, which is what many small operations cost. Use torch.compile(mode=\"reduce-overhead\") or CUDA graphs, fused optimizers (fused=True), and operations on whole tensors.",
            percent(*share)
        )),
        Some((image, share)) => out.push(format!(
            "Take the work in {image} out of the training loop: it had {} of the loop's CPU time.",
            percent(*share)
        )),
        None => out.push("Take work out of the training loop: no logging or metrics at every step; use CUDA graphs or torch.compile to launch less.".into()),
    }
    out.push("Avoid .item(), .cpu() and printing tensors at every step: each makes the loop wait for the GPU, and only after that does it prepare the next step.".into());
    if l.workers_have_room {
        out.push("Move per-batch Python code into the workers (collate_fn): CPUs were free.".into());
    }
    out
}

/// Advice where a thread slept.
pub fn sleep(l: &Loop) -> Vec<String> {
    let call = |nr: &Option<i16>| nr.map_or(String::new(), |nr| format!(" (it slept in {})", call_name(nr)));
    vec![match &l.sleeper {
        Some((Role::Worker, nr)) => format!(
            "Find the sleep or time-out in the dataset's code, which runs in the workers{}: nothing else was in the way.",
            call(nr)
        ),
        Some((Role::Feeder, nr)) => format!(
            "Find the sleep or time-out in the training loop{}: nothing else was in the way. A queue that is polled, or time.sleep between tries, wastes half of its interval on average; block on it.",
            call(nr)
        ),
        Some((_, nr)) => format!(
            "Find the sleep or time-out in the threads that the training loop waits for{}: nothing else was in the way.",
            call(nr)
        ),
        None => "Find the sleep or time-out in the training loop or in the worker: nothing else was in the way.".into(),
    }]
}

/// Advice where threads were in the driver of an idle GPU.
pub fn gpu_driver() -> Vec<String> {
    vec![
        "Look for synchronising calls (.item(), .cpu(), .nonzero(), torch.cuda.synchronize()) with a profiler (torch.profiler, nsys): each waits until the GPU is idle.".into(),
        "Avoid memory calls of the driver in the loop: keep tensors of the same shapes so that PyTorch's allocator reuses memory, and do not call torch.cuda.empty_cache() at every step.".into(),
    ]
}

/// Checkpoints were written.
#[derive(Clone, Debug, Default)]
pub struct Checkpoints {
    /// How many were begun; 0 if that is not known.
    pub count: usize,
    /// Idle time that they took.
    pub idle: Nanos,
    /// Length of the recording, seconds.
    pub seconds: f64,
    /// A file of them.
    pub path: Option<String>,
    /// Control group that limits writes to their disk, and the disk.
    pub limit: Option<(String, String)>,
}

impl Checkpoints {
    pub(super) fn of(f: &Facts<'_>, totals: &Totals) -> Checkpoints {
        let roles = &f.at.roles;
        let file = roles.checkpoints.iter().filter_map(|ix| f.tl.file(*ix)).min_by_key(|file| (file.dev, file.ino));
        Checkpoints {
            count: roles.checkpoint_opens.len(),
            idle: totals.of(Cause::Checkpoint),
            seconds: f.seconds(),
            path: roles.checkpoint_paths.iter().min().cloned(),
            limit: file.and_then(|file| write_limit(f, file.dev)),
        }
    }
}

/// Advice for [`Checkpoints`].
pub fn checkpoint(c: &Checkpoints) -> Vec<String> {
    let mut out = Vec::new();
    let cost = match c.count as u64 {
        0 => format!(": they held up the GPU for {}", c.idle),
        n => format!(": {n} in {} held up the GPU for {} each", seconds(c.seconds), Nanos(c.idle.0 / n)),
    };
    out.push(format!("Write checkpoints less often{cost}."));
    out.push("Write them beside the training: copy the state to CPU memory and save it from another thread or process (torch.distributed.checkpoint.async_save).".into());
    if let Some((group, disk)) = &c.limit {
        out.push(format!(
            "Raise the limit on writes that control group {group} sets on {disk} (io.max, blkio.throttle.*)."
        ));
    } else if let Some(path) = &c.path {
        out.push(format!("Or write them to a faster disk than that of {path}, and copy them from there."));
    }
    out
}

/// Workers were started.
#[derive(Clone, Debug, Default)]
pub struct Starting {
    /// How.
    pub starts: Starts,
    /// Idle time that it took.
    pub idle: Nanos,
    /// Workers at a time.
    pub workers: usize,
}

impl Starting {
    pub(super) fn of(f: &Facts<'_>, totals: &Totals) -> Starting {
        Starting { starts: f.starts(), idle: totals.of(Cause::WorkerStartup), workers: f.workers() }
    }
}

/// Advice for [`Starting`].
pub fn worker_startup(s: &Starting) -> Vec<String> {
    let mut out = Vec::new();
    let n = s.starts.workers;
    let cost = if n == 0 { String::new() } else { format!(": {n} were started, which held up the GPU for {}", s.idle) };
    if s.workers == 0 || n > s.workers {
        out.push(format!("Keep workers alive between epochs (persistent_workers=True){cost}."));
    } else {
        out.push(format!("Start workers once and keep them (persistent_workers=True){cost}; a start that happens once is over soon in a long run."));
    }
    if s.starts.by_exec > 0 {
        out.push(format!(
            "Start them by fork or forkserver in place of spawn (multiprocessing_context): {} of them began as a new program, which imports everything anew.",
            s.starts.by_exec
        ));
    } else if n > 0 {
        out.push("They were forked: what takes time is what each does before its first batch. Open files and build indices once, before the fork, or lazily.".into());
    }
    out.push("Make epochs longer where workers cannot stay: a sampler that goes through the data several times ends less often.".into());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hot_library_of_the_loop_decides() {
        let hot = |image: &str| host_code(&Loop { hot: Some((image.into(), 0.7)), ..Loop::default() }).join("\n");
        assert!(hot("python3.11").contains("Take Python code out of the training loop (70 %"));
        assert!(hot("libtorch_cpu.so").contains("reduce-overhead"));
        assert!(hot("libsqlite3.so.0").contains("Take the work in libsqlite3.so.0 out"));
        let none = host_code(&Loop::default()).join("\n");
        assert!(none.contains(".item()") && !none.contains("into the workers"), "{none}");
        let room = host_code(&Loop { workers_have_room: true, ..Loop::default() }).join("\n");
        assert!(room.contains("into the workers"), "{room}");
    }

    #[test]
    fn a_sleeper_is_told_by_its_role_and_call() {
        let told = |role, nr| sleep(&Loop { sleeper: Some((role, nr)), ..Loop::default() }).join("\n");
        assert!(told(Role::Feeder, Some(230)).contains("training loop (it slept in clock_nanosleep())"));
        assert!(told(Role::Worker, None).contains("which runs in the workers:"));
        assert!(told(Role::Helper, None).contains("threads that the training loop waits for"));
    }

    #[test]
    fn checkpoints_are_told_with_their_price() {
        let c = Checkpoints { count: 4, idle: Nanos::from_millis(2_000), seconds: 60.0, ..Checkpoints::default() };
        let told = checkpoint(&c).join("\n");
        assert!(told.starts_with("Write checkpoints less often: 4 in 60 s held up the GPU for 500 ms each."), "{told}");
        assert!(told.contains("async_save") && !told.contains("faster disk"), "{told}");
        let limited =
            checkpoint(&Checkpoints { limit: Some(("/job".into(), "sda".into())), count: 0, ..c.clone() }).join("\n");
        assert!(
            limited.contains("group /job sets on sda") && limited.contains("held up the GPU for 2.0 s."),
            "{limited}"
        );
        let there = checkpoint(&Checkpoints { path: Some("/ckpt/last.pt".into()), ..c }).join("\n");
        assert!(there.contains("faster disk than that of /ckpt/last.pt"), "{there}");
    }

    #[test]
    fn how_workers_start_decides_what_to_do() {
        let s = Starting { starts: Starts { workers: 12, by_exec: 0 }, idle: Nanos::from_millis(1_500), workers: 2 };
        let told = worker_startup(&s).join("\n");
        assert!(
            told.starts_with("Keep workers alive between epochs (persistent_workers=True): 12 were started"),
            "{told}"
        );
        assert!(told.contains("They were forked") && !told.contains("spawn"), "{told}");
        let spawned = worker_startup(&Starting { starts: Starts { by_exec: 12, ..s.starts }, ..s.clone() }).join("\n");
        assert!(spawned.contains("in place of spawn") && spawned.contains("12 of them"), "{spawned}");
        let once = worker_startup(&Starting { starts: Starts { workers: 2, by_exec: 0 }, ..s }).join("\n");
        assert!(once.contains("over soon"), "{once}");
    }
}
