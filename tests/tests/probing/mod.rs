//! Runs one behaviour of `gpustall-test-thread` under the real kernel programs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(dead_code, reason = "each test file uses its own part")]

use gpustall::events::{Event, Loss, LossKind, OffCpu, TaskEvent};
use gpustall::probe::{Cost, Options, Probe};
use gpustall::units::{MonoNs, Pid, Tid};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A workload that runs, and has said that it is ready.
pub struct Workload {
    pub child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Lines that it has said, by their first word.
    pub said: HashMap<String, Vec<Vec<u64>>>,
}

impl Workload {
    /// Starts it and waits until it is ready.
    pub fn start(args: &[&str]) -> Workload {
        let mut child = Command::new(env!("CARGO_BIN_EXE_gpustall-test-thread"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut w = Workload { child, input, output, said: HashMap::new() };
        while !w.said.contains_key("ready") {
            assert!(w.hear(), "{args:?} ended before it was ready");
        }
        w
    }

    pub fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    /// Tells it to go on.
    pub fn go(&mut self) {
        self.input.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Takes one line; false at the end.
    pub fn hear(&mut self) -> bool {
        let mut line = String::new();
        if self.output.read_line(&mut line).unwrap() == 0 {
            return false;
        }
        let mut words = line.split_ascii_whitespace();
        if let Some(name) = words.next() {
            let values = words.map(|w| w.parse().unwrap()).collect();
            self.said.entry(name.to_owned()).or_default().push(values);
        }
        true
    }

    pub fn hear_until(&mut self, name: &str) {
        while !self.said.contains_key(name) {
            assert!(self.hear(), "ended without saying {name:?}");
        }
    }

    /// The values of the only line of this name.
    pub fn value(&self, name: &str) -> &[u64] {
        match self.said.get(name).map(Vec::as_slice) {
            Some([one]) => one,
            other => panic!("{name}: {other:?}"),
        }
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What was traced.
pub struct Trace {
    pub events: Vec<Event>,
    pub cost: Cost,
}

impl Trace {
    pub fn off_cpu(&self) -> impl Iterator<Item = &OffCpu> {
        self.events.iter().filter_map(|e| if let Event::OffCpu(o) = e { Some(o) } else { None })
    }

    /// Intervals of one thread, by start.
    pub fn of(&self, tid: Tid) -> Vec<&OffCpu> {
        let mut of: Vec<_> = self.off_cpu().filter(|o| o.tid == tid).collect();
        of.sort_by_key(|o| o.off);
        of
    }

    pub fn tasks(&self) -> impl Iterator<Item = &TaskEvent> {
        self.events.iter().filter_map(|e| if let Event::Task(t) = e { Some(t) } else { None })
    }

    pub fn losses(&self) -> impl Iterator<Item = &Loss> {
        self.events.iter().filter_map(|e| if let Event::Loss(l) = e { Some(l) } else { None })
    }

    pub fn lost(&self, kind: LossKind) -> u64 {
        self.losses().filter(|l| l.kind == kind).map(|l| l.count).sum()
    }

    /// Checks that nothing was lost, and gives the number of intervals whose end was not seen: on the kernels of some
    /// virtual machines a switch away from the threads of the machine's own agent is not traced, not by ftrace either.
    pub fn assert_whole(&self) -> usize {
        let others: Vec<_> = self.losses().filter(|l| l.kind != LossKind::BadInterval).collect();
        assert_eq!(others, [] as [&Loss; 0]);
        self.lost(LossKind::BadInterval) as usize
    }
}

/// Attaches with small rings, so that tests can run side by side. Fails where the kernel programs cannot run: these tests
/// are worth nothing without them.
pub fn attach(pid: Pid) -> Probe {
    let options = Options { events_ring_bytes: 1 << 20, rare_ring_bytes: 1 << 18, ..Options::new(pid) };
    Probe::attach(&options).unwrap_or_else(|e| panic!("these tests need root and a kernel with BTF: {e}"))
}

/// Traces a behaviour from start to end.
pub fn trace(args: &[&str]) -> (Workload, Trace) {
    let mut w = Workload::start(args);
    let mut probe = attach(w.pid());
    w.go();
    let trace = finish(&mut w, &mut probe);
    (w, trace)
}

/// Drains until the workload ends.
pub fn finish(w: &mut Workload, probe: &mut Probe) -> Trace {
    let mut events = Vec::new();
    let give_up = Instant::now() + Duration::from_secs(60);
    while probe.target_alive() {
        assert!(Instant::now() < give_up, "the workload does not end");
        probe.drain(&mut |e| events.push(e));
        probe.tick(MonoNs(0));
        std::thread::sleep(Duration::from_millis(5));
    }
    while w.hear() {}
    let cost = probe.stop(&mut |e| events.push(e));
    Trace { events, cost }
}
