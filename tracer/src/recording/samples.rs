//! On-CPU samples as columns: sites (thread, system call, file, image), then time, CPU and instruction pointer of each.

use super::block::MAX_ROWS;
use super::columns::{ColumnSet, Cursor, split};
use super::dictionary::{Dictionary, Files, Threads, entries};
use super::off_cpu::take_syscall;
use crate::events::{CpuSample, FileRef, ImageId, Syscall};
use crate::units::{MonoNs, Pid, Tid};

/// Number of columns.
const COLUMNS: usize = 12;

/// What samples share.
type SiteKey = (Tid, Pid, Syscall, Option<FileRef>, ImageId);

/// The last sample at a site, from which the next is told: CPU and instruction pointer.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    cpu: u16,
    ip: u64,
}

/// Encodes blocks one after the other, reusing its memory.
#[derive(Debug, Default)]
pub(super) struct SampleEncoder {
    columns: ColumnSet<COLUMNS>,
    sites: Dictionary<SiteKey>,
    last: Vec<Last>,
    threads: Threads,
    files: Files,
}

/// Earliest and latest time of the rows.
pub(super) fn span(rows: &[CpuSample]) -> (u64, u64) {
    let times = || rows.iter().map(|r| r.time.0);
    (times().min().unwrap_or(0), times().max().unwrap_or(0))
}

impl SampleEncoder {
    /// Appends the rows' content to `raw` and the ends of its parts to `edges`; `first` is the header's first time.
    pub(super) fn encode(&mut self, rows: &[CpuSample], first: u64, raw: &mut Vec<u8>, edges: &mut Vec<usize>) {
        self.sites.clear();
        self.last.clear();
        self.threads.clear();
        self.files.clear();
        let [
            threads,
            file_kinds,
            file_kind,
            file_inode,
            site_thread,
            site_syscall,
            site_file,
            site_image,
            site_of,
            time,
            cpu,
            ip,
        ] = self.columns.start();
        let mut last_time = first;
        for row in rows {
            let (index, new) = self.sites.intern((row.tid, row.pid, row.syscall, row.file, row.image));
            if new {
                site_thread.put(self.threads.intern(row.tid, row.pid, threads) as u64);
                site_syscall.put_signed(i64::from(row.syscall.0));
                site_file.put(self.files.intern(row.file, [file_kinds, file_kind, file_inode]) as u64);
                site_image.put(u64::from(row.image.0));
                self.last.push(Last::default());
            }
            let Some(last) = self.last.get_mut(index) else { continue };
            site_of.put(index as u64);
            time.put_delta(last_time, row.time.0);
            cpu.put_delta(u64::from(last.cpu), u64::from(row.cpu));
            ip.put_delta(last.ip, row.user_ip);
            *last = Last { cpu: row.cpu, ip: row.user_ip };
            last_time = row.time.0;
        }
        self.columns.finish(raw, edges);
    }
}

/// Reads a content of `count` rows into `out`; `None` if it is not what the layout says.
pub(super) fn decode(raw: &[u8], count: usize, first: u64, out: &mut Vec<CpuSample>) -> Option<()> {
    if count > MAX_ROWS {
        return None;
    }
    let [
        threads,
        file_kinds,
        file_kind,
        file_inode,
        mut site_thread,
        mut site_syscall,
        mut site_file,
        mut site_image,
        mut site_of,
        mut time,
        mut cpu,
        mut ip,
    ] = split::<COLUMNS>(raw)?;
    let threads = Threads::read(threads, count)?;
    let files = Files::read([file_kinds, file_kind, file_inode], count)?;
    let mut sites = entries(count, |at_end| {
        *at_end = site_thread.is_at_end();
        if *at_end {
            return None;
        }
        let (tid, pid) = *threads.get(site_thread.take_as::<usize>()?)?;
        Some(CpuSample {
            time: MonoNs(0),
            tid,
            pid,
            cpu: 0,
            syscall: take_syscall(&mut site_syscall)?,
            user_ip: 0,
            image: ImageId(site_image.take_as()?),
            file: *files.get(site_file.take_as::<usize>()?)?,
        })
    })?;
    let mut last_time = first;
    out.reserve(count);
    for _ in 0..count {
        // The site is at the same time the last sample there.
        let row = sites.get_mut(site_of.take_as::<usize>()?)?;
        last_time = time.take_delta(last_time)?;
        row.time = MonoNs(last_time);
        row.cpu = cpu.take_delta(u64::from(row.cpu))?.try_into().ok()?;
        row.user_ip = ip.take_delta(row.user_ip)?;
        out.push(*row);
    }
    [site_of, time, cpu, ip].iter().all(Cursor::is_at_end).then_some(())
}
