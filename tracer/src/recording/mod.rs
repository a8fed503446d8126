//! The recording: one append-only file that survives a crash and can be read elsewhere.
//!
//! [`Writer`] takes events and leaves compression and the disk to threads of its own; [`Reader`] gives them back block
//! by block, uses all that is whole and says what is not ([`Damage`]). docs/recording-format.md describes every byte.

mod batch;
mod block;
mod columns;
mod compress;
mod damage;
mod dictionary;
mod disk;
mod encoder;
mod error;
mod fetch;
mod header;
mod off_cpu;
mod others;
mod reader;
mod requests;
mod samples;
mod scan;
#[cfg(test)]
mod tests;
mod writer;

pub use batch::Batch;
pub use damage::Damage;
pub use error::{ReadError, WriteError};
pub use fetch::{BlockRef, Fetcher};
pub use header::{ClockReading, Cost, FORMAT_VERSION, Header, ProbeStatus, ProgramCost, Target, Trailer};
pub use off_cpu::Shared;
pub use reader::{Piece, Reader};
pub use writer::{Writer, Written};
