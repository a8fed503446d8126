//! What the state of a GPU says about a slow training, in sentences.

use crate::events::{GpuDevice, GpuProcess, GpuState};
use crate::units::Pid;
use std::collections::BTreeSet;

/// `nvmlClocksEventReason*` and `nvmlClocksThrottleReason*` of nvml.h that slow work down, with words for each. Left out:
/// 0x1 (the GPU is idle) and 0x2 (a clock that a person set), 0x100 (a display), which are no fault.
const REASONS: [(u64, &str, &str); 6] = [
    (0x4, "by its power cap", "raise the limit with nvidia-smi -pl if the board and the supply allow it"),
    (0x8, "by hardware slowdown (temperature or power supply)", "check cooling and power cables"),
    (0x10, "to the clocks of its sync-boost group", "the slowest GPU of the group holds all of them back"),
    (0x20, "by software because of temperature", "check cooling and air flow"),
    (0x40, "by hardware because of temperature", "check cooling at once"),
    (0x80, "by the power brake of the supply", "check the power supply"),
];

/// Bits that 0x8 is only the sum of.
const HARDWARE_DETAIL: u64 = 0x40 | 0x80;

/// Share of samples under load from which throttling is told.
const TELL_FROM: f64 = 0.05;

/// Memory counts as nearly full from this share on.
const NEARLY_FULL: f64 = 0.95;

/// Whether clocks are held down by something that slows work: power, temperature, supply, sync boost.
pub fn is_throttled(reasons: u64) -> bool {
    REASONS.iter().any(|(bit, ..)| reasons & bit != 0)
}

/// What the states of **one** GPU say, one sentence each; empty when all is well or nothing is known.
///
/// `under_load` tells whether the GPU worked at a state's time: clocks and PCIe generation drop by design when idle, so
/// only states under load are judged. `is_target` tells which processes belong to the training.
pub fn state_sentences(
    device: &GpuDevice,
    states: &[GpuState],
    processes: &[GpuProcess],
    under_load: impl Fn(&GpuState) -> bool,
    is_target: impl Fn(Pid) -> bool,
) -> Vec<String> {
    let states: Vec<&GpuState> = states.iter().filter(|s| s.gpu == device.gpu).collect();
    let loaded: Vec<&GpuState> = states.iter().copied().filter(|s| under_load(s)).collect();
    let mut sentences = throttling(&loaded);
    sentences.extend(pcie(device, &loaded));
    sentences.extend(memory(device, &states));
    let others: BTreeSet<Pid> =
        processes.iter().filter(|p| p.gpu == device.gpu && !is_target(p.pid)).map(|p| p.pid).collect();
    sentences.extend(others_sentence(&others, processes, device));
    sentences
}

fn throttling(loaded: &[&GpuState]) -> Vec<String> {
    let masks: Vec<u64> = loaded.iter().filter_map(|s| s.throttle_reasons).collect();
    if masks.is_empty() {
        return Vec::new();
    }
    let mut told = Vec::new();
    for (bit, how, advice) in REASONS {
        let hit = |m: &&u64| **m & bit != 0 && !(bit == 0x8 && **m & HARDWARE_DETAIL != 0);
        let share = masks.iter().filter(hit).count() as f64 / masks.len() as f64;
        if share >= TELL_FROM {
            let clocks = clocks(loaded, bit);
            told.push(format!(
                "Its clocks were held down {how} in {:.0} % of the samples under load{clocks}; {advice}.",
                100.0 * share
            ));
        }
    }
    told
}

/// Mean clock in the samples with this reason, beside the highest possible.
fn clocks(loaded: &[&GpuState], bit: u64) -> String {
    let hit: Vec<(u32, u32)> = loaded
        .iter()
        .filter(|s| s.throttle_reasons.is_some_and(|m| m & bit != 0))
        .filter_map(|s| s.sm_clock_mhz)
        .collect();
    let Some(max) = hit.iter().map(|c| c.1).max() else { return String::new() };
    let mean = hit.iter().map(|c| f64::from(c.0)).sum::<f64>() / hit.len() as f64;
    format!(" ({mean:.0} of {max} MHz on average)")
}

fn pcie(device: &GpuDevice, loaded: &[&GpuState]) -> Option<String> {
    let (max_gen, max_width) = device.pcie_max?;
    // The best seen: a link may still be waking up in the first samples under load.
    let (generation, width) = loaded.iter().filter_map(|s| s.pcie).max_by_key(|&(g, w)| u64::from(w) << g.min(32))?;
    if generation >= max_gen && width >= max_width {
        return None;
    }
    Some(format!(
        "Its PCIe link ran at generation {generation}, x{width} under load, below the generation {max_gen}, x{max_width} that \
         it can do: copies to the GPU are slower; check the slot, riser and BIOS settings."
    ))
}

fn memory(device: &GpuDevice, states: &[&GpuState]) -> Option<String> {
    let total = device.memory_bytes.filter(|t| *t > 0)?;
    let used = states.iter().filter_map(|s| s.memory_used).max()?;
    let share = used as f64 / total as f64;
    if share < NEARLY_FULL {
        return None;
    }
    Some(format!(
        "Its memory was nearly full: {:.1} of {:.1} GiB in use at most, so larger batches do not fit.",
        gib(used),
        gib(total)
    ))
}

