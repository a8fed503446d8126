//! The rare families as JSON lines: readable, and open to new fields and new kinds of event.

use crate::events::Event;
use crate::events::{
    FileOpen, GpuDevice, GpuProcess, GpuState, GpuWindow, HostSample, ImageName, Loss, NamedFile, TaskEvent, ThreadName,
};
use crate::units::MonoNs;
use serde::{Deserialize, Serialize};

/// Declares the line of each family once, for writing and for reading: `{"<family>":{...}}`.
macro_rules! lines {
    ($($variant:ident($content:ty)),* $(,)?) => {
        #[derive(Serialize)]
        #[serde(rename_all = "snake_case")]
        enum LineRef<'a> {
            $($variant(&'a $content),)*
        }

        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Line {
            $($variant($content),)*
        }

        impl<'a> LineRef<'a> {
            /// `None` for the families that are written as columns.
            fn of(event: &'a Event) -> Option<LineRef<'a>> {
                match event {
                    $(Event::$variant(content) => Some(LineRef::$variant(content)),)*
                    Event::OffCpu(_) | Event::CpuSample(_) | Event::Block(_) => None,
                }
            }
        }

        impl From<Line> for Event {
            fn from(line: Line) -> Event {
                match line {
                    $(Line::$variant(content) => Event::$variant(content),)*
                }
            }
        }
    };
}

lines! {
    Open(FileOpen),
    NamedFile(NamedFile),
    ImageName(ImageName),
    Task(TaskEvent),
    ThreadName(ThreadName),
    GpuDevice(GpuDevice),
    GpuWindow(GpuWindow),
    GpuState(GpuState),
    GpuProcess(GpuProcess),
    Host(HostSample),
    Loss(Loss),
}

/// When an event happened, for those that happen at a time: earliest and latest moment.
pub(super) fn span(event: &Event) -> Option<(u64, u64)> {
    let at = |time: MonoNs| Some((time.0, time.0));
    match event {
        Event::Open(e) => at(e.time),
        Event::Task(e) => at(e.time),
        Event::GpuWindow(e) => Some((e.start.0.min(e.end.0), e.end.0.max(e.start.0))),
        Event::GpuState(e) => at(e.time),
        Event::GpuProcess(e) => at(e.time),
        Event::Host(e) => at(e.time),
        Event::Loss(e) => at(e.time),
        Event::NamedFile(_) | Event::ImageName(_) | Event::ThreadName(_) | Event::GpuDevice(_) => None,
        Event::OffCpu(_) | Event::CpuSample(_) | Event::Block(_) => None,
    }
}

/// Appends the event's line; false, and nothing is appended, if it has none.
pub(super) fn write_line(event: &Event, raw: &mut Vec<u8>) -> bool {
    let start = raw.len();
    let written = LineRef::of(event).is_some_and(|line| serde_json::to_writer(&mut *raw, &line).is_ok());
    if written {
        raw.push(b'\n');
    } else {
        raw.truncate(start);
    }
    written
}

/// Reads all lines. The number returned is that of lines of families that this version does not know.
pub(super) fn decode(raw: &[u8], out: &mut Vec<Event>) -> u64 {
    let mut unknown = 0;
    for line in raw.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
        match serde_json::from_slice::<Line>(line) {
            Ok(line) => out.push(line.into()),
            Err(_) => unknown += 1,
        }
    }
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{Loss, LossKind};

    #[test]
    fn lines_of_later_versions_are_counted_and_the_others_kept() {
        let loss = Event::Loss(Loss { time: MonoNs(5), kind: LossKind::Block, count: 3 });
        let mut raw = b"{\"sunspot\":{\"time\":1}}\n".to_vec();
        assert!(write_line(&loss, &mut raw));
        raw.extend_from_slice(b"{\"loss\":{\"time\":6,\"kind\":\"block\",\"count\":1,\"new_field\":[1]}}\nnot json\n");
        let mut events = Vec::new();
        assert_eq!(decode(&raw, &mut events), 2);
        assert_eq!(events, [loss, Event::Loss(Loss { time: MonoNs(6), kind: LossKind::Block, count: 1 })]);
    }
}
