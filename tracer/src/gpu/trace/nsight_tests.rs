//! Exports as versions of Nsight Systems make them, and files that are none.

use super::*;

/// A file with these tables.
pub(in crate::gpu::trace) fn export(sql: &str) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().prefix("a b%?#").suffix(".sqlite").tempfile().unwrap();
    Connection::open(file.path()).unwrap().execute_batch(sql).unwrap();
    file
}

const KERNELS: &str = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, \
    deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, globalPid INTEGER);";

fn spans(e: &mut NsightExport) -> Vec<(u32, i64, i64)> {
    e.work.finish().into_iter().flat_map(|(d, list)| list.into_iter().map(move |s| (d, s.start, s.end))).collect()
}

#[test]
fn tables_streams_and_processes_are_merged_by_gpu() {
    // Process 100 calls GPU 1 its device 0; process 200 calls GPU 0 so.
    let (a, b) = ((1_i64 << 48) | (100 << 24), (1_i64 << 48) | (200 << 24));
    let file = export(&format!(
        "{KERNELS}
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, globalPid INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, globalPid INTEGER);
        CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT, busLocation TEXT);
        CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER, uuid TEXT);
        CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT, systemClockNs INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (10, 20, 0, 1, 7, {a}), (15, 30, 0, 1, 13, {a}), (10, 12, 0, 1, 7, {b});
        INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (28, 40, 0, {a}), (50, 60, 0, {b});
        INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (100, 200, 0, {b});
        INSERT INTO TARGET_INFO_GPU VALUES (1, 0, 'NVIDIA H200', '0000:17:00.0'), (1, 1, 'NVIDIA L4', '0000:65:00.0');
        INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (1, 0, 100, 'x'), (0, 0, 200, 'y');
        INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1750000000000000000, '', '', 77);"
    ));
    let mut e = read(file.path()).unwrap();
    assert_eq!((e.utc_ns, e.system_ns, e.work.used), (Some(1_750_000_000_000_000_000), Some(77), 6));
    assert_eq!(e.work.names[&1], "NVIDIA L4");
    assert_eq!(spans(&mut e), [(0, 10, 12), (0, 50, 60), (0, 100, 200), (1, 10, 40)]);
    assert!(!file.path().with_extension("sqlite-journal").exists());
}

#[test]
fn an_old_export_without_processes_and_session_start_is_read() {
    let file = export(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL);
         INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (5, 9, 2);",
    );
    let mut e = read(file.path()).unwrap();
    assert_eq!((e.utc_ns, spans(&mut e)), (None, vec![(2, 5, 9)]));
}

#[test]
fn rows_that_make_no_sense_are_counted() {
    let file = export(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 9, 0), (9, 5, 0), (NULL, 5, 0), ('x', 5, 0), (1.5, 5, 0), (5, 9, -1);",
    );
    let mut e = read(file.path()).unwrap();
    assert_eq!((e.work.absurd, spans(&mut e)), (5, vec![(0, 5, 9)]));
}

#[test]
fn what_is_no_export_is_refused_in_one_sentence() {
    let failure = |sql: &str| read(export(sql).path()).unwrap_err().to_string();
    assert!(failure("CREATE TABLE t (x)").contains("without GPU work, and not from Nsight Systems; profile with"));
    assert!(failure("CREATE TABLE TARGET_INFO_GPU (id)").contains("without GPU work; profile with nsys"));
    let e = failure("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (x); INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1)");
    assert!(e.contains("cannot be read as an SQLite file (") && !e.contains('\n'), "{e}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [b"SQLite format 3\0".as_slice(), &[7; 500]].concat()).unwrap();
    let e = read(file.path()).unwrap_err().to_string();
    assert!(e.contains("cannot be read as an SQLite file ("), "{e}");
}

#[test]
fn a_cut_export_is_refused_or_told() {
    let rows: String = (0..20_000).map(|i| format!("({}, {}, 0, 1, 7, 0),", i * 10, i * 10 + 5)).collect();
    let file =
        export(&format!("{KERNELS} INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES {};", rows.trim_end_matches(',')));
    let bytes = std::fs::read(file.path()).unwrap();
    for part in [10, 100, 2_000, bytes.len() / 2, bytes.len() - 4096] {
        std::fs::write(file.path(), &bytes[..part]).unwrap();
        match read(file.path()) {
            Ok(e) => assert!(e.work.cut.is_some(), "{part} of {} bytes", bytes.len()),
            Err(e) => assert!(!e.to_string().contains('\n'), "{e}"),
        }
    }
}
