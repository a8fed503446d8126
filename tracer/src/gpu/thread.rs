//! NVML on a thread of its own: its calls block, for 20 ms at times, and a recorder must not.

use super::error::GpuUnavailable;
use super::nvml::NvmlSource;
use crate::events::{Event, GpuDevice};
use crate::host::clocks;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between the starts of two rounds of calls, at least.
const INTERVAL: Duration = Duration::from_millis(100);

/// The thread may spend one part in so many of its time in calls: with many GPUs and a slow driver, rounds become rarer instead of
/// keeping a CPU, and the driver's locks, busy beside the training.
const CALLS_SHARE_ONE_IN: u32 = 5;

/// How long the end of a recording waits for the window that holds its last moments: two of the usual windows and a bit.
const LAST_WINDOW: Duration = Duration::from_millis(400);

/// Pause between looks for it.
const LAST_LOOKS: Duration = Duration::from_millis(40);

/// A driver call that does not return in this time is left alone when the recording ends.
const STOP_PATIENCE: Duration = Duration::from_secs(3);

/// A running thread that asks NVML about ten times a second.
///
/// The first events are one [`Event::GpuDevice`] per GPU.
pub struct GpuThread {
    devices: Vec<GpuDevice>,
    notes: Vec<String>,
    events: Receiver<Event>,
    latest: Arc<AtomicU32>,
    stop: Sender<()>,
    handle: JoinHandle<()>,
}

/// Opens NVML (see [`NvmlSource::open`]) and starts the thread.
pub fn spawn(lib: Option<PathBuf>) -> Result<GpuThread, GpuUnavailable> {
    let source = NvmlSource::open(lib.as_deref())?;
    let (devices, notes) = (source.devices(), source.notes().to_vec());
    let (event_tx, events) = channel();
    let (stop, stop_rx) = channel();
    let latest = Arc::new(AtomicU32::new(f32::NAN.to_bits()));
    let shared = Arc::clone(&latest);
    let handle = std::thread::Builder::new()
        .name("gpustall-nvml".to_owned())
        .spawn(move || watch(source, &event_tx, &stop_rx, &shared))
        .map_err(GpuUnavailable::NoThread)?;
    Ok(GpuThread { devices, notes, events, latest, stop, handle })
}

impl GpuThread {
    /// The GPUs.
    pub fn devices(&self) -> &[GpuDevice] {
        &self.devices
    }

    /// See [`NvmlSource::notes`].
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Events that came in since the last call; never waits.
    pub fn drain(&self) -> impl Iterator<Item = Event> {
        self.events.try_iter()
    }

    /// See [`NvmlSource::latest_utilization`].
    pub fn latest_utilization(&self) -> Option<f32> {
        let latest = f32::from_bits(self.latest.load(Ordering::Relaxed));
        (!latest.is_nan()).then_some(latest)
    }

    /// Ends the thread and gives what is left: events not drained, a last round of calls, and the windows held back.
    ///
    /// Waits for a call in progress, but not for ever: a driver that hangs must not keep a recording from being closed.
    pub fn stop(self) -> Vec<Event> {
        let GpuThread { events, stop, handle, .. } = self;
        drop(stop);
        let deadline = Instant::now() + STOP_PATIENCE;
        let mut rest = Vec::new();
        loop {
            match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(event) => rest.push(event),
                Err(RecvTimeoutError::Disconnected) => {
                    // The sender is dropped by the thread's last act.
                    if handle.join().is_err() {
                        log::warn!("the thread that reads NVML failed; its last samples are missing");
                    }
                    return rest;
                }
                Err(RecvTimeoutError::Timeout) => {
                    log::warn!("the NVIDIA driver did not answer for {STOP_PATIENCE:?}; its last samples are missing");
                    return rest;
                }
            }
        }
    }
}

fn watch(mut source: NvmlSource, events: &Sender<Event>, stop: &Receiver<()>, latest: &AtomicU32) {
    // A receiver that is gone means that nobody wants events any more; `stop` is then gone, too.
    let mut sink = |event: Event| {
        let _ = events.send(event);
    };
    source.devices().into_iter().map(Event::GpuDevice).for_each(&mut sink);
    loop {
        let start = Instant::now();
        source.sample(&mut sink);
        if let Some(u) = source.latest_utilization() {
            latest.store(u.to_bits(), Ordering::Relaxed);
        }
        let spent = start.elapsed();
        let wait = INTERVAL.max(spent * CALLS_SHARE_ONE_IN).saturating_sub(spent);
        if stop.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    // The last moments lie in a window that the driver has not closed yet.
    let (stopped, deadline) = (clocks().mono, Instant::now() + LAST_WINDOW);
    source.sample(&mut sink);
    while source.awaits_samples_of(stopped) && Instant::now() < deadline {
        std::thread::sleep(LAST_LOOKS);
        source.sample(&mut sink);
    }
    source.finish(&mut sink);
}
