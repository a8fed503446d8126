//! The busy file: when the simulated GPU becomes busy and idle, one JSON object a line.

use super::clock;
use super::error::DemoError;
use crate::units::MonoNs;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Appends to a busy file. Each change is one `write`, so that a reader never sees half a line.
pub struct BusyFile {
    file: File,
    path: PathBuf,
}

impl BusyFile {
    /// Opens `path`, which may hold lines of an earlier run.
    pub fn append(path: &Path) -> Result<BusyFile, DemoError> {
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(DemoError::file("open", path))?;
        Ok(BusyFile { file, path: path.to_owned() })
    }

    /// GPU 0 changes its state now; returns the time written.
    pub fn set(&mut self, busy: bool) -> Result<MonoNs, DemoError> {
        let now = clock::now();
        self.file.write_all(line(now, busy).as_bytes()).map_err(DemoError::file("write to", &self.path))?;
        Ok(now)
    }
}

fn line(at: MonoNs, busy: bool) -> String {
    format!("{{\"t_ns\":{},\"gpu\":0,\"busy\":{busy}}}\n", at.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_json_object() {
        let text = line(MonoNs(12), true);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value, serde_json::json!({ "t_ns": 12, "gpu": 0, "busy": true }));
        assert!(text.ends_with('\n'));
    }
}
