//! Helpers shared by the integration tests.

mod standin;

pub use standin::standin_nvml;
