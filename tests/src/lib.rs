//! Helpers shared by the integration tests.

pub mod binary;
pub mod cgroup;
pub mod damage;
pub mod dataloader;
pub mod disks;
pub mod lab;
pub mod leftovers;
pub mod loopdev;
pub mod lost;
pub mod process;
pub mod recording;
pub mod slowfs;
pub mod slowloop;
mod standin;
pub mod swap;
pub mod synthetic;
pub mod tmpfs;
pub mod traced;
pub mod truth;

pub use standin::{standin_cuda, standin_nvml};
