//! Helpers shared by the integration tests.

pub mod synthetic;
pub mod truth;
