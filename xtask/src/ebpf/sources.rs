//! What decides the object's bytes apart from the toolchain: the sources, their manifest, the locked dependencies, the
//! flags.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::build;

/// Lower-case hexadecimal SHA-256.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hash over the kernel crate of the workspace at `root`, the parts of the lock file that it depends on, and the flags.
pub fn hash(root: &Path) -> Result<String> {
    let crate_dir = root.join("tracer-ebpf");
    let mut files = vec![crate_dir.join("Cargo.toml")];
    collect(&crate_dir.join("src"), &mut files)?;
    files.sort();

    let mut hasher = Sha256::new();
    // Lengths keep the border between two pieces from moving unseen.
    let mut add = |name: &str, bytes: &[u8]| {
        hasher.update(format!("{name}\n{}\n", bytes.len()));
        hasher.update(bytes);
    };
    for file in &files {
        let name = file.strip_prefix(root).unwrap_or(file).to_string_lossy().into_owned();
        add(&name, &fs::read(file).with_context(|| format!("cannot read {}", file.display()))?);
    }
    let lock_path = root.join("Cargo.lock");
    let lock = fs::read_to_string(&lock_path).with_context(|| format!("cannot read {}", lock_path.display()))?;
    add("Cargo.lock", locked(&lock, "tracer-ebpf")?.join("\n").as_bytes());
    add("flags", build::FLAGS.join("\n").as_bytes());
    add("profile", build::PROFILE.map(|(name, value)| format!("{name}={value}")).join("\n").as_bytes());
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Copies what cargo needs to build the kernel crate: every member's manifest and sources, without build output.
pub fn copy_workspace(from: &Path, to: &Path) -> Result<()> {
    for entry in ["Cargo.toml", "Cargo.lock", "tracer-ebpf", "tracer", "xtask", "tests"] {
        copy(&from.join(entry), &to.join(entry))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        if let Some(dir) = to.parent() {
            fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
        return Ok(());
    }
    for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let entry = entry.with_context(|| format!("cannot list {}", from.display()))?;
        if entry.file_name() != "target" {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let path = entry.with_context(|| format!("cannot list {}", dir.display()))?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct Lock {
    package: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    checksum: Option<String>,
    #[serde(default)]
    dependencies: Vec<String>,
}

/// Every package that `start` depends on, itself included, as sorted `name version checksum` lines.
///
/// Procedural macros are among them, and rightly: they write code.
fn locked(lock: &str, start: &str) -> Result<Vec<String>> {
    let lock: Lock = toml::from_str(lock).context("cannot parse Cargo.lock")?;
    let mut by_name: HashMap<&str, Vec<&Package>> = HashMap::new();
    for package in &lock.package {
        by_name.entry(&package.name).or_default().push(package);
    }
    let mut seen = BTreeSet::new();
    let mut todo = vec![start.to_owned()];
    while let Some(dependency) = todo.pop() {
        // A dependency reads "name", or "name version" where several versions are locked.
        let mut words = dependency.split(' ');
        let name = words.next().unwrap_or_default();
        let version = words.next();
        let versions = by_name.get(name).map(Vec::as_slice).unwrap_or_default();
        for package in versions.iter().filter(|package| version.is_none_or(|version| package.version == version)) {
            let line = format!("{name} {} {}", package.version, package.checksum.as_deref().unwrap_or("-"));
            if seen.insert(line) {
                todo.extend(package.dependencies.iter().cloned());
            }
        }
    }
    Ok(seen.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"
version = 4
[[package]]
name = "kernel"
version = "0.1.0"
dependencies = ["helper 2.0.0", "macros"]
[[package]]
name = "helper"
version = "1.0.0"
checksum = "old"
[[package]]
name = "helper"
version = "2.0.0"
checksum = "new"
[[package]]
name = "macros"
version = "3.0.0"
checksum = "m"
dependencies = ["syn"]
[[package]]
name = "syn"
version = "2.1.0"
checksum = "s"
[[package]]
name = "stranger"
version = "9.0.0"
checksum = "x"
"#;

    #[test]
    fn the_lock_closure_holds_what_is_reachable_and_nothing_else() {
        let lines = locked(LOCK, "kernel").unwrap();
        assert_eq!(lines, ["helper 2.0.0 new", "kernel 0.1.0 -", "macros 3.0.0 m", "syn 2.1.0 s"]);
    }

    fn workspace(dir: &Path) {
        fs::create_dir_all(dir.join("tracer-ebpf/src/inner")).unwrap();
        fs::write(dir.join("Cargo.lock"), LOCK).unwrap();
        fs::write(dir.join("tracer-ebpf/Cargo.toml"), "[package]").unwrap();
        fs::write(dir.join("tracer-ebpf/src/main.rs"), "a").unwrap();
        fs::write(dir.join("tracer-ebpf/src/inner/b.rs"), "b").unwrap();
    }

    #[test]
    fn the_hash_is_the_same_in_two_directories() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        workspace(one.path());
        workspace(two.path());
        assert_eq!(hash(one.path()).unwrap(), hash(two.path()).unwrap());
    }

    #[test]
    fn the_hash_moves_with_a_nested_source_file_and_with_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        workspace(dir.path());
        let before = hash(dir.path()).unwrap();
        fs::write(dir.path().join("tracer-ebpf/src/inner/b.rs"), "c").unwrap();
        let changed = hash(dir.path()).unwrap();
        fs::write(dir.path().join("tracer-ebpf/src/inner/new.rs"), "").unwrap();
        let added = hash(dir.path()).unwrap();
        assert!(before != changed && changed != added);
    }
}
