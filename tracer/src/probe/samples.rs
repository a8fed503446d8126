//! On-CPU samples: a clock on every CPU, and the image that each sampled instruction belongs to.

use super::load::Loaded;
use super::{ProbeStatus, attach};
use crate::events::{CpuSample, ImageId, ImageName, TaskEvent, TaskWhat};
use crate::units::{MonoNs, Nanos, Pid, Tid};
use aya::programs::ProgramError;
use aya::programs::perf_event::{PerfEvent, PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use procfs::process::{MMPermissions, MMapPath, Process};
use std::collections::HashMap;
use std::sync::Arc;

/// Name of the program.
pub(super) const PROGRAM: &str = "cpu_sample";

/// Samples every CPU that is online now `hz` times a second; 0 leaves it off. The software clock needs no counter in
/// hardware, so it works in virtual machines.
pub fn attach(loaded: &mut Loaded, hz: u32) -> Vec<ProbeStatus> {
    if hz == 0 {
        return vec![];
    }
    let failure = attach_all(loaded, hz).err().map(|error| {
        attach::explain(PROGRAM, &error);
        attach::short(&error)
    });
    vec![ProbeStatus { name: PROGRAM, failure }]
}

fn attach_all(loaded: &mut Loaded, hz: u32) -> Result<(), ProgramError> {
    let program: &mut PerfEvent = attach::program(&mut loaded.ebpf, PROGRAM)?.try_into()?;
    program.load()?;
    let cpus = aya::util::online_cpus().map_err(|(_, error)| ProgramError::IOError(error))?;
    for cpu in cpus {
        program.attach(
            PerfEventConfig::Software(SoftwareEvent::CpuClock),
            PerfEventScope::AllProcessesOneCpu { cpu },
            SamplePolicy::Frequency(u64::from(hz)),
            false,
        )?;
    }
    Ok(())
}

/// Shortest time between two readings of one process's mappings.
const REREAD: Nanos = Nanos::from_millis(500);

/// Addresses that a process can execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeRange {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// File that is mapped there, or a name in brackets.
    pub image: String,
}

/// What is known of one process's code.
struct Code {
    /// Sorted by address.
    ranges: Arc<Vec<CodeRange>>,
    read_at: MonoNs,
}

/// Finds the image of every sample: the mapped file that holds its instruction pointer.
pub struct Images {
    ids: HashMap<String, ImageId>,
    processes: HashMap<Pid, Code>,
    /// Process of each thread that made another one, to find the code that a child inherited.
    parents: HashMap<Pid, Tid>,
    threads: HashMap<Tid, Pid>,
    read: fn(Pid) -> Option<Vec<CodeRange>>,
}

impl Default for Images {
    fn default() -> Images {
        Images::new(code_of)
    }
}

impl Images {
    /// `read` gives the executable mappings of a process, sorted by address; nothing once it has ended.
    pub fn new(read: fn(Pid) -> Option<Vec<CodeRange>>) -> Images {
        Images {
            ids: HashMap::new(),
            processes: HashMap::new(),
            parents: HashMap::new(),
            threads: HashMap::new(),
            read,
        }
    }

    /// Fills in the image of a sample. Gives the image's name when it is met for the first time.
    pub fn resolve(&mut self, sample: &mut CpuSample) -> Option<ImageName> {
        let name = self.image(sample.pid, sample.user_ip, sample.time)?;
        if let Some(id) = self.ids.get(&name) {
            sample.image = *id;
            return None;
        }
        // 0 means "not known".
        let id = ImageId(self.ids.len() as u32 + 1);
        sample.image = id;
        self.ids.insert(name.clone(), id);
        Some(ImageName { id, path: name })
    }

    /// Keeps up with forks, execs and exits.
    pub fn task(&mut self, event: &TaskEvent) {
        match event.what {
            TaskWhat::Exec { .. } => {
                // The old program's code is gone.
                self.processes.remove(&event.pid);
                self.parents.remove(&event.pid);
            }
            TaskWhat::Forked { parent } if event.tid == event.pid.main_thread() => {
                self.processes.remove(&event.pid);
                self.parents.insert(event.pid, parent);
            }
            TaskWhat::Exited => {
                self.threads.remove(&event.tid);
                // Samples of the thread may still come, from another ring; the code stays until the pid is used again.
                return;
            }
            _ => {}
        }
        self.threads.insert(event.tid, event.pid);
    }

