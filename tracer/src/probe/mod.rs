//! Loads the kernel programs, attaches them to a process tree and drains their records as events.

mod attach;
mod block;
mod btf;
mod decode;
mod drain;
mod error;
mod load;
mod losses;
mod mapped;
mod names;
mod offsets;
mod opens;
mod paths;
mod proc;
mod samples;
mod seed;
mod targets;
mod tracefs;

pub use btf::BtfError;
pub use error::ProbeError;
pub use offsets::{OffsetError, resolve};

use crate::events::{Event, LossKind, TaskEvent};
use crate::units::{MonoNs, Nanos, Pid, Tid};
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, RingBuf};
use aya::{Ebpf, Pod};
use aya_log::EbpfLogger;
use losses::Losses;
use mapped::MappedFiles;
use names::Names;
use opens::Opens;
use samples::Images;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use targets::TargetMap;
use tracer_ebpf::{Counter, FLAG_PENDING, HOMES, State};

/// How file opens are seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpenMode {
    /// Every open.
    All,
    /// In bursts, where seeing all of them would slow down other processes.
    #[default]
    Sampled,
    /// Only those that block.
    Off,
}

/// Default rate of samples. A prime: 250 Hz keeps step with the scheduler's own tick (mostly 250 Hz), and beside other busy
/// threads a thread then got between a third and one and a half times the samples that its running time was due; at 199 Hz
/// it was within 6 %.
const SAMPLE_HZ: u32 = 199;

/// What to trace, and with how much memory.
#[derive(Clone, Debug)]
pub struct Options {
    /// The process; its threads and descendants are traced with it.
    pub pid: Pid,
    /// How file opens are seen.
    pub opens: OpenMode,
    /// Samples of running threads, per second and CPU; 0 for none.
    pub sample_hz: u32,
    /// Size of the ring for intervals and samples; rounded up to a power of two of pages.
    pub events_ring_bytes: u32,
    /// Size of the ring for everything else.
    pub rare_ring_bytes: u32,
}

impl Options {
    /// The defaults. A ring counts twice in resident memory, since it is mapped twice.
    pub fn new(pid: Pid) -> Options {
        Options {
            pid,
            opens: OpenMode::default(),
            sample_hz: SAMPLE_HZ,
            events_ring_bytes: 8 << 20,
            rare_ring_bytes: 1 << 20,
        }
    }
}

/// What became of one kernel program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeStatus {
    /// Its name, as a rule that of its tracepoint.
    pub name: &'static str,
    /// Why it is not attached; `None` if it is.
    pub failure: Option<String>,
}

/// What tracing cost, known at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Off-CPU intervals that the kernel programs wrote or lost, without those pending at the stop.
    pub intervals: u64,
    /// Runs of all programs; 0 unless `kernel.bpf_stats_enabled` is 1.
    pub program_runs: u64,
    /// CPU time that those runs took.
    pub program_time: Nanos,
}

/// How often losses are looked for: it copies a few hundred bytes for every CPU.
const LOSS_PERIOD: Nanos = Nanos::from_millis(100);

/// [`State`] as aya takes it.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct RawState(State);
// SAFETY: a `repr(C)` structure of integers without padding.
unsafe impl Pod for RawState {}

/// The attached kernel programs. Dropping it detaches them.
pub struct Probe {
    /// Holds programs and links; gone after the stop.
    ebpf: Option<Ebpf>,
    events: RingBuf<MapData>,
    rare: RingBuf<MapData>,
    /// States of threads that own their slot, and of the others.
    states: Array<MapData, RawState>,
    others: HashMap<MapData, u32, RawState>,
    targets: TargetMap,
    losses: Losses,
    losses_read: MonoNs,
    logger: Option<EbpfLogger<&'static dyn log::Log>>,
    status: Vec<ProbeStatus>,
    opens: Opens,
    images: Images,
    target: OwnedFd,
    names: Names,
    mapped: MappedFiles,
    found: Vec<TaskEvent>,
}

impl Probe {
    /// Attaches to a running process, its threads, its descendants, and all that they will fork.
    pub fn attach(options: &Options) -> Result<Probe, ProbeError> {
        Probe::attach_with(options, true)
    }

    /// The same without the typed scheduler programs (`tp_btf`), as on a kernel that refuses them. Costs more; for tests.
    pub fn attach_untyped(options: &Options) -> Result<Probe, ProbeError> {
        Probe::attach_with(options, false)
    }

