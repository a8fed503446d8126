//! GPU evidence from the NVIDIA driver, through NVML.

use super::driver::{self, Samples};
use super::error::GpuUnavailable;
use super::samples::WindowBuilder;
use crate::events::{Event, GpuDevice, GpuWindow};
use crate::host::clocks;
use crate::units::{GpuIndex, MonoNs, Nanos};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use std::path::{Path, PathBuf};

/// The library that every NVIDIA driver for Linux installs. (`libnvidia-ml.so`, the wrapper's default, comes only with
/// development packages.)
pub const DEFAULT_LIBRARY: &str = "libnvidia-ml.so.1";

/// The state is read at every call, about, but no more often than this ...
const STATE_EVERY: Nanos = Nanos(90_000_000);

/// ... and for at most one part in so many of the time: it takes four times the calls that utilization takes, and can wait.
const STATE_SHARE_ONE_IN: u64 = 5;

/// Processes change rarely, and listing them is slow on some drivers.
const PROCESSES_EVERY: Nanos = Nanos(1_000_000_000);

/// All GPUs that the driver shows.
pub struct NvmlSource {
    nvml: Nvml,
    gpus: Vec<Watched>,
    notes: Vec<String>,
    next_state: MonoNs,
    next_processes: MonoNs,
    /// Reused from call to call.
    windows: Vec<GpuWindow>,
}

/// One GPU.
struct Watched {
    device: GpuDevice,
    builder: WindowBuilder,
    has_samples: bool,
    has_rates: bool,
    lost: bool,
    latest: Option<f32>,
}

impl NvmlSource {
    /// Loads the library (the installed driver's unless `lib` names another) and starts NVML. Windows of utilization begin
    /// at this moment.
    ///
    /// This takes seconds where the driver has to wake its GPUs first (no persistence mode).
    pub fn open(lib: Option<&Path>) -> Result<NvmlSource, GpuUnavailable> {
        let library = lib.map_or_else(|| PathBuf::from(DEFAULT_LIBRARY), as_file);
        let nvml =
            Nvml::builder().lib_path(library.as_os_str()).init().map_err(|e| unavailable(e, library, lib.is_some()))?;
        let count = nvml.device_count().map_err(|e| init_failed(&e))?;
        let now = clocks();
        let (mut gpus, mut notes) = (Vec::new(), Vec::new());
        for gpu in (0..count).map(GpuIndex) {
            match Watched::new(&nvml, gpu, now.mono) {
                Ok((watched, note)) => {
                    gpus.push(watched);
                    notes.extend(note);
                }
                // One broken GPU, or one that this container may not touch, leaves the others.
                Err(e) => notes.push(format!("GPU {gpu} cannot be watched: {e}.")),
            }
        }
        if gpus.is_empty() {
            return Err(GpuUnavailable::NoGpu);
        }
        Ok(NvmlSource { nvml, gpus, notes, next_state: MonoNs(0), next_processes: MonoNs(0), windows: Vec::new() })
    }

    /// The GPUs.
    pub fn devices(&self) -> Vec<GpuDevice> {
        self.gpus.iter().map(|g| g.device.clone()).collect()
    }

    /// What a reader must know about the evidence: GPUs that cannot be watched or give no utilization. A sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Version of the driver.
    pub fn driver_version(&self) -> Option<String> {
        self.nvml.sys_driver_version().ok()
    }

