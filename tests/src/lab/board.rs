//! The scoreboard.

use super::judge::{Judgement, Points, Row};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Causes below this many points in truth and report are left out.
const SMALL: f64 = 0.5;

/// One run: truth and both reports side by side, then what is below the mark.
pub fn run(row: &Row) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}: GPU idle {:.0} % in {} gaps{}",
        row.scenario,
        row.idle,
        row.gaps,
        if row.dropped > 0 { format!(", {} events dropped", row.dropped) } else { String::new() }
    );
    let header = row.judgements.iter().map(|j| format!("{:>8}", j.evidence)).collect::<String>();
    let _ = writeln!(text, "  {:<18}{:>8}{header}", "", "truth");
    let all = || row.judgements.iter().map(|j| &j.reported).chain([&row.truth]);
    let names: BTreeSet<&String> = all().flat_map(Points::keys).collect();
    let share = |points: &Points, name: &String| points.get(name).copied().unwrap_or(0.0);
    for name in names {
        if all().any(|points| share(points, name) >= SMALL) {
            let reported =
                row.judgements.iter().map(|j| format!("{:>8.1}", share(&j.reported, name))).collect::<String>();
            let _ = writeln!(text, "  {name:<18}{:>8.1}{reported}", share(&row.truth, name));
        }
    }
    for judged in &row.judgements {
        let _ = writeln!(text, "  {}", judgement(judged));
    }
    for failure in &row.failures {
        let _ = writeln!(text, "  BELOW THE MARK: {failure}");
    }
    text
}

fn judgement(judged: &Judgement) -> String {
    let boundary = judged.boundary_ms.map_or(String::new(), |ms| format!(", gap edges within {ms:.3} ms"));
    format!(
        "{:<5} idle {:.1} %, largest error {:.1} points ({}){boundary}, unknown {:.1} %, verdict {} {}",
        judged.evidence,
        judged.idle,
        judged.largest_error,
        judged.largest_cause,
        judged.unknown,
        judged.verdict,
        if judged.verdict_right { "right" } else { "WRONG" }
    )
}

/// All rounds of all scenarios: smallest and largest value of each measure, and how many runs came to the mark.
/// `failed` runs came to no result.
pub fn summary(rows: &[Row], failed: usize) -> String {
    let mut text = format!(
        "{:<28}{:>6}  {:<6}{:>15}{:>15}{:>12}  {:<8}{:>9}\n",
        "scenario", "rounds", "by", "largest error", "unknown", "edges ms", "verdict", "at mark"
    );
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !names.contains(&row.scenario.as_str()) {
            names.push(&row.scenario);
        }
    }
    for name in names {
        let rounds: Vec<&Row> = rows.iter().filter(|r| r.scenario == name).collect();
        let good = rounds.iter().filter(|r| r.failures.is_empty()).count();
        for (n, evidence) in ["exact", "trace", "nvml"].into_iter().enumerate() {
            let judged: Vec<&Judgement> = rounds.iter().filter_map(|r| r.judgements.get(n)).collect();
            let right = judged.iter().filter(|j| j.verdict_right).count();
            let edges = judged.iter().filter_map(|j| j.boundary_ms).reduce(f64::max);
            let _ = writeln!(
                text,
                "{:<28}{:>6}  {evidence:<6}{:>15}{:>15}{:>12}  {:<8}{:>9}",
                if n == 0 { name } else { "" },
                if n == 0 { rounds.len().to_string() } else { String::new() },
                range(judged.iter().map(|j| j.largest_error)),
                range(judged.iter().map(|j| j.unknown)),
                edges.map_or(String::new(), |ms| format!("{ms:.3}")),
                format!("{right}/{}", judged.len()),
                if n == 0 { format!("{good}/{}", rounds.len()) } else { String::new() },
            );
        }
    }
    let good = rows.iter().filter(|r| r.failures.is_empty()).count();
    let _ = writeln!(text, "{good} of {} runs are at the mark", rows.len() + failed);
    if failed > 0 {
        let _ = writeln!(text, "{failed} of them came to no result: see above");
    }
    text
}

/// `1.2` or `1.2 .. 3.4`.
fn range(values: impl Iterator<Item = f64> + Clone) -> String {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    if low.is_infinite() {
        String::new()
    } else if high - low < 0.05 {
        format!("{high:.1}")
    } else {
        format!("{low:.1} .. {high:.1}")
    }
}
