//! Whose a GPU is: traces that name the processes of a GPU, recorded or not, and what the report says of it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails like the test")]

use gpustall::events::{
    CpuSample, Event, FileRef, GpuDevice, GpuProcess, GpuWindow, ImageId, ImageName, OffCpu, SleepState, Syscall,
    TaskEvent, TaskWhat, Waker, Wakeup,
};
use gpustall::recording::Target;
use gpustall::report::render;
use gpustall::units::{DevId, GpuIndex, MonoNs, Nanos, Pid, Tid};
use gpustall_tests::damage;
use gpustall_tests::recording::report;
use gpustall_tests::synthetic::Job;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;
use tempfile::TempDir;

const MS: u64 = 1_000_000;
/// Start of the recordings here, CLOCK_MONOTONIC.
const START: u64 = 3_600_000 * MS;

/// A recording of two processes for a second: 4000 waits for disk in every gap of its GPU, 4001 runs all the time.
struct Run {
    folder: TempDir,
    events: Vec<Event>,
}

impl Run {
    fn new() -> Run {
        let mut events = Vec::new();
        for n in [4000, 4001] {
            let what = TaskWhat::Found { parent: Pid(1) };
            let comm = "python3".to_owned();
            events.push(Event::Task(TaskEvent { time: MonoNs(START), tid: Tid(n), pid: Pid(n), what, comm }));
        }
        let dev = DevId { major: 259, minor: 2 };
        for k in 0..10 {
            let (off, on) = (MonoNs(START + (100 * k + 20) * MS), MonoNs(START + (100 * k + 90) * MS));
            events.push(Event::OffCpu(OffCpu {
                tid: Tid(4000),
                pid: Pid(4000),
                cpu: 0,
                off,
                wakeup: Some(Wakeup { at: on, by: Waker::Interrupt }),
                on,
                state: SleepState::Uninterruptible,
                iowait: true,
                syscall: Syscall(0),
                arg0: 3,
                file: Some(FileRef { ino: 7, dev, rdev: DevId::default(), magic: 0xef53, mode: 0o100_644 }),
                next_tid: Tid(0),
                prev_tid: Tid(0),
                seeded: false,
                pending: false,
            }));
        }
        Run { folder: tempfile::tempdir().unwrap(), events }
    }

    /// Samples of a process in libcuda.
    fn in_libcuda(mut self, pid: u32) -> Run {
        self.events.push(Event::ImageName(ImageName { id: ImageId(1), path: "/usr/lib/libcuda.so.1".to_owned() }));
        let sample = |k: u64| CpuSample {
            time: MonoNs(START + (100 * k + 5) * MS),
            tid: Tid(pid),
            pid: Pid(pid),
            cpu: 0,
            syscall: Syscall::NONE,
            user_ip: 0,
            image: ImageId(1),
            file: None,
        };
        self.events.extend((0..10).map(sample).map(Event::CpuSample));
        self
    }

    /// NVML lists a process on a GPU.
    fn listed(mut self, gpu: u32, pid: u32) -> Run {
        let on = GpuProcess { time: MonoNs(START), gpu: GpuIndex(gpu), pid: Pid(pid), memory_used: None };
        self.events.push(Event::GpuProcess(on));
        self
    }

    fn file(&self) -> PathBuf {
        let mut header = Job::new(1, 1, 2).header();
        if !self.events.iter().any(|e| matches!(e, Event::CpuSample(_))) {
            header.sample_hz = 0;
        }
        header.target = Target { pid: Pid(4000), command: "python3 train.py".to_owned() };
        let file = self.folder.path().join("run.gpustall");
        let end = MonoNs(START + 1_000 * MS);
        damage::write(&file, &header, &self.events, Some(end), Nanos(200 * MS)).unwrap();
        file
    }

    /// Its report, judged by a busy file in which these processes feed these GPUs: busy for 15 ms in each 100 ms.
    fn judged(&self, gpus: &[(u32, Option<u32>)]) -> Value {
        let mut text = String::new();
        for (gpu, pid) in gpus {
            let pid = pid.map_or(String::new(), |p| format!(", \"pid\": {p}"));
            for (t, busy) in (0..10).flat_map(|k| [(100 * k, true), (100 * k + 15, false)]) {
                let t = START + t * MS;
                writeln!(text, "{{\"t_ns\": {t}, \"gpu\": {gpu}, \"busy\": {busy}{pid}}}").unwrap();
            }
        }
        self.report(&text)
    }

    fn report(&self, trace: &str) -> Value {
        let path = self.folder.path().join("trace");
        std::fs::write(&path, trace).unwrap();
        report(&self.file(), &["--gpu-trace", path.to_str().unwrap()]).unwrap()
    }
}

fn share(causes: &Value, cause: &str) -> f64 {
    let all = causes.as_array().unwrap();
    all.iter().filter(|c| c["cause"] == cause).map(|c| c["share"].as_f64().unwrap()).sum()
}

/// The notes that tell of processes.
fn told(report: &Value) -> Vec<&str> {
    let notes = report["notes"].as_array().unwrap().iter().map(|n| n.as_str().unwrap());
    notes.filter(|n| n.contains(" recorded: ")).collect()
}

