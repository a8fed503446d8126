//! Finding, or installing, a Rust that can compile for the kernel.
//!
//! Building for BPF needs three things of one LLVM version: a rustc with unstable features, the matching sources of
//! `core`, and `bpf-linker`. `docs/ebpf-build.md` says why.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::build::TARGET;
use crate::shell;

/// The linker's version; other versions lay out the object differently.
const BPF_LINKER: &str = "0.13.0";
/// Packages without the LLVM ones, whose names carry the version of the LLVM that rustc was built on.
const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];
/// LLVM of Debian's rustc-web, where it is not installed yet and so cannot be asked.
const DEBIAN_LLVM: u32 = 22;

/// A kind of toolchain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Flavour {
    /// A rustup nightly with rust-src, and bpf-linker on PATH
    Nightly,
    /// Debian's rustc-web, cargo-web, rust-web-src and LLVM packages
    Debian,
}

/// What decides a toolchain's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// `rustc -vV`.
    rustc: String,
    /// `bpf-linker --version`.
    bpf_linker: String,
    /// First line of `llvm-objcopy --version` that holds a version.
    objcopy: String,
}

/// A complete toolchain.
#[derive(Clone, Debug)]
pub struct Toolchain {
    flavour: Flavour,
    rustc: PathBuf,
    cargo: PathBuf,
    bpf_linker: PathBuf,
    /// Strips the object.
    pub objcopy: PathBuf,
    /// Directory of the standard library's sources, by the name under which rustc knows it.
    pub rust_src: PathBuf,
    /// What decides its output.
    pub identity: Identity,
}

impl Toolchain {
    /// `cargo` of this toolchain, to be run in the workspace at `root`.
    pub fn cargo(&self, root: &Path) -> Command {
        let mut cargo = Command::new(&self.cargo);
        shell::without_cargo_environment(&mut cargo);
        cargo.current_dir(root).env("RUSTC", &self.rustc);
        // Debian's rustc calls itself stable; this lets it use -Zbuild-std and nightly features all the same.
        cargo.env("RUSTC_BOOTSTRAP", "1");
        let linker_dir = self.bpf_linker.parent().map(Path::to_owned);
        let path = env::var_os("PATH").unwrap_or_default();
        if let Ok(path) = env::join_paths(linker_dir.into_iter().chain(env::split_paths(&path))) {
            cargo.env("PATH", path);
        }
        cargo
    }

    /// For people: which toolchain this is.
    pub fn name(&self) -> String {
        let version = self.identity.rustc.lines().next().unwrap_or_default();
        format!("{version} ({:?}), {}", self.flavour, self.identity.bpf_linker)
    }
}

/// Chooses among the toolchains that this machine has: the `wanted` kind if one is named, else the `recorded` one, else
/// any. With `install`, gets Debian's where there is none.
pub fn choose(wanted: Option<Flavour>, install: bool, recorded: Option<&Identity>) -> Result<Toolchain> {
    let mut missing = Vec::new();
    let mut found = Vec::new();
    for flavour in [Flavour::Nightly, Flavour::Debian] {
        if wanted.is_some_and(|wanted| wanted != flavour) {
            continue;
        }
        match find(flavour) {
            Ok(toolchain) => found.push(toolchain),
            Err(reason) => missing.push(format!("  {flavour:?}: {reason:#}")),
        }
    }
    if let Some(index) = found.iter().position(|toolchain| recorded == Some(&toolchain.identity)) {
        return Ok(found.swap_remove(index));
    }
    if let Some(toolchain) = found.into_iter().next() {
        return Ok(toolchain);
    }
    if install {
        if wanted == Some(Flavour::Nightly) {
            bail!("only Debian's toolchain can be installed here; for a nightly: {NIGHTLY_HELP}");
        }
        install_debian()?;
        return find(Flavour::Debian).context("the toolchain is still incomplete after the installation");
    }
    bail!(
        "no toolchain that can build kernel programs was found:\n{}\nEither: {NIGHTLY_HELP}\nor, on Debian: `cargo xtask ebpf \
         --install` (it uses apt-get, with sudo where needed).\nNone is needed to build gpustall itself: the kernel object is \
         committed.",
        missing.join("\n")
    );
}