fn others_sentence(others: &BTreeSet<Pid>, processes: &[GpuProcess], device: &GpuDevice) -> Option<String> {
    if others.is_empty() {
        return None;
    }
    let listed: Vec<String> = others
        .iter()
        .take(5)
        .map(|pid| {
            let used = processes.iter().filter(|p| p.gpu == device.gpu && p.pid == *pid);
            match used.filter_map(|p| p.memory_used).max() {
                Some(bytes) => format!("pid {pid} with {:.1} GiB", gib(bytes)),
                None => format!("pid {pid}"),
            }
        })
        .collect();
    let more = if others.len() > 5 { format!(" and {} more", others.len() - 5) } else { String::new() };
    let verb = if others.len() == 1 { "Another process uses" } else { "Other processes use" };
    Some(format!("{verb} this GPU, too: {}{more}; their work counts as busy time.", listed.join(", ")))
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{GpuIndex, MonoNs};

    fn device() -> GpuDevice {
        GpuDevice {
            gpu: GpuIndex(0),
            name: "A".to_owned(),
            uuid: None,
            pci: None,
            memory_bytes: Some(80 << 30),
            pcie_max: Some((4, 16)),
            power_limit_mw: None,
        }
    }

    /// A state without any problem. Times below 100 are idle in these tests.
    fn state(t: u64) -> GpuState {
        GpuState {
            time: MonoNs(t),
            gpu: GpuIndex(0),
            memory_used: Some(10 << 30),
            memory_utilization: None,
            power_mw: None,
            temperature_c: None,
            sm_clock_mhz: Some((1_400, 1_980)),
            throttle_reasons: Some(0),
            pcie: Some((4, 16)),
        }
    }

    fn process(pid: u32, memory_used: Option<u64>) -> GpuProcess {
        GpuProcess { time: MonoNs(0), gpu: GpuIndex(0), pid: Pid(pid), memory_used }
    }

    fn sentences(states: &[GpuState], processes: &[GpuProcess]) -> Vec<String> {
        state_sentences(&device(), states, processes, |s| s.time.0 >= 100, |p| p == Pid(7))
    }

    #[test]
    fn a_healthy_gpu_and_an_unknown_one_say_nothing() {
        assert!(sentences(&[state(100)], &[process(7, None)]).is_empty());
        assert!(sentences(&[], &[]).is_empty());
        let unknown =
            GpuState { memory_used: None, sm_clock_mhz: None, throttle_reasons: None, pcie: None, ..state(100) };
        assert!(sentences(&[unknown], &[]).is_empty());
    }

    #[test]
    fn idle_set_clocks_and_display_are_no_throttle() {
        assert!(!is_throttled(0x1 | 0x2 | 0x100));
        assert!(is_throttled(0x1 | 0x20));
        let idle = GpuState { throttle_reasons: Some(0x1 | 0x2 | 0x100), ..state(100) };
        assert!(sentences(&[idle], &[]).is_empty());
    }

    #[test]
    fn the_share_counts_samples_under_load_only() {
        let capped = |t| GpuState { throttle_reasons: Some(0x4), ..state(t) };
        let states = [capped(1), capped(2), capped(100), state(101), state(102), capped(103)];
        let s = sentences(&states, &[]);
        assert_eq!(s.len(), 1);
        assert!(
            s[0].starts_with("Its clocks were held down by its power cap in 50 % of the samples under load"),
            "{s:?}"
        );
        assert!(s[0].contains("(1400 of 1980 MHz on average)"), "{s:?}");
    }

    #[test]
    fn hardware_slowdown_is_told_by_its_detail_where_there_is_one() {
        let s = sentences(&[GpuState { throttle_reasons: Some(0x8 | 0x40), ..state(100) }], &[]);
        assert_eq!(s.len(), 1);
        assert!(s[0].contains("by hardware because of temperature in 100 %"), "{s:?}");
        let s = sentences(&[GpuState { throttle_reasons: Some(0x8), ..state(100) }], &[]);
        assert!(s[0].contains("by hardware slowdown"), "{s:?}");
    }

    #[test]
    fn a_narrow_link_is_told_and_one_that_only_rests_is_not() {
        let link = |t, pcie| GpuState { pcie: Some(pcie), ..state(t) };
        let s = sentences(&[link(1, (1, 4)), link(100, (4, 4)), link(101, (4, 4))], &[]);
        assert!(
            s[0].starts_with("Its PCIe link ran at generation 4, x4 under load, below the generation 4, x16"),
            "{s:?}"
        );
        assert!(sentences(&[link(1, (1, 16)), link(100, (1, 16)), link(101, (4, 16))], &[]).is_empty());
    }

    #[test]
    fn full_memory_and_other_processes_are_told() {
        let full = GpuState { memory_used: Some(79 << 30), ..state(1) };
        let s = sentences(&[full], &[process(7, None), process(8, Some(3 << 30)), process(9, None), process(8, None)]);
        assert_eq!(s[0], "Its memory was nearly full: 79.0 of 80.0 GiB in use at most, so larger batches do not fit.");
        assert_eq!(
            s[1],
            "Other processes use this GPU, too: pid 8 with 3.0 GiB, pid 9; their work counts as busy time."
        );
    }
}
