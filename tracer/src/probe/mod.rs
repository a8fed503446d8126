//! Loads the kernel programs, attaches them to a target and drains their records as events.

mod btf;
mod offsets;

pub use btf::BtfError;
pub use offsets::{OffsetError, resolve};
