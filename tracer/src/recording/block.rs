//! The frame around every block, and the prologue of the file: fixed layouts, little-endian, checked before use.

use super::FORMAT_VERSION;
use bytes::{Buf, BufMut};

/// First bytes of every recording.
pub(super) const MAGIC: [u8; 8] = *b"GPUSTALL";
/// Magic, format version and checksum.
pub(super) const PROLOGUE_LEN: usize = 16;
/// First bytes of every block. The byte 0xf7 occurs in no UTF-8 text, so stored JSON never looks like a block.
pub(super) const MARKER: [u8; 4] = [0xf7, b'G', b'S', 0xb1];
/// Bytes of a block's header.
pub(super) const HEADER_LEN: usize = 52;
/// Most bytes of a block's content, compressed or not: the reader allocates no more, whatever a header claims.
pub(super) const MAX_RAW: usize = 16 << 20;
/// Most rows of a columnar block.
pub(super) const MAX_ROWS: usize = 65_536;

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// [`super::Header`] as JSON; the first block.
    Header,
    /// [`super::Trailer`] as JSON; the last block.
    Trailer,
    /// Events of the rare families, one JSON object a line.
    Others,
    /// Off-CPU intervals as columns.
    OffCpu,
    /// On-CPU samples as columns.
    CpuSample,
    /// Block requests as columns.
    Block,
}

impl Family {
    /// Number in the file.
    pub(super) fn code(self) -> u8 {
        match self {
            Family::Header => 0,
            Family::Trailer => 1,
            Family::Others => 2,
            Family::OffCpu => 3,
            Family::CpuSample => 4,
            Family::Block => 5,
        }
    }

    /// By its number in the file and the layout of its content; `None` for what this version does not know.
    pub(super) fn from_code(code: u8, layout: u16) -> Option<Family> {
        let family = match code {
            0 => Family::Header,
            1 => Family::Trailer,
            2 => Family::Others,
            3 => Family::OffCpu,
            4 => Family::CpuSample,
            5 => Family::Block,
            _ => return None,
        };
        (layout == LAYOUT).then_some(family)
    }
}

/// Layout of the content that this version writes, the same number for every family so far.
pub(super) const LAYOUT: u16 = 1;
/// The content is stored as it is.
pub(super) const CODEC_RAW: u8 = 0;
/// The content is one zstd frame.
pub(super) const CODEC_ZSTD: u8 = 1;

/// A block's header, without the marker and its own checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHeader {
    /// [`Family::code`].
    pub family: u8,
    /// `CODEC_*`.
    pub codec: u8,
    /// Layout of the content.
    pub layout: u16,
    /// Which recording it belongs to: checksum of the header block's content.
    pub recording: u32,
    /// Number of the block in its recording; the header block is 0.
    pub sequence: u32,
    /// Events in it.
    pub count: u32,
    /// Bytes of content, uncompressed.
    pub raw_len: u32,
    /// Bytes of content as they follow.
    pub stored_len: u32,
    /// Earliest time of an event in it, nanoseconds of CLOCK_MONOTONIC; 0 if no event has a time.
    pub first: u64,
    /// Latest time of an event in it.
    pub last: u64,
    /// Checksum of the bytes that follow.
    pub payload_crc: u32,
}

impl BlockHeader {
    /// As bytes.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_slice(&MARKER);
        out.put_u8(self.family);
        out.put_u8(self.codec);
        out.put_u16_le(self.layout);
        out.put_u32_le(self.recording);
        out.put_u32_le(self.sequence);
        out.put_u32_le(self.count);
        out.put_u32_le(self.raw_len);
        out.put_u32_le(self.stored_len);
        out.put_u64_le(self.first);
        out.put_u64_le(self.last);
        out.put_u32_le(self.payload_crc);
        let crc = crc32fast::hash(out.get(start..).unwrap_or_default());
        out.put_u32_le(crc);
    }

    /// From the bytes at the start of `bytes`; `None` unless marker and checksum are right and the lengths are allowed.
    pub(super) fn read(bytes: &[u8]) -> Option<BlockHeader> {
        let bytes = bytes.get(..HEADER_LEN)?;
        let (checked, mut crc) = bytes.split_at(HEADER_LEN - 4);
        let mut fields = checked.strip_prefix(&MARKER)?;
        if crc32fast::hash(checked) != crc.try_get_u32_le().ok()? {
            return None;
        }
        let header = BlockHeader {
            family: fields.try_get_u8().ok()?,
            codec: fields.try_get_u8().ok()?,
            layout: fields.try_get_u16_le().ok()?,
            recording: fields.try_get_u32_le().ok()?,
            sequence: fields.try_get_u32_le().ok()?,
            count: fields.try_get_u32_le().ok()?,
            raw_len: fields.try_get_u32_le().ok()?,
            stored_len: fields.try_get_u32_le().ok()?,
            first: fields.try_get_u64_le().ok()?,
            last: fields.try_get_u64_le().ok()?,
            payload_crc: fields.try_get_u32_le().ok()?,
        };
        (header.raw_len as usize <= MAX_RAW && header.stored_len <= header.raw_len).then_some(header)
    }
}

