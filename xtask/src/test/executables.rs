//! Building the test executables, and telling apart those that need root.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::shell;

/// Package whose integration tests trace on the real kernel.
const KERNEL_TESTS: &str = "gpustall-tests";

/// As whom a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Needs {
    /// Unit tests, as the calling user
    #[value(name = "unit")]
    User,
    /// Tests on the real kernel, as root
    #[value(name = "kernel")]
    Root,
}

/// One test executable.
pub struct Executable {
    /// For people: package and target.
    pub name: String,
    /// The file to run.
    pub path: PathBuf,
    /// Where `cargo test` would run it.
    pub package_dir: PathBuf,
    /// As whom it runs.
    pub needs: Needs,
}

/// A line of `cargo build --message-format=json`, as far as it matters here.
#[derive(Deserialize)]
struct Message {
    reason: String,
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds everything that the tests run: the tools, the stand-in libraries, the tests.
pub fn build() -> Result<Vec<Executable>> {
    shell::run(shell::cargo().args(["build", "--workspace", "--locked"])).context("the workspace does not build")?;
    let mut cargo = shell::cargo();
    cargo.args(["test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"]);
    let output = cargo.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    ensure!(output.status.success(), "the tests do not build");
    let executables = parse(&String::from_utf8_lossy(&output.stdout))?;
    if executables.is_empty() {
        bail!("the workspace has no tests");
    }
    Ok(executables)
}

fn parse(messages: &str) -> Result<Vec<Executable>> {
    let mut executables = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Message = serde_json::from_str(line).context("cannot parse a message of cargo")?;
        let (Some(path), Some(manifest), Some(target), Some(profile)) =
            (message.executable, message.manifest_path, message.target, message.profile)
        else {
            continue;
        };
        if message.reason != "compiler-artifact" || !profile.test {
            continue;
        }
        let package_dir = manifest.parent().map(PathBuf::from).unwrap_or_default();
        let package = package_name(&manifest)?;
        let is_integration = target.kind.iter().any(|kind| kind == "test");
        let needs = if is_integration && package == KERNEL_TESTS { Needs::Root } else { Needs::User };
        executables.push(Executable { name: format!("{package}: {}", target.name), path, package_dir, needs });
    }
    executables.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(executables)
}

fn package_name(manifest: &PathBuf) -> Result<String> {
    #[derive(Deserialize)]
    struct Manifest {
        package: Package,
    }
    #[derive(Deserialize)]
    struct Package {
        name: String,
    }
    let text = std::fs::read_to_string(manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
    let manifest: Manifest = toml::from_str(&text).with_context(|| format!("cannot parse {}", manifest.display()))?;
    Ok(manifest.package.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_test_executables_count_and_kernel_tests_need_root() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = |name: &str| {
            let path = dir.path().join(format!("{name}.toml"));
            std::fs::write(&path, format!("[package]\nname = \"{name}\"\n")).unwrap();
            path.display().to_string()
        };
        let line = |package: &str, target: &str, kind: &str, test: bool, executable: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"{}","target":{{"name":"{target}","kind":["{kind}"]}},"profile":{{"test":{test}}},"executable":{executable}}}"#,
                manifest(package)
            )
        };
        let messages = [
            line("gpustall", "gpustall", "lib", true, r#""/t/unit""#),
            line("gpustall", "gpustall", "bin", false, r#""/t/tool""#),
            line("gpustall", "gpustall", "lib", false, "null"),
            line("gpustall-tests", "disk", "test", true, r#""/t/disk""#),
            line("gpustall-tests", "gpustall_tests", "lib", true, r#""/t/helpers""#),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let found = parse(&messages.join("\n")).unwrap();
        let found: Vec<_> = found.iter().map(|e| (e.name.as_str(), e.needs)).collect();
        assert_eq!(
            found,
            [
                ("gpustall-tests: disk", Needs::Root),
                ("gpustall-tests: gpustall_tests", Needs::User),
                ("gpustall: gpustall", Needs::User)
            ]
        );
    }
}
