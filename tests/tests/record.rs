//! `gpustall record` as a person or a script meets it: how recordings end, how commands are launched, and what is said
//! when something is wrong. Needs root.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails like the test")]

use gpustall::events::{Event, TaskWhat};
use gpustall::recording::{Batch, Reader};
use gpustall::units::Pid;
use gpustall_tests::process::ChildGuard;
use gpustall_tests::recording::{Recording, command, one_sentence, report, run, stderr, whole};
use gpustall_tests::tmpfs::Tmpfs;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Nobody.
const NOBODY: u32 = 65_534;

/// A process that sleeps and wakes, lightly.
fn worker() -> ChildGuard {
    ChildGuard::spawn(Command::new("sh").args(["-c", "while :; do sleep 0.02; done"]).stdin(Stdio::null())).unwrap()
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("r.gpustall")
    }

    fn is_empty(&self) -> bool {
        fs::read_dir(self.0.path()).unwrap().next().is_none()
    }
}

fn attach(pid: Pid, file: &Path) -> Command {
    let mut c = command(["record", "--no-gpu", "--pid", &pid.to_string(), "-o"]).unwrap();
    c.arg(file);
    c
}

/// A quiet `record … -- COMMAND`.
fn launch<S: AsRef<OsStr>>(file: &Path, words: impl IntoIterator<Item = S>) -> Command {
    let mut c = command(["record", "--no-gpu", "--quiet", "-o"]).unwrap();
    c.arg(file).arg("--").args(words);
    c
}

/// The recording is whole, ended for this reason, and there is a report of it.
fn assert_whole(file: &Path, reason: &str, said: &str) {
    let (_, trailer) = whole(file).unwrap_or_else(|e| panic!("{e:#}; {said}"));
    assert_eq!(trailer.reason, reason, "{said}");
    let json = report(file, &[]).unwrap_or_else(|e| panic!("{e:#}; {said}"));
    assert_eq!(json["recording"]["complete"], true, "{json:#}\n{said}");
    assert_eq!(gpustall_tests::lost::dropped(&json), 0, "{said}");
}

#[test]
fn a_recording_ends_by_its_duration() {
    let (target, folder) = (worker(), Folder::new());
    let output = attach(target.pid(), &folder.file()).args(["--duration", "700ms"]).output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success() && output.stdout.is_empty(), "{said}");
    assert!(said.contains("gpustall report "), "{said}");
    // Without a terminal there is no line that is written over.
    assert!(!said.contains('\r') && !said.contains('\u{1b}'), "{said:?}");
    assert_whole(&folder.file(), "duration", &said);
    let seconds = report(&folder.file(), &[]).unwrap()["recording"]["duration_s"].as_f64().unwrap();
    assert!((0.7..10.0).contains(&seconds), "{seconds}");
}

fn ends_by(signal: i32, reason: &str, ignored: bool) {
    let (target, folder) = (worker(), Folder::new());
    let mut c = attach(target.pid(), &folder.file());
    // SAFETY: signal is async-signal-safe.
    unsafe {
        c.pre_exec(move || {
            // The tests themselves may run under nohup, which a recorder heeds.
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            if ignored {
                // As a shell without job control starts what is put in the background.
                libc::signal(libc::SIGINT, libc::SIG_IGN);
            }
            Ok(())
        });
    }
    let mut recording = Recording::start(&mut c).unwrap();
    recording.signal(signal).unwrap();
    let (status, said) = recording.wait().unwrap();
    assert!(status.success(), "{status}: {said}");
    assert_whole(&folder.file(), reason, &said);
}

#[test]
fn a_recording_ends_by_ctrl_c() {
    ends_by(libc::SIGINT, "interrupted", false);
}

#[test]
fn a_recording_ends_by_sigint_though_its_shell_ignores_that() {
    ends_by(libc::SIGINT, "interrupted", true);
}

#[test]
fn a_recording_ends_when_its_terminal_is_closed() {
    ends_by(libc::SIGHUP, "hung up", false);
}

