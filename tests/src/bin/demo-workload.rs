//! Runs one process of the demo's workload, as `gpustall demo-workload` does: lets tests start the workload without
//! the tracer around it.
use clap::Parser;
use gpustall::demo;
use std::process::ExitCode;

#[derive(Parser)]
enum Cli {
    /// One process.
    DemoWorkload {
        /// Which.
        #[command(subcommand)]
        role: demo::Role,
    },
}

fn main() -> ExitCode {
    let Cli::DemoWorkload { role } = Cli::parse();
    match demo::run(&role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
