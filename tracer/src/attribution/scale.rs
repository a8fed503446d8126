//! Counting by stretches of time in memory that does not grow with the recording: of a longer one the stretches are longer.

use crate::units::{MonoNs, Nanos};

/// Length of a stretch in recordings of up to [`MOST`] of them, over an hour; each doubling of the recording doubles it.
const SHORTEST: Nanos = Nanos::from_millis(1_000);
/// So many stretches at most.
const MOST: u64 = 4_096;

/// How time is divided. The same for the same times, in whatever order they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scale {
    length: Nanos,
    /// First and last stretch so far.
    range: Option<(u64, u64)>,
}

impl Default for Scale {
    fn default() -> Scale {
        Scale { length: SHORTEST, range: None }
    }
}

impl Scale {
    /// Number of the stretch that a time lies in, from the epoch of the clock.
    pub fn stretch(&self, t: MonoNs) -> u64 {
        t.0 / self.length.0
    }

    /// Start of a stretch.
    pub fn start(&self, stretch: u64) -> MonoNs {
        MonoNs(stretch.saturating_mul(self.length.0))
    }

    /// Makes room for a time. Returns by how many bits the numbers of all stretches have to be shifted to the right: mostly 0.
    pub fn include(&mut self, t: MonoNs) -> u32 {
        let n = self.stretch(t);
        let (mut first, mut last) = self.range.map_or((n, n), |(first, last)| (first.min(n), last.max(n)));
        let mut shift = 0;
        while last - first >= MOST {
            (first, last, shift) = (first >> 1, last >> 1, shift + 1);
        }
        self.range = Some((first, last));
        self.length = Nanos(self.length.0.saturating_mul(1 << shift));
        shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_longer_recording_has_longer_stretches() {
        let mut scale = Scale::default();
        let second = |n: u64| MonoNs(n * 1_000_000_000);
        assert_eq!(scale.include(second(10)), 0);
        assert_eq!(scale.include(second(10 + 4_095)), 0);
        assert_eq!(scale.stretch(second(500)), 500);
        assert_eq!(scale.include(second(40_000)), 4);
        assert_eq!(scale.stretch(second(500)), 500 >> 4);
        assert_eq!(scale.start(2), second(32));
    }

    proptest! {
        #[test]
        fn the_order_of_times_does_not_matter(mut times in prop::collection::vec(any::<u64>(), 1..20)) {
            let of = |times: &[u64]| {
                let mut scale = Scale::default();
                times.iter().for_each(|t| { scale.include(MonoNs(*t)); });
                scale
            };
            let there = of(&times);
            times.reverse();
            prop_assert_eq!(there, of(&times));
        }
    }
}
