//! Helpers shared by the integration tests.

pub mod binary;
pub mod cgroup;
pub mod loop_device;
pub mod process;
