//! Threads by role, and the few that waited most.

use super::page::{Look, Page, number, text};
use crate::report::words::{count, millis, percent, seconds};
use crate::report::{Report, ThreadReport};
use std::collections::BTreeMap;

/// Roles shown.
const ROLES: usize = 7;
/// Single threads shown.
const WORST: usize = 5;

/// Threads of one role together.
#[derive(Default)]
struct Role {
    threads: u64,
    alive: f64,
    running: f64,
    run_queue: f64,
    disk: f64,
    blocked: f64,
    waits: BTreeMap<String, f64>,
}

impl Role {
    fn add(&mut self, t: &ThreadReport) {
        self.threads += 1;
        self.alive += t.alive_s;
        self.running += t.running_s;
        self.run_queue += t.runqueue_s;
        self.disk += t.disk_s;
        self.blocked += t.blocked_s;
        if let Some(w) = &t.top_wait {
            *self.waits.entry(w.syscall.clone()).or_insert(0.0) += w.seconds;
        }
    }
}

pub(super) fn write(page: &mut Page, report: &Report) {
    if report.threads.is_empty() {
        return;
    }
    let mut roles: BTreeMap<&str, Role> = BTreeMap::new();
    for t in &report.threads {
        roles.entry(&t.role).or_default().add(t);
    }
    let mut roles: Vec<(&str, Role)> = roles.into_iter().collect();
    let weight = |r: &Role| r.running + r.run_queue + r.disk;
    roles.sort_by(|a, b| weight(&b.1).total_cmp(&weight(&a.1)));
    page.title("Threads by role (seconds summed over threads)");
    let rows: Vec<Vec<String>> = roles.iter().take(ROLES).map(|(name, r)| role_row(name, r)).collect();
    let columns = [
        text("role"),
        number("threads"),
        number("running"),
        number("no CPU"),
        number("disk"),
        number("other waits"),
        number("running/life").optional(2),
        text("waits most in").optional(1),
    ];
    page.table(&columns, &rows);
    if let Some(more) = roles.len().checked_sub(ROLES).filter(|n| *n > 0) {
        page.paragraph(Look::Quiet, &format!("  … and {} more roles with --json", count(more as u64)));
    }
    worst(page, report);
}

fn role_row(name: &str, r: &Role) -> Vec<String> {
    let wait = r.waits.iter().max_by(|a, b| a.1.total_cmp(b.1));
    vec![
        if name.is_empty() { "other".to_owned() } else { name.replace('_', "-") },
        count(r.threads),
        seconds(r.running),
        seconds(r.run_queue),
        seconds(r.disk),
        seconds((r.blocked - r.disk).max(0.0)),
        if r.alive > 0.0 { percent(r.running / r.alive) } else { String::new() },
        wait.map(|(call, s)| format!("{call} {}", seconds(*s))).unwrap_or_default(),
    ]
}

/// The threads that lost most time to disk and run queue.
fn worst(page: &mut Page, report: &Report) {
    let lost = |t: &ThreadReport| t.disk_s + t.runqueue_s;
    let mut threads: Vec<&ThreadReport> = report.threads.iter().filter(|t| lost(t) > 0.0).collect();
    threads.sort_by(|a, b| lost(b).total_cmp(&lost(a)).then(a.tid.cmp(&b.tid)));
    if report.threads.len() < 2 || threads.is_empty() {
        return;
    }
    page.title("Threads that lost most to disk and to a missing CPU");
    let rows: Vec<Vec<String>> = threads
        .iter()
        .take(WORST)
        .map(|t| {
            vec![
                t.tid.to_string(),
                t.pid.to_string(),
                t.comm.clone(),
                t.role.replace('_', "-"),
                seconds(t.disk_s),
                seconds(t.runqueue_s),
                millis(t.max_runqueue_ms),
                seconds(t.running_s),
                seconds(t.alive_s),
            ]
        })
        .collect();
    let columns = [
        number("tid"),
        number("pid").optional(2),
        text("name").flexible(),
        text("role"),
        number("disk"),
        number("no CPU"),
        number("longest").optional(1),
        number("running"),
        number("alive").optional(3),
    ];
    page.table(&columns, &rows);
}
