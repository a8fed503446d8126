//! The calls to NVML, each of which answers `None` where the driver does not: never 0.

use super::samples::RawSample;
use crate::events::{GpuDevice, GpuProcess, GpuState};
use crate::units::{GpuIndex, MonoNs, Pid};
use nvml_wrapper::Device;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, Sampling, TemperatureSensor};
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::error::{NvmlError, nvml_try};

/// What a call for samples gave.
pub(super) enum Samples {
    /// Samples newer than the stamp passed.
    New(Vec<RawSample>),
    /// None: the buffer is empty, or nothing in it is newer.
    Nothing,
    /// This driver or board has no samples.
    Unsupported,
}

/// Samples of GPU utilization newer than `last_stamp`.
pub(super) fn samples(device: &Device<'_>, last_stamp: u64) -> Samples {
    match device.samples(Sampling::GpuUtilization, last_stamp) {
        Ok(list) if list.is_empty() => Samples::Nothing,
        Ok(list) => {
            Samples::New(list.iter().map(|s| RawSample { stamp_us: s.timestamp, percent: percent(&s.value) }).collect())
        }
        Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_) | NvmlError::UnexpectedVariant(_)) => {
            Samples::Unsupported
        }
        // NotFound is how the driver says "nothing"; anything else may pass.
        Err(_) => Samples::Nothing,
    }
}

fn percent(value: &SampleValue) -> f64 {
    match *value {
        SampleValue::F64(v) => v,
        SampleValue::U32(v) => f64::from(v),
        SampleValue::U64(v) => v as f64,
        SampleValue::I64(v) => v as f64,
    }
}

/// Utilization of GPU and memory over the driver's current period, percent.
pub(super) fn rates(device: &Device<'_>) -> Option<(u32, u32)> {
    let rates = device.utilization_rates().ok()?;
    Some((rates.gpu, rates.memory))
}

/// What does not change about a GPU.
pub(super) fn describe(gpu: GpuIndex, nvml: &Nvml, device: &Device<'_>) -> GpuDevice {
    GpuDevice {
        gpu,
        name: device.name().unwrap_or_else(|_| "unnamed NVIDIA GPU".to_owned()),
        uuid: device.uuid().ok(),
        pci: device.pci_info().ok().map(|p| p.bus_id),
        memory_bytes: memory(nvml, device).map(|(_, total)| total),
        pcie_max: device.max_pcie_link_gen().ok().zip(device.max_pcie_link_width().ok()),
        power_limit_mw: device.enforced_power_limit().ok(),
    }
}

/// Whether the GPU is cut into instances (MIG), in which case NVML gives no utilization for it.
pub(super) fn is_mig(device: &Device<'_>) -> bool {
    device.mig_mode().is_ok_and(|m| m.current == 1)
}

/// What changes about a GPU, besides its utilization.
pub(super) fn state(
    gpu: GpuIndex,
    time: MonoNs,
    nvml: &Nvml,
    device: &Device<'_>,
    memory_utilization: Option<u32>,
) -> GpuState {
    GpuState {
        time,
        gpu,
        memory_used: memory(nvml, device).map(|(used, _)| used),
        memory_utilization: memory_utilization.filter(|p| *p <= 100),
        power_mw: device.power_usage().ok(),
        temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
        sm_clock_mhz: device.clock_info(Clock::SM).ok().zip(device.max_clock_info(Clock::SM).ok()),
        throttle_reasons: throttle_reasons(nvml, device),
        pcie: device.current_pcie_link_gen().ok().zip(device.current_pcie_link_width().ok()),
    }
}

/// Processes with a compute or a graphics context on the GPU, each once.
pub(super) fn processes(gpu: GpuIndex, time: MonoNs, device: &Device<'_>) -> Vec<GpuProcess> {
    let lists = [device.running_compute_processes(), device.running_graphics_processes()];
    let mut all: Vec<GpuProcess> = lists
        .into_iter()
        .flat_map(Result::unwrap_or_default)
        .filter(|p| p.pid != 0)
        .map(|p| GpuProcess {
            time,
            gpu,
            pid: Pid(p.pid),
            memory_used: match p.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
        })
        .collect();
    // In both lists: one process; the larger number holds what the other leaves out.
    all.sort_by_key(|p| (p.pid, std::cmp::Reverse(p.memory_used)));
    all.dedup_by_key(|p| p.pid);
    all
}

/// Memory used and there, bytes. The second version of the call came with driver 510.
fn memory(nvml: &Nvml, device: &Device<'_>) -> Option<(u64, u64)> {
    if let Ok(m) = device.memory_info() {
        return Some((m.used, m.total));
    }
    let call = nvml.lib().nvmlDeviceGetMemoryInfo.as_ref().ok()?;
    // SAFETY: three integers, for which all zeroes is a value.
    let mut m = unsafe { std::mem::zeroed() };
    // SAFETY: the handle comes from this library, which is loaded while `nvml` lives, and `m` outlives the call.
    nvml_try(unsafe { call(device.handle(), &mut m) }).ok()?;
    Some((m.used, m.total))
}

/// The bit mask of reasons why clocks are held down. NVML 12 renamed the call; the wrapper knows only the old name, which
/// a future library may drop.
fn throttle_reasons(nvml: &Nvml, device: &Device<'_>) -> Option<u64> {
    let lib = nvml.lib();
    let renamed = lib.nvmlDeviceGetCurrentClocksEventReasons.as_ref();
    let call = renamed.or(lib.nvmlDeviceGetCurrentClocksThrottleReasons.as_ref()).ok()?;
    let mut mask = 0;
    // SAFETY: the handle comes from this library, which is loaded while `nvml` lives, and `mask` outlives the call.
    nvml_try(unsafe { call(device.handle(), &mut mask) }).ok()?;
    Some(mask)
}
