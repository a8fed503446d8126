//! What a report says of a damaged recording is still right. Real jobs whose truth is known, and recordings of them from which more
//! and more is missing: no cause gets a larger share than it had, and what is not known any more is `unknown`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper of a test fails like the test")]

use gpustall::attribution::Cause;
use gpustall::events::Event;
use gpustall::recording::Header;
use gpustall::report::{Options, Report, of_file};
use gpustall::units::Nanos;
use gpustall_tests::damage::{self, Damage};
use gpustall_tests::lab::account::Account;
use gpustall_tests::lab::judge::EXACT_POINTS;
use gpustall_tests::lab::score::{Score, score};
use gpustall_tests::lab::{run, scenarios};
use std::path::PathBuf;

/// Single records that are missing here and there, twenty times as many as the switches that Linux 6.18 was seen not to trace. Waits
/// shorter than a thread takes to be sampled twice then pass as work.
const MISSED: f64 = 0.02;

/// A job's recording, and the truth about the job.
struct Job {
    name: &'static str,
    folder: tempfile::TempDir,
    header: Header,
    events: Vec<Event>,
    truth: Score,
}

impl Job {
    fn run(name: &'static str) -> Job {
        let scenario = scenarios::all().into_iter().find(|s| s.name == name).unwrap();
        if let Some(why) = (scenario.missing)() {
            panic!("{name} cannot run here: {why}");
        }
        let folder = tempfile::tempdir().unwrap();
        run::run(&scenario, 3.0, Some(folder.path())).unwrap();
        let account = Account::read(&folder.path().join("busy"), &folder.path().join("truth")).unwrap();
        let truth = score(&account, scenario.rows).unwrap();
        let (header, events) = damage::read(&folder.path().join("job.gpustall")).unwrap();
        Job { name, folder, header, events, truth }
    }

    fn busy(&self) -> PathBuf {
        self.folder.path().join("busy")
    }

    /// The report of these events.
    fn report(&self, events: &[Event]) -> Report {
        let file = self.folder.path().join("damaged.gpustall");
        damage::write(&file, &self.header, events, None, Nanos(50_000_000)).unwrap();
        of_file(&file, &Options { gpu_trace: vec![self.busy()], ..Options::default() }).unwrap()
    }

    fn damaged(&self, kind: Damage, share: f64, cut: f64, seed: u64) -> Report {
        let (mut events, mut rng) = (self.events.clone(), fastrand::Rng::with_seed(seed));
        kind.apply_to(share, cut, &mut events, &mut rng);
        self.report(&events)
    }

    /// No known cause has more of the idle time than it had. Returns the share of what is unknown.
    fn holds(&self, whole: &Report, report: &Report, what: &str) -> f64 {
        let before = |cause: Cause| {
            let told = whole.causes.iter().find(|c| c.cause == cause);
            100.0 * told.map_or(0.0, |c| c.share).max(self.truth.share(cause.name()))
        };
        let mut unknown = 0.0;
        for told in &report.causes {
            let share = 100.0 * told.share;
            if told.cause == Cause::Unknown {
                unknown = share;
                continue;
            }
            let was = before(told.cause);
            assert!(
                share <= was + EXACT_POINTS,
                "{}, {what}: {share:.1} % are told as {}, and {was:.1} % are; {:?}",
                self.name,
                told.cause.name(),
                report.causes
            );
        }
        unknown
    }
}

/// Of each family one: a chain through pipes to a disk, PyTorch's threads and processes, a socket, a checkpoint.
fn jobs() -> Vec<Job> {
    ["disk+preprocessing+host-code", "torch-fork", "data-over-tcp", "checkpoint-slow-disk"].map(Job::run).into()
}

#[test]
fn what_is_missing_is_unknown_and_nothing_else() {
    for job in jobs() {
        let whole = job.report(&job.events);
        for seed in 0..4 {
            for (kind, share) in [
                (Damage::LostInBursts, 0.1),
                (Damage::LostInBursts, 0.3),
                (Damage::Dropped, MISSED),
                (Damage::WakesMissing, 0.05),
                (Damage::WakesMissing, 0.3),
                (Damage::Vanished, 0.0),
                (Damage::StartedLater, 0.0),
                (Damage::StrangeProcesses, 0.0),
            ] {
                let cut = 0.5 + 0.1 * seed as f64;
                let what = format!("{kind:?} {share} {cut:.1} seed {seed}");
                let report = job.damaged(kind, share, cut, seed);
                let unknown = job.holds(&whole, &report, &what);
                let later = kind == Damage::StartedLater;
                assert!(!later || unknown > 20.0 * cut, "{}, {what}: only {unknown:.1} % unknown", job.name);
                assert!(
                    report.recording.lost_events == 0
                        || report.notes.iter().any(|n| n.contains("were lost") || n.contains("were left out")),
                    "{:?}",
                    report.notes
                );
            }
        }
    }
}

#[test]
fn the_order_of_records_does_not_matter_nor_whether_some_are_there_twice() {
    for job in jobs() {
        let whole = job.report(&job.events);
        for kind in [Damage::Shuffled, Damage::Jumbled, Damage::Repeated] {
            let damaged = job.damaged(kind, 0.3, 0.5, 1);
            assert_eq!(whole.causes, damaged.causes, "{}, {kind:?}", job.name);
            assert_eq!(whole.verdict.bottleneck, damaged.verdict.bottleneck, "{}, {kind:?}", job.name);
        }
    }
}

#[test]
fn ids_that_are_used_again_are_other_processes() {
    let job = Job::run("torch-new-workers");
    let whole = job.report(&job.events);
    let mut events = job.events.clone();
    let reused = damage::reuse_ids(&mut events);
    assert!(reused > 8, "only {reused} processes got ids that were used before");
    let again = job.report(&events);
    assert_eq!(whole.causes, again.causes);
    job.holds(&whole, &again, "ids reused");
    assert_eq!(whole.gaps.len(), again.gaps.len());
}
