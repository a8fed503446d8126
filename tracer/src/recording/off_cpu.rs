//! Off-CPU intervals as columns.
//!
//! What repeats goes into dictionaries. The most important is that of *sites*: a thread in a system call with an argument
//! on a file, sleeping in a certain way. A thread has few sites, so one small number a row stands for half the fields.
//! What is left of a row is its times, each written relative to its likeliest neighbour.

use super::block::MAX_ROWS;
use super::columns::{ColumnSet, Cursor, split};
use super::dictionary::{Dictionary, Files, Numbers, Threads, entries};
use crate::events::{FileRef, OffCpu, SleepState, Syscall, Waker, Wakeup};
use crate::units::{MonoNs, Pid, Tid};

const IOWAIT: u64 = 1 << 3;
const SEEDED: u64 = 1 << 4;
const PENDING: u64 = 1 << 5;
/// It was woken: the row has a waker.
const WOKEN: u64 = 1 << 6;
/// It was woken at the very time it left the CPU: the row has no run-queue time.
const WOKEN_AT_OFF: u64 = 1 << 7;
/// `off` is written as the time since the thread's previous `on` in this block (how long it ran), not as the length of
/// the interval. Chosen for each site by what is shorter.
const OFF_AFTER_RUN: u64 = 1 << 8;

/// Number of columns.
const COLUMNS: usize = 20;

/// What rows share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SiteKey {
    tid: Tid,
    pid: Pid,
    syscall: Syscall,
    arg0: u64,
    file: Option<FileRef>,
    shape: u64,
}

impl SiteKey {
    fn of(row: &OffCpu) -> SiteKey {
        let mut shape = match row.state {
            SleepState::Preempted => 0,
            SleepState::Interruptible => 1,
            SleepState::Uninterruptible => 2,
            SleepState::New => 3,
            SleepState::Other => 4,
        };
        for (set, bit) in [(row.iowait, IOWAIT), (row.seeded, SEEDED), (row.pending, PENDING)] {
            shape |= if set { bit } else { 0 };
        }
        if let Some(wakeup) = row.wakeup {
            shape |= if wakeup.at == row.off { WOKEN | WOKEN_AT_OFF } else { WOKEN };
        }
        SiteKey { tid: row.tid, pid: row.pid, syscall: row.syscall, arg0: row.arg0, file: row.file, shape }
    }
}

/// What the encoder knows of a site.
#[derive(Clone, Copy, Debug)]
struct Site {
    key: SiteKey,
    thread: usize,
    /// Bits that `off` takes over all rows, written in the one way and in the other.
    bits_of_run: u64,
    bits_of_length: u64,
    /// Index of the last waker plus 1; 0 before the first.
    last_waker: usize,
}

/// State of a thread while rows are written or read.
#[derive(Clone, Copy, Debug)]
struct ThreadState {
    on: u64,
    cpu: u16,
}

/// Encodes blocks one after the other, reusing its memory.
#[derive(Debug, Default)]
pub(super) struct OffCpuEncoder {
    columns: ColumnSet<COLUMNS>,
    site_index: Dictionary<SiteKey>,
    sites: Vec<Site>,
    threads: Threads,
    files: Files,
    args: Numbers,
    wakers: Dictionary<Waker>,
    tids: Numbers,
    states: Vec<ThreadState>,
    site_of_row: Vec<u32>,
}

/// Earliest and latest time of the rows.
pub(super) fn span(rows: &[OffCpu]) -> (u64, u64) {
    let first = rows.iter().map(|r| r.off.0.min(r.on.0)).min().unwrap_or(0);
    let last = rows.iter().map(|r| r.on.0.max(r.off.0)).max().unwrap_or(0);
    (first, last)
}

fn bits(value: u64) -> u64 {
    u64::from(u64::BITS - value.leading_zeros())
}

impl OffCpuEncoder {
    /// Appends the rows' content to `raw` and the ends of its parts to `edges`; `first` is the header's first time.
    pub(super) fn encode(&mut self, rows: &[OffCpu], first: u64, raw: &mut Vec<u8>, edges: &mut Vec<usize>) {
        self.find_sites(rows, first);
        self.write(rows, first);
        self.columns.finish(raw, edges);
    }

