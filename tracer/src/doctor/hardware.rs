//! Hardware that is held back: CPU frequency governor, swap.

use super::Check;
use super::disks::bytes;
use procfs::Current;
use std::collections::BTreeMap;

pub(super) fn checks() -> Vec<Check> {
    vec![judge_governors(&read_governors()), judge_swap(read_memory().as_ref())]
}

/// Number of CPUs by (driver, governor).
type Governors = BTreeMap<(String, String), usize>;

fn read_governors() -> Governors {
    let mut found = Governors::new();
    let Ok(entries) = std::fs::read_dir("/sys/devices/system/cpu") else { return found };
    for entry in entries.filter_map(Result::ok) {
        let dir = entry.path().join("cpufreq");
        let attribute = |name: &str| Some(std::fs::read_to_string(dir.join(name)).ok()?.trim().to_owned());
        if let Some(governor) = attribute("scaling_governor") {
            let driver = attribute("scaling_driver").unwrap_or_default();
            *found.entry((driver, governor)).or_default() += 1;
        }
    }
    found
}

fn judge_governors(governors: &Governors) -> Check {
    const NAME: &str = "cpu_governor";
    if governors.is_empty() {
        return Check::ok(NAME, "none: the machine or its hypervisor sets the frequency by itself");
    }
    let finding: Vec<String> =
        governors.iter().map(|((driver, governor), n)| format!("{governor} ({driver}) on {n} CPUs")).collect();
    let finding = finding.join(", ");
    // "powersave" keeps the lowest frequency, except with these two in their active mode, where it adapts to the load.
    let slow = |driver: &str, governor: &str| {
        governor == "powersave" && !matches!(driver, "intel_pstate" | "amd-pstate-epp" | "amd_pstate_epp")
    };
    if governors.keys().any(|(driver, governor)| slow(driver, governor)) {
        return Check::warning(
            NAME,
            format!("{finding}: the CPUs stay at their lowest frequency"),
            "sudo cpupower frequency-set -g performance",
        );
    }
    Check::ok(NAME, finding)
}

/// Memory and swap of the machine, bytes.
struct Memory {
    total: u64,
    available: u64,
    swap_total: u64,
    swap_free: u64,
}

fn read_memory() -> Option<Memory> {
    let m = procfs::Meminfo::current().ok()?;
    Some(Memory {
        total: m.mem_total,
        available: m.mem_available.unwrap_or(m.mem_free + m.cached),
        swap_total: m.swap_total,
        swap_free: m.swap_free,
    })
}

fn judge_swap(memory: Option<&Memory>) -> Check {
    const NAME: &str = "swap";
    let Some(m) = memory else { return Check::ok(NAME, "not told by this kernel") };
    if m.swap_total == 0 {
        return Check::ok(NAME, format!("none; {} of {} memory available", bytes(m.available), bytes(m.total)));
    }
    let used = m.swap_total.saturating_sub(m.swap_free);
    let finding = format!(
        "{} of {} in use; {} of {} memory available",
        bytes(used),
        bytes(m.swap_total),
        bytes(m.available),
        bytes(m.total)
    );
    // Swap in use alone is harmless (cold pages); with little memory left pages go in and out.
    if used > m.swap_total / 10 && m.available < m.total / 10 {
        return Check::warning(
            NAME,
            finding,
            "memory is short: use fewer workers or a smaller prefetch, or end other processes (vmstat 1 shows si and so)",
        );
    }
    Check::ok(NAME, finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    fn governors(list: &[(&str, &str, usize)]) -> Governors {
        list.iter().map(|(d, g, n)| ((d.to_string(), g.to_string()), *n)).collect()
    }

    #[test]
    fn powersave_means_slow_only_without_a_driver_that_adapts() {
        assert_eq!(judge_governors(&governors(&[])).level, Level::Ok);
        assert_eq!(judge_governors(&governors(&[("acpi-cpufreq", "powersave", 8)])).level, Level::Warning);
        assert_eq!(judge_governors(&governors(&[("intel_pstate", "powersave", 8)])).level, Level::Ok);
        assert_eq!(judge_governors(&governors(&[("amd-pstate-epp", "powersave", 8)])).level, Level::Ok);
        let mixed = [("acpi-cpufreq", "performance", 4), ("acpi-cpufreq", "powersave", 4)];
        assert_eq!(judge_governors(&governors(&mixed)).level, Level::Warning);
    }

    #[test]
    fn swap_counts_when_memory_is_short_too() {
        let gib = |n: u64| n << 30;
        let memory = |available, swap_total, swap_free| Memory { total: gib(64), available, swap_total, swap_free };
        assert_eq!(judge_swap(Some(&memory(gib(1), 0, 0))).level, Level::Ok);
        assert_eq!(judge_swap(Some(&memory(gib(40), gib(8), gib(1)))).level, Level::Ok);
        assert_eq!(judge_swap(Some(&memory(gib(2), gib(8), gib(8)))).level, Level::Ok);
        assert_eq!(judge_swap(Some(&memory(gib(2), gib(8), gib(1)))).level, Level::Warning);
    }
}
