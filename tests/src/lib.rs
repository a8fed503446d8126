//! Helpers shared by the integration tests.

mod standin;
pub mod synthetic;
pub mod truth;

pub use standin::standin_nvml;
pub mod binary;
pub mod cgroup;
pub mod loop_device;
pub mod loopdev;
pub mod process;
pub mod recording;
pub mod tmpfs;
pub mod traced;
