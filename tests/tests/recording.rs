//! The promises of a recording, through the public interface and real files: it is small, it says plainly what is wrong
//! with it, it survives crashes and full disks, and old ones stay readable.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use gpustall::events::{
    BlockOp, BlockRequest, CpuSample, Event, FileRef, ImageId, ImageName, Loss, LossKind, OffCpu, SleepState,
    Submitter, Syscall, Waker, Wakeup,
};
use gpustall::recording::{
    Batch, ClockReading, Cost, Damage, FORMAT_VERSION, Header, ReadError, Reader, Target, Trailer, WriteError, Writer,
};
use gpustall::units::{BootNs, DevId, MonoNs, Nanos, Pid, Tid, WallNs};
use gpustall_tests::synthetic::Job;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn trailer() -> Trailer {
    Trailer {
        ended: ClockReading { mono: MonoNs(9_000_000), ..ClockReading::default() },
        reason: "duration".to_owned(),
        command_status: None,
        cost: Cost::default(),
    }
}

/// All events of a recording, its closing block, and what is wrong with it.
fn read(path: &Path) -> (Vec<Event>, Option<Trailer>, Damage) {
    let mut reader = Reader::open(path).unwrap();
    let (mut events, mut trailer) = (Vec::new(), None);
    while let Some(batch) = reader.next_batch() {
        match batch {
            Batch::Trailer(t) => trailer = Some(t),
            other => events.extend(other.into_events()),
        }
    }
    (events, trailer, reader.damage().clone())
}

fn write(path: &Path, job: &mut Job, count: usize) -> Vec<Event> {
    let mut writer = Writer::create(path, &job.header(), false).unwrap();
    let events: Vec<Event> = job.take(count).map(Event::OffCpu).collect();
    for event in &events {
        writer.push(event.clone()).unwrap();
    }
    writer.finish(&trailer()).unwrap();
    events
}

#[test]
fn an_interval_takes_at_most_sixteen_bytes() {
    let folder = tempfile::tempdir().unwrap();
    // The second job has few workers: less than a full block a second, so that each is closed by the clock.
    for (name, workers, least_per_second) in [("many", 6, 10_000.0), ("few", 1, 2_000.0)] {
        let path = folder.path().join(name);
        let mut job = Job::new(7, workers, 16);
        let header = job.header();
        let mut writer = Writer::create(&path, &header, false).unwrap();
        let mut end = header.started.mono;
        for row in job.by_ref().take(100_000) {
            end = row.on;
            writer.tick(end).unwrap();
            writer.push(Event::OffCpu(row)).unwrap();
        }
        let written = writer.finish(&trailer()).unwrap();
        let per_second = 100_000.0 / end.since(header.started.mono).secs();
        assert!(per_second > least_per_second, "{name}: {per_second} a second");
        assert_eq!(written.bytes, fs::metadata(&path).unwrap().len());
        let each = written.bytes as f64 / 100_000.0;
        println!("{name}: {per_second:.0} intervals a second, {each:.2} bytes each");
        assert!(each < 12.0, "{name}: {each} bytes an interval");
    }
}

#[test]
fn what_is_pushed_is_in_the_file_within_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("crash.gpustall");
    let mut job = Job::new(3, 2, 4);
    let header = job.header();
    let mut writer = Writer::create(&path, &header, false).unwrap();
    let rows: Vec<OffCpu> = job.by_ref().take(50).collect();
    for row in &rows {
        writer.push(Event::OffCpu(*row)).unwrap();
    }
    let before = writer.bytes_written();
    // No time has to pass: the clock is the caller's.
    writer.tick(header.started.mono + Nanos::from_millis(1_000)).unwrap();
    while writer.bytes_written() == before {
        std::thread::yield_now();
    }
    // As a crash would leave it.
    let copy = folder.path().join("copy.gpustall");
    fs::copy(&path, &copy).unwrap();
    let (events, end, damage) = read(&copy);
    assert_eq!(events, rows.into_iter().map(Event::OffCpu).collect::<Vec<_>>());
    assert_eq!((end, damage), (None, Damage { missing_trailer: true, ..Damage::default() }));
}

#[test]
fn a_dropped_writer_keeps_what_it_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dropped.gpustall");
    let mut job = Job::new(3, 2, 4);
    let mut writer = Writer::create(&path, &job.header(), false).unwrap();
    for row in job.by_ref().take(9_000) {
        writer.push(Event::OffCpu(row)).unwrap();
    }
    drop(writer);
    let (events, _, damage) = read(&path);
    assert_eq!((events.len(), damage.missing_trailer), (9_000, true));
}

