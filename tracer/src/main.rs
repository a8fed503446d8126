//! The `gpustall` command.

use clap::{Parser, Subcommand};
use gpustall::cli;
use std::process::ExitCode;

/// Tells why the GPU was idle while a model trained
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Doctor(cli::doctor::DoctorArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Doctor(args) => cli::doctor::run(args),
    };
    result.unwrap_or_else(|e| {
        eprintln!("gpustall: {e:#}");
        ExitCode::FAILURE
    })
}
