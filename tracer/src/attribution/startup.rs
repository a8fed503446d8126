//! When workers were being started: from the end of the old ones, or the birth of the new ones, to the first batch.

use super::Cause;
use super::segment::{Segment, cut};
use crate::units::{MonoNs, Nanos};

/// Between the end of the old workers and the birth of the new ones a training loop that goes straight on to its next
/// epoch takes no longer than this; what takes longer (an evaluation, say) is its own work.
const NEXT_EPOCH: Nanos = Nanos::from_millis(100);

/// Life of a worker process.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// It was forked inside the recording at this time; `None` if it was there before.
    pub born: Option<MonoNs>,
    /// First batch that it delivered; `None` if it was there before, or never did.
    pub first_delivery: Option<MonoNs>,
    /// It ended inside the recording at this time.
    pub died: Option<MonoNs>,
}

/// Times in which workers were being started, in order, without overlaps.
pub fn phases(workers: &[Life]) -> Vec<(MonoNs, MonoNs)> {
    let mut births: Vec<(MonoNs, MonoNs)> = workers
        .iter()
        .filter_map(|w| Some((w.born?, w.first_delivery?)))
        .filter(|(born, first)| born < first)
        .collect();
    births.sort_unstable();
    let mut deaths: Vec<MonoNs> = workers.iter().filter_map(|w| w.died).collect();
    deaths.sort_unstable();

    // Workers that are born before the first of them delivers are one generation; its first batch ends the phase.
    let mut phases: Vec<(MonoNs, MonoNs)> = Vec::new();
    for (born, first) in births {
        match phases.last_mut() {
            Some(last) if born < last.1 => last.1 = last.1.min(first).max(born),
            // Born while others of its generation deliver: the loop goes on without it.
            Some(last) if born.since(last.1) < NEXT_EPOCH && deaths.iter().all(|d| *d < last.0 || *d > born) => {}
            _ => phases.push((born, first)),
        }
    }
    for n in 0..phases.len() {
        let floor = n.checked_sub(1).and_then(|p| phases.get(p)).map_or(MonoNs(0), |p| p.1);
        let Some(phase) = phases.get_mut(n) else { break };
        // Backwards from the birth through the ends of the old workers.
        let born = phase.0;
        for death in deaths.iter().rev().copied().filter(|d| *d <= born && *d > floor) {
            if phase.0.since(death) > NEXT_EPOCH {
                break;
            }
            phase.0 = death;
        }
    }
    phases
}

/// Gives what lies in the phases to the start of workers; segments are cut at the edges.
pub fn apply(segments: &mut Vec<Segment>, phases: &[(MonoNs, MonoNs)]) {
    let (Some(start), Some(end)) = (segments.first().map(|s| s.start), segments.last().map(|s| s.end)) else { return };
    let first = phases.partition_point(|(_, to)| *to <= start);
    for (from, to) in phases.iter().skip(first).take_while(|(from, _)| *from < end) {
        cut(segments, *from);
        cut(segments, *to);
        for s in segments.iter_mut().filter(|s| s.start >= *from && s.end <= *to && s.cause != Cause::Unknown) {
            s.cause = Cause::WorkerStartup;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::segment::{NoRecord, What};

    fn ms(t: u64) -> MonoNs {
        MonoNs(t * 1_000_000)
    }

    fn life(born: Option<u64>, first: Option<u64>, died: Option<u64>) -> Life {
        Life { born: born.map(ms), first_delivery: first.map(ms), died: died.map(ms) }
    }

    #[test]
    fn new_workers_start_until_the_first_batch_of_their_generation() {
        let workers = [life(Some(100), Some(190), None), life(Some(110), Some(170), None)];
        assert_eq!(phases(&workers), [(ms(100), ms(170))]);
    }

    #[test]
    fn the_end_of_the_old_ones_belongs_to_it() {
        let old = [life(None, None, Some(80)), life(None, None, Some(95))];
        let new = [life(Some(100), Some(150), Some(400)), life(Some(105), Some(160), Some(410))];
        let next = [life(Some(420), Some(470), None)];
        let all: Vec<Life> = old.into_iter().chain(new).chain(next).collect();
        assert_eq!(phases(&all), [(ms(80), ms(150)), (ms(400), ms(470))]);
    }

    #[test]
    fn an_evaluation_between_two_epochs_does_not() {
        let workers = [life(None, None, Some(80)), life(Some(1000), Some(1050), None)];
        assert_eq!(phases(&workers), [(ms(1000), ms(1050))]);
    }

    #[test]
    fn a_late_sibling_makes_no_phase_of_its_own() {
        let workers = [life(Some(100), Some(120), None), life(Some(125), Some(300), None)];
        assert_eq!(phases(&workers), [(ms(100), ms(120))]);
    }

    #[test]
    fn workers_that_never_deliver_start_nothing() {
        assert!(phases(&[life(Some(100), None, Some(200)), life(None, None, None)]).is_empty());
    }

    #[test]
    fn segments_are_cut_at_the_edges() {
        let segment = |start, end, cause| Segment {
            start: ms(start),
            end: ms(end),
            idle: ms(end).since(ms(start)),
            thread: None,
            what: What::NoRecord(NoRecord::NotAlive),
            cause,
        };
        let mut s = vec![segment(0, 50, Cause::Disk), segment(50, 100, Cause::HostCode)];
        apply(&mut s, &[(ms(40), ms(60)), (ms(200), ms(300))]);
        let said: Vec<_> = s.iter().map(|s| (s.start.0 / 1_000_000, s.end.0 / 1_000_000, s.cause)).collect();
        let expected = [
            (0, 40, Cause::Disk),
            (40, 50, Cause::WorkerStartup),
            (50, 60, Cause::WorkerStartup),
            (60, 100, Cause::HostCode),
        ];
        assert_eq!(said, expected);
        assert!(s.iter().all(|s| s.idle == s.length()));
    }
}
