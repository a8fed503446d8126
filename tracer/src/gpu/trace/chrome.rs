//! Chrome traces as PyTorch's profiler (Kineto) writes them, read event by event: a trace may be gigabytes long.
//!
//! Written by `libkineto/src/output_json.cpp`: an object with its `traceEvents`, times in µs. From PyTorch 2.4 on they count from
//! `baseTimeNanoseconds`, which stands behind the events up to 2.6; before, they are wall-clock times. Work on a device has
//! `"ph": "X"`, one of three categories, and the device in `args.device`, which is its `pid`, too. What the CPU did has the id of the
//! process as its `pid`, as that process sees it: inside a container it has another one outside.

use super::work::TraceWork;
use crate::gpu::TraceError;
use crate::units::Pid;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;
use std::io::{BufReader, ErrorKind, Read};
use std::marker::PhantomData;
use std::path::Path;

/// Read at once; the parser itself goes byte by byte.
const BUFFER: usize = 256 * 1024;

/// A Chrome trace, read.
#[derive(Debug, Default)]
pub(super) struct ChromeTrace {
    pub work: TraceWork,
    /// `baseTimeNanoseconds`: what all times count from.
    pub base_ns: Option<i64>,
    /// There is one, but no whole number.
    base_unreadable: bool,
    /// Events of any kind.
    pub events: u64,
    /// Processes that called CUDA, and those that did anything on the CPU.
    launched: BTreeSet<Pid>,
    on_cpu: BTreeSet<Pid>,
}

/// More processes than write into one trace; what follows is not looked at.
const MOST_PROCESSES: usize = 1024;

impl ChromeTrace {
    /// Notes whose event on the CPU this is.
    fn did(&mut self, what: Category, pid: Number) {
        let pid = pid.whole().and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0);
        let of = match what {
            Category::Launch => &mut self.launched,
            Category::OnCpu => &mut self.on_cpu,
            Category::OnDevice | Category::Other => return,
        };
        if of.len() < MOST_PROCESSES {
            of.extend(pid.map(Pid));
        }
    }

    /// A trace is of one process as a rule, which gave all devices in it their work. Where somebody put the traces of several
    /// together, it does not say whose device is whose.
    fn name_processes(&mut self) {
        let known = if self.launched.is_empty() { &self.on_cpu } else { &self.launched };
        if known.len() == 1 || self.work.devices().count() == 1 {
            self.work.all_by(known);
        }
    }
}

/// Reads a trace to its end, or to where it is cut off or damaged.
pub(super) fn read(stream: impl Read, path: &Path) -> Result<ChromeTrace, TraceError> {
    let mut out = ChromeTrace::default();
    let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(BUFFER, stream));
    let read = json.deserialize_any(Top(&mut out));
    out.name_processes();
    if out.base_unreadable {
        return Err(TraceError::Base { path: path.to_owned() });
    }
    let Err(e) = read else { return Ok(out) };
    let cut = match e.io_error_kind() {
        // A gzip stream that ends early.
        Some(ErrorKind::UnexpectedEof) => true,
        // One whose checksum or codes are wrong.
        Some(ErrorKind::InvalidInput | ErrorKind::InvalidData) => false,
        Some(_) => return Err(TraceError::Unreadable { path: path.to_owned(), why: e.into() }),
        None => e.is_eof(),
    };
    let line = e.line();
    if out.work.is_empty() {
        return Err(TraceError::DamagedEarly { path: path.to_owned(), line: line as u64, cut });
    }
    out.work.cut = Some(if cut {
        "The trace is cut off, as when the profiler is stopped while writing: what is whole of it is used.".into()
    } else {
        format!("The trace is damaged at line {line}: only what comes before is used.")
    });
    Ok(out)
}

/// The whole file.
struct Top<'a>(&'a mut ChromeTrace);

#[derive(Deserialize)]
#[serde(field_identifier)]
enum TopKey {
    #[serde(rename = "traceEvents")]
    Events,
    #[serde(rename = "baseTimeNanoseconds")]
    Base,
    #[serde(rename = "deviceProperties")]
    Devices,
    #[serde(other)]
    Other,
}

impl<'de> Visitor<'de> for Top<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Chrome trace")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(key) = map.next_key()? {
            match key {
                TopKey::Events => map.next_value_seed(Events(self.0))?,
                TopKey::Base => {
                    self.0.base_ns = map.next_value_seed(Any::<Number>(PhantomData))?.whole();
                    self.0.base_unreadable = self.0.base_ns.is_none();
                }
                TopKey::Devices => name_devices(&map.next_value()?, self.0),
                TopKey::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, seq: S) -> Result<(), S::Error> {
        Events(self.0).visit_seq(seq)
    }
}

fn name_devices(properties: &Value, out: &mut ChromeTrace) {
    for device in properties.as_array().into_iter().flatten() {
        let id = device.get("id").and_then(Value::as_u64).and_then(|id| u32::try_from(id).ok());
        if let (Some(id), Some(name)) = (id, device.get("name").and_then(Value::as_str)) {
            out.work.names.insert(id, name.to_owned());
        }
    }
}

/// The array of events.
struct Events<'a>(&'a mut ChromeTrace);

