//! A timeline from a recording.

use super::{Timeline, TimelineBuilder};
use crate::events::{Event, OffCpu};
use crate::recording::{Batch, Damage, Reader, Trailer};
use crate::units::MonoNs;

/// A recording that was read whole.
#[derive(Debug)]
pub struct Loaded {
    /// Its events.
    pub timeline: Timeline,
    /// Its last block, if it was ended cleanly.
    pub trailer: Option<Trailer>,
    /// What is wrong with the file.
    pub damage: Damage,
}

/// Reads a recording to its end. With `part`, only what happened between these moments is kept; intervals and block
/// requests that reach into it count.
pub fn load(reader: &mut Reader, part: Option<(MonoNs, MonoNs)>) -> Loaded {
    let header = reader.header();
    let start = header.started.mono;
    let mut builder = TimelineBuilder::new(header.target.pid, part.map_or(start, |(from, _)| from.max(start)));
    let mut trailer = None;
    let inside = |from: MonoNs, to: MonoNs| part.is_none_or(|(a, b)| to >= a && from <= b);
    while let Some(batch) = reader.next_batch() {
        match &batch {
            Batch::OffCpu(rows) => {
                rows.iter().filter(|o| inside(o.off, o.on)).for_each(|o: &OffCpu| builder.push_off_cpu(o));
            }
            Batch::CpuSample(rows) => {
                rows.iter().filter(|s| inside(s.time, s.time)).for_each(|s| builder.push(Event::CpuSample(*s)));
            }
            Batch::Block(rows) => {
                rows.iter().filter(|b| inside(b.issue, b.complete)).for_each(|b| builder.push(Event::Block(*b)));
            }
            Batch::Other(events) => {
                events.iter().filter(|e| concerns(e, &inside)).for_each(|e| builder.push(e.clone()));
            }
            Batch::Trailer(t) => trailer = Some(t.clone()),
        }
        reader.recycle(batch);
    }
    let end = trailer.as_ref().map(|t| t.ended.mono);
    let end = match part {
        Some((_, to)) => Some(end.map_or(to, |e| e.min(to))),
        None => end,
    };
    Loaded { timeline: builder.finish(end), trailer, damage: reader.damage().clone() }
}

/// Whether an event of a rare family belongs to the part that is read. Names and births are needed whenever they were told.
fn concerns(event: &Event, inside: &dyn Fn(MonoNs, MonoNs) -> bool) -> bool {
    match event {
        Event::Open(o) => inside(o.time, o.time),
        Event::GpuWindow(w) => inside(w.start, w.end),
        Event::GpuState(s) => inside(s.time, s.time),
        Event::Host(h) => inside(h.time, h.time),
        _ => true,
    }
}
