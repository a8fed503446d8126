//! The NVIDIA driver's management library: can GPU evidence be had?

use super::Check;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::path::Path;

/// What NVML says.
struct Found {
    driver: Option<String>,
    /// Names, in NVML's order.
    gpus: Vec<String>,
}

/// Why it says nothing.
enum Absent {
    NoLibrary(String),
    NoDriver,
    VersionMismatch,
    NotPermitted,
    Other(String),
}

pub(super) fn check(library: Option<&Path>) -> Check {
    judge(read(library), library)
}

fn read(library: Option<&Path>) -> Result<Found, Absent> {
    let mut builder = Nvml::builder();
    if let Some(path) = library {
        builder.lib_path(path.as_os_str());
    }
    let nvml = builder.init().map_err(|e| match e {
        NvmlError::LibloadingError(e) => Absent::NoLibrary(e.to_string()),
        NvmlError::LibraryNotFound => Absent::NoLibrary(e.to_string()),
        NvmlError::DriverNotLoaded => Absent::NoDriver,
        NvmlError::LibRmVersionMismatch => Absent::VersionMismatch,
        NvmlError::NoPermission => Absent::NotPermitted,
        e => Absent::Other(e.to_string()),
    })?;
    let count = nvml.device_count().map_err(|e| Absent::Other(e.to_string()))?;
    let name = |index| match nvml.device_by_index(index).and_then(|d| d.name()) {
        Ok(name) => name,
        Err(e) => format!("GPU {index} ({e})"),
    };
    Ok(Found { driver: nvml.sys_driver_version().ok(), gpus: (0..count).map(name).collect() })
}

fn judge(found: Result<Found, Absent>, library: Option<&Path>) -> Check {
    const NAME: &str = "nvml";
    let without = "recordings will hold no GPU evidence";
    match found {
        Ok(Found { driver, gpus }) => {
            let driver = driver.map_or_else(|| "driver of unknown version".to_owned(), |d| format!("driver {d}"));
            if gpus.is_empty() {
                let advice = "see nvidia-smi -L; in a container pass the GPUs in (--gpus all)";
                return Check::warning(NAME, format!("{driver}, but no GPU: {without}"), advice);
            }
            let mut kinds: Vec<(&str, usize)> = Vec::new();
            for gpu in &gpus {
                match kinds.iter_mut().find(|(name, _)| name == gpu) {
                    Some((_, count)) => *count += 1,
                    None => kinds.push((gpu, 1)),
                }
            }
            let kinds: Vec<String> = kinds.iter().map(|(name, count)| format!("{count} × {name}")).collect();
            Check::ok(NAME, format!("{driver}, {}", kinds.join(", ")))
        }
        Err(Absent::NoLibrary(why)) => match library {
            Some(path) => Check::warning(
                NAME,
                format!("{} cannot be loaded ({why}): {without}", path.display()),
                "give --nvml-lib the path of an existing libnvidia-ml.so.1",
            ),
            None => Check::warning(
                NAME,
                format!("libnvidia-ml.so.1 not found: {without}"),
                "install the NVIDIA driver, or give its library with --nvml-lib PATH; \
                 `gpustall report --gpu-trace` takes evidence from elsewhere",
            ),
        },
        Err(Absent::NoDriver) => Check::warning(
            NAME,
            format!("the library is there, but the driver is not loaded: {without}"),
            "sudo modprobe nvidia; look into dmesg if that fails",
        ),
        Err(Absent::VersionMismatch) => Check::warning(
            NAME,
            format!("library and loaded driver differ in version (the driver was updated): {without}"),
            "reboot, or unload and load the nvidia modules",
        ),
        Err(Absent::NotPermitted) => {
            Check::warning(NAME, format!("no permission for the GPU devices: {without}"), "run gpustall with sudo")
        }
        Err(Absent::Other(why)) => {
            Check::warning(NAME, format!("NVML failed ({why}): {without}"), "see what nvidia-smi says")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn gpus_are_counted_by_name() {
        let gpus = ["NVIDIA H100", "NVIDIA H100", "NVIDIA T4"].map(str::to_owned).to_vec();
        let check = judge(Ok(Found { driver: Some("550.54".into()), gpus }), None);
        assert_eq!(check.level, Level::Ok);
        assert_eq!(check.finding, "driver 550.54, 2 × NVIDIA H100, 1 × NVIDIA T4");
    }

    #[test]
    fn a_missing_gpu_is_a_warning_never_a_failure() {
        let cases = [
            Ok(Found { driver: None, gpus: vec![] }),
            Err(Absent::NoLibrary("x".into())),
            Err(Absent::NoDriver),
            Err(Absent::VersionMismatch),
            Err(Absent::NotPermitted),
            Err(Absent::Other("x".into())),
        ];
        for case in cases {
            let check = judge(case, None);
            assert_eq!(check.level, Level::Warning);
            assert!(check.finding.contains("no GPU evidence") && check.advice.is_some());
        }
    }

    #[test]
    fn a_library_that_is_not_there_is_named() {
        let check = check(Some(Path::new("/nonexistent/libnvidia-ml.so.1")));
        assert_eq!(check.level, Level::Warning);
        assert!(check.finding.contains("/nonexistent/libnvidia-ml.so.1"), "{}", check.finding);
        assert!(check.advice.unwrap().contains("--nvml-lib"));
    }
}
