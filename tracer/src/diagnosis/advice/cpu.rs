//! CPUs: too few, taken by others, or held back by a quota.

use crate::attribution::Totals;
use crate::diagnosis::cpu_use::CpuUse;
use crate::diagnosis::facts::Facts;
use crate::diagnosis::words::percent;

/// From this share of the job's waits for a CPU on, who had it is worth a sentence.
const WORTH_TELLING: f64 = 0.2;
/// A job that uses this share of the CPUs that it may use has no competitor but itself.
const ALL_USED: f64 = 0.85;

/// A thread that had the CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Competitor {
    /// Its name.
    pub name: String,
    /// Its id.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// The command line of its process; empty for a kernel thread.
    pub command: String,
    /// It is the job's own.
    pub own: bool,
    /// Share of the waits for a CPU.
    pub share: f64,
}

/// Threads could run but had no CPU.
#[derive(Clone, Debug, Default)]
pub struct Starved {
    /// Who had it, most first; threads of the job are one.
    pub competitors: Vec<Competitor>,
    /// CPUs of the machine, and those that the affinity allows.
    pub cpus: (u32, u32),
    /// What the job used and wanted.
    pub used: CpuUse,
    /// Workers, and the busy threads in each of their processes.
    pub workers: usize,
    pub threads_each: f64,
    /// Nice value of the job.
    pub nice: i32,
    /// Process that was attached to.
    pub pid: u32,
}

impl Starved {
    pub(super) fn of(f: &Facts<'_>, totals: &Totals) -> Starved {
        let allowed = f.header.limits.allowed_cpus.len() as u32;
        Starved {
            competitors: competitors(f, totals),
            cpus: (f.header.cpus, if allowed == 0 { f.header.cpus } else { allowed }),
            used: f.cpu_use(),
            workers: f.workers(),
            threads_each: f.threads_per_worker(),
            nice: f.header.limits.nice,
            pid: f.header.target.pid.0,
        }
    }
}

fn competitors(f: &Facts<'_>, totals: &Totals) -> Vec<Competitor> {
    let all = f.competitors(totals);
    let sum: f64 = all.iter().map(|(_, n)| n.secs()).sum();
    let mut out: Vec<Competitor> = Vec::new();
    for (tid, n) in all {
        let share = if sum > 0.0 { n.secs() / sum } else { 0.0 };
        let own = f.tl.thread_at(tid, f.tl.span.1).is_some();
        if let Some(same) = out.iter_mut().find(|c| own && c.own) {
            same.share += share;
            continue;
        }
        let (outsider, name) = (f.tl.outsiders.get(&tid), f.tl.name_of(tid, f.tl.span.1));
        out.push(Competitor {
            name: name.unwrap_or("unknown").to_owned(),
            tid: tid.0,
            pid: outsider.map_or(0, |o| o.pid.0),
            command: outsider.map_or(String::new(), |o| o.command.clone()),
            own,
            share,
        });
    }
    out.sort_by(|a, b| b.share.total_cmp(&a.share));
    out
}