    /// Asks every GPU, about ten times a second: new utilization windows, the state (more rarely where the driver is slow),
    /// and once a second its processes. The calls take from microseconds to tens of milliseconds, so this is for a thread
    /// of its own (see [`super::spawn`]).
    pub fn sample(&mut self, sink: &mut dyn FnMut(Event)) {
        let start = clocks().mono;
        let mut rates = Vec::with_capacity(self.gpus.len());
        for gpu in &mut self.gpus {
            rates.push(gpu.utilization(&self.nvml, &mut self.windows));
            gpu.flush(&mut self.windows, sink);
        }
        if start < self.next_state {
            return;
        }
        let state_start = clocks().mono;
        let with_processes = start >= self.next_processes;
        for (gpu, rates) in self.gpus.iter().zip(rates) {
            gpu.state(&self.nvml, rates, with_processes, sink);
        }
        let cost = clocks().mono.since(state_start);
        self.next_state = start + STATE_EVERY.max(Nanos(cost.0.saturating_mul(STATE_SHARE_ONE_IN)));
        if with_processes {
            self.next_processes = start + PROCESSES_EVERY;
        }
    }

    /// Whether samples of what was before `t` are still to come: a window can be read a while after its end.
    pub fn awaits_samples_of(&self, t: MonoNs) -> bool {
        self.gpus.iter().any(|gpu| gpu.has_samples && !gpu.lost && gpu.builder.awaits_sample_of(t))
    }

    /// The recording ends: gives the windows that were held back.
    pub fn finish(&mut self, sink: &mut dyn FnMut(Event)) {
        for gpu in &mut self.gpus {
            gpu.builder.finish(&mut self.windows);
            gpu.flush(&mut self.windows, sink);
        }
    }

    /// Utilization in the newest windows, percent, mean over the GPUs; absent before the first.
    pub fn latest_utilization(&self) -> Option<f32> {
        let latest: Vec<f32> = self.gpus.iter().filter_map(|g| g.latest).collect();
        if latest.is_empty() { None } else { Some(latest.iter().sum::<f32>() / latest.len() as f32) }
    }
}

impl Watched {
    fn new(nvml: &Nvml, gpu: GpuIndex, start: MonoNs) -> Result<(Watched, Option<String>), NvmlError> {
        let device = nvml.device_by_index(gpu.0)?;
        let mut watched = Watched {
            device: driver::describe(gpu, nvml, &device),
            builder: WindowBuilder::new(gpu, start),
            has_samples: !matches!(driver::samples(&device, 0), Samples::Unsupported),
            has_rates: driver::rates(&device).is_some(),
            lost: false,
            latest: None,
        };
        let note = if driver::is_mig(&device) {
            (watched.has_samples, watched.has_rates) = (false, false);
            Some(format!("GPU {gpu} is split into instances (MIG), for which NVML gives no utilization."))
        } else if !watched.has_samples && !watched.has_rates {
            Some(format!("GPU {gpu}: this driver gives no utilization."))
        } else {
            None
        };
        Ok((watched, note))
    }

    /// The GPU, unless it is gone. A handle borrows from the library, so it is not kept; the driver finds it again in
    /// microseconds.
    fn open<'a>(&self, nvml: &'a Nvml) -> Result<Option<Device<'a>>, NvmlError> {
        if self.lost { Ok(None) } else { nvml.device_by_index(self.device.gpu.0).map(Some) }
    }

    /// New windows, and the current rates of GPU and memory.
    fn utilization(&mut self, nvml: &Nvml, windows: &mut Vec<GpuWindow>) -> Option<(u32, u32)> {
        let device = match self.open(nvml) {
            Ok(device) => device?,
            Err(NvmlError::GpuLost) => {
                log::warn!("GPU {} fell off the bus: nothing more is recorded of it", self.device.gpu);
                self.lost = true;
                return None;
            }
            Err(_) => return None,
        };
        if self.has_samples {
            let last = self.builder.last_stamp(&clocks());
            match driver::samples(&device, last) {
                // The clocks are read after the call, which may have blocked.
                Samples::New(list) => self.builder.add_samples(&list, &clocks(), windows),
                Samples::Nothing => {}
                Samples::Unsupported => self.has_samples = false,
            }
        }
        let rates = if self.has_rates { driver::rates(&device) } else { None };
        if let Some((busy, _)) = rates {
            self.builder.add_rate(clocks().mono, busy, windows);
        }
        rates
    }

    fn state(&self, nvml: &Nvml, rates: Option<(u32, u32)>, with_processes: bool, sink: &mut dyn FnMut(Event)) {
        let Ok(Some(device)) = self.open(nvml) else { return };
        let (gpu, time) = (self.device.gpu, clocks().mono);
        sink(Event::GpuState(driver::state(gpu, time, nvml, &device, rates.map(|(_, memory)| memory))));
        if with_processes {
            driver::processes(gpu, time, &device).into_iter().map(Event::GpuProcess).for_each(sink);
        }
    }

    fn flush(&mut self, windows: &mut Vec<GpuWindow>, sink: &mut dyn FnMut(Event)) {
        for w in windows.drain(..) {
            self.latest = Some(w.utilization);
            sink(Event::GpuWindow(w));
        }
    }
}