    fn image(&mut self, pid: Pid, ip: u64, now: MonoNs) -> Option<String> {
        let known = self.processes.get(&pid);
        if let Some(image) = known.and_then(|c| find(&c.ranges, ip)) {
            return Some(image.to_owned());
        }
        if known.is_some_and(|c| now.since(c.read_at) < REREAD && c.read_at <= now) {
            return None;
        }
        let ranges = match (self.read)(pid) {
            Some(ranges) if !ranges.is_empty() => Arc::new(ranges),
            // It has ended. If it was forked and has not executed anything since, its code is its parent's.
            _ => known.map(|c| Arc::clone(&c.ranges)).or_else(|| self.inherited(pid)).unwrap_or_default(),
        };
        let image = find(&ranges, ip).map(str::to_owned);
        self.processes.insert(pid, Code { ranges, read_at: now });
        image
    }

    fn inherited(&self, pid: Pid) -> Option<Arc<Vec<CodeRange>>> {
        let parent = self.parents.get(&pid)?;
        let parent = self.threads.get(parent).copied().unwrap_or(Pid(parent.0));
        self.processes.get(&parent).map(|c| Arc::clone(&c.ranges))
    }
}

/// The range that holds an address.
fn find(ranges: &[CodeRange], ip: u64) -> Option<&str> {
    let after = ranges.partition_point(|r| r.start <= ip);
    ranges.get(after.checked_sub(1)?).filter(|r| ip < r.end).map(|r| r.image.as_str())
}

/// The executable mappings of a running process, from /proc/PID/maps.
fn code_of(pid: Pid) -> Option<Vec<CodeRange>> {
    let maps = Process::new(i32::try_from(pid.0).ok()?).and_then(|p| p.maps()).ok()?;
    let code = maps.into_iter().filter(|m| m.perms.contains(MMPermissions::EXECUTE));
    Some(
        code.map(|m| CodeRange {
            start: m.address.0,
            end: m.address.1,
            image: match m.pathname {
                MMapPath::Path(path) => {
                    let path = path.to_string_lossy();
                    path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned()
                }
                MMapPath::Vdso => "[vdso]".to_owned(),
                MMapPath::Vsyscall => "[vsyscall]".to_owned(),
                // Just-in-time compilers put their code there.
                _ => "[anonymous]".to_owned(),
            },
        })
        .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Syscall;

    fn sample(pid: u32, ip: u64, ms: u64) -> CpuSample {
        CpuSample {
            time: MonoNs(ms * 1_000_000),
            tid: Tid(pid),
            pid: Pid(pid),
            cpu: 0,
            syscall: Syscall::NONE,
            user_ip: ip,
            image: ImageId::default(),
            file: None,
        }
    }

    /// Process 1 has two images, process 2 has ended, process 3 reads nothing twice.
    fn read(pid: Pid) -> Option<Vec<CodeRange>> {
        let range = |start, end, image: &str| CodeRange { start, end, image: image.into() };
        (pid == Pid(1)).then(|| vec![range(100, 200, "/bin/a"), range(200, 250, "/lib/b")])
    }

    #[test]
    fn an_image_is_named_once_and_then_referred_to() {
        let mut images = Images::new(read);
        let mut s = sample(1, 150, 0);
        assert_eq!(images.resolve(&mut s), Some(ImageName { id: ImageId(1), path: "/bin/a".into() }));
        assert_eq!(s.image, ImageId(1));
        let mut s = sample(1, 199, 1);
        assert_eq!((images.resolve(&mut s), s.image), (None, ImageId(1)));
        let mut s = sample(1, 200, 1);
        assert_eq!(images.resolve(&mut s).unwrap().path, "/lib/b");
        for outside in [99, 250, 0, u64::MAX] {
            let mut s = sample(1, outside, 2);
            assert_eq!((images.resolve(&mut s), s.image), (None, ImageId(0)), "{outside}");
        }
    }

    #[test]
    fn a_child_that_has_ended_has_its_parents_code_unless_it_executed_another_program() {
        let mut images = Images::new(read);
        let event = |what| TaskEvent { time: MonoNs(0), tid: Tid(2), pid: Pid(2), what, comm: String::new() };
        images.resolve(&mut sample(1, 150, 0));
        images.task(&event(TaskWhat::Forked { parent: Tid(1) }));
        let mut s = sample(2, 150, 1);
        images.resolve(&mut s);
        assert_eq!(s.image, ImageId(1));
        images.task(&event(TaskWhat::Exec { old_tid: Tid(2) }));
        let mut s = sample(2, 150, 2);
        images.resolve(&mut s);
        assert_eq!(s.image, ImageId(0));
    }

    #[test]
    fn this_process_finds_its_own_code() {
        let mut images = Images::default();
        let mut s = sample(std::process::id(), this_process_finds_its_own_code as fn() as usize as u64, 0);
        let name = images.resolve(&mut s).unwrap();
        assert_eq!(std::path::Path::new(&name.path), std::env::current_exe().unwrap());
    }
}
