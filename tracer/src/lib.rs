//! gpustall tells a person who trains models why the GPU was idle.
//!
//! The modules follow the pipeline: [`probe`] loads the kernel programs and drains their records as [`events`];
//! [`gpu`] and [`host`] add what NVML and /proc say; [`recording`] keeps all of it in one file; [`timeline`] arranges it
//! by thread; [`attribution`] gives every idle moment a cause; [`diagnosis`] turns causes into a verdict; [`report`]
//! prints it; [`recorder`] runs probe, GPU and host together into a file. A module imports only from those before it in this list: `units`, `numbers`, `events`, `host`, `recording`, `probe`,
//! `gpu`, `timeline`, `attribution`, `diagnosis`, `report`, `recorder`, `doctor`, `demo`, `cli`.

pub mod attribution;
pub mod cli;
pub mod demo;
pub mod diagnosis;
pub mod doctor;
pub mod events;
pub mod gpu;
pub mod host;
pub mod numbers;
pub mod probe;
pub mod recorder;
pub mod recording;
pub mod report;
pub mod timeline;
pub mod units;
