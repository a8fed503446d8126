//! From the kernel's records to events: pure functions, one file per event family, named like the kernel file that
//! writes the records.

mod block;
mod files;
mod samples;
mod sched;
mod tasks;

pub use files::{FileNames, path as file_names};
pub use sched::off_cpu;

use crate::events::Event;
use tracer_ebpf::Kind;

/// Decodes one record. `None` for a kind or a size that this version does not know.
pub fn record(bytes: &[u8]) -> Option<Event> {
    let kind = kind(bytes)?;
    if kind == Kind::OffCpu as u32 || kind == Kind::OffCpuFile as u32 {
        sched::decode(bytes).map(Event::OffCpu)
    } else if kind == Kind::Task as u32 {
        tasks::decode(bytes).map(Event::Task)
    } else if kind == Kind::CpuSample as u32 {
        samples::decode(bytes).map(Event::CpuSample)
    } else if kind == Kind::BlockRequest as u32 {
        block::decode(bytes).map(Event::Block)
    } else if kind == Kind::FileOpen as u32 {
        files::open(bytes).map(Event::Open)
    } else {
        None
    }
}

/// Which [`Kind`] of record it is.
pub fn kind(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

/// Record types whose every bit pattern is a value.
///
/// # Safety
/// Only for `repr(C)` structures of integers and arrays of integers.
unsafe trait Plain: Copy {}

// SAFETY: all of them are such structures.
unsafe impl Plain for tracer_ebpf::OffCpu {}
// SAFETY: as above.
unsafe impl Plain for tracer_ebpf::OffCpuFile {}
// SAFETY: as above.
unsafe impl Plain for tracer_ebpf::Task {}

// SAFETY: as above.
unsafe impl Plain for tracer_ebpf::CpuSample {}
// SAFETY: as above.
unsafe impl Plain for tracer_ebpf::BlockRequest {}
// SAFETY: as above.
unsafe impl Plain for tracer_ebpf::FileOpen {}
// SAFETY: as above.
unsafe impl Plain for tracer_ebpf::FilePath {}

/// The record that fills `bytes` exactly.
fn exactly<T: Plain>(bytes: &[u8]) -> Option<T> {
    // SAFETY: the length is right, any bit pattern is a `T`, and the read needs no alignment.
    (bytes.len() == size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// A name that ends at the first NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    /// The bytes of a record.
    pub fn bytes<T: super::Plain>(record: &T) -> &[u8] {
        // SAFETY: plain bytes of a live structure without padding.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(record).cast::<u8>(), size_of::<T>()) }
    }
}