#[test]
fn a_truncated_recording_gives_all_that_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole.gpustall");
    let events = write(&path, &mut Job::new(5, 4, 8), 20_000);
    let bytes = fs::read(&path).unwrap();
    let cut = folder.path().join("cut.gpustall");
    let mut seen = Vec::new();
    for share in (1..=20).map(|i| i * bytes.len() / 20) {
        fs::write(&cut, &bytes[..share]).unwrap();
        let (got, end, damage) = read(&cut);
        assert_eq!(got, events[..got.len()]);
        assert_eq!(end.is_some(), share == bytes.len());
        assert_eq!(damage.is_none(), share == bytes.len());
        seen.push(got.len());
    }
    assert!(seen.is_sorted() && seen.contains(&8_192) && seen.contains(&16_384) && seen.contains(&20_000), "{seen:?}");
}

#[test]
fn a_flipped_bit_costs_one_block() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("whole.gpustall");
    let events = write(&path, &mut Job::new(5, 4, 8), 30_000);
    let mut bytes = fs::read(&path).unwrap();
    // In the second block of 8,192.
    let at = bytes.len() * 2 / 5;
    bytes[at] ^= 4;
    fs::write(&path, &bytes).unwrap();
    let (got, end, damage) = read(&path);
    assert_eq!(got, [&events[..8_192], &events[16_384..]].concat());
    assert!(end.is_some());
    assert_eq!(damage.lost_blocks, 1);
    assert!(damage.skipped_bytes > 10_000);
    let sentences = damage.sentences();
    assert!(sentences.len() == 1 && sentences[0].starts_with("1 block is damaged or missing"), "{sentences:?}");
}

#[test]
fn what_is_no_recording_is_told_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let open = |content: &[u8]| {
        fs::write(&path, content).unwrap();
        Reader::open(&path).map(|_| ()).unwrap_err()
    };
    assert_eq!(open(b""), ReadError::Empty { path: path.clone() });
    assert_eq!(open(b"{\"traceEvents\":[]}"), ReadError::Foreign { path: path.clone() });
    assert_eq!(open(&[0; 100]), ReadError::Foreign { path: path.clone() });
    assert_eq!(open(b"GPU"), ReadError::HeaderDamaged { path: path.clone() });
    let good = fs::read(golden()).unwrap();
    assert_eq!(open(&good[..100]), ReadError::HeaderDamaged { path: path.clone() });
    let missing = folder.path().join("missing");
    assert_eq!(Reader::open(&missing).unwrap_err(), ReadError::NotFound { path: missing });
    let dir = folder.path().to_owned();
    assert_eq!(Reader::open(&dir).unwrap_err(), ReadError::IsFolder { path: dir });
}

#[test]
fn a_file_that_cannot_be_made_is_told_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let header = Job::new(1, 1, 1).header();
    let path = folder.path().join("there");
    fs::write(&path, "precious").unwrap();
    let create = |path: &Path| Writer::create(path, &header, false).map(|_| ()).unwrap_err();
    assert_eq!(create(&path), WriteError::Exists { path: path.clone() });
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    let deep = folder.path().join("no/such/folder");
    assert_eq!(create(&deep), WriteError::NoFolder { path: deep });
    let dir = folder.path().to_owned();
    assert_eq!(create(&dir), WriteError::IsFolder { path: dir });
    // Root may write everywhere but here.
    let nowhere = PathBuf::from("/proc/version");
    assert!(Writer::create(&nowhere, &header, true).is_err());

    Writer::create(&path, &header, true).unwrap().finish(&trailer()).unwrap();
    assert_eq!(read(&path), (Vec::new(), Some(trailer()), Damage::default()));
}

/// Pushes until it fails; the number of intervals pushed, and the error.
fn fill(path: &Path) -> (usize, WriteError) {
    let mut job = Job::new(2, 4, 8);
    let mut writer = Writer::create(path, &job.header(), false).unwrap();
    for (pushed, row) in job.by_ref().take(2_000_000).enumerate() {
        if let Err(error) = writer.push(Event::OffCpu(row)) {
            // It stays an error, and ending the recording says the same.
            assert_eq!(writer.tick(row.on), Err(error.clone()));
            assert_eq!(writer.finish(&trailer()), Err(error.clone()));
            return (pushed, error);
        }
    }
    panic!("the disk never filled");
}

