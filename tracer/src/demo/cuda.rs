//! The simulated GPU: a plain sleep when exact intervals are the evidence, or a wait inside the stand-in libcuda, as in
//! a real job, when NVML samples are.

use super::error::DemoError;
use crate::units::Nanos;
use clap::ValueEnum;
use libloading::{Library, Symbol};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// File name of the stand-in; `tests/standin-cuda` builds it, cargo puts it beside the binaries.
pub const LIBRARY: &str = "libcuda_standin.so";

/// How the process waits for its GPU inside libcuda.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CudaWait {
    /// It polls memory, the driver's default while there are CPUs to spare.
    #[default]
    Spin,
    /// It sleeps in a system call that the driver makes.
    Block,
}

impl CudaWait {
    /// `CU_CTX_SCHED_*` of the driver API.
    fn flags(self) -> u32 {
        match self {
            CudaWait::Spin => 1,
            CudaWait::Block => 4,
        }
    }
}

/// A GPU that can be kept busy.
pub enum Gpu {
    /// The caller sleeps.
    Sleep,
    /// The caller waits inside this library.
    Cuda {
        /// The stand-in.
        library: Library,
        /// Where it is.
        path: PathBuf,
    },
}

impl Gpu {
    /// Opens and starts the driver at `path`.
    pub fn cuda(path: &Path, wait: CudaWait) -> Result<Gpu, DemoError> {
        // SAFETY: the stand-in has no constructors, so loading it runs no code; it is the file that this repository
        // builds, from the directory of the running program.
        let library = unsafe { Library::new(path) }
            .map_err(|e| DemoError::Cuda { path: path.to_owned(), reason: e.to_string() })?;
        let gpu = Gpu::Cuda { library, path: path.to_owned() };
        gpu.call_u32(b"cuInit\0", 0)?;
        gpu.call_u32(b"cuCtxSetFlags\0", wait.flags())?;
        Ok(gpu)
    }

    /// Keeps the GPU busy for so long and waits for it.
    pub fn compute(&self, time: Nanos) -> Result<(), DemoError> {
        match self {
            Gpu::Sleep => std::thread::sleep(Duration::from_nanos(time.0)),
            Gpu::Cuda { library, path } => {
                let launch: Symbol<'_, unsafe extern "C" fn(u64) -> i32> = symbol(library, path, b"standinLaunch\0")?;
                let synchronize: Symbol<'_, unsafe extern "C" fn() -> i32> =
                    symbol(library, path, b"cuCtxSynchronize\0")?;
                // SAFETY: the types are those of the stand-in; both functions may be called at any time.
                let results = unsafe { [launch(time.0), synchronize()] };
                results.into_iter().try_for_each(|result| check(path, "computing", result))?;
            }
        }
        Ok(())
    }

    fn call_u32(&self, name: &'static [u8], argument: u32) -> Result<(), DemoError> {
        let Gpu::Cuda { library, path } = self else { return Ok(()) };
        let function: Symbol<'_, unsafe extern "C" fn(u32) -> i32> = symbol(library, path, name)?;
        // SAFETY: `name` is one of the driver's functions of this type.
        let result = unsafe { function(argument) };
        check(path, "starting the driver", result)
    }
}

fn symbol<'lib, T>(library: &'lib Library, path: &Path, name: &[u8]) -> Result<Symbol<'lib, T>, DemoError> {
    // SAFETY: callers name a function of the stand-in with its type.
    unsafe { library.get(name) }.map_err(|e| DemoError::Cuda { path: path.to_owned(), reason: e.to_string() })
}

fn check(path: &Path, doing: &str, result: i32) -> Result<(), DemoError> {
    match result {
        0 => Ok(()),
        code => Err(DemoError::Cuda { path: path.to_owned(), reason: format!("{doing} gave CUresult {code}") }),
    }
}
