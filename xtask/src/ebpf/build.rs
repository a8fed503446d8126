//! Compiling and stripping the object.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::toolchain::Toolchain;
use crate::shell;

/// Rust's name of the target: little-endian BPF.
pub const TARGET: &str = "bpfel-unknown-none";

/// Compiler flags, without the path mappings, which differ from directory to directory.
pub const FLAGS: [&str; 4] = [
    // BTF is made from debug information, all of it.
    "-Cdebuginfo=2",
    "-Clink-arg=--btf",
    // Chooses the register names that aya-ebpf reads; the tracer supports x86-64 only.
    "--cfg=bpf_target_arch=\"x86_64\"",
    "--check-cfg=cfg(bpf_target_arch,values(any()))",
];

/// Cargo profile settings that replace the workspace's own, which serve user space.
pub const PROFILE: [(&str, &str); 4] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3"),
    // bpf-linker optimises the whole program; a pass by rustc before it only costs time.
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    // One unit, so that the order of code does not depend on how crates are cut up.
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "2"),
];

/// Builds the kernel programs of the workspace at `root` into `object`: BTF kept, no DWARF.
pub fn object(toolchain: &Toolchain, root: &Path, object: &Path) -> Result<()> {
    let target_dir = root.join("target/ebpf");
    let mut flags: Vec<String> = FLAGS.iter().map(|&flag| flag.to_owned()).collect();
    flags.extend(
        remapped(toolchain, root)?.iter().map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())),
    );

    let mut cargo = toolchain.cargo(root);
    cargo
        .args(["build", "--locked", "--release", "--package", "tracer-ebpf", "--bin", "gpustall-ebpf"])
        .args(["--features", "ebpf", "--target", TARGET, "-Zbuild-std=core"])
        .env("CARGO_TARGET_DIR", &target_dir)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .envs(PROFILE);
    shell::run(&mut cargo).context("cannot build the kernel programs")?;

    let built = target_dir.join(TARGET).join("release/gpustall-ebpf");
    if let Some(dir) = object.parent() {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    // --strip-all would take the symbols too, by which aya finds maps and programs.
    shell::run(shell::command(&toolchain.objcopy).arg("--strip-debug").arg(&built).arg(object))
        .context("cannot strip the kernel object")?;
    Ok(())
}

/// Directories whose names would end up in BTF line information, and what stands for each.
///
/// rustc applies the last mapping that fits, so the narrower ones come later.
fn remapped(toolchain: &Toolchain, root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut mapped = vec![(root.to_owned(), "/gpustall".to_owned())];
    for dir in registry_dirs(toolchain, root)? {
        mapped.push((dir, "/registry".to_owned()));
    }
    mapped.push((toolchain.rust_src.clone(), "/rust".to_owned()));
    // Debian's rust-src is a symbolic link; rustc sees either name.
    if let Ok(real) = toolchain.rust_src.canonicalize()
        && real != toolchain.rust_src
    {
        mapped.push((real, "/rust".to_owned()));
    }
    Ok(mapped)
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    source: Option<String>,
    manifest_path: PathBuf,
}

/// Directories that hold the unpacked sources of the dependencies.
fn registry_dirs(toolchain: &Toolchain, root: &Path) -> Result<Vec<PathBuf>> {
    let mut cargo = toolchain.cargo(root);
    cargo.args(["metadata", "--locked", "--format-version=1", "--features=tracer-ebpf/ebpf"]);
    cargo.args(["--filter-platform", TARGET]);
    let text = shell::output(&mut cargo).context("cannot list the kernel crate's dependencies")?;
    let metadata: Metadata = serde_json::from_str(&text).context("cannot parse what `cargo metadata` printed")?;
    // `<registry>/<package>/Cargo.toml`
    let mut dirs: Vec<PathBuf> = metadata
        .packages
        .iter()
        .filter(|package| package.source.is_some())
        .filter_map(|package| package.manifest_path.parent()?.parent().map(Path::to_owned))
        .collect();
    dirs.sort();
    dirs.dedup();
    ensure!(!dirs.is_empty(), "`cargo metadata` lists no dependencies of the kernel crate");
    Ok(dirs)
}
