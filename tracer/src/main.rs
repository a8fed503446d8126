//! The `gpustall` command.

use clap::{Parser, Subcommand};
use gpustall::{cli, demo, recorder};
use std::ffi::OsString;
use std::process::ExitCode;

/// Tells why the GPU was idle while a model trained
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Say more; twice for everything, verifier logs included
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    // A negative number is a wrong value, and told as one; else it would be taken for an option.
    #[command(allow_negative_numbers = true)]
    Record(Box<cli::record::RecordArgs>),
    #[command(allow_negative_numbers = true)]
    Report(cli::report::ReportArgs),
    #[command(allow_negative_numbers = true)]
    Demo(cli::demo::DemoArgs),
    Doctor(cli::doctor::DoctorArgs),
    /// A role in the demo's workload
    #[command(name = demo::SUBCOMMAND, hide = true)]
    DemoWorkload {
        #[command(subcommand)]
        role: demo::Role,
    },
    /// Waits for the recorder, then becomes the command
    #[command(name = recorder::GATE, hide = true)]
    LaunchGate {
        link: i32,
        #[arg(last = true)]
        command: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return cli::usage::tell(&e),
    };
    log_at(cli.verbose);
    let result = match cli.command {
        Command::Record(args) => cli::record::run(*args),
        Command::Report(args) => cli::report::run(args),
        Command::Demo(args) => cli::demo::run(args),
        Command::Doctor(args) => cli::doctor::run(args),
        Command::DemoWorkload { role } => demo::run(&role).map(|()| ExitCode::SUCCESS).map_err(Into::into),
        Command::LaunchGate { link, command } => return ExitCode::from(recorder::gate(link, &command)),
    };
    result.unwrap_or_else(|e| {
        cli::output::say(format_args!("{e:#}"));
        ExitCode::FAILURE
    })
}

/// Diagnostics of the loader and of the kernel programs go to standard error.
fn log_at(verbose: u8) {
    let level = match verbose {
        0 => log::LevelFilter::Warn,
        1 => log::LevelFilter::Info,
        _ => log::LevelFilter::Trace,
    };
    env_logger::Builder::new().filter_level(level).format_timestamp(None).format_target(false).init();
}
