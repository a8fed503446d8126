//! Helpers shared by the integration tests.

pub mod binary;
pub mod cgroup;
pub mod dataloader;
pub mod loopdev;
pub mod process;
mod standin;
pub mod synthetic;
pub mod traced;
pub mod truth;

pub use standin::standin_nvml;
