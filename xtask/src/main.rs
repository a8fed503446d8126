//! Every chore of this repository behind one command: `cargo xtask --help`.

mod bench;
mod demo;
mod ebpf;
mod lab;
mod licences;
mod prepare;
mod shell;
mod test;

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
    /// Run all tests, those on the real kernel as root
    Test(test::Args),
    /// Build gpustall and run its demo as root
    Demo(demo::Args),
    /// Run jobs whose truth is known, and hold the report against it
    Lab(lab::Args),
    /// Measure what gpustall costs, beside another tracer
    Bench(bench::Args),
    /// The half of `bench` that runs as root
    #[command(hide = true)]
    BenchMeasure(bench::MeasureArgs),
    /// Check that the licences of all dependencies fit
    Licences,
    /// Check that kernel programs can run here, and mount tracefs
    #[command(hide = true)]
    Prepare,
}

fn main() -> ExitCode {
    let outcome = match Args::parse().chore {
        Chore::Ebpf(args) => ebpf::run(&args).map(|()| ExitCode::SUCCESS),
        Chore::Test(args) => test::run(&args),
        Chore::Demo(args) => demo::run(&args),
        Chore::Lab(args) => lab::run(&args),
        Chore::Bench(args) => bench::run(&args).map(|()| ExitCode::SUCCESS),
        Chore::BenchMeasure(args) => bench::measure(&args).map(|()| ExitCode::SUCCESS),
        Chore::Licences => licences::run().map(|()| ExitCode::SUCCESS),
        Chore::Prepare => prepare::run().map(|()| ExitCode::SUCCESS),
    };
    match outcome {
        Ok(status) => status,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
