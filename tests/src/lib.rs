//! Helpers shared by the integration tests.

mod standin;
pub mod synthetic;
pub mod truth;

pub use standin::standin_nvml;
