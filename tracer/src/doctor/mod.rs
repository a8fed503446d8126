//! Is this machine ready for gpustall, and is its hardware held back? Each check is a reader of facts and a pure function
//! that judges them.

mod bpf;
mod disks;
mod hardware;
mod kernel;
mod nvml;
mod print;
mod privileges;
mod storage;
mod target;

pub use print::{json, text};

use crate::host::HostError;
use crate::units::Pid;
use serde::Serialize;
use std::path::PathBuf;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// gpustall works, but sees less or costs more; or the hardware is held back.
    Warning,
    /// gpustall cannot record.
    Failure,
}

/// One check and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Name, as in docs/doctor.md. A check that looks at several things (disks) comes several times.
    pub name: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub finding: String,
    /// What to do about it; absent where nothing needs to be done.
    pub advice: Option<String>,
}

impl Check {
    fn ok(name: &'static str, finding: impl Into<String>) -> Check {
        Check { name, level: Level::Ok, finding: finding.into(), advice: None }
    }

    fn warning(name: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, level: Level::Warning, finding: finding.into(), advice: Some(advice.into()) }
    }

    fn failure(name: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, level: Level::Failure, finding: finding.into(), advice: Some(advice.into()) }
    }
}

/// What to examine.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// A process to be traced: its limits and its files are examined too.
    pub pid: Option<Pid>,
    /// The NVML library to load instead of the system's `libnvidia-ml.so.1`.
    pub nvml_lib: Option<PathBuf>,
}

/// Runs all checks, in the order of docs/doctor.md. Fails only when the target process cannot be looked at.
pub fn examine(options: &Options) -> Result<Vec<Check>, HostError> {
    // First, so that a wrong pid is told before anything else.
    let target = options.pid.map(target::read).transpose()?;
    let uses = target.as_ref().map(|t| t.storage.as_slice()).unwrap_or_default();

    let mut checks = vec![privileges::check_privileges(), privileges::check_pid_namespace()];
    checks.extend(kernel::checks());
    checks.extend(bpf::checks());
    checks.push(nvml::check(options.nvml_lib.as_deref()));
    checks.extend(disks::checks(uses));
    checks.extend(hardware::checks());
    if let Some(target) = &target {
        checks.extend(target::judge(target));
    }
    Ok(checks)
}

/// The worst level among the checks.
pub fn worst(checks: &[Check]) -> Level {
    checks.iter().map(|c| c.level).max().unwrap_or(Level::Ok)
}