fn check_kept(path: &Path, pushed: usize, written: u64) {
    assert_eq!(fs::metadata(path).unwrap().len(), written);
    let (events, end, damage) = read(path);
    assert!(events.len() >= 8_192 && events.len() <= pushed, "{} of {pushed}", events.len());
    let expected: Vec<Event> = Job::new(2, 4, 8).take(events.len()).map(Event::OffCpu).collect();
    assert_eq!(events, expected);
    assert_eq!((end, damage), (None, Damage { missing_trailer: true, ..Damage::default() }));
}

/// Detaches the mount also when the test fails.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn on_a_full_disk_all_that_was_written_stays_readable() {
    let folder = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(folder.path()).status();
    assert!(mounted.is_ok_and(|s| s.success()), "mounting a tmpfs needs root: run the tests with cargo xtask test");
    let mount = Mount(folder.path().to_owned());
    let path = mount.0.join("full.gpustall");
    let (pushed, error) = fill(&path);
    let WriteError::Full { written, .. } = &error else { panic!("{error}") };
    check_kept(&path, pushed, *written);
    assert!(error.to_string().contains("its disk is full"), "{error}");
    // Not even the header fits: nothing is left behind.
    fs::write(mount.0.join("ballast"), vec![0; (1 << 20) - 4_096]).unwrap_err();
    let next = mount.0.join("next.gpustall");
    let error = Writer::create(&next, &Job::new(1, 1, 1).header(), false).map(|_| ()).unwrap_err();
    assert!(matches!(error, WriteError::Full { written: 0, .. }), "{error}");
    assert!(!next.exists());
}

#[test]
fn at_a_file_size_limit_all_that_was_written_stays_readable() {
    // The limit holds for a whole process, so this test runs itself again in one of its own.
    const PATH: &str = "GPUSTALL_TEST_FILE_SIZE_LIMIT";
    if let Ok(path) = std::env::var(PATH) {
        let (pushed, error) = fill(Path::new(&path));
        let WriteError::TooLarge { written, .. } = error else { panic!("{error}") };
        println!("kept {pushed} {written}.");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limited.gpustall");
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "--nocapture", "at_a_file_size_limit_all_that_was_written_stays_readable"]).env(PATH, &path);
    // SAFETY: setrlimit is async-signal-safe, and the structure is valid for the call.
    unsafe {
        again.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 500_000, rlim_max: 500_000 };
            match libc::setrlimit(libc::RLIMIT_FSIZE, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    let output = again.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{:?}: {text}", output.status);
    let line = text.lines().find_map(|l| l.split_once("kept ").map(|(_, rest)| rest)).expect("the child's numbers");
    let (pushed, written) = line.trim_end_matches('.').split_once(' ').unwrap();
    check_kept(&path, pushed.parse().unwrap(), written.parse().unwrap());
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/version-1.gpustall")
}

