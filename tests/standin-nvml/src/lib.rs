//! A stand-in for `libnvidia-ml.so.1`, for tests and for machines without a GPU: `gpustall record --nvml-lib
//! libstandin_nvml.so` sees GPUs that are busy when a *busy file* says so, through the same wrapper and the same quirks as
//! with a real driver.
//!
//! # What it does as a driver does
//!
//! - Utilization samples are whole percents of windows on a fixed grid of 1/6 s, stamped at their end in µs and visible
//!   120 ms later.
//! - The buffer holds the last 100 samples. A GPU that has been idle for a second empties it and stops sampling; the call
//!   then returns `NOT_FOUND`, as it does when nothing is newer than the stamp passed. Asked without a buffer, it returns
//!   the capacity.
//! - Utilization rates are those of the last window.
//! - What a driver of another age lacks is absent here (`nvmlDeviceGetMemoryInfo_v2`, power limits, field values, …).
//!
//! # Environment, read by `nvmlInit`
//!
//! | variable `GPUSTALL_STANDIN_…` | meaning | default |
//! |---|---|---|
//! | `BUSY` | the busy file: one `{"t_ns": <CLOCK_MONOTONIC>, "gpu": 0, "busy": true}` a line at each change, appended while it is read; a line not yet whole is read later | none: always idle |
//! | `CLOCK` | clock of the stamps: `epoch`, `boot` or `mono` | `epoch` |
//! | `GPUS` | number of GPUs, up to 64 | 1 |
//! | `PIDS` | processes on every GPU: `pid` or `pid:bytes`, separated by commas; those that the busy file names come to it | none |
//! | `MEMORY` | bytes used and in all, `used/total` | `1073741824/85899345920` |
//! | `PCIE` | link now and at most: `gen x width/gen x width` without spaces, as `4x4/4x16` | `4x16/4x16` |
//! | `SM_CLOCK` | clock now and at most in MHz, `now/max` | `1980/1980` |
//! | `THROTTLE` | mask of clocks-event reasons while busy, decimal or `0x…`; an idle GPU reports "idle" (1) | 0 |
//! | `MIG` | `1`: GPUs are split, so utilization is not supported | 0 |
//! | `ABSURD` | `1`: every fifth sample is above 100, and one entry has the stamp 0 | 0 |
//! | `FROZEN` | `1`: the sample buffer never changes after the start | 0 |
//! | `UNSUPPORTED` | calls that answer "not supported", separated by commas: `samples`, `rates`, `memory`, `power`, `temperature`, `clocks`, `throttle`, `pcie`, `processes`, `uuid`, `pci` | none |
//! | `LAG_MS` | samples and rates tell of a time so much earlier than their stamps say; up to 1,000 | 0 |
//! | `DELAY_MS` | each call for a GPU takes so long, as on a busy driver; up to 1,000 | 0 |
//! | `INIT_ERROR` | `nvmlInit` fails with this `nvmlReturn_t` (9: driver not loaded) | 0 |
//!
//! A value that makes no sense counts as not given. The busy file is read again at each call, only from where reading
//! stopped.

mod abi;
mod busy;
mod config;
mod gpu;
