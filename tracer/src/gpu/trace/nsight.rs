//! Nsight Systems reports exported with `nsys export --type sqlite`.
//!
//! One table per kind of activity, made only where there was any. Times are nanoseconds from the start of the session, whose
//! wall-clock time is in `TARGET_INFO_SESSION_START_TIME` (absent in old exports), or of the wall clock itself
//! (`--ts-normalize=true`). A kernel's `deviceId` counts as its process does; `TARGET_INFO_CUDA_DEVICE` says which GPU that is.

use super::work::TraceWork;
use crate::gpu::TraceError;
use rusqlite::{Connection, OpenFlags, Row};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// Tables of work on a device. Graph launches are one row each unless the nodes were traced; their kernels have no rows then.
const WORK: [&str; 4] = [
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
];

/// An export, read.
#[derive(Debug, Default)]
pub(super) struct NsightExport {
    pub work: TraceWork,
    /// Wall clock at the start of the session.
    pub utc_ns: Option<i64>,
    /// The system's clock at the start of the session, in newer exports.
    pub system_ns: Option<i64>,
}

/// Reads an export.
pub(super) fn read(path: &Path) -> Result<NsightExport, TraceError> {
    let failed = |why: rusqlite::Error| TraceError::Sqlite { path: path.to_owned(), why: why.to_string() };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(uri(path), flags).map_err(failed)?;
    let tables = tables(&db).map_err(failed)?;
    if !WORK.iter().any(|t| tables.contains(*t)) {
        let nsight = tables.iter().any(|t| t.starts_with("TARGET_INFO_") || t == "ANALYSIS_DETAILS");
        return Err(TraceError::NoCuda { path: path.to_owned(), nsight });
    }
    let mut out = NsightExport::default();
    let one = |column: &str, table: &str| -> Option<i64> {
        db.query_row(&format!("SELECT {column} FROM {table}"), [], |row| row.get(0)).ok()
    };
    if tables.contains("TARGET_INFO_SESSION_START_TIME") {
        out.utc_ns = one("utcEpochNs", "TARGET_INFO_SESSION_START_TIME").filter(|t| *t > 0);
        out.system_ns = one("systemClockNs", "TARGET_INFO_SESSION_START_TIME").filter(|t| *t > 0);
    }
    // Names are no reason to refuse a trace: exports of other versions may have other columns.
    if let Ok(names) = pairs(&db, "SELECT id, name FROM TARGET_INFO_GPU") {
        out.work.names.extend(names);
    }
    let gpus = devices(&db).unwrap_or_default();
    for table in WORK.iter().filter(|t| tables.contains(**t)) {
        if let Err(e) = read_table(&db, table, &gpus, &mut out.work) {
            if out.work.is_empty() {
                return Err(failed(e));
            }
            out.work.cut = Some(format!("The trace is damaged ({e}): only what could be read is used."));
            break;
        }
    }
    Ok(out)
}

/// Opened so, SQLite neither locks nor writes: no journal appears beside a file that is not ours.
fn uri(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut uri = String::from("file:");
    for byte in absolute.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => uri.push(char::from(*byte)),
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri + "?immutable=1"
}

fn tables(db: &Connection) -> rusqlite::Result<BTreeSet<String>> {
    let mut query = db.prepare("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")?;
    query.query_map([], |row| row.get(0))?.collect()
}

fn pairs(db: &Connection, sql: &str) -> rusqlite::Result<Vec<(u32, String)>> {
    let mut query = db.prepare(sql)?;
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.filter_map(Result::ok).collect())
}

/// GPU of each process and each number that it gives a device.
type Gpus = HashMap<(i64, i64), i64>;

fn devices(db: &Connection) -> rusqlite::Result<Gpus> {
    let mut query = db.prepare("SELECT pid, cudaId, gpuId FROM TARGET_INFO_CUDA_DEVICE")?;
    let rows = query.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?;
    Ok(rows.filter_map(Result::ok).collect())
}

fn read_table(db: &Connection, table: &str, gpus: &Gpus, work: &mut TraceWork) -> rusqlite::Result<()> {
    let columns: BTreeSet<String> = {
        let mut query = db.prepare(&format!("SELECT name FROM pragma_table_info('{table}')"))?;
        query.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?
    };
    let process = if columns.contains("globalPid") { "globalPid" } else { "NULL" };
    let mut query = db.prepare(&format!("SELECT start, \"end\", deviceId, {process} FROM {table}"))?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        // Bits 24 to 47 of a global id are the process.
        let pid = whole(row, 3).map(|g| (g >> 24) & 0xff_ffff);
        let device = whole(row, 2).map(|d| pid.and_then(|pid| gpus.get(&(pid, d)).copied()).unwrap_or(d));
        work.by(device, pid);
        work.add(device, whole(row, 0), whole(row, 1));
    }
    Ok(())
}

/// A column's integer; absent for NULL and whatever else is in it.
fn whole(row: &Row<'_>, column: usize) -> Option<i64> {
    row.get_ref(column).ok()?.as_i64().ok()
}

#[cfg(test)]
#[path = "nsight_tests.rs"]
pub(in crate::gpu::trace) mod tests;