/// Advice for [`Starved`].
pub fn starved(s: &Starved) -> Vec<String> {
    let mut out = Vec::new();
    let (machine, allowed) = s.cpus;
    let narrow = allowed < machine;
    let widen = || {
        format!(
            "Widen the CPU affinity (taskset -a -p, cpuset.cpus, docker --cpuset-cpus): the target may use {allowed} of {machine} CPUs, and wanted {:.1}.",
            s.used.wanted
        )
    };
    // With a mask this narrow, who else sits inside it is second.
    if narrow && s.used.wanted > f64::from(allowed) {
        out.push(widen());
    }
    for c in s.competitors.iter().filter(|c| c.share >= WORTH_TELLING).take(3) {
        out.push(match (c.own, c.command.is_empty()) {
            (true, _) => own_threads(s, c.share),
            (false, true) => format!(
                "Find out what {} (thread {}) works for: it had the CPU in {} of these waits, and a kernel thread cannot be moved aside as a process can.",
                c.name,
                c.tid,
                percent(c.share)
            ),
            (false, false) => format!(
                "Move {} (thread {} of process {}: {}) to other CPUs or another machine, or lower its priority (renice, cpu.weight of the control group in /proc/{}/cgroup): it had the CPU in {} of these waits.",
                c.name,
                c.tid,
                c.pid,
                c.command,
                c.pid,
                percent(c.share)
            ),
        });
    }
    if narrow && out.iter().all(|a| !a.starts_with("Widen")) {
        out.push(widen());
    }
    if s.nice > 0 && s.competitors.iter().any(|c| !c.own && c.share >= WORTH_TELLING) {
        out.push(format!(
            "Start the job without nice: it runs at nice {}, so that others go first (renice -n 0 -p {}).",
            s.nice, s.pid
        ));
    }
    if s.used.ran >= ALL_USED * f64::from(allowed) {
        out.push(format!(
            "Of the {allowed} CPUs that it may use, the job itself kept {:.1} busy: beyond that only cheaper preprocessing or more CPUs make it faster.",
            s.used.ran
        ));
    }
    out.push("More workers would not help: they would share the same CPUs.".into());
    out
}

fn own_threads(s: &Starved, share: f64) -> String {
    let why = format!("the job's own threads take the CPU from each other ({} of these waits)", percent(share));
    if s.workers > 0 && s.threads_each >= 1.5 {
        format!(
            "Limit the thread pools inside the workers (torch.set_num_threads(1), OMP_NUM_THREADS=1, cv2.setNumThreads(0)): each of the {} worker processes ran {:.0} threads, and {why}.",
            s.workers, s.threads_each
        )
    } else if s.workers as u32 > s.cpus.1 {
        format!(
            "Start fewer workers or limit the thread pools inside them (num_workers={} instead of {}, torch.set_num_threads(1), OMP_NUM_THREADS=1): {why}.",
            s.cpus.1, s.workers
        )
    } else if s.workers > 0 {
        format!(
            "Start fewer workers or limit the thread pools inside them (torch.set_num_threads(1), OMP_NUM_THREADS=1): {why}."
        )
    } else {
        format!("Limit the job's thread pools (torch.set_num_threads, OMP_NUM_THREADS): {why}.")
    }
}

/// A quota held threads back.
#[derive(Clone, Debug, Default)]
pub struct Throttled {
    /// Control group, its quota in CPUs, and what share of the recording it was held back.
    pub group: Option<(String, Option<f64>)>,
    /// What the job used and wanted.
    pub used: CpuUse,
    /// Workers.
    pub workers: usize,
}

impl Throttled {
    pub(super) fn of(f: &Facts<'_>) -> Throttled {
        let group = match f.tl.host_inside() {
            [first, .., last] => last
                .cgroups
                .iter()
                .filter_map(|now| {
                    let then = first.cgroups.iter().find(|c| c.path == now.path)?;
                    Some((now.throttled - then.throttled, now)).filter(|(n, _)| n.0 > 0)
                })
                .max_by_key(|(n, _)| *n)
                .map(|(_, g)| (g.path.clone(), g.quota_cpus)),
            _ => None,
        };
        Throttled { group, used: f.cpu_use(), workers: f.workers() }
    }
}

