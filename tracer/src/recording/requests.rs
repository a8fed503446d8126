//! Block requests as columns: sites (device, operation, submitter), then times, sector and length of each.

use super::block::MAX_ROWS;
use super::columns::{ColumnSet, Cursor, split};
use super::dictionary::{Dictionary, entries};
use crate::events::{BlockOp, BlockRequest, Submitter};
use crate::units::{DevId, MonoNs, Pid, Tid};

/// Number of columns.
const COLUMNS: usize = 7;

/// What requests share: device, operation, whether the start is known, submitter.
type SiteKey = (DevId, BlockOp, bool, Submitter);

/// Encodes blocks one after the other, reusing its memory.
#[derive(Debug, Default)]
pub(super) struct RequestEncoder {
    columns: ColumnSet<COLUMNS>,
    sites: Dictionary<SiteKey>,
    /// Sector after the last request at each site.
    ends: Vec<u64>,
}

/// Earliest and latest time of the rows.
pub(super) fn span(rows: &[BlockRequest]) -> (u64, u64) {
    let first = rows.iter().flat_map(|r| [r.start.unwrap_or(r.issue).0, r.issue.0, r.complete.0]).min();
    let last = rows.iter().flat_map(|r| [r.start.unwrap_or(r.issue).0, r.issue.0, r.complete.0]).max();
    (first.unwrap_or(0), last.unwrap_or(0))
}

fn op_code(op: BlockOp) -> u64 {
    match op {
        BlockOp::Read => 0,
        BlockOp::Write => 1,
        BlockOp::Flush => 2,
        BlockOp::Discard => 3,
        BlockOp::Other => 4,
    }
}

fn op_from(code: u64) -> Option<BlockOp> {
    [BlockOp::Read, BlockOp::Write, BlockOp::Flush, BlockOp::Discard, BlockOp::Other]
        .into_iter()
        .find(|&op| op_code(op) == code)
}

fn end_of(sector: u64, bytes: u32) -> u64 {
    sector.wrapping_add(u64::from(bytes / 512))
}

impl RequestEncoder {
    /// Appends the rows' content to `raw` and the ends of its parts to `edges`; `first` is the header's first time.
    pub(super) fn encode(&mut self, rows: &[BlockRequest], first: u64, raw: &mut Vec<u8>, edges: &mut Vec<usize>) {
        self.sites.clear();
        self.ends.clear();
        let [sites, site_of, complete, device, queue, sector, bytes] = self.columns.start();
        let mut last = first;
        for row in rows {
            let key = (row.dev, row.op, row.start.is_some(), row.submitter);
            let (index, new) = self.sites.intern(key);
            if new {
                let (kind, tid, pid) = match row.submitter {
                    Submitter::Target { tid, pid } => (0, tid, pid),
                    Submitter::Other { tid, pid } => (1, tid, pid),
                    Submitter::KernelThread { tid } => (2, tid, Pid(tid.0)),
                };
                sites.put(u64::from(row.dev.major));
                sites.put(u64::from(row.dev.minor));
                sites.put(op_code(row.op));
                sites.put(u64::from(row.start.is_some()));
                sites.put(kind);
                sites.put(u64::from(tid.0));
                sites.put_delta(u64::from(tid.0), u64::from(pid.0));
                self.ends.push(0);
            }
            let Some(end) = self.ends.get_mut(index) else { continue };
            site_of.put(index as u64);
            complete.put_delta(last, row.complete.0);
            device.put(row.complete.0.wrapping_sub(row.issue.0));
            if let Some(start) = row.start {
                queue.put(row.issue.0.wrapping_sub(start.0));
            }
            sector.put_delta(*end, row.sector);
            bytes.put(u64::from(row.bytes));
            *end = end_of(row.sector, row.bytes);
            last = row.complete.0;
        }
        self.columns.finish(raw, edges);
    }
}

/// Reads a content of `count` rows into `out`; `None` if it is not what the layout says.
pub(super) fn decode(raw: &[u8], count: usize, first: u64, out: &mut Vec<BlockRequest>) -> Option<()> {
    if count > MAX_ROWS {
        return None;
    }
    let [mut sites, mut site_of, mut complete, mut device, mut queue, mut sector, mut bytes] = split::<COLUMNS>(raw)?;
    let mut sites = entries(count, |at_end| {
        *at_end = sites.is_at_end();
        if *at_end { None } else { read_site(&mut sites).map(|key| (key, 0)) }
    })?;
    let mut last = first;
    out.reserve(count);
    for _ in 0..count {
        let ((dev, op, has_start, submitter), end) = sites.get_mut(site_of.take_as::<usize>()?)?;
        last = complete.take_delta(last)?;
        let issue = last.wrapping_sub(device.take()?);
        let start = if *has_start { Some(MonoNs(issue.wrapping_sub(queue.take()?))) } else { None };
        let sector = sector.take_delta(*end)?;
        let bytes = bytes.take_as()?;
        *end = end_of(sector, bytes);
        out.push(BlockRequest {
            dev: *dev,
            op: *op,
            bytes,
            sector,
            start,
            issue: MonoNs(issue),
            complete: MonoNs(last),
            submitter: *submitter,
        });
    }
    [site_of, complete, device, queue, sector, bytes].iter().all(Cursor::is_at_end).then_some(())
}

fn read_site(column: &mut Cursor<'_>) -> Option<SiteKey> {
    let dev = DevId { major: column.take_as()?, minor: column.take_as()? };
    let op = op_from(column.take()?)?;
    let has_start = column.take()? != 0;
    let kind = column.take()?;
    let tid: u32 = column.take_as()?;
    let pid = Pid(column.take_delta(u64::from(tid))?.try_into().ok()?);
    let tid = Tid(tid);
    let submitter = match kind {
        0 => Submitter::Target { tid, pid },
        1 => Submitter::Other { tid, pid },
        2 => Submitter::KernelThread { tid },
        _ => return None,
    };
    Some((dev, op, has_start, submitter))
}
