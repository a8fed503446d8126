//! File opens: attaches their probe for as long as it may be.
//!
//! A system call tracepoint makes *every* system call of *every* process slower (64 ns), so that it is attached in bursts
//! only, unless the person asks for all opens. A program on the kernel's own open function costs only those who open;
//! where the kernel can have it, it stays attached.

use super::attach::{explain, program, short};
use super::load::Loaded;
use super::tracefs;
use super::{OpenMode, ProbeStatus};
use crate::units::{MonoNs, Nanos};
use aya::maps::HashMap;
use aya::programs::trace_point::TracePointLinkId;
use aya::programs::{FEntry, FExit, ProgramError, TracePoint};
use aya::{Btf, Ebpf, Pod};
use std::io;
use std::path::Path;

/// Length of a burst.
const BURST: Nanos = Nanos::from_millis(1_000);
/// From the start of a burst to that of the next.
const CYCLE: Nanos = Nanos::from_millis(10_000);

/// The kernel's function behind `open`, `openat` and `openat2` (`fs/open.c`, 5.6).
const FUNCTION: &str = "do_sys_openat2";

/// What a person reads about the probe, whichever way it takes.
const NAME: &str = "file opens";

/// Program and tracepoint of each end of a call. The ends come first: an open that is kept must also be forgotten.
const CALLS: [(&str, &str); 6] = [
    ("exit_open", "sys_exit_openat"),
    ("exit_open", "sys_exit_open"),
    ("exit_open", "sys_exit_openat2"),
    ("enter_openat", "sys_enter_openat"),
    ("enter_open", "sys_enter_open"),
    ("enter_openat2", "sys_enter_openat2"),
];

/// How opens are seen.
enum Method {
    /// Not at all.
    None,
    /// By the programs on the open function, all of them.
    Function,
    /// By the system call tracepoints.
    Tracepoints {
        /// Attached ones, with the name of their program.
        links: Vec<(&'static str, TracePointLinkId)>,
        /// Whether they come and go.
        bursts: bool,
        /// Start of the current or the last burst.
        since: MonoNs,
    },
}

/// The probe on file opens.
pub struct Opens {
    method: Method,
}

/// An open under way, as the kernel programs keep it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Opening([u64; 3]);
// SAFETY: an array of integers.
unsafe impl Pod for Opening {}

impl Opens {
    /// Starts to record opens; in [`OpenMode::Sampled`] with a burst.
    pub fn attach(loaded: &mut Loaded, mode: OpenMode, now: MonoNs) -> (Opens, Vec<ProbeStatus>) {
        if mode == OpenMode::Off {
            return (Opens { method: Method::None }, vec![]);
        }
        match attach_function(&mut loaded.ebpf, &loaded.btf) {
            Ok(()) => {
                let status = ProbeStatus { name: NAME, failure: None };
                return (Opens { method: Method::Function }, vec![status]);
            }
            Err(error) => explain(FUNCTION, &error),
        }
        let (method, failure) = match attach_calls(&mut loaded.ebpf) {
            Ok(links) => (Method::Tracepoints { links, bursts: mode == OpenMode::Sampled, since: now }, None),
            Err(error) => {
                explain("sys_enter_openat", &error);
                (Method::None, Some(advice(&error)))
            }
        };
        (Opens { method }, vec![ProbeStatus { name: NAME, failure }])
    }

    /// How opens are recorded in fact: `all`, `sampled` or `off`.
    pub fn effective(&self) -> &'static str {
        match self.method {
            Method::None => "off",
            Method::Function | Method::Tracepoints { bursts: false, .. } => "all",
            Method::Tracepoints { bursts: true, .. } => "sampled",
        }
    }

    /// Begins or ends a burst when its time has come. To be called often; it does something twice in ten seconds.
    pub fn tick(&mut self, ebpf: &mut Ebpf, now: MonoNs) {
        let Method::Tracepoints { links, bursts: true, since } = &mut self.method else { return };
        let age = now.since(*since);
        if !links.is_empty() && age >= BURST {
            detach_calls(ebpf, links);
        } else if links.is_empty() && age >= CYCLE {
            *since = now;
            match attach_calls(ebpf) {
                Ok(new) => *links = new,
                Err(error) => {
                    log::warn!("file opens are no longer recorded: {}", advice(&error));
                    self.method = Method::None;
                }
            }
        }
    }
}

fn attach_function(ebpf: &mut Ebpf, btf: &Btf) -> Result<(), ProgramError> {
    let exit: &mut FExit = program(ebpf, "exit_do_open")?.try_into()?;
    exit.load(FUNCTION, btf)?;
    let exit_link = exit.attach()?;
    let entry: &mut FEntry = program(ebpf, "enter_do_open")?.try_into()?;
    let attached = entry.load(FUNCTION, btf).and_then(|()| entry.attach().map(drop));
    if attached.is_err() {
        let exit: &mut FExit = program(ebpf, "exit_do_open")?.try_into()?;
        exit.detach(exit_link)?;
    }
    attached
}

