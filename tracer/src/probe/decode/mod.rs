//! From the kernel's records to events: pure functions, one file per event family, named like the kernel file that
//! writes the records.

mod sched;
mod tasks;

pub use sched::off_cpu;

use crate::events::Event;
use tracer_ebpf::Kind;

/// Decodes one record. `None` for a kind or a size that this version does not know.
pub fn record(bytes: &[u8]) -> Option<Event> {
    let kind = u32::from_ne_bytes(bytes.first_chunk().copied()?);
    if kind == Kind::OffCpu as u32 || kind == Kind::OffCpuFile as u32 {
        sched::decode(bytes).map(Event::OffCpu)
    } else if kind == Kind::Task as u32 {
        tasks::decode(bytes).map(Event::Task)
    } else {
        None
    }
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
