//! Every chore of this repository behind one command: `cargo xtask --help`.

mod ebpf;
mod shell;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Chores of the gpustall repository.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Rebuild the committed kernel object, or check that it is what the sources give
    Ebpf(ebpf::Args),
}

fn main() -> ExitCode {
    let outcome = match Args::parse().chore {
        Chore::Ebpf(args) => ebpf::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