/// Attaches to the system calls; to all of them, or to none.
fn attach_calls(ebpf: &mut Ebpf) -> Result<Vec<(&'static str, TracePointLinkId)>, ProgramError> {
    forget_unfinished(ebpf);
    tracefs::with(|| attach_each_call(ebpf))
}

fn attach_each_call(ebpf: &mut Ebpf) -> Result<Vec<(&'static str, TracePointLinkId)>, ProgramError> {
    let mut links = Vec::new();
    for (name, tracepoint) in CALLS {
        match attach_call(ebpf, name, tracepoint) {
            Ok(link) => links.push((name, link)),
            Err(error) => {
                detach_calls(ebpf, &mut links);
                return Err(error);
            }
        }
    }
    Ok(links)
}

fn attach_call(ebpf: &mut Ebpf, name: &str, tracepoint: &str) -> Result<TracePointLinkId, ProgramError> {
    let program: &mut TracePoint = program(ebpf, name)?.try_into()?;
    match program.load() {
        Ok(()) | Err(ProgramError::AlreadyLoaded) => {}
        Err(error) => return Err(error),
    }
    program.attach("syscalls", tracepoint)
}

/// Detaches, in a thread of its own: the kernel waits each time until nobody is inside the tracepoint any more, 0.4 s in
/// all, and the rings must not fill up meanwhile.
fn detach_calls(ebpf: &mut Ebpf, links: &mut Vec<(&'static str, TracePointLinkId)>) {
    let mut taken = Vec::new();
    // Beginnings first, as in `CALLS`.
    while let Some((name, link)) = links.pop() {
        let link = program(ebpf, name).and_then(|p| {
            let p: &mut TracePoint = p.try_into()?;
            p.take_link(link)
        });
        match link {
            Ok(link) => taken.push(link),
            Err(error) => log::warn!("a probe on file opens could not be removed: {}", short(&error)),
        }
    }
    // Without a thread they are dropped right here, with the closure.
    if let Err(error) = std::thread::Builder::new().name("opens-detach".into()).spawn(move || drop(taken)) {
        log::debug!("no thread to detach the probe on file opens: {error}");
    }
}

/// Opens whose end the last burst did not see. Kept, they would give the thread's next open a start long ago.
fn forget_unfinished(ebpf: &mut Ebpf) {
    let Some(map) = ebpf.map_mut("OPENS") else { return };
    let Ok(mut map) = HashMap::<_, u32, Opening>::try_from(map) else { return };
    let tids: Vec<u32> = map.keys().filter_map(Result::ok).collect();
    for tid in tids {
        // One that gave way to another in the meantime is gone already.
        let _ = map.remove(&tid);
    }
}

/// What to do about a refusal.
fn advice(error: &ProgramError) -> String {
    // Tracefs that is not found is an error of reading, a file in it that cannot be read one of the tracepoint.
    if !matches!(error, ProgramError::TracePointError(_) | ProgramError::IOError(_)) {
        return short(error);
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let point = tracefs::mounted(&mounts);
    let events = point.map(|p| Path::new(p).join("events").read_dir().map(drop));
    obstacle(point, events).unwrap_or_else(|| short(error))
}

/// What is wrong with a tracefs at `point` whose `events` were read with this result; `None` if nothing is.
fn obstacle(point: Option<&str>, events: Option<io::Result<()>>) -> Option<String> {
    const REST: &str = "opens that block are recorded all the same";
    match (point, events) {
        (Some(point), Some(Err(e))) if e.kind() == io::ErrorKind::PermissionDenied => {
            Some(format!("tracefs at {point} is not readable for this user; run gpustall as root ({REST})"))
        }
        (Some(_), _) => None,
        (None, _) => Some(format!(
            "tracefs is not mounted and could not be; mount it with `mount -t tracefs nodev /sys/kernel/tracing` ({REST})"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_mounted_and_not_readable_have_advice_of_their_own() {
        let denied = || Some(Err(io::ErrorKind::PermissionDenied.into()));
        assert!(
            obstacle(None, None)
                .is_some_and(|text| text.starts_with("tracefs is not mounted and could not be; mount it with"))
        );
        let unreadable = obstacle(Some(tracefs::PLACES[0]), denied());
        assert!(unreadable.is_some_and(|text| text.contains("not readable for this user; run gpustall as root")));
        // The kernel lacks the tracepoint: the error itself says so.
        assert_eq!(obstacle(Some(tracefs::PLACES[0]), Some(Ok(()))), None);
    }
}