    fn attach_with(options: &Options, typed: bool) -> Result<Probe, ProbeError> {
        let target = open_target(options.pid)?;
        let mut loaded = load::load(options)?;
        let mut status = attach::attach(&mut loaded, typed)?;
        status.extend(block::attach(&mut loaded));
        status.extend(samples::attach(&mut loaded, options.sample_hz));
        let (opens, opens_status) = Opens::attach(&mut loaded, options.opens, now());
        status.extend(opens_status);
        let mut probe = Probe {
            events: take(&mut loaded.ebpf, "EVENTS")?,
            rare: take(&mut loaded.ebpf, "RARE")?,
            states: take(&mut loaded.ebpf, "STATES")?,
            others: take(&mut loaded.ebpf, "OTHERS")?,
            targets: map_targets(&loaded.ebpf, loaded.target_bytes)?,
            losses: Losses::new(take::<PerCpuArray<_, _>>(&mut loaded.ebpf, "COUNTERS")?),
            losses_read: now(),
            logger: EbpfLogger::init(&mut loaded.ebpf).inspect_err(|e| log::info!("no kernel-side log: {e}")).ok(),
            status,
            opens,
            images: Images::default(),
            ebpf: None,
            target,
            names: Names::default(),
            mapped: MappedFiles::default(),
            found: Vec::new(),
        };
        probe.ebpf = Some(loaded.ebpf);
        // Only now: the fork program must already follow those that are marked.
        let found = seed::mark_tree(&probe.targets, options.pid);
        probe.losses.add(LossKind::TidOutOfRange, found.out_of_range);
        seed::seed_waits(&mut probe.others, &found.threads).map_err(setup)?;
        if !probe.target_alive() || found.threads.is_empty() {
            return Err(ProbeError::Died(options.pid));
        }
        probe.found = found.threads;
        Ok(probe)
    }

    /// What became of each kernel program.
    pub fn status(&self) -> &[ProbeStatus] {
        &self.status
    }

    /// How file opens are recorded in fact: `all`, `sampled` or `off`.
    pub fn opens(&self) -> &'static str {
        self.opens.effective()
    }

    /// Whether running threads are sampled.
    pub fn samples(&self) -> bool {
        self.status.iter().any(|s| s.name == samples::PROGRAM && s.failure.is_none())
    }

    /// Passes on everything that the kernel programs have written so far. Never waits; to be called every 10 ms or so, before
    /// the rings fill up.
    pub fn drain(&mut self, sink: &mut dyn FnMut(Event)) {
        let (names, mapped) = (&mut self.names, &mut self.mapped);
        let (targets, images) = (&self.targets, &mut self.images);
        let mut noting = |mut event: Event| {
            match &mut event {
                Event::OffCpu(o) => {
                    names.note(o, targets);
                    mapped.note(o);
                }
                Event::Task(t) => images.task(t),
                Event::CpuSample(s) => {
                    if let Some(name) = images.resolve(s) {
                        sink(Event::ImageName(name));
                    }
                }
                _ => {}
            }
            sink(event);
        };
        self.found.drain(..).for_each(|t| noting(Event::Task(t)));
        // Forks before the intervals of the forked.
        let mut undecodable = drain::ring(&mut self.rare, &mut noting).undecodable;
        undecodable += drain::ring(&mut self.events, &mut noting).undecodable;
        self.losses.add(LossKind::Undecodable, undecodable);
        let time = now();
        self.mapped.report(&mut |f| sink(Event::NamedFile(f)));
        self.names.report(time, &mut |n| sink(Event::ThreadName(n)));
        if time.since(self.losses_read) >= LOSS_PERIOD {
            self.losses_read = time;
            self.losses.report(time, &mut |l| sink(Event::Loss(l)));
        }
    }

    /// Work that is done now and then: passes what the kernel programs had to say to the log.
    pub fn tick(&mut self, now: MonoNs) {
        if let Some(ebpf) = &mut self.ebpf {
            self.opens.tick(ebpf, now);
        }
        if let Some(logger) = &mut self.logger {
            logger.flush();
        }
    }

    /// Detaches, passes on what is left in the rings, the waits that have not ended, and the names of the target's threads.
    pub fn stop(&mut self, sink: &mut dyn FnMut(Event)) -> Cost {
        let mut cost = self.ebpf.as_ref().map(program_cost).unwrap_or_default();
        if self.ebpf.take().is_some() {
            wait_for_programs();
        }
        let time = now();
        self.losses_read = MonoNs(0);
        self.drain(sink);
        for interval in self.pending(time) {
            sink(Event::OffCpu(interval));
        }
        for tid in self.targets.iter() {
            if let Some(name) = names::look_up(tid) {
                sink(Event::ThreadName(name));
            }
        }
        self.tick(time);
        match self.losses.totals() {
            Ok(totals) => cost.intervals = totals[Counter::OffCpuEmitted as usize],
            Err(e) => log::warn!("cannot read how much was traced: {e}"),
        }
        cost
    }

    /// Whether the process that was attached to still runs.
    pub fn target_alive(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.target.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry. A pidfd becomes readable when its process ends.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 0 }
    }

    /// Intervals that have not ended, closed at `time`.
    fn pending(&self, time: MonoNs) -> Vec<crate::events::OffCpu> {
        let mut intervals = Vec::new();
        for tid in self.targets.iter() {
            let Some(State { record: mut state, .. }) = self.state_of(tid) else { continue };
            if state.off.off_ns == 0 {
                continue;
            }
            state.off.on_ns = time.0;
            state.off.flags |= FLAG_PENDING;
            if state.settle() {
                intervals.push(decode::off_cpu(&state));
            }
        }
        intervals
    }

    /// The state of a thread. One in the hash map does not count where the thread owns its slot: it is a wait that was
    /// written there when the kernel already knew better.
    fn state_of(&self, tid: Tid) -> Option<State> {
        match self.states.get(&(tid.0 % HOMES), 0) {
            Ok(RawState(state)) if state.record.off.tid == tid.0 => Some(state),
            _ => self.others.get(&tid.0, 0).ok().map(|RawState(state)| state),
        }
    }
}