/// The first bytes of the file.
pub(super) fn prologue() -> [u8; PROLOGUE_LEN] {
    let mut out = [0; PROLOGUE_LEN];
    let mut rest = out.as_mut_slice();
    rest.put_slice(&MAGIC);
    rest.put_u32_le(FORMAT_VERSION);
    let crc = crc32fast::hash(out.get(..12).unwrap_or_default());
    out.as_mut_slice().get_mut(12..).unwrap_or_default().put_u32_le(crc);
    out
}

/// What the first bytes of a file say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prologue {
    /// A recording of this format version.
    Version(u32),
    /// It begins like a recording, but the bytes are not as they were written, or too few.
    Damaged,
    /// Some other file.
    Foreign,
}

impl Prologue {
    /// Judges the first bytes of a file.
    pub(super) fn read(bytes: &[u8]) -> Prologue {
        let magic = bytes.get(..MAGIC.len()).unwrap_or(bytes);
        if !MAGIC.starts_with(magic) {
            return Prologue::Foreign;
        }
        let Some((checked, mut rest)) = bytes.split_at_checked(12) else { return Prologue::Damaged };
        let version = checked.get(8..).and_then(|mut v| v.try_get_u32_le().ok());
        match (version, rest.try_get_u32_le()) {
            (Some(version), Ok(crc)) if crc == crc32fast::hash(checked) => Prologue::Version(version),
            _ => Prologue::Damaged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> BlockHeader {
        BlockHeader {
            family: Family::OffCpu.code(),
            codec: CODEC_ZSTD,
            layout: LAYOUT,
            recording: 0x0102_0304,
            sequence: 7,
            count: 8_192,
            raw_len: 200_000,
            stored_len: 70_000,
            first: 1,
            last: u64::MAX,
            payload_crc: 0xdead_beef,
        }
    }

    #[test]
    fn a_header_comes_back_as_it_was_written() {
        let mut bytes = Vec::new();
        sample().write(&mut bytes);
        assert_eq!(bytes.len(), HEADER_LEN);
        assert_eq!(BlockHeader::read(&bytes), Some(sample()));
    }

    #[test]
    fn any_flipped_bit_makes_a_header_invalid() {
        let mut bytes = Vec::new();
        sample().write(&mut bytes);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(BlockHeader::read(&bad), None, "bit {bit}");
        }
    }

    #[test]
    fn lengths_beyond_the_limit_are_refused_even_with_a_right_checksum() {
        for (raw_len, stored_len) in [(MAX_RAW as u32 + 1, 1), (10, 11), (u32::MAX, u32::MAX)] {
            let mut bytes = Vec::new();
            BlockHeader { raw_len, stored_len, ..sample() }.write(&mut bytes);
            assert_eq!(BlockHeader::read(&bytes), None);
        }
    }

    #[test]
    fn the_prologue_tells_recordings_damage_and_foreign_files_apart() {
        let good = prologue();
        assert_eq!(Prologue::read(&good), Prologue::Version(FORMAT_VERSION));
        assert_eq!(Prologue::read(&good[..9]), Prologue::Damaged);
        assert_eq!(Prologue::read(b"{\"traceEvents\":[]}"), Prologue::Foreign);
        let mut bad = good;
        bad[9] ^= 1;
        assert_eq!(Prologue::read(&bad), Prologue::Damaged);
    }
}
