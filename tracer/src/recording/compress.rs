//! zstd around a block's content, bounded in both directions.

use super::block::{CODEC_RAW, CODEC_ZSTD, MAX_RAW};
use std::io;
use zstd::bulk::Decompressor;
use zstd::stream::raw::{Encoder, InBuffer, Operation, OutBuffer};

/// Most of what is left in the columns is the noise of time stamps: level 3 gained nothing over level 1 (10.17 and 10.13
/// bytes an interval), level 9 gained 0.5 % and level 19 2.4 %.
const LEVEL: i32 = 1;
/// Parts below this size share a zstd block with the next one: a block of its own costs about 3 bytes, and a table of
/// its own more.
const SMALL_PART: usize = 512;

/// Compresses contents one after the other, reusing its memory.
pub(super) struct Compressor {
    zstd: Encoder<'static>,
    out: Vec<u8>,
}

impl Compressor {
    /// A new one.
    pub(super) fn new() -> io::Result<Compressor> {
        Ok(Compressor { zstd: Encoder::new(LEVEL)?, out: Vec::new() })
    }

    /// Compresses `raw` into one frame, unless that would not make it smaller. Each part of it that ends at an edge gets
    /// entropy tables of its own, as its numbers are unlike those of the next column. Returns codec and bytes.
    pub(super) fn compress<'a>(&'a mut self, raw: &'a [u8], edges: &[usize]) -> (u8, &'a [u8]) {
        self.out.clear();
        self.out.reserve(raw.len());
        match self.frame(raw, edges) {
            Ok(true) if self.out.len() < raw.len() => (CODEC_ZSTD, &self.out),
            _ => (CODEC_RAW, raw),
        }
    }

    /// Writes the frame into `out`; false if it did not fit into the space of the content itself.
    fn frame(&mut self, raw: &[u8], edges: &[usize]) -> io::Result<bool> {
        self.zstd.reinit()?;
        self.zstd.set_pledged_src_size(Some(raw.len() as u64))?;
        let mut out = OutBuffer::around(&mut self.out);
        let mut start = 0;
        for &edge in edges {
            let Some(part) = raw.get(start..edge) else { continue };
            let mut input = InBuffer::around(part);
            while input.pos() < part.len() {
                if out.pos() == out.capacity() {
                    return Ok(false);
                }
                self.zstd.run(&mut input, &mut out)?;
            }
            if edge - start >= SMALL_PART && self.zstd.flush(&mut out)? > 0 {
                return Ok(false);
            }
            start = edge;
        }
        Ok(self.zstd.finish(&mut out, true)? == 0)
    }
}

/// Decompresses contents one after the other, reusing its memory.
pub(super) struct Expander {
    zstd: Decompressor<'static>,
    out: Vec<u8>,
}

impl Expander {
    /// A new one.
    pub(super) fn new() -> io::Result<Expander> {
        Ok(Expander { zstd: Decompressor::new()?, out: Vec::new() })
    }

    /// The content; `None` if it is not exactly `raw_len` bytes, or not what the codec says.
    pub(super) fn expand<'a>(&'a mut self, codec: u8, stored: &'a [u8], raw_len: usize) -> Option<&'a [u8]> {
        let raw = match codec {
            CODEC_RAW => stored,
            CODEC_ZSTD if raw_len <= MAX_RAW => {
                self.out.clear();
                // zstd writes at most into this capacity, so a frame that claims or holds more is an error.
                self.out.reserve_exact(raw_len);
                self.zstd.decompress_to_buffer(stored, &mut self.out).ok()?;
                self.out.as_slice()
            }
            _ => return None,
        };
        (raw.len() == raw_len).then_some(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn contents_come_back(parts in prop::collection::vec(prop::collection::vec(0u8..8, 0..3_000), 0..6)) {
            let (mut raw, mut edges) = (Vec::new(), Vec::new());
            for part in &parts {
                raw.extend_from_slice(part);
                edges.push(raw.len());
            }
            let mut compressor = Compressor::new().unwrap();
            let mut expander = Expander::new().unwrap();
            // Twice, since both keep their memory.
            for _ in 0..2 {
                let (codec, stored) = compressor.compress(&raw, &edges);
                prop_assert!(stored.len() <= raw.len());
                prop_assert_eq!(expander.expand(codec, stored, raw.len()), Some(raw.as_slice()));
            }
        }

        #[test]
        fn noise_is_stored_as_it_is(raw in prop::collection::vec(any::<u8>(), 0..2_000)) {
            let mut compressor = Compressor::new().unwrap();
            let (codec, stored) = compressor.compress(&raw, &[raw.len()]);
            prop_assert!(codec == CODEC_ZSTD || stored == raw.as_slice());
        }

        #[test]
        fn arbitrary_frames_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), len in 0usize..100_000) {
            let _ = Expander::new().unwrap().expand(CODEC_ZSTD, &bytes, len);
        }
    }

    #[test]
    fn a_frame_larger_than_its_header_says_is_refused() {
        let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 19).unwrap();
        assert!(bomb.len() < 10_000);
        let mut expander = Expander::new().unwrap();
        assert_eq!(expander.expand(CODEC_ZSTD, &bomb, MAX_RAW), None);
        assert_eq!(expander.expand(CODEC_ZSTD, &bomb, 1_000), None);
        assert_eq!(expander.expand(CODEC_ZSTD, &bomb, MAX_RAW + 1), None);
        assert!(expander.out.capacity() <= 2 * MAX_RAW);
    }
}
