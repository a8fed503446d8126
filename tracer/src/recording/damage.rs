//! What is wrong with a recording, in numbers and in words.

/// What a reader could not use, so far. Final once [`super::Reader::next_batch`] has given `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// The first 16 bytes are not as they were written; the rest is used all the same.
    pub prologue: bool,
    /// Blocks that are missing between others, by the numbers that blocks carry.
    pub lost_blocks: u64,
    /// Bytes between whole blocks that belong to none: what is left of damaged blocks, or inserted.
    pub skipped_bytes: u64,
    /// Bytes after the last whole block: a block that was being written, or a damaged one.
    pub torn_bytes: u64,
    /// The closing block is missing: the recorder was killed, or its disk was full.
    pub missing_trailer: bool,
    /// Whole blocks whose content makes no sense.
    pub undecodable_blocks: u64,
    /// Whole blocks that belong to another recording, or that came before.
    pub stray_blocks: u64,
    /// Bytes after the closing block.
    pub bytes_after_end: u64,
    /// The file could be read no further, for this reason.
    pub read_error: Option<String>,
    /// Whole blocks of a kind that a later version of gpustall writes. Not damage, but not used.
    pub unknown_blocks: u64,
    /// Events of a kind that a later version writes, in blocks that are used. Not damage, but not used.
    pub unknown_events: u64,
}

impl Damage {
    /// Whether the recording is exactly as its recorder ended it.
    pub fn is_none(&self) -> bool {
        Damage { unknown_blocks: 0, unknown_events: 0, ..self.clone() } == Damage::default()
    }

    /// Whether events are certainly or possibly missing: all damage but strange bytes outside the blocks.
    pub fn lost_events(&self) -> bool {
        self.lost_blocks > 0
            || self.missing_trailer
            || self.undecodable_blocks > 0
            || self.unknown_blocks > 0
            || self.unknown_events > 0
            || self.read_error.is_some()
    }

    /// One sentence for each thing that is wrong; empty if nothing is.
    pub fn sentences(&self) -> Vec<String> {
        let mut out = Vec::new();
        if let Some(reason) = &self.read_error {
            out.push(format!("the file could be read only in part ({reason}); copy it to another disk and try again"));
        }
        if self.prologue {
            out.push("the first bytes of the file are damaged; the rest is used".to_owned());
        }
        if self.lost_blocks > 0 {
            out.push(format!(
                "{} damaged or missing ({} skipped); what they held is not in the result",
                blocks(self.lost_blocks),
                bytes(self.skipped_bytes)
            ));
        } else if self.skipped_bytes > 0 {
            out.push(format!("{} between the blocks belong to none and were skipped", bytes(self.skipped_bytes)));
        }
        if self.undecodable_blocks > 0 {
            out.push(format!(
                "{} not readable although the checksum is right; please report this as a bug of gpustall",
                blocks(self.undecodable_blocks)
            ));
        }
        if self.missing_trailer {
            let torn = match self.torn_bytes {
                0 => String::new(),
                torn => format!(" and its last {} are no whole block", bytes(torn)),
            };
            out.push(format!(
                "the recording was not ended cleanly (killed, or the disk was full){torn}; at most its last second is \
                 missing"
            ));
        }
        if self.stray_blocks > 0 {
            out.push(format!("{} of another recording, or repeated, and not used", blocks(self.stray_blocks)));
        }
        if self.bytes_after_end > 0 {
            out.push(format!("{} after the end of the recording were not used", bytes(self.bytes_after_end)));
        }
        if self.unknown_blocks > 0 || self.unknown_events > 0 {
            out.push(format!(
                "{} and {} in other blocks come from a later version of gpustall and were not used; read the \
                 recording with that version",
                blocks(self.unknown_blocks),
                match self.unknown_events {
                    1 => "1 event".to_owned(),
                    n => format!("{n} events"),
                }
            ));
        }
        out
    }
}

fn blocks(n: u64) -> String {
    if n == 1 { "1 block is".to_owned() } else { format!("{n} blocks are") }
}

fn bytes(n: u64) -> String {
    if n == 1 { "1 byte".to_owned() } else { format!("{n} bytes") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_recording_has_nothing_to_say() {
        assert!(Damage::default().is_none());
        assert!(Damage::default().sentences().is_empty());
    }

    #[test]
    fn content_of_a_later_version_is_told_but_is_no_damage() {
        let later = Damage { unknown_blocks: 2, unknown_events: 1, ..Damage::default() };
        assert!(later.is_none() && later.lost_events());
        assert_eq!(later.sentences().len(), 1);
    }

    #[test]
    fn a_crash_reads_as_one_sentence() {
        let crash = Damage { missing_trailer: true, torn_bytes: 812, ..Damage::default() };
        assert_eq!(
            crash.sentences(),
            ["the recording was not ended cleanly (killed, or the disk was full) and its last 812 bytes are no whole \
              block; at most its last second is missing"]
        );
    }
}