#[test]
fn a_recording_ends_by_sigterm() {
    ends_by(libc::SIGTERM, "terminated", false);
}

#[test]
fn a_recording_ends_with_its_target() {
    let (target, folder) = (worker(), Folder::new());
    let mut recording = Recording::start(&mut attach(target.pid(), &folder.file())).unwrap();
    drop(target);
    let (status, said) = recording.wait().unwrap();
    assert!(status.success(), "{status}: {said}");
    assert_whole(&folder.file(), "target exited", &said);
}

#[test]
fn a_recording_goes_on_when_nobody_reads_its_messages() {
    let (target, folder) = (worker(), Folder::new());
    let mut c = attach(target.pid(), &folder.file());
    let mut child = c.args(["--duration", "200ms"]).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert!(child.wait().unwrap().success());
    assert_whole(&folder.file(), "duration", "");
}

#[test]
fn a_killed_recorder_leaves_a_recording() {
    let (target, folder) = (worker(), Folder::new());
    let mut recording = Recording::start(&mut attach(target.pid(), &folder.file())).unwrap();
    // At most the last second may be missing.
    std::thread::sleep(Duration::from_millis(2_500));
    recording.signal(libc::SIGKILL).unwrap();
    let (_, said) = recording.wait().unwrap();
    for part in [&[][..], &["--from", "100ms"]] {
        let json = report(&folder.file(), part).unwrap_or_else(|e| panic!("{e:#}; {said}"));
        assert_eq!(json["recording"]["complete"], false, "{json:#}");
        assert!(json["notes"].to_string().contains("not ended cleanly"), "{}", json["notes"]);
        let seconds = json["recording"]["duration_s"].as_f64().unwrap();
        assert!((if part.is_empty() { 1.0..60.0 } else { 0.9..60.0 }).contains(&seconds), "{}", json["recording"]);
    }
}

#[test]
fn a_terminal_shows_a_status_line() {
    let (target, folder) = (worker(), Folder::new());
    // `script` gives the command a terminal of its own.
    let line = format!(
        "{} record --no-gpu --pid {} -o {} --duration 1s",
        gpustall_tests::binary::gpustall().unwrap().display(),
        target.pid(),
        folder.file().display()
    );
    let output = Command::new("script").args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains(" events · 0 lost") && shown.contains("\r\u{1b}[K"), "{shown:?}");
    assert_whole(&folder.file(), "duration", &shown);
}

#[test]
fn a_command_passes_its_exit_status_on() {
    for (script, status, told) in [("exit 0", 0, Some(0)), ("exit 3", 3, Some(3)), ("kill -KILL $$", 137, None)] {
        let folder = Folder::new();
        let output = launch(&folder.file(), ["sh", "-c", script]).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{script}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{script}");
        assert_whole(&folder.file(), "target exited", script);
        assert_eq!(whole(&folder.file()).unwrap().1.command_status, told, "{script}");
    }
}

#[test]
fn the_streams_of_a_command_are_untouched() {
    let folder = Folder::new();
    let bytes: Vec<u8> = (0..=255u8).cycle().take(100_000).collect();
    let mut c = launch(&folder.file(), ["sh", "-c", "cat; printf '\\001\\377\\r' >&2"]);
    let mut child = c.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut input, sent) = (child.stdin.take().unwrap(), bytes.clone());
    let writer = std::thread::spawn(move || input.write_all(&sent));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(output.stdout == bytes, "{} bytes came back, not {}", output.stdout.len(), bytes.len());
    assert_eq!(output.stderr, b"\x01\xff\r");
}

