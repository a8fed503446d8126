//! Helpers shared by the integration tests.

pub mod loopdev;
pub mod traced;
