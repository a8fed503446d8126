//! What recording cost and lost.

use crate::recording::Cost;
use crate::report::Overhead;
use crate::timeline::Timeline;

/// The costs that the recording's trailer tells (`None` for a recording that was not closed), the size of the file in
/// bytes, the number of its intervals, and what the timeline misses.
pub fn overhead(timeline: &Timeline, intervals: u64, cost: Option<&Cost>, recording_bytes: u64) -> Overhead {
    let program = |p: &crate::recording::ProgramCost| (p.name.clone(), p.time_ns as f64 / p.runs as f64);
    Overhead {
        recorder_cpu_s: cost.map(|c| c.recorder_cpu_s),
        recorder_peak_rss: cost.map(|c| c.recorder_peak_rss),
        recording_bytes,
        intervals,
        bytes_per_interval: if intervals == 0 { 0.0 } else { recording_bytes as f64 / intervals as f64 },
        lost: timeline.lost().into_iter().map(|(kind, n)| (kind_name(kind), n)).collect(),
        program_ns: cost.map(|c| c.programs.iter().filter(|p| p.runs > 0).map(program).collect()).unwrap_or_default(),
    }
}

/// The name that the recording itself uses for a kind of loss.
fn kind_name(kind: crate::events::LossKind) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(name)) => name,
        _ => format!("{kind:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::*;
    use super::*;
    use crate::events::{Event, Loss, LossKind, SleepState};
    use crate::recording::ProgramCost;

    #[test]
    fn costs_are_told_per_interval_and_per_run() {
        let lost = |count| Event::Loss(Loss { time: at(1), kind: LossKind::CpuSample, count });
        let timeline = timeline([
            Event::OffCpu(blocked(1, 0, 1, 1, 0, SleepState::Interruptible)),
            Event::OffCpu(blocked(1, 2, 3, 3, 0, SleepState::Interruptible)),
            lost(3),
            lost(4),
        ]);
        let program = |name: &str, runs, time_ns| ProgramCost { name: name.into(), runs, time_ns };
        let cost = Cost {
            recorder_cpu_s: 0.5,
            recorder_peak_rss: 1 << 20,
            programs: vec![program("sched_switch", 10, 3_000), program("exit", 0, 0)],
            ..Cost::default()
        };
        let o = overhead(&timeline, 2, Some(&cost), 30);
        assert_eq!((o.intervals, o.bytes_per_interval, o.recorder_cpu_s), (2, 15.0, Some(0.5)));
        assert_eq!(o.lost, [("cpu_sample".to_owned(), 7)].into());
        assert_eq!(o.program_ns, [("sched_switch".to_owned(), 300.0)].into());
        assert_eq!(o.recorder_peak_rss, Some(1 << 20));
        let unknown = overhead(&super::super::fixtures::timeline([]), 0, None, 0);
        assert_eq!(unknown.bytes_per_interval, 0.0);
        assert_eq!((unknown.recorder_cpu_s, unknown.recorder_peak_rss), (None, None));
    }
}
