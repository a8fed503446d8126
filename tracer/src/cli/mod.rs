//! The command line: one file per sub-command, each with its arguments and what it does.

pub mod demo;
pub mod doctor;
pub mod output;
pub mod record;
pub mod report;
mod times;
