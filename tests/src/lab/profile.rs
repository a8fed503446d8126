//! The GPU's busy times as a profiler would have written them: a trace in the profiler's form and by the wall clock, which the
//! report has to bring back to the clock of its recording.

use super::account::Account;
use anyhow::{Result, ensure};
use serde_json::json;

/// Reads both clocks closer together than this, ns.
const CLOSE: u64 = 20_000;

fn clock(id: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for the answer.
    unsafe { libc::clock_gettime(id, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Wall clock minus `CLOCK_MONOTONIC`, ns.
fn wall_ahead() -> Result<u64> {
    for _ in 0..1000 {
        let before = clock(libc::CLOCK_MONOTONIC);
        let wall = clock(libc::CLOCK_REALTIME);
        let after = clock(libc::CLOCK_MONOTONIC);
        if after - before < CLOSE {
            ensure!(wall > after, "the wall clock is not set");
            return Ok(wall - before.midpoint(after));
        }
    }
    anyhow::bail!("the clocks could not be read together")
}

/// A trace as PyTorch's profiler writes it, of an account's busy times.
///
/// # Errors
/// If the wall clock cannot be compared with the account's.
pub fn chrome_trace(account: &Account) -> Result<String> {
    let ahead = wall_ahead()?;
    let first = account.busy().values().flatten().map(|span| span.start).min().unwrap_or(0);
    let base = ahead + first.saturating_sub(1_000_000_000);
    let micros = |ns: u64| ns as f64 / 1e3;
    let events: Vec<_> = account
        .busy()
        .iter()
        .flat_map(|(gpu, spans)| spans.iter().map(move |span| (*gpu, *span)))
        .map(|(gpu, span)| {
            json!({
                "ph": "X", "cat": "kernel", "name": "step", "pid": gpu, "tid": 7,
                "ts": micros(span.start + ahead - base), "dur": micros(span.len()),
                "args": {"device": gpu, "stream": 7},
            })
        })
        .collect();
    let trace =
        json!({"schemaVersion": 1, "baseTimeNanoseconds": base, "displayTimeUnit": "ms", "traceEvents": events});
    Ok(trace.to_string())
}