impl<'de> DeserializeSeed<'de> for Events<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of events")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<(), S::Error> {
        while let Some(event) = seq.next_element_seed(Any::<Event>(PhantomData))? {
            self.0.events += 1;
            if !event.ph.0 {
                continue;
            }
            self.0.did(event.cat, event.pid);
            if event.cat == Category::OnDevice {
                let start = event.ts.micros();
                let end = start.zip(event.dur.micros()).and_then(|(s, d)| s.checked_add(d));
                let device = event.args.device.whole().or(event.pid.whole());
                self.0.work.add(device, start, end);
            }
        }
        Ok(())
    }
}

/// What counts of one event.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Event {
    #[serde(deserialize_with = "lenient")]
    ph: Complete,
    #[serde(deserialize_with = "lenient")]
    cat: Category,
    #[serde(deserialize_with = "lenient")]
    ts: Number,
    #[serde(deserialize_with = "lenient")]
    dur: Number,
    #[serde(deserialize_with = "lenient")]
    pid: Number,
    #[serde(deserialize_with = "lenient")]
    args: Args,
}

/// `"ph": "X"`: an event with a duration.
#[derive(Default)]
struct Complete(bool);

/// What the category of an event tells. The first releases wrote "Kernel", "Memcpy" and "Memset", "Runtime" and "Operator".
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Category {
    /// Work on a device.
    OnDevice,
    /// A call of CUDA.
    Launch,
    /// Something else that a process did.
    OnCpu,
    #[default]
    Other,
}

const ON_DEVICE: [&str; 5] = ["kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"];
const LAUNCHES: [&str; 3] = ["cuda_runtime", "cuda_driver", "runtime"];
const ON_CPU: [&str; 4] = ["cpu_op", "operator", "python_function", "user_annotation"];

/// A number, however it is written.
#[derive(Clone, Copy, Default)]
enum Number {
    Int(i64),
    Float(f64),
    #[default]
    None,
}

impl Number {
    fn whole(self) -> Option<i64> {
        match self {
            Number::Int(n) => Some(n),
            Number::Float(f) if f.fract() == 0.0 && f.abs() < 9e15 => Some(f as i64),
            _ => None,
        }
    }

    /// Microseconds as nanoseconds.
    fn micros(self) -> Option<i64> {
        match self {
            Number::Int(n) => n.checked_mul(1_000),
            Number::Float(f) if f.abs() < 9e15 => Some((f * 1_000.0).round() as i64),
            _ => None,
        }
    }
}

/// `args`, of which only the device counts.
#[derive(Default)]
struct Args {
    device: Number,
}

#[derive(Deserialize)]
#[serde(field_identifier)]
enum ArgsKey {
    #[serde(rename = "device")]
    Device,
    #[serde(other)]
    Other,
}

/// What is made of any JSON value, the default of those that are not expected: one odd event is no reason to stop.
trait Lenient: Default {
    fn text(_: &str) -> Self {
        Self::default()
    }

    fn number(_: Number) -> Self {
        Self::default()
    }

    fn object<'de, M: MapAccess<'de>>(mut map: M) -> Result<Self, M::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

impl Lenient for Complete {
    fn text(s: &str) -> Self {
        Complete(s == "X")
    }
}

impl Lenient for Category {
    fn text(s: &str) -> Self {
        let is = |names: &[&str]| names.iter().any(|c| s.eq_ignore_ascii_case(c));
        match () {
            () if is(&ON_DEVICE) => Category::OnDevice,
            () if is(&LAUNCHES) => Category::Launch,
            () if is(&ON_CPU) => Category::OnCpu,
            () => Category::Other,
        }
    }
}

impl Lenient for Number {
    fn text(s: &str) -> Self {
        let float = || s.parse().ok().filter(|f: &f64| f.is_finite()).map_or(Number::None, Number::Float);
        s.parse().map_or_else(|_| float(), Number::Int)
    }

    fn number(n: Number) -> Self {
        n
    }
}

impl Lenient for Args {
    fn object<'de, M: MapAccess<'de>>(mut map: M) -> Result<Self, M::Error> {
        let mut args = Args::default();
        while let Some(key) = map.next_key()? {
            match key {
                ArgsKey::Device => args.device = map.next_value_seed(Any(PhantomData))?,
                ArgsKey::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(args)
    }
}

impl Lenient for Event {
    fn object<'de, M: MapAccess<'de>>(map: M) -> Result<Self, M::Error> {
        Event::deserialize(MapAccessDeserializer::new(map))
    }
}

fn lenient<'de, D: Deserializer<'de>, T: Lenient>(json: D) -> Result<T, D::Error> {
    json.deserialize_any(Any(PhantomData))
}

/// Visits any value.
struct Any<T>(PhantomData<T>);

impl<'de, T: Lenient> DeserializeSeed<'de> for Any<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<T, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de, T: Lenient> Visitor<'de> for Any<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_str<E>(self, s: &str) -> Result<T, E> {
        Ok(T::text(s))
    }

    fn visit_u64<E>(self, n: u64) -> Result<T, E> {
        Ok(T::number(i64::try_from(n).map_or(Number::None, Number::Int)))
    }

    fn visit_i64<E>(self, n: i64) -> Result<T, E> {
        Ok(T::number(Number::Int(n)))
    }

    fn visit_f64<E>(self, f: f64) -> Result<T, E> {
        Ok(T::number(Number::Float(f)))
    }

    fn visit_bool<E>(self, _: bool) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<T, S::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(T::default())
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<T, M::Error> {
        T::object(map)
    }
}

#[cfg(test)]
#[path = "chrome_tests.rs"]
mod tests;