fn text(report: &Value) -> String {
    render(&serde_json::from_value(report.clone()).unwrap(), 400, false)
}

#[test]
fn a_recorded_process_explains_its_gpu_and_nothing_is_noted() {
    let r = Run::new().judged(&[(0, Some(4000)), (1, Some(4001))]);
    assert!(share(&r["gpus"][0]["causes"], "disk") > 0.7, "{:#}", r["gpus"][0]["causes"]);
    assert!(share(&r["gpus"][1]["causes"], "host_code") > 0.99, "{:#}", r["gpus"][1]["causes"]);
    assert_eq!((told(&r).len(), &r["gpus"][0]["of_job"]), (0, &json!(true)));
}

#[test]
fn a_gpu_whose_process_was_not_recorded_has_no_known_cause() {
    let r = Run::new().judged(&[(0, Some(77))]);
    let gpu = &r["gpus"][0];
    assert_eq!((&gpu["of_job"], share(&gpu["causes"], "unknown")), (&json!(false), 1.0), "{gpu:#}");
    assert_eq!(gpu["idle_s"].as_f64().unwrap(), 0.765, "that it was idle is known");
    let [note] = told(&r)[..] else { panic!("{:#}", r["notes"]) };
    assert_eq!(
        note,
        "The GPU trace says that process 77 feeds GPU 0, but only 4000 (python3) and 4001 (python3) were recorded: GPU 0 is taken \
         to work for another job, and why it was idle is unknown; record the process that feeds it, or give the trace of the job \
         that was recorded."
    );
    let summary =
        "GPU 0 was idle 84 % of 915 ms; why cannot be told, since process 77, which feeds it, was not recorded.";
    assert_eq!((&r["verdict"]["summary"], &r["verdict"]["bottleneck"]), (&json!(summary), &json!("none")));
    assert!(r["verdict"]["speedup_bound"].is_null());
    assert!(
        r["gaps"][0]["chain"][0]["what"] == "the process that feeds this GPU was not recorded",
        "{:#}",
        r["gaps"][0]
    );
    assert!(!r["threads"].as_array().unwrap().iter().any(|t| t["role"] == "feeder"), "{:#}", r["threads"]);
    let page = text(&r);
    assert!(page.starts_with(summary) && page.contains(note), "{page}");
}

#[test]
fn the_gpu_of_another_job_is_no_part_of_the_answer() {
    // One of two ranks was recorded.
    for both in [[(0, Some(77)), (1, Some(4000))], [(0, Some(4000)), (1, Some(77))]] {
        // What is seen in libcuda is at work on its own GPU.
        let r = Run::new().in_libcuda(4000).judged(&both);
        let ours = both.iter().position(|(_, pid)| *pid == Some(4000)).unwrap();
        let (ours, other) = (&r["gpus"][ours], &r["gpus"][1 - ours]);
        assert_eq!(share(&other["causes"], "unknown"), 1.0, "{other:#}");
        assert!(share(&ours["causes"], "disk") > 0.7, "{ours:#}");
        assert_eq!((&r["causes"], &r["verdict"]), (&ours["causes"], &ours["verdict"]));
        assert!(r["gaps"].as_array().unwrap().iter().all(|g| g["gpu"] == ours["index"]), "{:#}", r["gaps"]);
        assert_eq!(told(&r).len(), 1, "{:#}", r["notes"]);
    }
}

#[test]
fn process_ids_of_a_container_do_not_hide_the_job_and_are_told() {
    // Who drives a GPU is seen in libcuda, or listed by NVML.
    for run in [Run::new().in_libcuda(4000), Run::new().listed(0, 4000)] {
        let r = run.judged(&[(0, Some(77))]);
        let gpu = &r["gpus"][0];
        assert!(share(&gpu["causes"], "disk") > 0.7 && gpu["of_job"] == true, "{gpu:#}");
        let [note] = told(&r)[..] else { panic!("{:#}", r["notes"]) };
        assert_eq!(
            note,
            "The GPU trace says that process 77 feeds GPU 0, but only 4000 (python3) and 4001 (python3) were recorded: process 4000 \
             is taken for the feeder, since processes have other ids in a container; if GPU 0 worked for another job, its causes \
             are wrong."
        );
    }
}

#[test]
fn a_trace_that_names_no_process_is_explained_by_the_job() {
    // A trace may number GPUs as its process sees them: that NVML lists another job on this number says nothing.
    let r = Run::new().listed(0, 77).judged(&[(0, None)]);
    assert!(share(&r["gpus"][0]["causes"], "disk") > 0.7, "{:#}", r["gpus"][0]["causes"]);
    assert!(told(&r).is_empty(), "{:#}", r["notes"]);
}

