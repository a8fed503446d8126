//! The committed kernel object: building it from `tracer-ebpf`, and checking that it is what the sources give.

mod build;
mod manifest;
mod sources;
mod toolchain;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::shell::root;
use manifest::Manifest;
use toolchain::{Flavour, Toolchain};

/// Flags of `cargo xtask ebpf`.
#[derive(clap::Args)]
pub struct Args {
    /// Change nothing; fail if the committed object is not what the sources give
    #[arg(long)]
    check: bool,
    /// With --check: compare source hashes only, build nothing
    #[arg(long, requires = "check")]
    hash_only: bool,
    /// Build in a second directory too and compare the bytes
    #[arg(long, conflicts_with = "hash_only")]
    twice: bool,
    /// Install what is missing: Debian packages through apt-get (as root or with sudo), bpf-linker into target/tools
    #[arg(long, conflicts_with = "hash_only")]
    install: bool,
    /// Use this toolchain; by default the recorded one where it is found, else whichever is found
    #[arg(long, value_enum)]
    toolchain: Option<Flavour>,
}

/// The committed object.
pub fn committed_object() -> PathBuf {
    root().join("tracer/src/probe/gpustall.bpf.o")
}

/// The object built on this machine from the sources as they are.
pub fn fresh_object() -> PathBuf {
    root().join("target/ebpf/gpustall.bpf.o")
}

/// Runs `cargo xtask ebpf`.
pub fn run(args: &Args) -> Result<()> {
    let sources = sources::hash(root())?;
    if args.check { check(args, &sources) } else { rebuild(args, &sources) }
}

fn rebuild(args: &Args, sources: &str) -> Result<()> {
    // A missing or unreadable record is no obstacle: this command is what replaces it.
    let recorded = Manifest::read().ok();
    let toolchain = toolchain::choose(args.toolchain, args.install, recorded.as_ref().map(|r| &r.toolchain))?;
    println!("building with {}", toolchain.name());
    build_fresh(&toolchain, args.twice)?;
    let bytes = read(&fresh_object())?;
    write(&committed_object(), &bytes)?;
    Manifest::new(sources, &bytes, &toolchain)?.write()?;
    println!("wrote {} ({} bytes)", committed_object().display(), bytes.len());
    Ok(())
}

fn check(args: &Args, sources: &str) -> Result<()> {
    let recorded = Manifest::read()?;
    ensure!(
        recorded.source_sha256 == sources,
        "the committed kernel object is out of date: its sources hash to {sources}, the object was built from {}; run \
         `cargo xtask ebpf` and commit the result",
        recorded.source_sha256
    );
    let committed = read(&committed_object())?;
    ensure!(
        recorded.object_sha256 == sources::sha256(&committed),
        "the committed kernel object is not the file that its record describes; run `cargo xtask ebpf` and commit both files"
    );
    println!("the committed object was built from these sources ({sources})");
    if args.hash_only {
        return Ok(());
    }

    let toolchain = toolchain::choose(args.toolchain, args.install, Some(&recorded.toolchain))?;
    println!("building with {}", toolchain.name());
    build_fresh(&toolchain, args.twice)?;
    let same_bytes = read(&fresh_object())? == committed;
    match (toolchain.identity == recorded.toolchain, same_bytes) {
        (_, true) => println!("the object built here is the committed one, byte for byte"),
        (false, false) => println!(
            "this toolchain is not the recorded one, so bytes may differ; the object builds, and `cargo xtask test --object {}` \
             runs the tests with it",
            fresh_object().strip_prefix(root()).unwrap_or(&fresh_object()).display()
        ),
        (true, false) => bail!(
            "the object built with the recorded toolchain differs from the committed one ({} is the new one); run `cargo \
             xtask ebpf` and commit the result",
            fresh_object().display()
        ),
    }
    Ok(())
}

/// Builds [`fresh_object`]; with `twice` also from a copy of the sources elsewhere, which must give the same bytes.
fn build_fresh(toolchain: &Toolchain, twice: bool) -> Result<()> {
    build::object(toolchain, root(), &fresh_object())?;
    if twice {
        let elsewhere =
            tempfile::Builder::new().prefix("gpustall-ebpf-").tempdir().context("cannot make a scratch directory")?;
        // One level deeper than the temporary directory itself, so that depth differs as well as names.
        let copy = elsewhere.path().join("another/place");
        sources::copy_workspace(root(), &copy)?;
        let second = elsewhere.path().join("second.o");
        build::object(toolchain, &copy, &second)?;
        ensure!(
            read(&fresh_object())? == read(&second)?,
            "two directories gave different bytes: some path is not mapped (see `build::remapped`)"
        );
        println!("two directories gave the same bytes");
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
