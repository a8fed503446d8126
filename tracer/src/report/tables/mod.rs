//! Tables of the report that need no attribution: pure functions from the timeline to the model's rows, one pass over the
//! intervals each, nothing allocated per interval.

mod competitors;
mod devices;
mod distribution;
mod files;
mod histograms;
mod images;
mod overhead;
mod threads;
mod waits;

pub use competitors::competitors;
pub use devices::devices;
pub use files::{PathTables, paths};
pub use histograms::histograms;
pub use images::hot_images;
pub use overhead::overhead;
pub use threads::threads;
pub use waits::{BlockActivity, WaitKind, wait_kind};

use crate::timeline::ThreadIx;

/// Role of each thread of a timeline (`worker`, `feeder` …).
pub type Roles<'a> = dyn Fn(ThreadIx) -> &'a str + 'a;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod speed;
