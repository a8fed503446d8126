//! The C functions, with the names and types of nvml.h.
//!
//! They are private to Rust: a program reaches them through the dynamic symbol table only. No call panics, since a panic
//! would end the process that loaded the library. Pointers come from a caller who promises what nvml.h asks: each is null
//! or valid for its type.
#![allow(non_snake_case, reason = "the names are NVML's")]

use crate::config::Config;
use crate::gpu::{CAPACITY, Library, Now, Sample};
use nvml_wrapper_sys::bindings::*;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};
use std::sync::{Mutex, MutexGuard, PoisonError};

const SUCCESS: nvmlReturn_t = nvmlReturn_enum_NVML_SUCCESS;
const INVALID: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT;
const NOT_SUPPORTED: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED;
const NOT_FOUND: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_NOT_FOUND;
const TOO_SMALL: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE;

/// NVML counts its users: the state lives from the first `nvmlInit` to the last `nvmlShutdown`.
static LIBRARY: Mutex<(u32, Option<Library>)> = Mutex::new((0, None));

fn library() -> MutexGuard<'static, (u32, Option<Library>)> {
    LIBRARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `call` on the library with its GPU's index and the busy file read up to now.
fn with_gpu(device: nvmlDevice_t, call: impl FnOnce(&Library, u32, Now) -> nvmlReturn_t) -> nvmlReturn_t {
    let mut guard = library();
    let Some(library) = guard.1.as_mut() else { return nvmlReturn_enum_NVML_ERROR_UNINITIALIZED };
    // A handle is index + 1, so that none is null.
    let Some(gpu) = (device as usize).checked_sub(1).and_then(|g| u32::try_from(g).ok()) else { return INVALID };
    if gpu >= library.config.gpus {
        return INVALID;
    }
    std::thread::sleep(library.config.delay);
    library.busy.update();
    let now = Now::read(library.config.clock);
    call(library, gpu, now)
}

/// As [`with_gpu`], for a call that `UNSUPPORTED` can switch off under `name`.
fn with(name: &str, device: nvmlDevice_t, call: impl FnOnce(&Library, u32, Now) -> nvmlReturn_t) -> nvmlReturn_t {
    with_gpu(device, |l, gpu, now| if l.supports(name) { call(l, gpu, now) } else { NOT_SUPPORTED })
}

/// Writes a result.
///
/// # Safety
/// `to` is null or valid for writing.
unsafe fn put<T>(to: *mut T, value: T) -> nvmlReturn_t {
    if to.is_null() {
        return INVALID;
    }
    // SAFETY: not null, hence valid by this function's contract.
    unsafe { to.write(value) };
    SUCCESS
}