/// What the recording `data/version-1.gpustall` holds.
fn golden_content() -> (Header, Vec<Event>, Trailer) {
    let started =
        ClockReading { mono: MonoNs(5_000_000_000), wall: WallNs(1_700_000_000_000_000_000), boot: BootNs(6) };
    let header = Header {
        written_by: "0.1.0".to_owned(),
        started,
        host: "example".to_owned(),
        kernel: "6.18.0".to_owned(),
        cpus: 2,
        target: Target { pid: Pid(700), command: "python3 train.py".to_owned() },
        probes: Vec::new(),
        gpu_note: Some("no NVIDIA driver".to_owned()),
        sample_hz: 250,
        opens: "sampled".to_owned(),
        mounts: Vec::new(),
        disks: Vec::new(),
        limits: Default::default(),
    };
    let disk = DevId { major: 8, minor: 1 };
    let file = FileRef { ino: 131, dev: disk, rdev: DevId::default(), magic: 0xef53, mode: 0o100_644 };
    let wait = OffCpu {
        tid: Tid(701),
        pid: Pid(700),
        cpu: 1,
        off: MonoNs(5_000_100_000),
        wakeup: Some(Wakeup { at: MonoNs(5_000_400_000), by: Waker::Interrupt }),
        on: MonoNs(5_000_404_000),
        state: SleepState::Uninterruptible,
        iowait: true,
        syscall: Syscall(0),
        arg0: 9,
        file: Some(file),
        next_tid: Tid(0),
        prev_tid: Tid(0),
        seeded: false,
        pending: false,
    };
    let lock = OffCpu {
        tid: Tid(700),
        off: MonoNs(5_000_050_000),
        wakeup: Some(Wakeup {
            at: MonoNs(5_000_500_000),
            by: Waker::Thread { tid: Tid(701), pid: Pid(700), syscall: Syscall(202) },
        }),
        on: MonoNs(5_000_506_000),
        state: SleepState::Interruptible,
        iowait: false,
        syscall: Syscall(202),
        arg0: 0x7f00_0040,
        file: None,
        next_tid: Tid(701),
        ..wait
    };
    let again = OffCpu {
        off: MonoNs(5_000_420_000),
        wakeup: Some(Wakeup { at: MonoNs(5_000_700_000), by: Waker::Interrupt }),
        on: MonoNs(5_000_703_000),
        ..wait
    };
    let events = vec![
        Event::OffCpu(wait),
        Event::OffCpu(lock),
        Event::OffCpu(again),
        Event::CpuSample(CpuSample {
            time: MonoNs(5_004_000_000),
            tid: Tid(701),
            pid: Pid(700),
            cpu: 1,
            syscall: Syscall::NONE,
            user_ip: 0x7f11_2233_4455,
            image: ImageId(1),
            file: None,
        }),
        Event::Block(BlockRequest {
            dev: DevId { major: 8, minor: 0 },
            op: BlockOp::Read,
            bytes: 131_072,
            sector: 2_048,
            start: Some(MonoNs(5_000_110_000)),
            issue: MonoNs(5_000_112_000),
            complete: MonoNs(5_000_399_000),
            submitter: Submitter::Target { tid: Tid(701), pid: Pid(700) },
        }),
        Event::ImageName(ImageName { id: ImageId(1), path: "/usr/lib/libjpeg.so.62".to_owned() }),
        Event::Loss(Loss { time: MonoNs(5_900_000_000), kind: LossKind::Block, count: 2 }),
    ];
    let trailer = Trailer {
        ended: ClockReading { mono: MonoNs(6_000_000_000), ..started },
        reason: "interrupted".to_owned(),
        command_status: None,
        cost: Cost { intervals_emitted: 3, ..Cost::default() },
    };
    (header, events, trailer)
}

#[test]
fn a_recording_of_version_1_stays_readable() {
    let (header, events, trailer) = golden_content();
    assert_eq!(Reader::open(&golden()).unwrap().header(), &header);
    assert_eq!(read(&golden()), (events, Some(trailer), Damage::default()));
}

/// Makes `data/version-1.gpustall`. Only for version 1 before its release: after that the file must never change.
#[test]
#[ignore = "makes the file that the other tests read"]
fn make_the_recording_of_version_1() {
    assert_eq!(FORMAT_VERSION, 1);
    let (header, events, trailer) = golden_content();
    let mut writer = Writer::create(&golden(), &header, true).unwrap();
    for event in events {
        writer.push(event).unwrap();
    }
    writer.finish(&trailer).unwrap();
}

/// The worked example in docs/recording-format.md is the off-CPU block of that file.
#[test]
fn the_documented_bytes_are_those_of_the_recording_of_version_1() {
    let bytes = fs::read(golden()).unwrap();
    let marker = [0xf7, b'G', b'S', 0xb1];
    let blocks: Vec<usize> = (0..bytes.len() - 52).filter(|&i| bytes[i..].starts_with(&marker)).collect();
    let start = *blocks.iter().find(|&&i| bytes[i + 4] == 3).unwrap();
    let stored = u32::from_le_bytes(bytes[start + 24..start + 28].try_into().unwrap()) as usize;
    let dump = |bytes: &[u8]| {
        let line = |(i, chunk): (usize, &[u8])| {
            let hex: Vec<String> = chunk.iter().map(|b| format!("{b:02x}")).collect();
            format!("{:04x}  {}\n", 16 * i, hex.join(" "))
        };
        bytes.chunks(16).enumerate().map(line).collect::<String>()
    };
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/recording-format.md");
    let docs = fs::read_to_string(docs).unwrap();
    for part in [&bytes[..16], &bytes[start..start + 52 + stored]] {
        assert!(docs.contains(&dump(part)), "docs/recording-format.md should show\n{}", dump(part));
    }
}
