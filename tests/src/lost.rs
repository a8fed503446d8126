//! What a recording lost.

use serde_json::Value;

/// Events that did not fit into a ring or a map, by the report's own count.
///
/// Not counted are intervals whose end the kernel did not trace: some kernels skip a switch in a thousand (ftrace, asked at
/// the same time, misses the same ones), which no tracer can help.
pub fn dropped(report: &Value) -> u64 {
    let lost = report["overhead"]["lost"].as_object();
    lost.into_iter().flatten().filter(|(kind, _)| *kind != "bad_interval").filter_map(|(_, n)| n.as_u64()).sum()
}
