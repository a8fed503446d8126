//! Recorded utilization windows as activity.

use super::evidence::{Activity, GpuActivity, GpuSource};
use crate::events::{GpuDevice, GpuWindow};
use crate::units::{GpuIndex, MonoNs, Nanos};
use std::collections::BTreeMap;

/// The windows of a recording, in whatever order, as one activity per GPU: sorted, overlaps given to the earlier window,
/// impossible values dropped. A GPU without a usable window has no entry: nothing is known of its activity.
pub fn windows_to_activity(devices: &[GpuDevice], windows: &[GpuWindow]) -> Vec<GpuActivity> {
    let mut by_gpu: BTreeMap<GpuIndex, Vec<GpuWindow>> = BTreeMap::new();
    for w in windows.iter().filter(|w| w.start < w.end && (0.0..=100.0).contains(&w.utilization)) {
        by_gpu.entry(w.gpu).or_default().push(*w);
    }
    by_gpu
        .into_iter()
        .map(|(gpu, mut list)| {
            list.sort_by_key(|w| (w.start, w.end));
            let mut kept: Vec<GpuWindow> = Vec::with_capacity(list.len());
            for mut w in list {
                if let Some(last) = kept.last() {
                    w.start = w.start.max(last.end);
                }
                if w.start < w.end {
                    kept.push(w);
                }
            }
            let name = devices.iter().find(|d| d.gpu == gpu).map(|d| d.name.clone()).unwrap_or_default();
            GpuActivity {
                gpu,
                name,
                source: GpuSource::Nvml,
                pids: Vec::new(),
                holes: Vec::new(),
                activity: Activity::Windows(kept),
            }
        })
        .collect()
}

/// Cuts the window that holds `t` where the GPU's work ended at `t`, or, if it has more work than fits before that, as soon as
/// that fits: what it did in the window, it did before. Called with the end of the thread that fed the GPU, or its last
/// time in the driver.
pub fn end_work(windows: &mut Vec<GpuWindow>, t: MonoNs) {
    let Some(n) = windows.iter().position(|w| w.start < t && t < w.end) else { return };
    let Some(w) = windows.get_mut(n) else { return };
    let length = w.end.since(w.start).0 as f64;
    let busy = f64::from(w.utilization.clamp(0.0, 100.0)) / 100.0 * length;
    let cut = MonoNs(t.0.max(w.start.0 + busy as u64));
    if cut >= w.end {
        return;
    }
    let rest = GpuWindow { start: cut, utilization: 0.0, ..*w };
    w.utilization = (busy / cut.since(w.start).0 as f64 * 100.0).min(100.0) as f32;
    w.end = cut;
    windows.insert(n + 1, rest);
}

/// The same for the window in which the GPU's work began.
pub fn begin_work(windows: &mut Vec<GpuWindow>, t: MonoNs) {
    let Some(n) = windows.iter().position(|w| w.start < t && t < w.end) else { return };
    let Some(w) = windows.get_mut(n) else { return };
    let length = w.end.since(w.start).0 as f64;
    let busy = f64::from(w.utilization.clamp(0.0, 100.0)) / 100.0 * length;
    let cut = t.min(w.end - Nanos(busy as u64));
    if cut <= w.start {
        return;
    }
    let before = GpuWindow { end: cut, utilization: 0.0, ..*w };
    w.utilization = (busy / w.end.since(cut).0.max(1) as f64 * 100.0).min(100.0) as f32;
    w.start = cut;
    windows.insert(n, before);
}

/// When the GPU's work probably ended in the window `last`: it went on as in the windows before, until the window's work was done.
pub fn probable_end(windows: &[GpuWindow], last: usize) -> Option<MonoNs> {
    let (w, before) = (windows.get(last)?, windows.get(..last)?);
    Some(w.end.min(MonoNs(w.start.0 + lasted(w, before.iter().rev())?)))
}

/// When it probably began in the window `first`.
pub fn probable_begin(windows: &[GpuWindow], first: usize) -> Option<MonoNs> {
    let (w, after) = (windows.get(first)?, windows.get(first + 1..)?);
    Some(w.start.max(MonoNs(w.end.0.saturating_sub(lasted(w, after.iter())?))))
}

/// How long the work of a window would have lasted at the utilization of its neighbours, nearest first, ns.
fn lasted<'a>(w: &GpuWindow, neighbours: impl Iterator<Item = &'a GpuWindow>) -> Option<u64> {
    const NEIGHBOURS: usize = 4;
    let length = |w: &GpuWindow| w.end.since(w.start).0 as f64;
    let busy = |w: &GpuWindow| f64::from(w.utilization.clamp(0.0, 100.0)) / 100.0 * length(w);
    let near = neighbours.take(NEIGHBOURS).take_while(|n| n.utilization > 0.0);
    let (worked, all) = near.fold((0.0, 0.0), |(worked, all), n| (worked + busy(n), all + length(n)));
    (worked > 0.0).then(|| (busy(w) * all / worked) as u64)
}