    /// First pass: sites, and for each the better way to write `off`.
    fn find_sites(&mut self, rows: &[OffCpu], first: u64) {
        self.site_index.clear();
        self.sites.clear();
        self.threads.clear();
        self.states.clear();
        self.site_of_row.clear();
        let [threads, ..] = self.columns.start();
        for row in rows {
            let key = SiteKey::of(row);
            let (index, new) = self.site_index.intern(key);
            self.site_of_row.push(index as u32);
            if new {
                let thread = self.threads.intern(key.tid, key.pid, threads);
                if thread == self.states.len() {
                    self.states.push(ThreadState { on: first, cpu: 0 });
                }
                self.sites.push(Site { key, thread, bits_of_run: 0, bits_of_length: 0, last_waker: 0 });
            }
            let Some(site) = self.sites.get_mut(index) else { continue };
            let Some(thread) = self.states.get_mut(site.thread) else { continue };
            let ran = row.off.0.wrapping_sub(thread.on) as i64;
            site.bits_of_run += bits(ran.unsigned_abs()) + 1;
            site.bits_of_length += bits(row.on.0.wrapping_sub(row.off.0));
            thread.on = row.on.0;
        }
    }

    /// Second pass: everything else.
    fn write(&mut self, rows: &[OffCpu], first: u64) {
        self.files.clear();
        self.args.clear();
        self.wakers.clear();
        self.tids.clear();
        self.states.fill(ThreadState { on: first, cpu: 0 });
        // `find_sites` emptied the columns and wrote the first.
        let [
            _,
            file_kinds,
            file_kind,
            file_inode,
            args,
            wakers,
            site_thread,
            site_syscall,
            site_arg,
            site_file,
            site_shape,
            site_of,
            on,
            off,
            run_queue,
            waker,
            cpu,
            tids,
            next,
            prev,
        ] = self.columns.columns();
        for site in &mut self.sites {
            let key = &mut site.key;
            if site.bits_of_run < site.bits_of_length {
                key.shape |= OFF_AFTER_RUN;
            }
            site_thread.put(site.thread as u64);
            site_syscall.put_signed(i64::from(key.syscall.0));
            site_arg.put(self.args.intern(key.arg0, args) as u64);
            site_file.put(self.files.intern(key.file, [file_kinds, file_kind, file_inode]) as u64);
            site_shape.put(key.shape);
        }
        let mut last_on = first;
        for (row, &index) in rows.iter().zip(&self.site_of_row) {
            let Some(site) = self.sites.get_mut(index as usize) else { continue };
            let Some(thread) = self.states.get_mut(site.thread) else { continue };
            site_of.put(u64::from(index));
            on.put_delta(last_on, row.on.0);
            if site.key.shape & OFF_AFTER_RUN != 0 {
                off.put_delta(thread.on, row.off.0);
            } else {
                off.put(row.on.0.wrapping_sub(row.off.0));
            }
            if let Some(wakeup) = row.wakeup {
                if site.key.shape & WOKEN_AT_OFF == 0 {
                    run_queue.put(row.on.0.wrapping_sub(wakeup.at.0));
                }
                let (by, new) = self.wakers.intern(wakeup.by);
                if new {
                    write_waker(wakeup.by, wakers);
                }
                if site.last_waker == by + 1 {
                    waker.put(0);
                } else {
                    waker.put(by as u64 + 1);
                    site.last_waker = by + 1;
                }
            }
            cpu.put_delta(u64::from(thread.cpu), u64::from(row.cpu));
            next.put(self.tids.intern(u64::from(row.next_tid.0), tids) as u64);
            prev.put(self.tids.intern(u64::from(row.prev_tid.0), tids) as u64);
            *thread = ThreadState { on: row.on.0, cpu: row.cpu };
            last_on = row.on.0;
        }
    }
}

fn write_waker(waker: Waker, column: &mut super::columns::Column) {
    match waker {
        Waker::Thread { tid, pid, syscall } => {
            column.put(0);
            column.put(u64::from(tid.0));
            column.put_delta(u64::from(tid.0), u64::from(pid.0));
            column.put_signed(i64::from(syscall.0));
        }
        Waker::KernelThread { tid } => {
            column.put(1);
            column.put(u64::from(tid.0));
        }
        Waker::Interrupt => column.put(2),
    }
}

fn read_waker(column: &mut Cursor<'_>) -> Option<Waker> {
    Some(match column.take()? {
        0 => {
            let tid: u32 = column.take_as()?;
            let pid = column.take_delta(u64::from(tid))?.try_into().ok()?;
            Waker::Thread { tid: Tid(tid), pid: Pid(pid), syscall: take_syscall(column)? }
        }
        1 => Waker::KernelThread { tid: Tid(column.take_as()?) },
        2 => Waker::Interrupt,
        _ => return None,
    })
}

/// A system call number of a column of signed numbers.
pub(super) fn take_syscall(column: &mut Cursor<'_>) -> Option<Syscall> {
    Some(Syscall(column.take_signed()?.try_into().ok()?))
}

/// A site read back: a row to copy, whose times are still missing.
struct SiteRow {
    row: OffCpu,
    shared: Shared,
    shape: u64,
    /// The last waker at this site; `None` before the first.
    waker: Option<Waker>,
}