const NIGHTLY_HELP: &str =
    "`rustup toolchain install nightly --component rust-src && cargo install bpf-linker --version 0.13.0`";

fn find(flavour: Flavour) -> Result<Toolchain> {
    match flavour {
        Flavour::Nightly => find_nightly(),
        Flavour::Debian => find_debian(),
    }
}

fn find_nightly() -> Result<Toolchain> {
    let ask = |program: &str| {
        let mut rustup = shell::command("rustup");
        shell::without_cargo_environment(&mut rustup);
        shell::probe(rustup.args(["which", "--toolchain", "nightly", program])).map(PathBuf::from)
    };
    let rustc = ask("rustc").context("no rustup toolchain called `nightly`")?;
    let cargo = ask("cargo").context("the nightly toolchain has no cargo")?;
    let bpf_linker = shell::which("bpf-linker").context("no bpf-linker on PATH")?;
    let sysroot = sysroot(&rustc)?;
    let host = host(&rustc)?;
    let bundled = sysroot.join("lib/rustlib").join(host).join("bin/rust-objcopy");
    let objcopy = if bundled.is_file() { Some(bundled) } else { shell::which("llvm-objcopy") };
    let objcopy = objcopy.context("no llvm-objcopy on PATH (`rustup component add llvm-tools --toolchain nightly`)")?;
    complete(Flavour::Nightly, rustc, cargo, bpf_linker, objcopy)
}

fn find_debian() -> Result<Toolchain> {
    let (rustc, cargo) = (PathBuf::from("/usr/bin/rustc"), PathBuf::from("/usr/bin/cargo"));
    if !rustc.is_file() || !cargo.is_file() {
        bail!("no /usr/bin/rustc and /usr/bin/cargo (packages {})", DEBIAN_PACKAGES.join(", "));
    }
    let llvm = llvm_major(&rustc)?;
    let objcopy = llvm_dir(llvm).join("bin/llvm-objcopy");
    if !objcopy.is_file() {
        bail!("no {} (package llvm-{llvm})", objcopy.display());
    }
    let bpf_linker = debian_linker(llvm)
        .with_context(|| format!("no bpf-linker {BPF_LINKER} that uses LLVM {llvm}; --install builds one"))?;
    complete(Flavour::Debian, rustc, cargo, bpf_linker, objcopy)
}

/// The linker that was built here, or one on PATH that uses the same shared LLVM as the compiler.
fn debian_linker(llvm: u32) -> Option<PathBuf> {
    let candidates = [Some(tools_dir().join("bin/bpf-linker")), shell::which("bpf-linker")];
    candidates.into_iter().flatten().filter(|linker| linker.is_file()).find(|linker| {
        let readelf = llvm_dir(llvm).join("bin/llvm-readelf");
        let libraries = shell::probe(shell::command(readelf).arg("--needed-libs").arg(linker)).unwrap_or_default();
        let version = shell::probe(shell::command(linker).arg("--version")).unwrap_or_default();
        version.ends_with(BPF_LINKER) && libraries.contains(&format!("libLLVM.so.{llvm}."))
    })
}

