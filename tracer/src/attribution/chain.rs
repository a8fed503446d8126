//! A long gap as a few links that a person can read.

use super::segment::{Segment, What};
use crate::timeline::Timeline;
use crate::units::{MonoNs, Nanos};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Links of a chain at most; the shortest ones between are joined to their neighbours.
const LINKS: usize = 12;
/// While a gap is still being explained, so many are kept.
const OPEN_LINKS: usize = 4_096;

/// One stretch of a chain: segments of one thread and cause.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its time, thread and cause, and what the thread did in the longest piece of it.
    pub segment: Segment,
    /// Path that the thread was blocked on, where no file tells it.
    pub path: Option<String>,
}

/// A chain under construction, from its end to its start.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    /// In order of time.
    links: Vec<Link>,
}

impl Chain {
    /// Puts segments, which are in order of time, before what there is.
    pub(super) fn put_before(&mut self, tl: &Timeline, segments: &[Segment]) {
        let mut links: Vec<Link> = Vec::new();
        for s in segments {
            join(&mut links, Link { segment: *s, path: None });
        }
        for l in &mut links {
            l.path = path_of(tl, &l.segment);
        }
        for l in std::mem::take(&mut self.links) {
            join(&mut links, l);
        }
        self.links = links;
        if self.links.len() > OPEN_LINKS {
            shorten(&mut self.links, OPEN_LINKS / 2);
        }
    }

    /// The links that are told.
    pub(super) fn finish(mut self) -> Vec<Link> {
        shorten(&mut self.links, LINKS);
        self.links
    }
}

/// Path of a blocked call, which later parts of the timeline no longer know.
fn path_of(tl: &Timeline, s: &Segment) -> Option<String> {
    let What::Blocked(wait) = s.what else { return None };
    if tl.file(wait.file).is_some() {
        return None;
    }
    tl.path_of_call(tl.thread(s.thread?)?.tid, wait.off).map(str::to_owned)
}

/// Appends a link, or joins it to the last one if thread and cause are the same.
fn join(links: &mut Vec<Link>, link: Link) {
    match links.last_mut() {
        Some(last) if last.segment.thread == link.segment.thread && last.segment.cause == link.segment.cause => {
            // The longer of the two says what the link is about.
            if link.segment.length() > last.segment.length() {
                (last.segment.what, last.path) = (link.segment.what, link.path);
            }
            last.segment.end = link.segment.end;
        }
        _ => links.push(link),
    }
}

/// Gives the time of the shortest links to the one before, until no more than `most` are left.
fn shorten(links: &mut Vec<Link>, most: usize) {
    let times: Vec<(MonoNs, MonoNs)> = links.iter().map(|l| (l.segment.start, l.segment.end)).collect();
    let Some(keep) = shortened(times, most) else { return };
    let mut at = keep.into_iter();
    links.retain_mut(|l| match at.next().flatten() {
        Some((start, end)) => {
            (l.segment.start, l.segment.end) = (start, end);
            true
        }
        None => false,
    });
}

/// The new times of what is left; `None` altogether if nothing goes.
fn shortened(mut times: Vec<(MonoNs, MonoNs)>, most: usize) -> Option<Vec<Option<(MonoNs, MonoNs)>>> {
    let count = times.len();
    if count <= most {
        return None;
    }
    let length = |(a, b): (MonoNs, MonoNs)| b.since(a);
    // Neighbours of each that are left; an index beyond the last is none.
    let mut before: Vec<usize> = (0..count).map(|n| n.wrapping_sub(1)).collect();
    let mut after: Vec<usize> = (1..=count).collect();
    let mut gone = vec![false; count];
    let mut queue: BinaryHeap<Reverse<(Nanos, usize)>> =
        times.iter().enumerate().map(|(n, t)| Reverse((length(*t), n))).collect();
    let mut left = count;
    while left > most {
        let Reverse((said, n)) = queue.pop()?;
        let (Some(time), Some(false)) = (times.get(n).copied(), gone.get(n).copied()) else { continue };
        if length(time) != said {
            continue;
        }
        let (b, a) = (before.get(n).copied()?, after.get(n).copied()?);
        let heir = if let Some(t) = times.get_mut(b) {
            t.1 = time.1;
            b
        } else {
            times.get_mut(a)?.0 = time.0;
            a
        };
        queue.push(Reverse((length(times.get(heir).copied()?), heir)));
        if let Some(slot) = after.get_mut(b) {
            *slot = a;
        }
        if let Some(slot) = before.get_mut(a) {
            *slot = b;
        }
        if let Some(slot) = gone.get_mut(n) {
            *slot = true;
        }
        left -= 1;
    }
    Some(times.into_iter().zip(gone).map(|(t, gone)| (!gone).then_some(t)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The same as taking the shortest out one by one, which takes time that grows with the square of the number.
        #[test]
        fn the_shortest_links_go_first(lengths in prop::collection::vec(0u64..20, 0..60), most in 1usize..15) {
            let mut t = 0;
            let times: Vec<(MonoNs, MonoNs)> = lengths.iter().map(|l| { t += l; (MonoNs(t - l), MonoNs(t)) }).collect();
            let mut slow = times.clone();
            while slow.len() > most {
                let n = (0..slow.len()).min_by_key(|n| slow[*n].1.since(slow[*n].0)).unwrap();
                let gone = slow.remove(n);
                if n > 0 { slow[n - 1].1 = gone.1 } else { slow[0].0 = gone.0 }
            }
            let fast: Vec<_> = match shortened(times.clone(), most) {
                Some(left) => left.into_iter().flatten().collect(),
                None => times,
            };
            prop_assert_eq!(fast, slow);
        }
    }
}
