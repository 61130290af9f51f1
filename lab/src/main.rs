//! The program `entresol-lab`: benchmarks and a demo of the cache.

#[macro_use(say)]
extern crate entresol_cli;

mod bench;
mod demo;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Measure Entresol: databases under load with and without a cache, and a demo
#[derive(Parser)]
#[command(name = "entresol-lab", version, max_term_width = 120)]
struct Lab {
    /// Print results and errors only
    #[arg(long, short, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::DemoArgs),
    #[command(subcommand)]
    Bench(bench::BenchCommand),
}

fn main() -> ExitCode {
    entresol_cli::shared::program(|lab: &Lab| match &lab.command {
        Command::Demo(arguments) => demo::run(arguments, lab.quiet),
        Command::Bench(command) => bench::run(command, lab.quiet),
    })
}
