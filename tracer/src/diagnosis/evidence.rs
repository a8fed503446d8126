//! Evidence: numbers behind a cause that a person can check with other tools.

use super::facts::{Facts, WorkerTime};
use super::words::{call_name, percent, rate, who};
use crate::attribution::{Cause, Role, Totals};
use crate::events::BlockOp;
use crate::units::{DevId, Nanos};

/// Sentences for one cause.
pub fn of(f: &Facts<'_>, totals: &Totals, cause: Cause) -> Vec<String> {
    let mut out = Vec::new();
    match cause {
        Cause::Checkpoint => {
            checkpoint(f, &mut out);
            storage(f, totals, &mut out);
        }
        Cause::Disk | Cause::NetworkStorage => storage(f, totals, &mut out),
        Cause::CpuStarved | Cause::CpuThrottled => starved(f, totals, &mut out),
        Cause::Preprocessing => preprocessing(f, &mut out),
        Cause::HostCode => images(f, Role::Feeder, &mut out),
        _ => calls_of(f, totals, cause, &mut out),
    }
    if let Some((free, cpus)) = f.cpu_free {
        out.push(format!("The machine's {cpus} CPUs were {} free.", percent(free)));
    }
    out
}

fn storage(f: &Facts<'_>, totals: &Totals, out: &mut Vec<String>) {
    let s = &f.storage;
    if s.count == 0 {
        return;
    }
    let mut calls: Vec<_> = s.by_call.iter().collect();
    calls.sort_by_key(|(nr, (_, n))| (std::cmp::Reverse(*n), **nr));
    if let Some((nr, (count, blocked))) = calls.first() {
        let mean = Nanos(blocked.0 / (*count).max(1));
        let place = f.main_directory(totals).map_or(String::new(), |(dir, _)| format!(" of {dir}"));
        let device = f.main_device().map_or(String::new(), |d| format!(" on {}", device_words(f, d)));
        out.push(format!(
            "Threads of the job were blocked on storage {} times a second for {mean} each; {} of that time was in {}{place}{device}.",
            rate(s.count as f64 / f.seconds()),
            percent(blocked.share_of(s.blocked)),
            call_name(**nr),
        ));
    }
    // What the block layer saw, for comparison: iostat shows the same.
    if let Some(dev) = f.main_device() {
        let disk = whole_disk(f, dev);
        let op = if totals.of(Cause::Checkpoint) > totals.of(Cause::Disk) { BlockOp::Write } else { BlockOp::Read };
        if let Some(r) = f.requests.get(&(disk, op)) {
            let mean = Nanos(r.total.0 / r.count.max(1));
            let word = if op == BlockOp::Read { "reads" } else { "writes" };
            out.push(format!(
                "{} completed {} {word} a second of {:.0} KiB on average, {mean} each (iostat -x shows the same).",
                device_name(f, disk),
                rate(r.count as f64 / f.seconds()),
                r.bytes as f64 / r.count.max(1) as f64 / 1024.0,
            ));
            if let Some((waited, device)) = f.held_back(disk, op) {
                out.push(format!(
                    "Threads waited {waited} for what the device did in {device}: requests were held back before they reached it, as an I/O limit of a control group does."
                ));
            }
        }
        for l in f.header.limits.io.iter().filter(|l| l.dev == disk || l.dev == dev) {
            let mut parts = Vec::new();
            parts.extend(l.read_iops.map(|n| format!("{n} reads/s")));
            parts.extend(l.read_bps.map(|n| format!("{:.1} MiB/s read", n as f64 / 1048576.0)));
            parts.extend(l.write_iops.map(|n| format!("{n} writes/s")));
            parts.extend(l.write_bps.map(|n| format!("{:.1} MiB/s written", n as f64 / 1048576.0)));
            out.push(format!("Control group {} limits {} to {}.", l.group, device_name(f, disk), parts.join(", ")));
        }
    }
}

fn checkpoint(f: &Facts<'_>, out: &mut Vec<String>) {
    let mut paths: Vec<&str> = f.at.roles.checkpoints.iter().filter_map(|ix| f.tl.path_of(f.tl.file(*ix)?)).collect();
    paths.sort_unstable();
    match paths.as_slice() {
        [] => {}
        [one] => out.push(format!("It was written to {one}.")),
        [first, .., last] => out.push(format!("It was written to {} files, from {first} to {last}.", paths.len())),
    }
}

