//! All tests of the workspace: unit and documentation tests as the calling user, kernel tests as root, one closing line.

mod executables;
mod summary;

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use anyhow::{Context, Result, ensure};

use crate::{ebpf, prepare, shell};
use executables::{Executable, Needs};
use summary::Summary;

/// Flags of `cargo xtask test`.
#[derive(clap::Args)]
pub struct Args {
    /// Run only tests whose name contains this
    filter: Option<String>,
    /// Run only one kind
    #[arg(long, value_enum)]
    only: Option<Needs>,
    /// Build and run everything with this kernel object in place of the committed one
    #[arg(long, value_name = "FILE")]
    object: Option<PathBuf>,
}

/// Runs `cargo xtask test`; its last line of output is the sum of all results.
pub fn run(args: &Args) -> Result<ExitCode> {
    let executables = {
        let _replaced = args.object.as_deref().map(ReplacedObject::new).transpose()?;
        executables::build()?
    };
    let mut summary = Summary::default();
    if args.only != Some(Needs::Root) {
        for executable in executables.iter().filter(|executable| executable.needs == Needs::User) {
            run_one(executable, args, shell::command(&executable.path), &mut summary)?;
        }
        let mut doc = shell::cargo();
        doc.args(["test", "--workspace", "--doc", "--quiet", "--"]).args(&args.filter);
        announce("documentation tests");
        let status = streamed(&mut doc, &mut summary)?;
        summary.ended("documentation tests", status.success());
    }
    if args.only != Some(Needs::User) {
        // Asked for only now, so that a machine without root still shows what can be shown before the failure.
        prepare::through_sudo()?;
        for executable in executables.iter().filter(|executable| executable.needs == Needs::Root) {
            let mut command = shell::as_root_with_environment(&executable.path)?;
            // They throttle, starve and time things on the machine: one at a time.
            command.arg("--test-threads=1");
            run_one(executable, args, command, &mut summary)?;
        }
    }
    Ok(if summary.close() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_one(executable: &Executable, args: &Args, mut command: Command, summary: &mut Summary) -> Result<()> {
    announce(&executable.name);
    command.current_dir(&executable.package_dir).env("CARGO_MANIFEST_DIR", &executable.package_dir).args(&args.filter);
    let status = streamed(&mut command, summary)?;
    summary.ended(&executable.name, status.success());
    Ok(())
}

fn announce(name: &str) {
    println!("\n== {name}");
}

/// Runs a command, passing its standard output on byte by byte as it comes, and counts the results in it.
fn streamed(command: &mut Command, summary: &mut Summary) -> Result<ExitStatus> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {program}"))?;
    if let Some(mut pipe) = child.stdout.take() {
        let mut buffer = [0; 8192];
        let mut terminal = std::io::stdout();
        loop {
            let count = pipe.read(&mut buffer).with_context(|| format!("cannot read the output of {program}"))?;
            if count == 0 {
                break;
            }
            terminal
                .write_all(&buffer[..count])
                .and_then(|()| terminal.flush())
                .context("cannot write to standard output")?;
            summary.see(&buffer[..count]);
        }
    }
    child.wait().with_context(|| format!("cannot wait for {program}"))
}

/// Puts another kernel object where the build looks for it, and the committed one back when dropped.
struct ReplacedObject {
    committed: Vec<u8>,
}

impl ReplacedObject {
    fn new(object: &Path) -> Result<Self> {
        let path = ebpf::committed_object();
        let committed = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let replacement = fs::read(object)
            .with_context(|| format!("cannot read {}; `cargo xtask ebpf --check` builds it", object.display()))?;
        ensure!(!replacement.is_empty(), "{} is empty", object.display());
        let guard = Self { committed };
        fs::write(&path, replacement).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(guard)
    }
}

impl Drop for ReplacedObject {
    fn drop(&mut self) {
        let path = ebpf::committed_object();
        if let Err(error) = fs::write(&path, &self.committed) {
            eprintln!("xtask: cannot put the committed object back ({error}); `git checkout {}` does", path.display());
        }
    }
}
