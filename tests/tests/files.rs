//! Opens with their paths and results, paths of calls that block, and names of files that threads blocked on.

use anyhow::{Context, Result};
use gpustall::events::{Event, FileOpen, NamedFile, SleepState, Syscall};
use gpustall::probe::OpenMode;
use gpustall::recording::Batch;
use gpustall_tests::binary::gpustall;
use gpustall_tests::loopdev::Mounted;
use gpustall_tests::recording::whole;
use gpustall_tests::traced::{Traced, traced};
use std::os::unix::fs::MetadataExt;
use std::process::Command;

const WORKLOAD: &str = env!("CARGO_BIN_EXE_io-workload");

fn opens(t: &Traced) -> Vec<&FileOpen> {
    t.events.iter().filter_map(|e| if let Event::Open(o) = e { Some(o) } else { None }).collect()
}

fn named(t: &Traced) -> Vec<&NamedFile> {
    t.events.iter().filter_map(|e| if let Event::NamedFile(n) = e { Some(n) } else { None }).collect()
}

#[test]
fn opens_carry_path_flags_result_and_latency() -> Result<()> {
    let dir = tempfile::TempDir::new()?;
    let present = dir.path().join("present");
    std::fs::write(&present, b"x")?;
    let present = present.to_string_lossy().into_owned();
    let absent = dir.path().join("absent").to_string_lossy().into_owned();
    let long = format!("{}/{}", dir.path().display(), "d/".repeat(300));
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOATIME;
    let args = ["open", &flags.to_string(), &present, &absent, &long];
    let t = traced(WORKLOAD, &args, |o| o.opens = OpenMode::All)?;
    assert_eq!(t.opens, "all", "{:?}", t.status);
    let seen: Vec<_> = opens(&t).into_iter().filter(|o| o.path.starts_with(&*dir.path().to_string_lossy())).collect();
    assert_eq!(seen.len(), 3, "{seen:#?}");
    for (i, (open, path)) in seen.iter().zip([&present, &absent, &long]).enumerate() {
        let outcome = open.outcome.context("seen through the open probe")?;
        let said = &t.facts["opened"][i];
        assert_eq!(Some(i64::from(outcome.result)), said["result"].as_i64());
        assert!(outcome.latency.0 > 0 && Some(outcome.latency.0) < said["ns"].as_u64(), "{open:?} {said}");
        assert_eq!(outcome.flags, flags as u32);
        assert_eq!((open.pid, open.syscall.0), (t.pid, 257));
        // 255 bytes and a NUL.
        assert_eq!(open.path, path[..path.len().min(255)]);
    }
    assert_eq!(seen[1].outcome.map(|o| o.result), Some(-libc::ENOENT));
    Ok(())
}

#[test]
fn a_sampled_recording_begins_with_a_burst_and_off_means_off() -> Result<()> {
    let args = ["open", "0", "/etc/hostname"];
    let seen = |mode| -> Result<_> {
        let t = traced(WORKLOAD, &args, |o| o.opens = mode)?;
        Ok((opens(&t).iter().filter(|o| o.outcome.is_some()).count(), t.opens))
    };
    assert!(matches!(seen(OpenMode::Sampled)?, (1, "sampled" | "all")));
    assert_eq!(seen(OpenMode::Off)?, (0, "off"));
    Ok(())
}

#[test]
fn a_call_that_waits_for_the_disk_tells_its_path() -> Result<()> {
    let disk = Mounted::new(64 << 20)?;
    let file = disk.cold_file("class/cold.jpg", 4096)?.to_string_lossy().into_owned();
    for args in [vec!["stat", &file], vec!["open", "0", &file]] {
        disk.cool()?;
        let t = traced(WORKLOAD, &args, |o| o.opens = OpenMode::Off)?;
        let blocked: Vec<_> = opens(&t).into_iter().filter(|o| o.path == file).collect();
        assert!(!blocked.is_empty(), "{args:?} did not block: {:#?}", t.events);
        for open in blocked {
            assert!(open.outcome.is_none());
            // Its time is that of the interval it belongs to.
            let interval = t.events.iter().find_map(|e| match e {
                Event::OffCpu(o) if o.tid == open.tid && o.off == open.time => Some(o),
                _ => None,
            });
            let interval = interval.context("no interval begins when the call blocked")?;
            assert_eq!((interval.state, interval.syscall), (SleepState::Uninterruptible, open.syscall));
        }
    }
    Ok(())
}

#[test]
fn a_file_that_a_thread_waited_on_is_named_once() -> Result<()> {
    let disk = Mounted::new(64 << 20)?;
    let file = disk.cold_file("train/n01440764/cold.jpg", 1 << 20)?;
    disk.cool()?;
    let t = traced(WORKLOAD, &["cold-read", &file.to_string_lossy()], |_| {})?;
    let ino = std::fs::metadata(&file)?.ino();
    let found: Vec<_> = named(&t).into_iter().filter(|n| n.file.ino == ino).collect();
    assert_eq!(found.len(), 1, "{:#?}", named(&t));
    assert_eq!(found[0].path, file.to_string_lossy());
    let waits = t.events.iter().filter(|e| matches!(e, Event::OffCpu(o) if o.file == Some(found[0].file)));
    assert!(waits.count() >= 1);
    Ok(())
}

#[test]
fn a_page_fault_tells_the_mapped_file() -> Result<()> {
    let disk = Mounted::new(64 << 20)?;
    let file = disk.cold_file("train/packed.bin", 4 << 20)?;
    disk.cool()?;
    let t = traced(WORKLOAD, &["map", &file.to_string_lossy()], |_| {})?;
    let ino = std::fs::metadata(&file)?.ino();
    let found: Vec<_> = named(&t).into_iter().filter(|n| n.file.ino == ino).collect();
    assert_eq!(found.len(), 1, "{:#?}", named(&t));
    assert_eq!(found[0].path, file.to_string_lossy());
    let faults = t.events.iter().filter(|e| {
        matches!(e, Event::OffCpu(o) if o.tid.0 as u64 == t.fact("tid").unwrap_or(0)
            && o.syscall == Syscall::NONE && o.iowait && o.file == Some(found[0].file))
    });
    // A few looks find their page read ahead, or still warm.
    let (faults, looks) = (faults.count(), t.fact("looks")? as usize);
    assert!(faults >= looks / 2 && faults <= looks, "{faults} of {looks}");
    Ok(())
}

#[test]
fn opens_are_recorded_where_tracefs_is_not_mounted() -> Result<()> {
    let dir = tempfile::TempDir::new()?;
    let recording = dir.path().join("r.gpustall");
    // In a mount namespace of its own, as in a container.
    let script = format!(
        "while umount /sys/kernel/tracing 2>/dev/null; do :; done; umount /sys/kernel/debug/tracing 2>/dev/null
        grep -q ' tracefs ' /proc/self/mounts && exit 9
        {} record --no-gpu --quiet -o {} -- cat /etc/hostname",
        gpustall()?.display(),
        recording.display()
    );
    let ran = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output()?;
    assert!(ran.status.success(), "{ran:?}");
    let (batches, _) = whole(&recording)?;
    let events = batches.iter().flat_map(|b| if let Batch::Other(e) = b { &e[..] } else { &[] });
    let opened = events.filter(|e| matches!(e, Event::Open(o) if o.path == "/etc/hostname" && o.outcome.is_some()));
    assert!(opened.count() >= 1, "no open of /etc/hostname was recorded; {ran:?}");
    Ok(())
}
