//! Runs the ground-truth lab and prints its scoreboard; `cargo xtask lab` builds what it needs and calls it.

use anyhow::{Result, ensure};
use clap::Parser;
use gpustall_tests::lab::judge::{Row, judge};
use gpustall_tests::lab::scenario::Scenario;
use gpustall_tests::lab::{board, mend, run, scenarios};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run jobs whose truth is known, and hold gpustall's report against it
#[derive(Parser)]
#[command(name = "cargo xtask lab", bin_name = "cargo xtask lab")]
struct Args {
    /// Scenarios to run; a name that ends in `*` stands for all that begin so; all without any
    names: Vec<String>,
    /// Runs of each scenario
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Length of the steady phase of each job
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// List the scenarios and run nothing
    #[arg(long)]
    list: bool,
    /// Keep recording, reports, truth log and busy file of each run in this folder
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Follow the advice: run jobs as they are and mended, and hold the gain against what the report told
    #[arg(long)]
    mend: bool,
    /// Print one JSON object a run instead of the scoreboard
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Where the files of a run are kept.
    fn kept(&self, name: &str, round: u32) -> Option<PathBuf> {
        self.keep.as_ref().map(|folder| match self.rounds {
            1 => folder.join(name),
            _ => folder.join(format!("{name}-{}", round + 1)),
        })
    }
}

fn main() -> ExitCode {
    match lab(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn lab(args: &Args) -> Result<bool> {
    ensure!((1.0..=3600.0).contains(&args.seconds), "--seconds must be from 1 to 3600");
    if args.mend {
        return follow_advice(args);
    }
    let chosen = chosen(&args.names)?;
    if args.list {
        for scenario in &chosen {
            println!("{:<28}{}", scenario.name, scenario.about);
        }
        return Ok(true);
    }
    let (mut rows, mut failed, mut missing) = (Vec::new(), 0, BTreeSet::new());
    for round in 0..args.rounds {
        for scenario in &chosen {
            if let Some(why) = (scenario.missing)() {
                if missing.insert(scenario.name) {
                    eprintln!("{} cannot run here: {why}", scenario.name);
                }
                // Whoever asks for it by its name wants it to run.
                failed += usize::from(args.names.iter().any(|name| name == scenario.name));
                continue;
            }
            match run::run(scenario, args.seconds, args.kept(scenario.name, round).as_deref())
                .and_then(|outcome| judge(scenario, &outcome))
            {
                Ok(row) => {
                    show(args, &row)?;
                    rows.push(row);
                }
                Err(error) => {
                    eprintln!("{error:#}");
                    failed += 1;
                }
            }
        }
    }
    if !args.json {
        print!("{}", board::summary(&rows, failed));
        if !missing.is_empty() {
            println!("{} of {} scenarios cannot run here", missing.len(), chosen.len());
        }
    }
    ensure!(rows.len() + failed > 0, "no scenario could run here");
    Ok(failed == 0 && rows.iter().all(|row| row.failures.is_empty()))
}

/// Runs pairs of jobs and their mended forms.
fn follow_advice(args: &Args) -> Result<bool> {
    let all = mend::all();
    for name in &args.names {
        ensure!(
            all.iter().any(|pair| fits(name, pair.name)),
            "there is no job {name} to mend; --mend --list shows all"
        );
    }
    let wanted: Vec<_> =
        all.iter().filter(|p| args.names.is_empty() || args.names.iter().any(|n| fits(n, p.name))).collect();
    if args.list {
        wanted.iter().for_each(|pair| println!("{:<28}{}", pair.name, pair.mending));
        return Ok(true);
    }
    if !args.json {
        println!("{}", mend::head());
    }
    let (mut right, mut ran) = (true, false);
    for (round, pair) in (0..args.rounds).flat_map(|round| wanted.iter().map(move |pair| (round, pair))) {
        if let Some(why) = (pair.missing)() {
            eprintln!("{} cannot run here: {why}", pair.name);
            right &= !args.names.iter().any(|name| name == pair.name);
            continue;
        }
        ran = true;
        match mend::run(pair, args.seconds, args.kept(pair.name, round).as_deref()) {
            Ok(mended) => {
                right &= mended.failures.is_empty();
                if args.json {
                    println!("{}", serde_json::to_string(&mended)?);
                } else {
                    println!("{mended}");
                }
            }
            Err(error) => {
                eprintln!("{error:#}");
                right = false;
            }
        }
    }
    ensure!(ran || !right, "no job could run here");
    Ok(right)
}

/// A name, or the beginning of one before a `*`.
fn fits(wanted: &str, name: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => wanted == name,
    }
}

fn show(args: &Args, row: &Row) -> Result<()> {
    if args.json {
        println!("{}", serde_json::to_string(row)?);
    } else {
        println!("{}", board::run(row));
    }
    Ok(())
}

fn chosen(names: &[String]) -> Result<Vec<Scenario>> {
    for name in names {
        let known = scenarios::all().iter().any(|scenario| fits(name, scenario.name));
        ensure!(known, "there is no scenario {name}; --list shows all");
    }
    let wanted = |scenario: &Scenario| names.is_empty() || names.iter().any(|name| fits(name, scenario.name));
    Ok(scenarios::all().into_iter().filter(wanted).collect())
}