/// Writes a string with its NUL.
///
/// # Safety
/// `to` is null or valid for writing `length` bytes.
unsafe fn put_str(to: *mut c_char, length: c_uint, text: &str) -> nvmlReturn_t {
    if to.is_null() {
        return INVALID;
    }
    if text.len() >= length as usize {
        return TOO_SMALL;
    }
    for (i, b) in text.bytes().chain([0]).enumerate() {
        // SAFETY: `i` is at most the text's length, which is below `length`.
        unsafe { to.add(i).write(b as c_char) };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    let mut guard = library();
    if guard.1.is_none() {
        let config = Config::from_env();
        if config.init_error != 0 {
            return config.init_error;
        }
        guard.1 = Some(Library::new(config));
    }
    guard.0 += 1;
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    nvmlInit_v2()
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    let mut guard = library();
    match guard.0 {
        0 => return nvmlReturn_enum_NVML_ERROR_UNINITIALIZED,
        1 => *guard = (0, None),
        _ => guard.0 -= 1,
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    let text: &CStr = match result {
        SUCCESS => c"Success",
        INVALID => c"Invalid Argument",
        NOT_SUPPORTED => c"Not Supported",
        NOT_FOUND => c"Not Found",
        TOO_SMALL => c"Insufficient Size",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) -> nvmlReturn_t {
    // SAFETY: as nvml.h asks of the caller.
    unsafe { put_str(version, length, "470.0-standin") }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> nvmlReturn_t {
    let guard = library();
    let Some(library) = guard.1.as_ref() else { return nvmlReturn_enum_NVML_ERROR_UNINITIALIZED };
    // SAFETY: as nvml.h asks of the caller.
    unsafe { put(count, library.config.gpus) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t) -> nvmlReturn_t {
    let guard = library();
    let Some(library) = guard.1.as_ref() else { return nvmlReturn_enum_NVML_ERROR_UNINITIALIZED };
    if index >= library.config.gpus {
        return INVALID;
    }
    // SAFETY: as nvml.h asks of the caller.
    unsafe { put(device, (index as usize + 1) as nvmlDevice_t) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetName(device: nvmlDevice_t, name: *mut c_char, length: c_uint) -> nvmlReturn_t {
    // SAFETY: as nvml.h asks of the caller.
    with_gpu(device, |_, gpu, _| unsafe { put_str(name, length, &format!("Simulated GPU {gpu}")) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, length: c_uint) -> nvmlReturn_t {
    with("uuid", device, |_, gpu, _| {
        // SAFETY: as nvml.h asks of the caller.
        unsafe { put_str(uuid, length, &format!("GPU-00000000-0000-0000-0000-{gpu:012x}")) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: nvmlDevice_t, pci: *mut nvmlPciInfo_t) -> nvmlReturn_t {
    with("pci", device, |_, gpu, _| {
        let bus = gpu + 1;
        let text = |dst: &mut [c_char], text: String| {
            dst.iter_mut().zip(text.bytes()).for_each(|(d, b)| *d = b as c_char);
        };
        let mut info = nvmlPciInfo_t {
            busIdLegacy: [0; 16],
            domain: 0,
            bus,
            device: 0,
            pciDeviceId: 0x10de,
            pciSubSystemId: 0,
            busId: [0; 32],
        };
        text(&mut info.busIdLegacy, format!("0000:{bus:02X}:00.0"));
        text(&mut info.busId, format!("00000000:{bus:02X}:00.0"));
        // SAFETY: as nvml.h asks of the caller.
        unsafe { put(pci, info) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigMode(
    device: nvmlDevice_t,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> nvmlReturn_t {
    with_gpu(device, |l, _, _| {
        let mode = c_uint::from(l.config.mig);
        // SAFETY: as nvml.h asks of the caller.
        match unsafe { put(current, mode) } {
            // SAFETY: as nvml.h asks of the caller.
            SUCCESS => unsafe { put(pending, mode) },
            error => error,
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUtilizationRates(
    device: nvmlDevice_t,
    rates: *mut nvmlUtilization_t,
) -> nvmlReturn_t {
    with("rates", device, |l, gpu, now| {
        if l.config.mig {
            return NOT_SUPPORTED;
        }
        let busy = l.rate(gpu, now);
        // SAFETY: as nvml.h asks of the caller.
        unsafe { put(rates, nvmlUtilization_t { gpu: busy, memory: busy / 2 }) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetSamples(
    device: nvmlDevice_t,
    kind: nvmlSamplingType_t,
    last_seen: c_ulonglong,
    value_type: *mut nvmlValueType_t,
    count: *mut c_uint,
    samples: *mut nvmlSample_t,
) -> nvmlReturn_t {
    with("samples", device, |l, gpu, now| {
        if l.config.mig || kind != nvmlSamplingType_enum_NVML_GPU_UTILIZATION_SAMPLES {
            return NOT_SUPPORTED;
        }
        if count.is_null() {
            return INVALID;
        }
        // SAFETY: as nvml.h asks of the caller.
        let code = unsafe { put(value_type, nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT) };
        if code != SUCCESS {
            return code;
        }
        if samples.is_null() {
            // SAFETY: as nvml.h asks of the caller.
            return unsafe { put(count, CAPACITY as c_uint + 1) };
        }
        let newer = |s: &Sample| s.stamp_us > last_seen || s.stamp_us == 0;
        let mut list: Vec<Sample> = l.samples(gpu, now).into_iter().filter(newer).collect();
        if list.iter().all(|s| s.stamp_us == 0) {
            return NOT_FOUND;
        }
        // SAFETY: not null, hence valid by the caller's promise.
        list.truncate(unsafe { count.read() } as usize);
        for (i, s) in list.iter().enumerate() {
            let value = nvmlSample_t { timeStamp: s.stamp_us, sampleValue: nvmlValue_t { uiVal: s.percent } };
            // SAFETY: the caller's buffer holds `count` samples, and the list is no longer than that.
            unsafe { samples.add(i).write(value) };
        }
        // SAFETY: as nvml.h asks of the caller.
        unsafe { put(count, list.len() as c_uint) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvmlMemory_t) -> nvmlReturn_t {
    with("memory", device, |l, _, _| {
        let (used, total) = l.config.memory;
        // SAFETY: as nvml.h asks of the caller.
        unsafe { put(memory, nvmlMemory_t { total, free: total.saturating_sub(used), used }) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPowerUsage(device: nvmlDevice_t, milliwatts: *mut c_uint) -> nvmlReturn_t {
    with("power", device, |l, gpu, now| {
        let power = 70_000 + l.rate(gpu, now) * 6_000;
        // SAFETY: as nvml.h asks of the caller.
        unsafe { put(milliwatts, power) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperature(
    device: nvmlDevice_t,
    _sensor: nvmlTemperatureSensors_t,
    celsius: *mut c_uint,
) -> nvmlReturn_t {
    with("temperature", device, |l, gpu, now| {
        let celsius_now = 35 + l.rate(gpu, now) / 3;
        // SAFETY: as nvml.h asks of the caller.
        unsafe { put(celsius, celsius_now) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetClockInfo(
    device: nvmlDevice_t,
    kind: nvmlClockType_t,
    mhz: *mut c_uint,
) -> nvmlReturn_t {
    with("clocks", device, |l, gpu, now| {
        if kind != nvmlClockType_enum_NVML_CLOCK_SM {
            return NOT_SUPPORTED;
        }
        let clock = if l.loaded(gpu, now) { l.config.sm_clock.0 } else { 345.min(l.config.sm_clock.0) };
        // SAFETY: as nvml.h asks of the caller.
        unsafe { put(mhz, clock) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxClockInfo(
    device: nvmlDevice_t,
    _kind: nvmlClockType_t,
    mhz: *mut c_uint,
) -> nvmlReturn_t {
    // SAFETY: as nvml.h asks of the caller.
    with("clocks", device, |l, _, _| unsafe { put(mhz, l.config.sm_clock.1) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(
    device: nvmlDevice_t,
    mask: *mut c_ulonglong,
) -> nvmlReturn_t {
    with("throttle", device, |l, gpu, now| {
        let idle = u64::from(nvmlClocksEventReasonGpuIdle);
        // SAFETY: as nvml.h asks of the caller.
        unsafe { put(mask, if l.loaded(gpu, now) { l.config.throttle } else { idle }) }
    })
}

/// A link drops to its first generation when the GPU is idle; its width stays.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCurrPcieLinkGeneration(
    device: nvmlDevice_t,
    generation: *mut c_uint,
) -> nvmlReturn_t {
    with("pcie", device, |l, gpu, now| {
        // SAFETY: as nvml.h asks of the caller.
        unsafe { put(generation, if l.loaded(gpu, now) { l.config.pcie.0 } else { 1 }) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCurrPcieLinkWidth(device: nvmlDevice_t, width: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: as nvml.h asks of the caller.
    with("pcie", device, |l, _, _| unsafe { put(width, l.config.pcie.1) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxPcieLinkGeneration(device: nvmlDevice_t, generation: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: as nvml.h asks of the caller.
    with("pcie", device, |l, _, _| unsafe { put(generation, l.config.pcie_max.0) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxPcieLinkWidth(device: nvmlDevice_t, width: *mut c_uint) -> nvmlReturn_t {
    // SAFETY: as nvml.h asks of the caller.
    with("pcie", device, |l, _, _| unsafe { put(width, l.config.pcie_max.1) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    with("processes", device, |l, gpu, _| {
        let told = l.config.pids.iter().copied();
        let pids: Vec<(u32, Option<u64>)> = told.chain(l.busy.pids(gpu).map(|pid| (pid, None))).collect();
        if count.is_null() {
            return INVALID;
        }
        // SAFETY: not null, hence valid by the caller's promise.
        let room = unsafe { count.read() } as usize;
        // SAFETY: as nvml.h asks of the caller.
        unsafe { put(count, pids.len() as c_uint) };
        if room < pids.len() || (infos.is_null() && !pids.is_empty()) {
            return TOO_SMALL;
        }
        for (i, &(pid, bytes)) in pids.iter().enumerate() {
            let info = nvmlProcessInfo_t {
                pid,
                usedGpuMemory: bytes.unwrap_or(NVML_VALUE_NOT_AVAILABLE as c_int as u64),
                gpuInstanceId: c_uint::MAX,
                computeInstanceId: c_uint::MAX,
            };
            // SAFETY: the caller's buffer holds `room` entries, and there are no more than that.
            unsafe { infos.add(i).write(info) };
        }
        SUCCESS
    })
}

/// No process draws on a simulated GPU.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    _infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    // SAFETY: as nvml.h asks of the caller.
    with("processes", device, |_, _, _| unsafe { put(count, 0) })
}
