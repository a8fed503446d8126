//! Attribution: every idle moment of a GPU gets exactly one cause, by walking the wake-up graph backwards.

mod cause;

pub use cause::Cause;
