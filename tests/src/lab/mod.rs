//! The ground-truth lab: real jobs that keep their own account, scored by an algorithm that shares no code with the tracer,
//! beside what the tracer says of the same run (docs/lab.md).

pub mod account;
pub mod board;
pub mod holds;
pub mod judge;
pub mod kinds;
pub mod mend;
pub mod nfs;
mod paged_out;
mod profile;
pub mod run;
pub mod scenario;
pub mod scenarios;
pub mod score;
pub mod table;
