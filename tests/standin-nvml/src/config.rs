//! The environment variables that choose what the stand-in shows.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// Clock of the sample stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    Epoch,
    Boot,
    Mono,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub busy: Option<PathBuf>,
    pub clock: Clock,
    pub gpus: u32,
    pub pids: Vec<(u32, Option<u64>)>,
    /// Used, total.
    pub memory: (u64, u64),
    /// Generation and width.
    pub pcie: (u32, u32),
    pub pcie_max: (u32, u32),
    pub sm_clock: (u32, u32),
    pub throttle: u64,
    pub mig: bool,
    pub absurd: bool,
    pub frozen: bool,
    pub unsupported: BTreeSet<String>,
    pub delay: Duration,
    /// Samples and rates tell of a time so much earlier than they say.
    pub lag: Duration,
    pub init_error: u32,
}

impl Config {
    pub(crate) fn from_env() -> Config {
        Config::from(|name| std::env::var(format!("GPUSTALL_STANDIN_{name}")).ok())
    }

    fn from(get: impl Fn(&str) -> Option<String>) -> Config {
        let flag = |name| get(name).is_some_and(|v| v == "1");
        let pair = |name, default| get(name).and_then(|v| pair(&v)).unwrap_or(default);
        let pcie = get("PCIE").and_then(|v| {
            let (now, max) = v.split_once('/')?;
            Some((link(now)?, link(max)?))
        });
        let (pcie, pcie_max) = pcie.unwrap_or(((4, 16), (4, 16)));
        let (sm, sm_max) = pair("SM_CLOCK", (1_980, 1_980));
        let clock = |mhz: u64| u32::try_from(mhz).unwrap_or(u32::MAX);
        Config {
            busy: get("BUSY").filter(|v| !v.is_empty()).map(PathBuf::from),
            clock: match get("CLOCK").as_deref() {
                Some("boot") => Clock::Boot,
                Some("mono") => Clock::Mono,
                _ => Clock::Epoch,
            },
            gpus: get("GPUS").and_then(|v| v.parse().ok()).unwrap_or(1).min(64),
            pids: list(get("PIDS")).filter_map(|v| process(&v)).collect(),
            memory: pair("MEMORY", (1 << 30, 80 << 30)),
            pcie,
            pcie_max,
            sm_clock: (clock(sm), clock(sm_max)),
            throttle: get("THROTTLE").and_then(|v| mask(&v)).unwrap_or(0),
            mig: flag("MIG"),
            absurd: flag("ABSURD"),
            frozen: flag("FROZEN"),
            unsupported: list(get("UNSUPPORTED")).collect(),
            delay: Duration::from_millis(get("DELAY_MS").and_then(|v| v.parse().ok()).unwrap_or(0).min(1_000)),
            lag: Duration::from_millis(get("LAG_MS").and_then(|v| v.parse().ok()).unwrap_or(0).min(1_000)),
            init_error: get("INIT_ERROR").and_then(|v| v.parse().ok()).unwrap_or(0),
        }
    }
}

fn list(value: Option<String>) -> impl Iterator<Item = String> {
    let value = value.unwrap_or_default();
    value.split(',').map(|v| v.trim().to_owned()).filter(|v| !v.is_empty()).collect::<Vec<_>>().into_iter()
}

fn pair(v: &str) -> Option<(u64, u64)> {
    let (a, b) = v.split_once('/')?;
    Some((a.parse().ok()?, b.parse().ok()?))
}

fn link(v: &str) -> Option<(u32, u32)> {
    let (generation, width) = v.split_once('x')?;
    Some((generation.parse().ok()?, width.parse().ok()?))
}

fn process(v: &str) -> Option<(u32, Option<u64>)> {
    match v.split_once(':') {
        Some((pid, bytes)) => Some((pid.parse().ok()?, Some(bytes.parse().ok()?))),
        None => Some((v.parse().ok()?, None)),
    }
}

fn mask(v: &str) -> Option<u64> {
    match v.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => v.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(list: &[(&str, &str)]) -> Config {
        Config::from(|name| list.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn values_are_read() {
        let c = config(&[
            ("CLOCK", "boot"),
            ("GPUS", "8"),
            ("PIDS", "12, 34:5000"),
            ("PCIE", "1x4/4x16"),
            ("THROTTLE", "0x24"),
            ("UNSUPPORTED", "power,clocks"),
            ("MIG", "1"),
        ]);
        assert_eq!((c.clock, c.gpus, c.mig, c.throttle), (Clock::Boot, 8, true, 0x24));
        assert_eq!(c.pids, [(12, None), (34, Some(5_000))]);
        assert_eq!((c.pcie, c.pcie_max), ((1, 4), (4, 16)));
        assert!(c.unsupported.contains("clocks"));
    }

    #[test]
    fn nonsense_counts_as_not_given() {
        let nonsense = [("GPUS", "x"), ("PIDS", "a:b,c"), ("PCIE", "4"), ("MEMORY", "1/x"), ("THROTTLE", "0xz")];
        assert_eq!(config(&nonsense), config(&[]));
        assert_eq!(config(&[("GPUS", "4000000000")]).gpus, 64);
    }
}
