//! Emptying the rings.

use super::{decode, paths};
use crate::events::Event;
use aya::maps::{MapData, RingBuf};
use tracer_ebpf::Kind;

/// Records taken from a ring in one go: more than fit into the largest ring, so that a flood ends the round.
const MAX_RECORDS: usize = 1 << 18;

/// What a round found.
#[derive(Default)]
pub struct Drained {
    /// Records of unknown kind or size.
    pub undecodable: u64,
}

/// Takes all records out of a ring and decodes them in place.
pub fn ring(ring: &mut RingBuf<MapData>, sink: &mut dyn FnMut(Event)) -> Drained {
    let mut drained = Drained::default();
    for _ in 0..MAX_RECORDS {
        let Some(item) = ring.next() else { break };
        let event = match decode::kind(&item) {
            Some(kind) if kind == Kind::FilePath as u32 => {
                decode::file_names(&item).map(|names| Event::NamedFile(paths::locate(names)))
            }
            _ => decode::record(&item),
        };
        match event {
            Some(event) => sink(event),
            None => drained.undecodable += 1,
        }
    }
    drained
}
