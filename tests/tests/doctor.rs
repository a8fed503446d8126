//! `gpustall doctor` as a person or a script meets it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail the test; clippy's own exception covers #[test] functions only"
)]

use gpustall_tests::binary::gpustall;
use gpustall_tests::cgroup::CpuGroup;
use gpustall_tests::loopdev::Mounted;
use gpustall_tests::process::ChildGuard;
use gpustall_tests::standin_nvml;
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::Duration;

fn doctor(arguments: &[&str]) -> Output {
    Command::new(gpustall().unwrap()).arg("doctor").args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> (Value, Option<i32>) {
    let output = doctor(&[arguments, &["--json"]].concat());
    let value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
        panic!("{e} in {}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    });
    (value, output.status.code())
}

fn check<'a>(document: &'a Value, name: &str) -> &'a Value {
    let checks = document["checks"].as_array().unwrap();
    checks.iter().find(|c| c["name"] == name).unwrap_or_else(|| panic!("no check {name} in {document:#}"))
}

/// Names in the tables of docs/doctor.md: the first cell of each row, in backquotes.
fn documented() -> BTreeSet<String> {
    let text = include_str!("../../docs/doctor.md");
    let names = text.lines().filter_map(|l| l.strip_prefix("| `")?.split_once('`').map(|(name, _)| name.to_owned()));
    names.collect()
}

#[test]
fn every_documented_check_appears_and_no_other() {
    let target = ChildGuard::sleeper().unwrap();
    let (document, _) = json(&["--pid", &target.pid().to_string()]);
    let names: BTreeSet<String> =
        document["checks"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names, documented());

    let (document, _) = json(&[]);
    let without: BTreeSet<String> =
        document["checks"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap().to_owned()).collect();
    let expected: BTreeSet<String> = documented().into_iter().filter(|n| !n.starts_with("target")).collect();
    assert_eq!(without, expected);
    assert_eq!(document["pid"], Value::Null);
}

#[test]
fn levels_agree_with_the_exit_status() {
    let kernel_thread = "2";
    for arguments in [&[][..], &["--pid", kernel_thread][..]] {
        let (document, status) = json(arguments);
        assert_eq!(document["schema"], "gpustall.doctor/1");
        let checks = document["checks"].as_array().unwrap();
        let mut failures = 0;
        for check in checks {
            let level = check["level"].as_str().unwrap();
            assert!(["ok", "warning", "failure"].contains(&level), "{check}");
            assert!(!check["finding"].as_str().unwrap().is_empty(), "{check}");
            // What is wrong comes with what to do, and nothing else does.
            assert_eq!(check["advice"].is_string(), level != "ok", "{check}");
            failures += usize::from(level == "failure");
        }
        assert_eq!(status, Some(if failures == 0 { 0 } else { 1 }), "{document:#}");
        assert_eq!(document["ready"], failures == 0);
    }
    let (document, _) = json(&["--pid", kernel_thread]);
    assert_eq!(check(&document, "target")["level"], "failure", "pid 2 is kthreadd");
}

#[test]
fn text_and_json_say_the_same() {
    let text = String::from_utf8(doctor(&[]).stdout).unwrap();
    let (document, _) = json(&[]);
    for check in document["checks"].as_array().unwrap() {
        let (level, name) = (check["level"].as_str().unwrap(), check["name"].as_str().unwrap());
        let line = text.lines().find(|l| l.split_whitespace().take(2).eq([level, name]));
        assert!(line.is_some(), "no line `{level} {name}` in\n{text}");
    }
    assert!(!text.contains('\x1b'), "no colours in a pipe");
}

#[test]
fn a_quota_on_the_target_is_a_warning_that_names_it() {
    let target = ChildGuard::sleeper().unwrap();
    let pid = target.pid().to_string();
    // A container around the tests may have a quota of its own.
    let before = gpustall::host::limits(target.pid()).quota_cpus;
    let (document, _) = json(&["--pid", &pid]);
    assert_eq!(check(&document, "target_quota")["level"], if before.is_some() { "warning" } else { "ok" });

    let group = CpuGroup::with_quota(Duration::from_millis(75), Duration::from_millis(100)).unwrap();
    group.add(target.pid()).unwrap();
    let (document, _) = json(&["--pid", &pid]);
    let quota = check(&document, "target_quota");
    assert_eq!(quota["level"], "warning");
    assert!(quota["finding"].as_str().unwrap().contains("0.75 CPUs"), "{quota}");
}

#[test]
fn the_file_system_of_the_target_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let target = ChildGuard::spawn(Command::new("sleep").arg("600").current_dir(dir.path())).unwrap();
    let (document, _) = json(&["--pid", &target.pid().to_string()]);
    let files = check(&document, "target_files");
    let mounts = gpustall::host::mounts(target.pid()).unwrap();
    let holding = mounts.iter().filter(|m| dir.path().starts_with(&m.point)).max_by_key(|m| m.point.len()).unwrap();
    let finding = files["finding"].as_str().unwrap();
    assert!(finding.contains(&format!("{} at {}", holding.fs_type, holding.point)), "{finding} / {holding:?}");
}

