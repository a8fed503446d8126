//! The record beside the committed object: what it was built from, with what, and how.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::build;
use super::sources::sha256;
use super::toolchain::{Identity, Toolchain};
use crate::shell::root;

const SCHEMA: &str = "gpustall.ebpf-object/1";

/// `gpustall.bpf.json`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Name and version of this format.
    schema: String,
    /// Hash over everything that decides the object, the toolchain apart: see [`super::sources::hash`].
    pub source_sha256: String,
    /// Hash of the object.
    pub object_sha256: String,
    /// Length of the object in bytes.
    object_bytes: usize,
    /// Compiler flags, path mappings apart.
    flags: Vec<String>,
    /// What compiled and linked it.
    pub toolchain: Identity,
}

impl Manifest {
    /// Describes an object that was just built.
    pub fn new(source_sha256: &str, object: &[u8], toolchain: &Toolchain) -> Result<Self> {
        Ok(Self {
            schema: SCHEMA.to_owned(),
            source_sha256: source_sha256.to_owned(),
            object_sha256: sha256(object),
            object_bytes: object.len(),
            flags: build::FLAGS.iter().map(|&flag| flag.to_owned()).collect(),
            toolchain: toolchain.identity.clone(),
        })
    }

    /// Reads the committed record.
    pub fn read() -> Result<Self> {
        let path = path();
        let text = fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}; `cargo xtask ebpf` makes it", path.display()))?;
        let manifest: Self = serde_json::from_str(&text)
            .with_context(|| format!("{} is damaged; `cargo xtask ebpf` makes it anew", path.display()))?;
        ensure!(manifest.schema == SCHEMA, "{} has schema {}, expected {SCHEMA}", path.display(), manifest.schema);
        Ok(manifest)
    }

    /// Writes the committed record.
    pub fn write(&self) -> Result<()> {
        let path = path();
        let text = serde_json::to_string_pretty(self).context("cannot serialise the object's record")? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

fn path() -> PathBuf {
    root().join("tracer/src/probe/gpustall.bpf.json")
}
