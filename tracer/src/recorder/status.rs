//! The one line that shows how a recording goes.

use crate::units::{MonoNs, Nanos};
use std::io::{IsTerminal, Write};

/// The line is written anew this often.
const EVERY: Nanos = Nanos::from_millis(500);

/// A line on standard error, written over and over.
#[derive(Debug)]
pub struct StatusLine {
    on: bool,
    next: MonoNs,
    shown: bool,
}

impl StatusLine {
    /// A line that is shown if it is wanted and standard error is a terminal.
    pub fn new(wanted: bool) -> StatusLine {
        StatusLine { on: wanted && std::io::stderr().is_terminal(), next: MonoNs(0), shown: false }
    }

    /// Shows the line if it is time to.
    pub fn show(&mut self, now: MonoNs, elapsed: Nanos, events: u64, lost: u64, gpu: Option<f32>) {
        if !self.on || now < self.next {
            return;
        }
        self.next = now + EVERY;
        self.shown = true;
        // A terminal that is gone is no reason to stop recording.
        let _ = write!(std::io::stderr(), "\r\x1b[K{}", text(elapsed, events, lost, gpu));
    }

    /// Removes the line.
    pub fn clear(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn text(elapsed: Nanos, events: u64, lost: u64, gpu: Option<f32>) -> String {
    let gpu = gpu.map_or(String::new(), |u| format!(" · GPU {u:.0} %"));
    format!("recording {:.0} s · {events} events · {lost} lost{gpu} · Ctrl-C ends it", elapsed.secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_time_events_losses_and_the_gpu() {
        let t = text(Nanos::from_millis(12_400), 345_678, 9, Some(34.4));
        assert_eq!(t, "recording 12 s · 345678 events · 9 lost · GPU 34 % · Ctrl-C ends it");
        assert!(!text(Nanos::ZERO, 0, 0, None).contains("GPU"));
    }
}