/// Advice for [`Throttled`].
pub fn throttled(t: &Throttled) -> Vec<String> {
    let knobs = "cpu.max, docker --cpus, Kubernetes limits.cpu";
    let which = match &t.group {
        Some((path, Some(quota))) => {
            format!(" {path} ({knobs}): it is {quota:.1} CPUs, and the job wanted {:.1}", t.used.wanted)
        }
        Some((path, None)) => format!(" {path} ({knobs}): the job wanted {:.1} CPUs", t.used.wanted),
        None => format!(" ({knobs}): the job wanted {:.1} CPUs", t.used.wanted),
    };
    let mut out = vec![format!("Raise the CPU quota of the control group{which}.")];
    if t.workers > 0 {
        out.push("Until then use fewer workers and threads (torch.set_num_threads(1)): more of them use up the quota sooner, and then all stand still at once.".into());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(share: f64) -> Competitor {
        Competitor {
            name: "updatedb".into(),
            tid: 99,
            pid: 90,
            command: "/usr/bin/updatedb -l 0".into(),
            own: false,
            share,
        }
    }

    fn own(share: f64) -> Competitor {
        Competitor { name: "python3".into(), tid: 7, pid: 0, command: String::new(), own: true, share }
    }

    fn crowded(competitors: Vec<Competitor>) -> Starved {
        Starved {
            competitors,
            cpus: (8, 8),
            used: CpuUse { ran: 4.0, wanted: 6.0 },
            workers: 4,
            threads_each: 1.0,
            nice: 0,
            pid: 1,
        }
    }

    #[test]
    fn a_competitor_is_named_with_its_process() {
        let told = starved(&crowded(vec![other(0.9), own(0.1)])).join("\n");
        assert!(
            told.starts_with("Move updatedb (thread 99 of process 90: /usr/bin/updatedb -l 0) to other CPUs"),
            "{told}"
        );
        assert!(told.contains("/proc/90/cgroup") && told.contains("90 % of these waits"), "{told}");
        assert!(!told.contains("own threads"), "a tenth is not worth telling: {told}");
        let kernel = Competitor { command: String::new(), name: "kswapd0".into(), ..other(1.0) };
        let told = starved(&crowded(vec![kernel])).join("\n");
        assert!(told.contains("Find out what kswapd0") && !told.contains("renice"), "{told}");
        let nice = starved(&Starved { nice: 10, ..crowded(vec![other(1.0)]) }).join("\n");
        assert!(nice.contains("runs at nice 10"), "{nice}");
    }

    #[test]
    fn the_jobs_own_threads_are_told_apart() {
        let pools = starved(&Starved { threads_each: 4.0, ..crowded(vec![own(1.0)]) }).join("\n");
        assert!(
            pools.contains("OMP_NUM_THREADS=1") && pools.contains("each of the 4 worker processes ran 4 threads"),
            "{pools}"
        );
        let many = starved(&Starved { workers: 12, ..crowded(vec![own(1.0)]) }).join("\n");
        assert!(many.contains("num_workers=8 instead of 12"), "{many}");
        let alone = starved(&Starved { workers: 0, ..crowded(vec![own(1.0)]) }).join("\n");
        assert!(alone.contains("Limit the job's thread pools") && !alone.contains("fewer workers"), "{alone}");
        let full = starved(&Starved { used: CpuUse { ran: 7.5, wanted: 12.0 }, ..crowded(vec![own(1.0)]) }).join("\n");
        assert!(full.contains("the job itself kept 7.5 busy"), "{full}");
    }

    #[test]
    fn a_narrow_mask_comes_first_where_the_job_wants_more() {
        let narrow = Starved { cpus: (8, 2), ..crowded(vec![own(1.0)]) };
        let told = starved(&narrow);
        assert!(told[0].contains("may use 2 of 8 CPUs, and wanted 6.0"), "{told:?}");
        let modest =
            Starved { used: CpuUse { ran: 0.5, wanted: 1.5 }, ..Starved { cpus: (8, 2), ..crowded(vec![other(1.0)]) } };
        let told = starved(&modest);
        assert!(told[0].starts_with("Move updatedb") && told[1].starts_with("Widen"), "{told:?}");
    }

    #[test]
    fn a_quota_is_told_with_what_was_wanted() {
        let group = Some(("/sys/fs/cgroup/job".to_owned(), Some(1.5)));
        let t = Throttled { group, used: CpuUse { ran: 1.5, wanted: 3.2 }, workers: 4 };
        let told = throttled(&t).join("\n");
        assert!(
            told.contains("group /sys/fs/cgroup/job (cpu.max") && told.contains("1.5 CPUs, and the job wanted 3.2"),
            "{told}"
        );
        assert!(!throttled(&Throttled { workers: 0, ..t }).join("\n").contains("workers"));
    }
}
