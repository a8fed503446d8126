//! The command line: one file per sub-command, each with its arguments and what it does.

pub mod doctor;