#[test]
fn a_gpu_on_which_nvml_lists_others_alone_is_theirs() {
    let mut run = Run::new().listed(0, 4000).listed(1, 77).in_libcuda(4000);
    for gpu in 0..2 {
        run.events.push(Event::GpuDevice(GpuDevice {
            gpu: GpuIndex(gpu),
            name: "made up".to_owned(),
            uuid: None,
            pci: None,
            memory_bytes: None,
            pcie_max: None,
            power_limit_mw: None,
        }));
        run.events.extend((0..5).map(|k| {
            let (start, end) = (MonoNs(START + 200 * k * MS), MonoNs(START + 200 * (k + 1) * MS));
            Event::GpuWindow(GpuWindow { gpu: GpuIndex(gpu), start, end, utilization: 20.0 })
        }));
    }
    let r = report(&run.file(), &[]).unwrap();
    let [ours, other] = [0, 1].map(|n| &r["gpus"][n]);
    assert!(share(&ours["causes"], "disk") > 0.7, "{ours:#}");
    assert_eq!((share(&other["causes"], "unknown"), &other["of_job"]), (1.0, &json!(false)));
    assert_eq!(r["verdict"], ours["verdict"]);
    let [note] = told(&r)[..] else { panic!("{:#}", r["notes"]) };
    assert!(note.starts_with("NVML lists process 77 on GPU 1, but only 4000 (python3) and 4001"), "{note}");
}

/// A trace of PyTorch's profiler, written by hand after what `libkineto/src/output_json.cpp` prints: process `pid` launches a
/// kernel of 15 ms on a device in each 100 ms.
fn profiler(pid: u32, device: u32) -> String {
    let mut text = format!(
        r#"{{"schemaVersion": 1, "deviceProperties": [{{"id": {device}, "name": "NVIDIA H200"}}], "distributedInfo": {{"backend": "nccl",
        "rank": 0, "world_size": 2}}, "displayTimeUnit": "ms", "baseTimeNanoseconds": 1700000000000000000, "traceEvents": [
        {{"name": "process_name", "ph": "M", "ts": 0.000, "pid": {pid}, "tid": 0, "args": {{"name": "python3"}}}},
        {{"name": "process_labels", "ph": "M", "ts": 0.000, "pid": {pid}, "tid": 0, "args": {{"labels": "CPU"}}}},
        {{"name": "process_labels", "ph": "M", "ts": 0.000, "pid": {device}, "tid": 0, "args": {{"labels": "GPU {device}"}}}},"#
    );
    for k in 0..10 {
        let (op, call, work) = (100_000 * k + 10, 100_000 * k + 12, 100_000 * k + 20);
        writeln!(
            text,
            r#"{{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": {pid}, "tid": {pid}, "ts": {op}.000, "dur": 40.000, "args": {{"External id": {k}}}}},
            {{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": {pid}, "tid": {pid}, "ts": {call}.000, "dur": 5.000,
              "args": {{"External id": {k}, "cbid": 211, "correlation": {k}}}}},
            {{"ph": "s", "id": {k}, "pid": {pid}, "tid": {pid}, "ts": {call}.000, "cat": "ac2g", "name": "ac2g"}},
            {{"ph": "X", "cat": "kernel", "name": "sgemm", "pid": {device}, "tid": 7, "ts": {work}.000, "dur": 15000.000,
              "args": {{"External id": {k}, "device": {device}, "context": 1, "stream": 7, "correlation": {k}}}}},
            {{"ph": "f", "id": {k}, "pid": {device}, "tid": 7, "ts": {work}.000, "cat": "ac2g", "name": "ac2g", "bp": "e"}},"#
        )
        .unwrap();
    }
    text + r#"{"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 990000.000}], "traceName": "t.json"}"#
}

#[test]
fn a_profilers_trace_is_explained_by_the_process_that_wrote_it() {
    // NVML lists the other one, too; what the trace says comes first.
    let run = Run::new().listed(0, 4000);
    let r = run.report(&profiler(4001, 0));
    assert!(share(&r["gpus"][0]["causes"], "host_code") > 0.99, "{:#}", r["gpus"][0]["causes"]);
    let r = Run::new().in_libcuda(4001).report(&profiler(4000, 0));
    assert!(share(&r["gpus"][0]["causes"], "disk") > 0.7, "{:#}", r["gpus"][0]["causes"]);
    assert!(told(&r).is_empty(), "{:#}", r["notes"]);
    // Written in a container.
    let r = run.report(&profiler(17, 0));
    assert!(share(&r["gpus"][0]["causes"], "disk") > 0.7, "{:#}", r["gpus"][0]["causes"]);
    assert!(
        told(&r)[0]
            .contains("process 17 feeds GPU 0, but only 4000 (python3) and 4001 (python3) were recorded: process 4000")
    );

    // Each rank wrote its own.
    let paths = [(4000, 0), (4001, 1)].map(|(pid, device)| {
        let path = run.folder.path().join(format!("rank{device}.json"));
        std::fs::write(&path, profiler(pid, device)).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let r = report(&run.file(), &["--gpu-trace", &paths[0], "--gpu-trace", &paths[1]]).unwrap();
    assert!(share(&r["gpus"][0]["causes"], "disk") > 0.7, "{:#}", r["gpus"][0]["causes"]);
    assert!(share(&r["gpus"][1]["causes"], "host_code") > 0.99, "{:#}", r["gpus"][1]["causes"]);
}
