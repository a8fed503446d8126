//! Runs one process of the demo's workload, as `gpustall demo-workload` does: lets tests start the workload without
//! the tracer around it.
use clap::Parser;
use gpustall::demo;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
enum Cli {
    /// One process.
    DemoWorkload {
        /// Which.
        #[command(subcommand)]
        role: demo::Role,
    },
    /// Starts a scenario, prints main's pid when it has begun, and waits for its end.
    Start {
        /// Which.
        scenario: demo::Scenario,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse() {
        Cli::DemoWorkload { role } => demo::run(&role),
        Cli::Start { scenario } => start(scenario),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn start(scenario: demo::Scenario) -> Result<(), demo::DemoError> {
    let mut running = demo::start(&demo::Options::new(scenario, Duration::from_secs(20)))?;
    running.go()?;
    println!("{}", running.pid());
    running.wait()
}
