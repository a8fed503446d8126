//! Utilization that a driver tells but that cannot be true.

use crate::events::GpuWindow;
use crate::units::Nanos;

/// Time in the driver from which a job must have made its GPU work: contexts and modules take a second or two to set up.
const WORKED: Nanos = Nanos::from_millis(2_000);

/// And the share of the time that is told of.
const WORKED_SHARE: f64 = 0.1;

/// Whole percents of real work differ from window to window; so many of one value do not come by chance.
const FROZEN_WINDOWS: usize = 30;

/// What is wrong with the windows of a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doubt {
    /// 0 % at all times, although the job was in the driver for so long: this driver does not tell utilization (WSL2, some boards).
    Silent {
        /// Time that the job's threads were in the driver.
        in_driver: Nanos,
    },
    /// The same value at all times, neither 0 % nor 100 %.
    Frozen {
        /// That value.
        percent: f32,
    },
}

/// Doubts about the windows of **one** GPU. `in_driver` is how long the thread that feeds it was in the driver, if a process of the
/// job holds a context on it.
pub fn doubt(windows: &[GpuWindow], in_driver: Option<Nanos>) -> Option<Doubt> {
    let percent = windows.first()?.utilization;
    if windows.iter().any(|w| w.utilization != percent) {
        return None;
    }
    let told: Nanos = windows.iter().map(|w| w.end.since(w.start)).sum();
    match in_driver {
        Some(in_driver) if percent == 0.0 && in_driver >= WORKED && in_driver.share_of(told) >= WORKED_SHARE => {
            Some(Doubt::Silent { in_driver })
        }
        _ if percent > 0.0 && percent < 100.0 && windows.len() >= FROZEN_WINDOWS => Some(Doubt::Frozen { percent }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{GpuIndex, MonoNs};

    fn windows(list: impl IntoIterator<Item = f32>) -> Vec<GpuWindow> {
        let window = |(n, utilization): (usize, f32)| GpuWindow {
            gpu: GpuIndex(0),
            start: MonoNs(n as u64 * 200_000_000),
            end: MonoNs((n as u64 + 1) * 200_000_000),
            utilization,
        };
        list.into_iter().enumerate().map(window).collect()
    }

    #[test]
    fn a_gpu_that_never_works_while_its_job_is_in_the_driver_tells_nothing() {
        let zero = windows([0.0; 100]);
        let in_driver = Nanos::from_millis(5_000);
        assert_eq!(doubt(&zero, Some(in_driver)), Some(Doubt::Silent { in_driver }));
        // Only setting up; a tenth of the time or less; no context.
        assert_eq!(doubt(&zero, Some(Nanos::from_millis(1_500))), None);
        assert_eq!(doubt(&windows([0.0; 1000]), Some(in_driver)), None);
        assert_eq!(doubt(&zero, None), None);
        assert_eq!(doubt(&windows([0.0, 0.0, 1.0].repeat(30)), Some(in_driver)), None);
    }

    #[test]
    fn one_value_for_ever_is_doubted_unless_it_is_full_load() {
        assert_eq!(doubt(&windows([37.0; 40]), None), Some(Doubt::Frozen { percent: 37.0 }));
        assert_eq!(doubt(&windows([37.0; 20]), None), None);
        assert_eq!(doubt(&windows([100.0; 400]), Some(Nanos::from_millis(60_000))), None);
        assert_eq!(doubt(&windows([37.0, 38.0].repeat(40)), None), None);
        assert_eq!(doubt(&[], None), None);
    }
}