/// Joins neighbouring windows in which the GPU was busy for a part of the time to windows of at least `length`. Where a window
/// begins and ends is known to some milliseconds only, so that a short gap at an edge is counted in the wrong one; over a longer
/// window that evens out. Windows without any work, or full of it, say all there is to know and stay.
pub fn pool(windows: &mut Vec<GpuWindow>, length: Nanos) {
    let partly = |w: &GpuWindow| w.utilization > 0.0 && w.utilization < 100.0;
    let mut out: Vec<GpuWindow> = Vec::with_capacity(windows.len());
    for w in windows.drain(..) {
        match out.last_mut() {
            Some(last) if partly(last) && partly(&w) && last.end == w.start && last.end.since(last.start) < length => {
                let (a, b) = (last.end.since(last.start).0 as f64, w.end.since(w.start).0 as f64);
                let busy = f64::from(last.utilization) * a + f64::from(w.utilization) * b;
                last.utilization = (busy / (a + b)) as f32;
                last.end = w.end;
            }
            _ => out.push(w),
        }
    }
    *windows = out;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(gpu: u32, start: u64, end: u64, utilization: f32) -> GpuWindow {
        GpuWindow { gpu: GpuIndex(gpu), start: MonoNs(start), end: MonoNs(end), utilization }
    }

    fn device(gpu: u32, name: &str) -> GpuDevice {
        GpuDevice {
            gpu: GpuIndex(gpu),
            name: name.to_owned(),
            uuid: None,
            pci: None,
            memory_bytes: None,
            pcie_max: None,
            power_limit_mw: None,
        }
    }

    #[test]
    fn windows_are_sorted_and_overlaps_removed_per_gpu() {
        let windows = [
            window(1, 0, 10, 5.0),
            window(0, 20, 30, 50.0),
            window(0, 0, 12, 10.0),
            window(0, 10, 20, 20.0),
            window(0, 3, 5, 99.0),
        ];
        let activity = windows_to_activity(&[device(0, "A"), device(1, "B"), device(2, "C")], &windows);
        assert_eq!(activity.iter().map(|a| a.name.as_str()).collect::<Vec<_>>(), ["A", "B"]);
        let expected = vec![window(0, 0, 12, 10.0), window(0, 12, 20, 20.0), window(0, 20, 30, 50.0)];
        assert_eq!(activity[0].activity, Activity::Windows(expected));
        assert_eq!(activity[1].source, GpuSource::Nvml);
    }

    #[test]
    fn impossible_windows_are_dropped() {
        let windows = [window(0, 5, 5, 1.0), window(0, 9, 2, 1.0), window(0, 0, 1, f32::NAN), window(0, 0, 1, 101.0)];
        assert!(windows_to_activity(&[device(0, "A")], &windows).is_empty());
        assert!(windows_to_activity(&[], &[]).is_empty());
    }

    #[test]
    fn work_ends_with_its_feeder() {
        let mut windows = vec![window(0, 0, 100, 50.0), window(0, 100, 200, 20.0), window(0, 200, 300, 0.0)];
        end_work(&mut windows, MonoNs(140));
        let said =
            |windows: &[GpuWindow]| -> Vec<_> { windows.iter().map(|w| (w.start.0, w.end.0, w.utilization)).collect() };
        assert_eq!(said(&windows), [(0, 100, 50.0), (100, 140, 50.0), (140, 200, 0.0), (200, 300, 0.0)]);
        let before = windows.clone();
        end_work(&mut windows, MonoNs(300));
        assert_eq!(windows, before);
        end_work(&mut windows, MonoNs(20));
        assert_eq!(said(&windows)[..2], [(0, 50, 100.0), (50, 100, 0.0)], "as much as it did takes its time");
        begin_work(&mut windows, MonoNs(130));
        assert_eq!(said(&windows)[2..5], [(100, 120, 0.0), (120, 140, 100.0), (140, 200, 0.0)]);
    }

    #[test]
    fn at_its_edges_work_went_on_as_beside_them() {
        let mut windows = vec![window(0, 0, 100, 10.0), window(0, 100, 200, 50.0), window(0, 200, 300, 30.0)];
        windows.push(window(0, 300, 400, 20.0));
        assert_eq!(probable_end(&windows, 3), Some(MonoNs(300 + 20 * 300 / 90)));
        assert_eq!(probable_begin(&windows, 0), Some(MonoNs(100 - 10 * 300 / 100)));
        // As much as its neighbours: it was not cut. No neighbour with work: nobody can tell.
        assert_eq!(probable_end(&windows, 1), Some(MonoNs(200)));
        assert_eq!(probable_end(&windows, 0), None);
        windows[2].utilization = 0.0;
        assert_eq!(probable_end(&windows, 3), None);
    }

    #[test]
    fn partly_busy_neighbours_are_pooled() {
        let mut windows =
            vec![window(0, 0, 10, 50.0), window(0, 10, 20, 30.0), window(0, 20, 30, 0.0), window(0, 30, 40, 20.0)];
        windows.push(window(0, 40, 50, 40.0));
        windows.push(window(0, 50, 60, 60.0));
        windows.push(window(0, 70, 80, 60.0));
        pool(&mut windows, Nanos(20));
        let said: Vec<_> = windows.iter().map(|w| (w.start.0, w.end.0, w.utilization)).collect();
        let expected = [(0, 20, 40.0), (20, 30, 0.0), (30, 50, 30.0), (50, 60, 60.0), (70, 80, 60.0)];
        assert_eq!(said, expected, "up to the length, and not over a hole");
    }
}
