//! Printing a report.

use crate::report::{self, Report};
use std::io::{self, IsTerminal, Write};

/// Width of a report that does not go to a terminal.
const PAGE: usize = 100;

/// Prints a report to standard output, as text or as one JSON object.
pub fn print(report: &Report, json: bool) -> io::Result<()> {
    let stdout = io::stdout();
    let text = if json {
        let mut text = report::to_json(report);
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text
    } else {
        let colour = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        report::render(report, width(), colour)
    };
    let mut out = stdout.lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader has seen enough (`gpustall report … | head`).
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Columns of the terminal, or of a page.
pub fn width() -> usize {
    let columns = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |s| usize::from(s.ws_col));
    if columns == 0 { PAGE } else { columns.clamp(60, 160) }
}