/// Checks the parts that every toolchain needs and asks each for its version.
fn complete(
    flavour: Flavour,
    rustc: PathBuf,
    cargo: PathBuf,
    bpf_linker: PathBuf,
    objcopy: PathBuf,
) -> Result<Toolchain> {
    let rust_src = sysroot(&rustc)?.join("lib/rustlib/src/rust");
    if !rust_src.join("library/core/src/lib.rs").is_file() {
        bail!(
            "no sources of the standard library in {} (component rust-src, package rust-web-src)",
            rust_src.display()
        );
    }
    let targets = shell::output(bare(&rustc).args(["--print", "target-list"]))?;
    if !targets.lines().any(|target| target == TARGET) {
        bail!("{} does not know the target {TARGET}", rustc.display());
    }
    let objcopy_version = shell::output(shell::command(&objcopy).arg("--version"))?;
    let identity = Identity {
        rustc: shell::output(bare(&rustc).arg("-vV"))?,
        bpf_linker: shell::output(shell::command(&bpf_linker).arg("--version"))?,
        objcopy: objcopy_version.lines().find(|line| line.contains("version")).unwrap_or_default().trim().to_owned(),
    };
    Ok(Toolchain { flavour, rustc, cargo, bpf_linker, objcopy, rust_src, identity })
}

/// Installs Debian's packages and builds the linker.
fn install_debian() -> Result<()> {
    if shell::which("apt-get").is_none() {
        bail!("--install needs apt-get, which this machine lacks; instead: {NIGHTLY_HELP}");
    }
    let mut packages: Vec<String> = DEBIAN_PACKAGES.iter().map(|&package| package.to_owned()).collect();
    let llvm = llvm_major(Path::new("/usr/bin/rustc")).unwrap_or(DEBIAN_LLVM);
    packages.extend([format!("llvm-{llvm}-dev"), format!("libpolly-{llvm}-dev"), "g++".to_owned()]);
    println!("installing {}", packages.join(" "));
    apt_get(&["update", "--quiet=2"])?;
    let mut install = vec!["install", "--yes", "--quiet=2", "--no-install-recommends"];
    install.extend(packages.iter().map(String::as_str));
    apt_get(&install)?;

    let llvm = llvm_major(Path::new("/usr/bin/rustc"))?;
    if debian_linker(llvm).is_some() {
        return Ok(());
    }
    println!("building bpf-linker {BPF_LINKER} into {}", tools_dir().display());
    let mut cargo = shell::command("/usr/bin/cargo");
    shell::without_cargo_environment(&mut cargo)
        .args(["install", "bpf-linker", "--quiet", "--locked", "--version", BPF_LINKER, "--no-default-features"])
        .args(["--features", &format!("llvm-{llvm}")])
        .arg("--root")
        .arg(tools_dir())
        .env("LLVM_PREFIX", llvm_dir(llvm))
        .env("RUSTC", "/usr/bin/rustc")
        .env("CARGO_TARGET_DIR", tools_dir().join("build"));
    shell::run(&mut cargo).context("cannot build bpf-linker")
}

fn apt_get(args: &[&str]) -> Result<()> {
    let mut command = shell::as_root("apt-get")?;
    shell::run(command.args(args).env("DEBIAN_FRONTEND", "noninteractive"))
}

fn tools_dir() -> PathBuf {
    shell::root().join("target/tools")
}

fn llvm_dir(major: u32) -> PathBuf {
    PathBuf::from(format!("/usr/lib/llvm-{major}"))
}

/// `rustc` without what cargo set for this process.
fn bare(rustc: &Path) -> Command {
    let mut command = shell::command(rustc);
    shell::without_cargo_environment(&mut command);
    command
}

fn sysroot(rustc: &Path) -> Result<PathBuf> {
    Ok(shell::output(bare(rustc).args(["--print", "sysroot"]))?.into())
}

fn host(rustc: &Path) -> Result<String> {
    line_of(&shell::output(bare(rustc).arg("-vV"))?, "host: ").context("`rustc -vV` names no host")
}

fn llvm_major(rustc: &Path) -> Result<u32> {
    let text = shell::output(bare(rustc).arg("-vV"))?;
    line_of(&text, "LLVM version: ")
        .and_then(|version| version.split('.').next()?.parse().ok())
        .with_context(|| format!("`{} -vV` names no LLVM version", rustc.display()))
}

fn line_of(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned)
}