/// Reads a content of `count` rows into `out`; `None` if it is not what the layout says.
pub(super) fn decode(raw: &[u8], count: usize, first: u64, out: &mut Vec<OffCpu>) -> Option<()> {
    if count > MAX_ROWS {
        return None;
    }
    out.reserve(count);
    visit(raw, count, first, |_, row| out.push(*row))
}

/// What rows of a block have in common, by its number in the dictionaries of this block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shared {
    /// Same number, same thread and process.
    pub thread: usize,
    /// Same number, same file; 0 is none.
    pub file: usize,
}

/// Shows each row of a content to `each`, with the numbers of what it shares with others. `None` if the content is not what the layout says; what was
/// shown until then must not be used.
#[inline]
pub(super) fn visit(raw: &[u8], count: usize, first: u64, mut each: impl FnMut(Shared, &OffCpu)) -> Option<()> {
    if count > MAX_ROWS {
        return None;
    }
    let [
        threads,
        file_kinds,
        file_kind,
        file_inode,
        args,
        mut wakers,
        mut site_thread,
        mut site_syscall,
        mut site_arg,
        mut site_file,
        mut site_shape,
        mut site_of,
        mut on,
        mut off,
        mut run_queue,
        mut waker,
        mut cpu,
        tids,
        mut next,
        mut prev,
    ] = split::<COLUMNS>(raw)?;
    let threads = Threads::read(threads, count)?;
    let files = Files::read([file_kinds, file_kind, file_inode], count)?;
    let args = Numbers::read(args, count)?;
    let wakers = entries(count, |at_end| {
        *at_end = wakers.is_at_end();
        if *at_end { None } else { read_waker(&mut wakers) }
    })?;
    // Two to a row.
    let tids = Numbers::read(tids, 2 * count)?;
    let tid = |index: usize| Some(Tid((*tids.get(index)?).try_into().ok()?));
    let mut sites = entries(count, |at_end| {
        *at_end = site_thread.is_at_end();
        if *at_end {
            return None;
        }
        let thread: usize = site_thread.take_as()?;
        let (tid, pid) = *threads.get(thread)?;
        let shape = site_shape.take()?;
        let file = site_file.take_as::<usize>()?;
        let row = OffCpu {
            tid,
            pid,
            cpu: 0,
            off: MonoNs(0),
            wakeup: None,
            on: MonoNs(0),
            state: match shape & 7 {
                0 => SleepState::Preempted,
                1 => SleepState::Interruptible,
                2 => SleepState::Uninterruptible,
                3 => SleepState::New,
                4 => SleepState::Other,
                _ => return None,
            },
            iowait: shape & IOWAIT != 0,
            syscall: take_syscall(&mut site_syscall)?,
            arg0: *args.get(site_arg.take_as::<usize>()?)?,
            file: *files.get(file)?,
            next_tid: Tid(0),
            prev_tid: Tid(0),
            seeded: shape & SEEDED != 0,
            pending: shape & PENDING != 0,
        };
        Some(SiteRow { row, shared: Shared { thread, file }, shape, waker: None })
    })?;
    let mut states = vec![ThreadState { on: first, cpu: 0 }; threads.len()];
    let mut last_on = first;
    for _ in 0..count {
        let site = sites.get_mut(site_of.take_as::<usize>()?)?;
        let thread = states.get_mut(site.shared.thread)?;
        // What a row may not have is as it was at first.
        let row = &mut site.row;
        last_on = on.take_delta(last_on)?;
        row.on = MonoNs(last_on);
        row.off = MonoNs(match site.shape & OFF_AFTER_RUN {
            0 => last_on.wrapping_sub(off.take()?),
            _ => off.take_delta(thread.on)?,
        });
        if site.shape & WOKEN != 0 {
            let at = match site.shape & WOKEN_AT_OFF {
                0 => MonoNs(last_on.wrapping_sub(run_queue.take()?)),
                _ => row.off,
            };
            let by = match waker.take_as::<usize>()? {
                0 => site.waker?,
                index => *wakers.get(index - 1)?,
            };
            site.waker = Some(by);
            row.wakeup = Some(Wakeup { at, by });
        }
        row.cpu = cpu.take_delta(u64::from(thread.cpu))?.try_into().ok()?;
        row.next_tid = tid(next.take_as()?)?;
        row.prev_tid = tid(prev.take_as()?)?;
        *thread = ThreadState { on: last_on, cpu: row.cpu };
        each(site.shared, row);
    }
    let rows_read = [site_of, on, off, run_queue, waker, cpu, next, prev];
    rows_read.iter().all(Cursor::is_at_end).then_some(())
}
