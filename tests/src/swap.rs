//! Swap space of the tests' own, switched off again when dropped.

use crate::loopdev::{LoopDevice, run};
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// Swap on a loop device of its own.
pub struct Swap {
    device: LoopDevice,
}

impl Swap {
    /// So many bytes of swap, used before any other.
    ///
    /// # Errors
    /// If the device cannot be made or switched on; it needs root.
    pub fn new(bytes: u64) -> Result<Swap> {
        let device = LoopDevice::new(bytes)?;
        on(device.path())?;
        Ok(Swap { device })
    }

    /// The device under it.
    pub fn device(&self) -> &LoopDevice {
        &self.device
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        // Before the device goes, since fields are dropped after this.
        off(self.device.path());
    }
}

fn on(device: &str) -> Result<()> {
    run(Command::new("mkswap").arg(device))?;
    run(Command::new("swapon").args(["--priority", "100", device]))?;
    Ok(())
}

fn off(device: &str) {
    if let Err(error) = run(Command::new("swapoff").arg(device)) {
        eprintln!("{error:#}");
    }
}

/// The device that [`CompressedSwap`] takes.
const ZRAM: &str = "/dev/zram0";
const ZRAM_CONTROL: &str = "/sys/block/zram0";
/// Bytes of a device of the tests; nobody else's has just as many.
const ZRAM_BYTES: u64 = (256 << 20) + (4 << 10);

/// Held by the process whose device it is: there is one only.
const LOCK: &str = "/run/lock/gpustall-tests-zram";

/// Swap in compressed memory: zram.
pub struct CompressedSwap {
    _lock: File,
}

impl CompressedSwap {
    /// Why there can be none, if so.
    pub fn missing() -> Option<String> {
        let size = fs::read_to_string(Path::new(ZRAM_CONTROL).join("disksize"));
        match size.as_deref().map(str::trim) {
            Ok("0") => None,
            Ok(size) if size == ZRAM_BYTES.to_string() => None,
            Ok(_) => Some(format!("{ZRAM} is in use")),
            Err(_) => Some(format!("there is no {ZRAM}: the kernel needs CONFIG_ZRAM (modprobe zram)")),
        }
    }

    /// Sets the device up and switches it on.
    ///
    /// # Errors
    /// If it is in use, or without root.
    pub fn new() -> Result<CompressedSwap> {
        let lock = File::create(LOCK).with_context(|| format!("cannot make {LOCK}"))?;
        lock.lock().with_context(|| format!("cannot lock {LOCK}"))?;
        // With the lock in hand, a device of just this size was left by a killed process.
        if fs::read_to_string(Path::new(ZRAM_CONTROL).join("disksize"))?.trim() == ZRAM_BYTES.to_string() {
            end()?;
        }
        if let Some(why) = CompressedSwap::missing() {
            bail!(why);
        }
        let swap = CompressedSwap { _lock: lock };
        fs::write(Path::new(ZRAM_CONTROL).join("disksize"), ZRAM_BYTES.to_string())
            .with_context(|| format!("cannot set up {ZRAM}"))?;
        on(ZRAM)?;
        Ok(swap)
    }
}

impl Drop for CompressedSwap {
    fn drop(&mut self) {
        if let Err(error) = end() {
            eprintln!("{error:#}");
        }
    }
}

fn end() -> Result<()> {
    if fs::read_to_string("/proc/swaps")?.lines().any(|line| line.starts_with(ZRAM)) {
        off(ZRAM);
    }
    fs::write(Path::new(ZRAM_CONTROL).join("reset"), "1").with_context(|| format!("cannot reset {ZRAM}"))?;
    let size = fs::read_to_string(Path::new(ZRAM_CONTROL).join("disksize"))?;
    ensure!(size.trim() == "0", "{ZRAM} is still set up after a reset");
    Ok(())
}