fn starved(f: &Facts<'_>, totals: &Totals, out: &mut Vec<String>) {
    if let Some(WorkerTime { ran, queued, .. }) = f.worker_time() {
        out.push(format!(
            "Workers could run but had no CPU for {} of their time, and ran for {} (field 2 of /proc/PID/schedstat counts the same).",
            percent(queued),
            percent(ran)
        ));
    }
    let competitors = f.competitors(totals);
    let all: Nanos = competitors.iter().map(|(_, n)| *n).sum();
    let names: Vec<String> = competitors
        .iter()
        .take(3)
        .filter(|(_, n)| n.share_of(all) >= 0.05)
        .map(|(tid, n)| {
            let name = f.tl.name_of(*tid, f.tl.span.1).unwrap_or("unknown");
            let own = if f.tl.thread_at(*tid, f.tl.span.1).is_some() { ", of the job itself" } else { "" };
            format!("{name} (thread {tid}{own}) {}", percent(n.share_of(all)))
        })
        .collect();
    if !names.is_empty() {
        out.push(format!("Their CPU was taken by {}.", names.join(", ")));
    }
    let limits = &f.header.limits;
    if !limits.allowed_cpus.is_empty() && (limits.allowed_cpus.len() as u32) < f.header.cpus {
        out.push(format!(
            "The target may run on {} of {} CPUs only (taskset -p {} shows the mask).",
            limits.allowed_cpus.len(),
            f.header.cpus,
            f.header.target.pid
        ));
    }
    if let [first, .., last] = f.tl.host_inside() {
        for now in &last.cgroups {
            let Some(then) = first.cgroups.iter().find(|c| c.path == now.path) else { continue };
            if now.throttled_periods > then.throttled_periods {
                out.push(format!(
                    "Control group {} was throttled in {} periods, {} in all (cpu.stat), with a quota of {} CPUs.",
                    now.path,
                    now.throttled_periods - then.throttled_periods,
                    now.throttled - then.throttled,
                    now.quota_cpus.map_or("unknown".into(), |q| format!("{q:.1}")),
                ));
            }
        }
    }
}

fn preprocessing(f: &Facts<'_>, out: &mut Vec<String>) {
    let n = f.workers();
    match f.worker_time() {
        Some(WorkerTime { ran, queued, blocked, .. }) => out.push(format!(
            "{n} worker{} ran for {} of the time, waited for a CPU for {} and were blocked for {} (pidstat -t shows the same).",
            if n == 1 { "" } else { "s" },
            percent(ran),
            percent(queued),
            percent(blocked)
        )),
        None => out.push("There are no workers: the thread that feeds the GPU prepares the data itself.".into()),
    }
    images(f, if n == 0 { Role::Feeder } else { Role::Worker }, out);
}

fn images(f: &Facts<'_>, role: Role, out: &mut Vec<String>) {
    let hot: Vec<String> = f
        .hot_images(role)
        .into_iter()
        .take(3)
        .filter(|(_, share)| *share >= 0.05)
        .map(|(image, share)| format!("{image} {}", percent(share)))
        .collect();
    if !hot.is_empty() {
        out.push(format!("CPU time of {} went to {}.", who(role), hot.join(", ")));
    }
}

/// The system calls in which threads were blocked for a cause.
fn calls_of(f: &Facts<'_>, totals: &Totals, cause: Cause, out: &mut Vec<String>) {
    let mut calls: Vec<(i16, Role, Nanos)> = totals
        .details
        .iter()
        .filter(|(d, _)| d.cause == cause)
        .filter_map(|(d, n)| Some((d.syscall?.0, d.role, *n)))
        .collect();
    calls.sort_by_key(|(nr, role, n)| (std::cmp::Reverse(*n), *nr, *role));
    if let Some((nr, role, n)) = calls.first() {
        let subject = who(*role);
        let mut text = format!("{} of idle time: {subject} blocked in {}.", n, call_name(*nr));
        if let Some(first) = text.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        out.push(text);
    }
    let outsiders = f.outsiders(totals, cause);
    let all: Nanos = outsiders.iter().map(|(_, n)| *n).sum();
    let named: Vec<String> = outsiders
        .iter()
        .take(3)
        .filter(|(_, n)| n.share_of(all) >= 0.05)
        .map(|(tid, n)| {
            format!(
                "{} (thread {tid}) {}",
                f.tl.name_of(*tid, f.tl.span.1).unwrap_or("unknown"),
                percent(n.share_of(all))
            )
        })
        .collect();
    if !named.is_empty() {
        out.push(format!("These waits were ended from outside the job, by {}.", named.join(", ")));
    }
    if cause == Cause::Unknown && f.tl.lost().values().sum::<u64>() > 0 {
        out.push("Events were lost while recording, so that some waits have no record.".into());
    }
}

/// The device that a request on `dev` goes to: requests carry the whole disk's number, files their partition's.
pub fn whole_disk(f: &Facts<'_>, dev: DevId) -> DevId {
    let disk = |d: DevId| f.header.disks.iter().find(|b| b.dev == d);
    match disk(dev).and_then(|b| b.disk.as_ref()) {
        Some(parent) => f.header.disks.iter().find(|b| b.name == *parent).map_or(dev, |b| b.dev),
        None => dev,
    }
}

/// Name of a device.
pub fn device_name(f: &Facts<'_>, dev: DevId) -> String {
    f.header.disks.iter().find(|b| b.dev == dev).map_or_else(|| dev.to_string(), |b| b.name.clone())
}

/// Name and kind of the device or file system that `dev` stands for.
pub fn device_words(f: &Facts<'_>, dev: DevId) -> String {
    match f.header.disks.iter().find(|b| b.dev == dev) {
        Some(b) => format!("{} ({})", b.name, b.kind()),
        None => match f.header.mounts.iter().find(|m| m.dev == dev) {
            Some(m) => format!("{} ({})", m.source, m.fs_type),
            None => dev.to_string(),
        },
    }
}
