//! Emptying the rings.

use super::decode;
use crate::events::Event;
use aya::maps::{MapData, RingBuf};

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
        match decode::record(&item) {
            Some(event) => sink(event),
            None => drained.undecodable += 1,
        }
    }
    drained
}
