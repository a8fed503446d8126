//! Watches GPUs through NVML for a while and prints what gpustall would record, one JSON object a line: `nvml-watch LIBRARY
//! SECONDS`. A process of its own, so that a test can choose the stand-in's behaviour by environment.

use anyhow::Context as _;
use gpustall::events::Event;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args_os().skip(1);
    let library = args.next().map(PathBuf::from).context("usage: nvml-watch LIBRARY SECONDS")?;
    let seconds: f64 =
        args.next().and_then(|s| s.to_str()?.parse().ok()).context("usage: nvml-watch LIBRARY SECONDS")?;
    let thread = gpustall::gpu::spawn(Some(library))?;
    for note in thread.notes() {
        println!("{}", json!({ "note": note }));
    }
    std::thread::sleep(Duration::from_secs_f64(seconds));
    println!("{}", json!({ "latest": thread.latest_utilization() }));
    for event in thread.drain().collect::<Vec<_>>().into_iter().chain(thread.stop()) {
        let line = match event {
            Event::GpuDevice(d) => json!({ "device": d }),
            Event::GpuWindow(w) => json!({ "window": w }),
            Event::GpuState(s) => json!({ "state": s }),
            Event::GpuProcess(p) => json!({ "process": p }),
            other => anyhow::bail!("not a GPU event: {other:?}"),
        };
        println!("{line}");
    }
    Ok(())
}
