//! The data set: real files with incompressible contents, and the reading of them.

use super::error::DemoError;
use super::plan::{Plan, Reading};
use rustix::fs::{Advice, Mode, OFlags, fadvise, open};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Files in a directory.
const SHARD: usize = 32;
/// Alignment that O_DIRECT may ask for: no disk has larger blocks.
const ALIGN: usize = 4096;

/// Path of one sample.
pub fn sample_path(data: &Path, index: usize) -> PathBuf {
    data.join(format!("shard-{:03}", index / SHARD)).join(format!("sample-{index:05}.bin"))
}

/// Writes all files; they are on the disk afterwards, and in the page cache only if they are to be read from there.
pub fn write(plan: &Plan) -> Result<(), DemoError> {
    let mut contents = AlignedBuf::new(plan.file_bytes);
    let mut seed = 0x243f_6a88_85a3_08d3;
    for index in 0..plan.files {
        let path = sample_path(&plan.data, index);
        if index % SHARD == 0
            && let Some(shard) = path.parent()
        {
            fs::create_dir_all(shard).map_err(DemoError::file("create", shard))?;
        }
        fill(contents.bytes(), &mut seed);
        write_one(&path, contents.bytes(), plan.reading).map_err(DemoError::file("write", &path))?;
    }
    Ok(())
}

fn write_one(path: &Path, contents: &[u8], reading: Reading) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let (mut file, direct) = match reading {
        Reading::Cached => (open_file(path, flags)?, false),
        Reading::Uncached { .. } => open_direct(path, flags)?,
    };
    file.write_all(contents)?;
    if reading != Reading::Cached && !direct {
        // Dirty pages cannot be evicted later.
        file.sync_data()?;
    }
    Ok(())
}

fn open_file(path: &Path, flags: OFlags) -> io::Result<File> {
    Ok(File::from(open(path, flags, Mode::from_raw_mode(0o600))?))
}

/// With O_DIRECT, or without where the file system has none (then `false`).
fn open_direct(path: &Path, flags: OFlags) -> io::Result<(File, bool)> {
    match open(path, flags | OFlags::DIRECT, Mode::from_raw_mode(0o600)) {
        Ok(fd) => Ok((File::from(fd), true)),
        // An exclusive open may have made the file before it was refused.
        Err(Errno::INVAL) => Ok((open_file(path, flags - OFlags::EXCL)?, false)),
        Err(e) => Err(e.into()),
    }
}

/// Reads one file into `into`, whose length is the file's.
pub fn read(path: &Path, into: &mut [u8], reading: Reading) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    match reading {
        Reading::Cached => open_file(path, flags)?.read_exact(into),
        Reading::Uncached { chunk } => {
            let (mut file, direct) = open_direct(path, flags)?;
            if !direct {
                fadvise(&file, 0, None, Advice::DontNeed)?;
                // Read-ahead would join the small reads into large ones.
                fadvise(&file, 0, None, Advice::Random)?;
            }
            into.chunks_mut(chunk).try_for_each(|part| file.read_exact(part))
        }
    }
}

/// Contents without pattern: xorshift64.
fn fill(bytes: &mut [u8], seed: &mut u64) {
    for word in bytes.chunks_mut(8) {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        word.copy_from_slice(&seed.to_le_bytes()[..word.len()]);
    }
}

/// A buffer that O_DIRECT accepts.
pub struct AlignedBuf {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// Zeroed.
    pub fn new(len: usize) -> AlignedBuf {
        let memory = vec![0; len + ALIGN];
        let start = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        AlignedBuf { memory, start, len }
    }

    /// Its bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncached_and_cached_reads_give_what_was_written() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        for (name, reading) in [("cached", Reading::Cached), ("uncached", Reading::Uncached { chunk: 4096 })] {
            let path = dir.path().join(name);
            let mut contents = AlignedBuf::new(16 << 10);
            fill(contents.bytes(), &mut 7);
            write_one(&path, contents.bytes(), reading).unwrap();
            let mut back = AlignedBuf::new(16 << 10);
            read(&path, back.bytes(), reading).unwrap();
            assert!(back.bytes() == contents.bytes());
            assert!(read(&path, AlignedBuf::new(20 << 10).bytes(), reading).is_err(), "shorter than expected");
        }
    }

    #[test]
    fn buffers_are_aligned_and_contents_do_not_repeat() {
        let mut buf = AlignedBuf::new(8192);
        assert_eq!(buf.bytes().as_ptr() as usize % ALIGN, 0);
        assert_eq!(buf.bytes().len(), 8192);
        let mut seed = 1;
        fill(buf.bytes(), &mut seed);
        let first = buf.bytes().to_vec();
        fill(buf.bytes(), &mut seed);
        assert_ne!(first, buf.bytes());
    }
}