#[test]
fn a_command_keeps_the_descriptors_that_it_was_given() {
    let folder = Folder::new();
    let mut c = Command::new("sh");
    c.arg("-c").arg(r#"exec "$0" record --no-gpu -q -o "$1" -- sh -c 'echo three >&3; ls /proc/self/fd' 3>&1"#);
    let output = c.arg(gpustall_tests::binary::gpustall().unwrap()).arg(folder.file()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.starts_with("three\n"), "{said} {}", stderr(&output));
    // The last one is the folder that `ls` reads. Others may come from whoever runs the tests.
    let direct = Command::new("sh").args(["-c", "ls /proc/self/fd 3>&1"]).output().unwrap();
    assert_eq!(said.trim_start_matches("three\n"), String::from_utf8_lossy(&direct.stdout));
}

#[test]
fn a_command_that_cannot_be_run_says_so_once() {
    let folder = Folder::new();
    let said = one_sentence(&launch(&folder.file(), ["no-such-command-4711"]).output().unwrap(), 127).unwrap();
    assert!(said.contains("no-such-command-4711"), "{said}");
    assert!(folder.is_empty());
    let plain = tempfile::NamedTempFile::new().unwrap();
    let said = one_sentence(&launch(&folder.file(), [plain.path()]).output().unwrap(), 126).unwrap();
    assert!(said.contains(plain.path().to_str().unwrap()), "{said}");
    assert!(folder.is_empty());
}

#[test]
fn a_command_is_traced_from_its_first_instruction() {
    let folder = Folder::new();
    let output = launch(&folder.file(), ["sh", "-c", "echo $$; sleep 0.05; sleep 0.05"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let pid = Pid(String::from_utf8_lossy(&output.stdout).trim().parse().unwrap());
    let (batches, trailer) = whole(&folder.file()).unwrap();
    let header = Reader::open(&folder.file()).unwrap().header().clone();
    assert_eq!(header.target.pid, pid);
    assert_eq!(header.target.command, "sh -c echo $$; sleep 0.05; sleep 0.05");
    let events: Vec<&Event> = batches.iter().flat_map(|b| if let Batch::Other(e) = b { &e[..] } else { &[] }).collect();
    let execs = events.iter().filter(|e| matches!(e, Event::Task(t) if matches!(t.what, TaskWhat::Exec { .. })));
    // The command itself, and what it started.
    let of: Vec<Pid> = execs.map(|e| if let Event::Task(t) = e { t.pid } else { Pid(0) }).collect();
    assert!(of.first() == Some(&pid) && of.len() == 3, "{of:?}");
    let intervals: Vec<_> = batches.iter().flat_map(|b| if let Batch::OffCpu(o) = b { &o[..] } else { &[] }).collect();
    // It waited for each of the two.
    let waited = intervals.iter().filter(|o| o.tid.0 == pid.0 && o.on.since(o.off).0 > 40_000_000).count();
    assert!(waited >= 2, "{intervals:?}");
    assert_eq!(trailer.command_status, Some(0));
}

#[test]
fn a_command_runs_as_the_user_who_called_sudo() {
    let folder = Folder::new();
    let mut c = launch(&folder.file(), ["sh", "-c", "id -u; id -g; id -G"]);
    let output = c.env("SUDO_UID", "65534").env("SUDO_GID", "65534").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "65534\n65534\n65534\n", "{}", stderr(&output));
    let owner = fs::metadata(folder.file()).unwrap();
    assert_eq!((owner.uid(), owner.gid()), (NOBODY, NOBODY));
}

#[test]
fn sigterm_ends_the_command_too() {
    let folder = Folder::new();
    let mut c = command(["record", "--no-gpu", "-o"]).unwrap();
    c.arg(folder.file()).args(["--", "sleep", "600"]);
    let mut recording = Recording::start(&mut c).unwrap();
    recording.signal(libc::SIGTERM).unwrap();
    let (status, said) = recording.wait().unwrap();
    assert_eq!(status.code(), Some(128 + libc::SIGTERM), "{said}");
    assert_whole(&folder.file(), "terminated", &said);
}

#[test]
fn a_command_outlives_its_recording_and_can_still_be_ended() {
    let folder = Folder::new();
    let mut c = command(["record", "--no-gpu", "--duration", "100ms", "-o"]).unwrap();
    c.arg(folder.file()).args(["--", "sleep", "600"]);
    let mut recording = Recording::start(&mut c).unwrap();
    let start = Instant::now();
    while whole(&folder.file()).is_err() {
        assert!(start.elapsed() < Duration::from_secs(20), "the recording does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    recording.signal(libc::SIGTERM).unwrap();
    let (status, said) = recording.wait().unwrap();
    assert_eq!(status.code(), Some(128 + libc::SIGTERM), "{said}");
    assert_whole(&folder.file(), "duration", &said);
}

/// `record --pid PID -o FILE` is refused in one sentence, which is given back, and leaves no file.
fn refused(pid: &str) -> String {
    let folder = Folder::new();
    let mut c = command(["record", "--no-gpu", "--pid", pid, "-o"]).unwrap();
    let said = one_sentence(&c.arg(folder.file()).output().unwrap(), 1).unwrap();
    assert!(folder.is_empty(), "{said}");
    said
}

#[test]
fn processes_that_cannot_be_traced_are_refused() {
    // Above the kernel's limit for ids in use here, so that it is nobody's.
    let said = refused("4194304");
    assert!(said.contains("no process") && said.contains("4194304"), "{said}");
    assert!(refused("2").contains("kernel thread"));
    let (send, recv) = std::sync::mpsc::channel();
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        // SAFETY: no arguments.
        send.send(unsafe { libc::gettid() }).unwrap();
        wait.recv().unwrap_err();
    });
    let said = refused(&recv.recv().unwrap().to_string());
    assert!(said.contains(&format!("--pid {}", std::process::id())), "{said}");
    drop(end);
    thread.join().unwrap();
}

#[test]
fn gpustall_does_not_trace_itself() {
    let folder = Folder::new();
    let mut c = Command::new("sh");
    c.args(["-c", r#"exec "$0" record --no-gpu --pid $$ -o "$1""#]);
    let output = c.arg(gpustall_tests::binary::gpustall().unwrap()).arg(folder.file()).output().unwrap();
    assert!(one_sentence(&output, 1).unwrap().contains("itself"));
    assert!(folder.is_empty());
}

#[test]
fn a_zombie_is_no_target() {
    let mut child = ChildGuard::spawn(&mut Command::new("true")).unwrap();
    let stat = format!("/proc/{}/stat", child.pid());
    while !fs::read_to_string(&stat).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    let said = refused(&child.pid().to_string());
    assert!(said.contains("ended"), "{said}");
    child.0.wait().unwrap();
}

#[test]
fn a_process_that_dies_during_the_start_is_told_or_recorded() {
    for ms in [0, 10, 40, 100, 200, 400] {
        let folder = Folder::new();
        let seconds = format!("{}", f64::from(ms) / 1e3);
        let mut child = Command::new("sleep").arg(seconds).spawn().unwrap();
        let mut c = attach(Pid(child.id()), &folder.file());
        let recorder = c.stderr(Stdio::piped()).spawn().unwrap();
        child.wait().unwrap();
        let output = recorder.wait_with_output().unwrap();
        if output.status.success() {
            assert_whole(&folder.file(), "target exited", &stderr(&output));
        } else {
            let said = one_sentence(&output, 1).unwrap();
            assert!(said.contains("ended before") || said.contains("no process"), "{said}");
            assert!(folder.is_empty(), "{said}");
        }
    }
}

#[test]
fn wrong_usage_is_one_sentence() {
    for args in [
        &["record"][..],
        &["record", "--"],
        &["record", "--pid", "0"],
        &["record", "--pid", "-5"],
        &["record", "--pid", "python"],
        &["record", "--pid", "99999999999999"],
        &["record", "--pid", "1", "--", "true"],
        &["record", "--pid", "1", "--duration", "0"],
        &["record", "--pid", "1", "--duration", "soon"],
        &["record", "--pid", "1", "--opens", "some"],
        &["record", "--pid", "1", "--durations", "5s"],
        &["recrod"],
    ] {
        let output = run(args).unwrap();
        let said = one_sentence(&output, 2).unwrap_or_else(|e| panic!("{args:?}: {e:#}"));
        assert!(output.stdout.is_empty() && said.len() < 300, "{said}");
    }
}

#[test]
fn without_permission_it_says_to_use_sudo() {
    let folder = Folder::new();
    // Where nobody can reach it.
    let program = folder.0.path().join("gpustall");
    fs::copy(gpustall_tests::binary::gpustall().unwrap(), &program).unwrap();
    fs::set_permissions(folder.0.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let target = ChildGuard::spawn(Command::new("sleep").arg("600").uid(NOBODY).gid(NOBODY)).unwrap();
    let mut c = Command::new(&program);
    c.args(["record", "--pid", &target.pid().to_string(), "-o"]).arg(folder.file()).uid(NOBODY).gid(NOBODY);
    let said = one_sentence(&c.output().unwrap(), 1).unwrap();
    assert!(said.contains("sudo"), "{said}");
    let mut c = Command::new(&program);
    c.args(["record", "-o"]).arg(folder.file()).args(["--", "echo", "ran"]).uid(NOBODY).gid(NOBODY);
    let output = c.output().unwrap();
    assert!(one_sentence(&output, 1).unwrap().contains("sudo"));
    assert!(output.stdout.is_empty(), "the command ran without its recording");
    assert!(!folder.file().exists());
}

#[test]
fn an_existing_file_is_kept_unless_it_may_be_replaced() {
    let (target, folder) = (worker(), Folder::new());
    fs::write(folder.file(), "precious").unwrap();
    let said = one_sentence(&attach(target.pid(), &folder.file()).output().unwrap(), 1).unwrap();
    assert!(said.contains("exists"), "{said}");
    assert_eq!(fs::read(folder.file()).unwrap(), b"precious");
    let mut c = attach(target.pid(), &folder.file());
    let output = c.args(["--overwrite", "--duration", "200ms"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_whole(&folder.file(), "duration", &stderr(&output));
}

#[test]
fn a_file_that_cannot_be_made_is_told_before_the_command_runs() {
    let folder = Folder::new();
    let read_only = Tmpfs::mount("ro").unwrap();
    let places = [
        (folder.0.path().join("none/r.gpustall"), "mkdir"),
        (folder.0.path().to_owned(), "folder"),
        (read_only.path().join("r.gpustall"), "may write"),
    ];
    for (place, hint) in places {
        let output = launch(&place, ["echo", "ran"]).output().unwrap();
        let said = one_sentence(&output, 1).unwrap();
        assert!(said.contains(hint) && said.contains(place.to_str().unwrap()), "{said}");
        assert!(output.stdout.is_empty(), "the command ran without its recording: {said}");
        let target = ChildGuard::sleeper().unwrap();
        let said = one_sentence(&attach(target.pid(), &place).output().unwrap(), 1).unwrap();
        assert!(said.contains(place.to_str().unwrap()), "{said}");
    }
    assert!(folder.is_empty());
}

/// Starts programs until told to stop: much to record in little time.
const NOISE: &str = "while [ -z \"$(cat \"$0\")\" ]; do /bin/true; done; echo done; exit 7";

#[test]
fn a_full_disk_keeps_what_was_recorded_and_lets_the_command_go_on() {
    let disk = Tmpfs::mount("size=1m").unwrap();
    // So that little fills it.
    fs::write(disk.path().join("filler"), vec![1u8; 940 << 10]).unwrap();
    let (folder, file) = (Folder::new(), disk.path().join("r.gpustall"));
    let stop = folder.0.path().join("stop");
    fs::write(&stop, "").unwrap();
    let mut c = command(["record", "--no-gpu", "-o"]).unwrap();
    c.arg(&file).args(["--", "sh", "-c", NOISE]).arg(&stop).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = c.spawn().unwrap();
    let start = Instant::now();
    // The recorder detaches when its disk is full: its probe is gone with its descriptors for perf events and programs.
    let descriptors = || {
        let all = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
        all.filter(|d| {
            d.as_ref().is_ok_and(|d| fs::read_link(d.path()).is_ok_and(|l| l.to_string_lossy().contains("bpf")))
        })
        .count()
    };
    while descriptors() == 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "nothing is attached");
        std::thread::sleep(Duration::from_millis(5));
    }
    while descriptors() > 0 {
        assert!(start.elapsed() < Duration::from_secs(90), "the disk does not fill");
        std::thread::sleep(Duration::from_millis(20));
    }
    fs::write(&stop, "stop").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(output.stdout, b"done\n", "the command did not go on to its end: {said}");
    let full: Vec<&str> = said.lines().filter(|l| l.contains("full")).collect();
    assert_eq!(full.len(), 1, "{said}");
    let json = report(&file, &[]).unwrap_or_else(|e| panic!("{e:#}; {said}"));
    assert_eq!(json["recording"]["complete"], false);
    assert!(json["threads"].as_array().unwrap().len() > 1, "{said}");
}

#[test]
fn a_full_disk_ends_the_recording_of_a_process_with_one_sentence() {
    let disk = Tmpfs::mount("size=1m").unwrap();
    fs::write(disk.path().join("filler"), vec![1u8; 980 << 10]).unwrap();
    let noise = ChildGuard::spawn(Command::new("sh").args(["-c", NOISE, "/dev/null"]).stdin(Stdio::null())).unwrap();
    let file = disk.path().join("r.gpustall");
    let output = attach(noise.pid(), &file).args(["--quiet", "--duration", "90s"]).output().unwrap();
    let said = one_sentence(&output, 1).unwrap();
    assert!(said.contains("full"), "{said}");
    let json = report(&file, &[]).unwrap();
    assert_eq!(json["recording"]["complete"], false);
    assert!(json["threads"].as_array().unwrap().len() > 1, "{json:#}");
}

#[test]
fn a_disk_without_room_for_the_beginning_leaves_no_file() {
    let disk = Tmpfs::mount("size=64k").unwrap();
    // What does not fit is the point.
    let _ = fs::write(disk.path().join("filler"), vec![1u8; 64 << 10]);
    let (target, file) = (worker(), disk.path().join("r.gpustall"));
    let said = one_sentence(&attach(target.pid(), &file).output().unwrap(), 1).unwrap();
    assert!(said.contains("full"), "{said}");
    assert!(!file.exists());
}

#[test]
fn a_missing_nvml_library_is_one_line_and_all_the_rest_is_recorded() {
    let (target, folder) = (worker(), Folder::new());
    let mut c = command(["record", "--pid", &target.pid().to_string(), "--duration", "300ms", "-o"]).unwrap();
    let output = c.arg(folder.file()).args(["--nvml-lib", "/nonexistent/libnvidia-ml.so.1"]).output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    let lines: Vec<&str> = said.lines().filter(|l| l.contains("/nonexistent/libnvidia-ml.so.1")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert_whole(&folder.file(), "duration", &said);
    let note = Reader::open(&folder.file()).unwrap().header().gpu_note.clone().unwrap();
    assert!(lines[0].ends_with(&note), "{note} in {said}");
    let json = report(&folder.file(), &[]).unwrap();
    assert!(json["notes"].as_array().unwrap().iter().any(|n| n.as_str() == Some(&note)), "{}", json["notes"]);
}

#[test]
fn a_pipe_is_no_place_for_a_recording_even_when_overwriting() {
    let (target, folder) = (worker(), Folder::new());
    let made = std::process::Command::new("mkfifo").arg(folder.file()).status().unwrap();
    assert!(made.success());
    let output = attach(target.pid(), &folder.file()).args(["--overwrite", "--duration", "1s"]).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("gpustall: ") && said.contains("no ordinary file") && said.lines().count() == 1, "{said}");
}