/// A bare file name is searched on the library path by the loader; one that lies in the current directory is meant.
fn as_file(lib: &Path) -> PathBuf {
    if lib.components().count() == 1 && lib.is_file() { Path::new(".").join(lib) } else { lib.to_owned() }
}

fn unavailable(error: NvmlError, library: PathBuf, given: bool) -> GpuUnavailable {
    match error {
        NvmlError::LibloadingError(e) if given => {
            // The loader repeats the path, which the sentence has already.
            let why = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
            let why = why.trim_start_matches(&*library.to_string_lossy()).trim_start_matches(": ").to_owned();
            GpuUnavailable::BadLibrary { library, why }
        }
        NvmlError::LibloadingError(_) => GpuUnavailable::NoDriver { library },
        NvmlError::FailedToLoadSymbol(_) => GpuUnavailable::NotNvml { library },
        other => init_failed(&other),
    }
}

fn init_failed(error: &NvmlError) -> GpuUnavailable {
    let advice = match error {
        NvmlError::DriverNotLoaded => "load the driver with: modprobe nvidia",
        NvmlError::NoPermission => "run as root, or give access to /dev/nvidiactl and /dev/nvidia*",
        NvmlError::LibRmVersionMismatch => "library and kernel module differ in version after an update: reboot",
        NvmlError::GpuLost | NvmlError::ResetRequired => "a GPU needs a reset: see nvidia-smi and the kernel log",
        _ => "see whether nvidia-smi works",
    };
    GpuUnavailable::Init { why: error.to_string(), advice }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_is_one_sentence_with_advice() {
        for error in
            [NvmlError::DriverNotLoaded, NvmlError::NoPermission, NvmlError::LibRmVersionMismatch, NvmlError::Unknown]
        {
            let text = unavailable(error, PathBuf::from("lib.so"), false).to_string();
            assert!(
                text.starts_with("GPU utilization is not recorded, everything else is: NVML cannot start ("),
                "{text}"
            );
            assert!(text.contains("); ") && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn a_file_that_is_no_library_is_named_without_repeating_itself() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let Err(e) = NvmlSource::open(Some(file.path())) else { panic!("an empty file was taken for NVML") };
        let text = e.to_string();
        assert_eq!(text.matches(&*file.path().to_string_lossy()).count(), 1, "{text}");
        assert!(text.contains("file too short"), "{text}");
    }

    #[test]
    fn a_library_that_is_not_nvml_is_told_so() {
        let e = NvmlSource::open(Some(Path::new("libc.so.6"))).err().unwrap();
        assert!(matches!(e, GpuUnavailable::NotNvml { .. }), "{e}");
    }

    #[test]
    fn a_missing_library_is_told_with_its_path() {
        let e = NvmlSource::open(Some(Path::new("/nowhere/libnvidia-ml.so.1"))).err().unwrap();
        let text = e.to_string();
        assert!(
            text.contains("/nowhere/libnvidia-ml.so.1 given with --nvml-lib cannot be loaded (cannot open"),
            "{text}"
        );
    }
}