#[test]
fn a_pid_of_nobody_is_one_sentence() {
    let mut child = ChildGuard::sleeper().unwrap();
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    for extra in [&[][..], &["--json"][..]] {
        let output = doctor(&[&["--pid", &child.pid().to_string()], extra].concat());
        let words = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words}");
        assert!(words.starts_with(&format!("gpustall: no process has pid {}", child.pid())), "{words}");
        assert_eq!(words.lines().count(), 1, "{words}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_zombie_and_a_thread_are_told_apart_from_a_process() {
    let mut zombie = ChildGuard::sleeper().unwrap();
    zombie.0.kill().unwrap();
    let path = format!("/proc/{}/stat", zombie.pid());
    // Killed, but not collected; it takes a moment to die.
    while !std::fs::read_to_string(&path).unwrap().contains(") Z ") {
        std::thread::yield_now();
    }
    let (document, status) = json(&["--pid", &zombie.pid().to_string()]);
    assert_eq!(status, Some(1));
    assert!(check(&document, "target")["finding"].as_str().unwrap().contains("has ended"), "{document:#}");

    // Tests run in threads of their own.
    // SAFETY: plain system call without arguments.
    let tid = unsafe { libc::gettid() };
    let (document, status) = json(&["--pid", &tid.to_string()]);
    assert_eq!(status, Some(1));
    let advice = check(&document, "target")["advice"].as_str().unwrap();
    assert!(advice.contains(&format!("--pid {}", std::process::id())), "{advice}");
}

#[test]
fn wrong_usage_has_its_own_status() {
    for arguments in [&["--pid", "0"][..], &["--pid", "python"], &["--pid"], &["--no-such-flag"], &["stray"]] {
        let output = doctor(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}

#[test]
fn the_disk_under_the_files_of_the_target_is_marked() {
    let mounted = Mounted::new(8 << 20).unwrap();
    let (point, image) = (mounted.path().display().to_string(), mounted.device().image().display().to_string());
    let name = mounted.device().path().trim_start_matches("/dev/");
    // Open through a descriptor alone; the working directory lies elsewhere.
    let file = std::fs::File::create(mounted.path().join("data.bin")).unwrap();
    let target = ChildGuard::spawn(Command::new("sleep").arg("600").stdin(file)).unwrap();

    let (document, _) = json(&["--pid", &target.pid().to_string()]);
    let findings = |check: &str| -> Vec<String> {
        let checks = document["checks"].as_array().unwrap().iter().filter(|c| c["name"] == check);
        checks.map(|c| c["finding"].as_str().unwrap().to_owned()).collect()
    };
    let files = format!("1 file on ext4 at {point} (such as {point}/data.bin): disk {name}");
    assert!(findings("target_files").contains(&files), "{files} / {:#?}", findings("target_files"));
    let disks = findings("disk");
    let disk = disks.iter().find(|f| f.starts_with(&format!("{name}: loop device on {image}"))).expect("a line for it");
    assert!(disk.ends_with("; holds files of the target"), "{disk}");

    drop(target);
    let other = ChildGuard::sleeper().unwrap();
    let (document, _) = json(&["--pid", &other.pid().to_string()]);
    let checks = document["checks"].as_array().unwrap().iter().filter(|c| c["name"] == "disk");
    let disk = checks.map(|c| c["finding"].as_str().unwrap()).find(|f| f.starts_with(&format!("{name}: "))).unwrap();
    assert!(!disk.contains("holds files"), "{disk}");
}

#[test]
fn gpus_are_counted_by_the_library_that_was_asked_for() {
    let library = standin_nvml();
    let run = |gpus: &str| -> Value {
        let mut command = Command::new(gpustall().unwrap());
        command.args(["doctor", "--json", "--nvml-lib"]).arg(&library);
        command.env("GPUSTALL_STANDIN_GPUS", gpus);
        serde_json::from_slice(&command.output().unwrap().stdout).unwrap()
    };
    let two = run("2");
    let nvml = check(&two, "nvml");
    assert_eq!(nvml["level"], "ok", "{nvml}");
    assert!(nvml["finding"].as_str().unwrap().ends_with("1 × Simulated GPU 0, 1 × Simulated GPU 1"), "{nvml}");
    let none = run("0");
    let nvml = check(&none, "nvml");
    assert_eq!(nvml["level"], "warning", "{nvml}");
    assert!(nvml["finding"].as_str().unwrap().contains("no GPU"), "{nvml}");
}

#[test]
fn a_library_that_is_not_nvml_is_a_warning_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join("libnvidia-ml.so.1");
    std::fs::write(&library, "not a library").unwrap();
    let (document, _) = json(&["--nvml-lib", library.to_str().unwrap()]);
    let nvml = check(&document, "nvml");
    assert_eq!(nvml["level"], "warning");
    assert!(nvml["finding"].as_str().unwrap().contains(library.to_str().unwrap()), "{nvml}");
}

#[test]
fn without_privileges_it_says_so_and_does_not_stop() {
    // A copy, since the build folder may lie where only root may look.
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let binary = dir.path().join("gpustall");
    std::fs::copy(gpustall().unwrap(), &binary).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"])
        .arg(&binary)
        .current_dir("/")
        .args(["doctor", "--json"])
        .output()
        .unwrap();
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(output.status.code(), Some(1));
    let privileges = check(&document, "privileges");
    assert_eq!(privileges["level"], "failure");
    assert!(privileges["advice"].as_str().unwrap().contains("sudo"));
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let script = format!("{} doctor | head -1", gpustall().unwrap().display());
    let output = Command::new("bash").args(["-o", "pipefail", "-c", &script]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout.iter().filter(|b| **b == b'\n').count(), 1);
}