/// Opens the process and checks that it can be a target.
fn open_target(pid: Pid) -> Result<OwnedFd, ProbeError> {
    if pid.0 == std::process::id() {
        return Err(ProbeError::Own(pid));
    }
    let path = format!("/proc/{pid}/status");
    let status = match std::fs::read(&path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => {
            return Err(ProbeError::NoSuchProcess(pid));
        }
        Err(error) => return Err(ProbeError::Proc { path, error }),
    };
    match proc::status_field(&status, "Tgid").and_then(|t| t.parse().ok()).map(Pid) {
        Some(owner) if owner != pid => return Err(ProbeError::Thread(pid, owner)),
        _ => {}
    }
    let stat = proc::stat(pid, pid.main_thread()).ok_or(ProbeError::NoSuchProcess(pid))?;
    if stat.is_kernel_thread() {
        return Err(ProbeError::KernelThread(pid));
    }
    let raw = i32::try_from(pid.0).map_err(|_| ProbeError::NoSuchProcess(pid))?;
    // SAFETY: no pointers; a descriptor that is returned is ours.
    unsafe {
        match libc::syscall(libc::SYS_pidfd_open, raw, 0) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd as i32)),
            _ => match io::Error::last_os_error() {
                e if e.raw_os_error() == Some(libc::ESRCH) => Err(ProbeError::NoSuchProcess(pid)),
                error => Err(ProbeError::Proc { path: format!("pidfd of {pid}"), error }),
            },
        }
    }
}

/// Takes a map out of the object.
fn take<T: TryFrom<Map, Error = MapError>>(ebpf: &mut Ebpf, name: &str) -> Result<T, ProbeError> {
    let map = ebpf.take_map(name).ok_or_else(|| ProbeError::Setup(format!("the object has no map {name}")))?;
    T::try_from(map).map_err(setup)
}

fn map_targets(ebpf: &Ebpf, bytes: usize) -> Result<TargetMap, ProbeError> {
    // Not taken: the programs refer to the map by its descriptor until they are loaded.
    match ebpf.map("TARGETS") {
        Some(Map::Array(map)) => {
            TargetMap::new(map, bytes).map_err(|e| ProbeError::Setup(format!("mapping the target map: {e}")))
        }
        _ => Err(ProbeError::Setup("the object has no map TARGETS".into())),
    }
}

fn setup(error: MapError) -> ProbeError {
    ProbeError::Setup(load::chain(&error))
}

/// Waits until no program is running any more: detaching stops new runs only. This is `synchronize_rcu`, and programs run
/// inside RCU read-side sections. Where it is refused (nohz_full) a last record may be missing.
fn wait_for_programs() {
    /// `MEMBARRIER_CMD_GLOBAL` (`linux/membarrier.h`).
    const GLOBAL: i32 = 1;
    // SAFETY: no pointers.
    if unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) } != 0 {
        log::debug!("membarrier: {}", io::Error::last_os_error());
    }
}

/// Run time of all programs, as far as the kernel kept count.
fn program_cost(ebpf: &Ebpf) -> Cost {
    let mut cost = Cost::default();
    for info in ebpf.programs().filter_map(|(_, p)| p.info().ok()) {
        cost.program_runs += info.run_count();
        cost.program_time += Nanos(u64::try_from(info.run_time().as_nanos()).unwrap_or(u64::MAX));
    }
    cost
}

/// The time on the kernel programs' clock.
fn now() -> MonoNs {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the answer; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    MonoNs(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}
