//! The command `entresol`.

mod args;
mod journal;
mod output;
mod policies;
mod simulate;
mod simulate_report;
mod stat_report;
mod trace;
mod trace_source;

use anyhow::Result;
use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        // A closed pipe (`entresol policies | head`) is the reader's choice, not an error.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("entresol: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.root_cause().downcast_ref::<std::io::Error>();
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

fn run(cli: &Cli) -> Result<()> {
    match &cli.command {
        Command::Simulate(arguments) => simulate::run(arguments, cli.quiet),
        Command::Trace(command) => trace::run(command, cli.quiet),
        Command::Policies(arguments) => policies::run(arguments),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "entresol", &mut script);
            output::print(&String::from_utf8(script)?)
        }
        Command::Man { directory } => {
            std::fs::create_dir_all(directory)?;
            clap_mangen::generate_to(Cli::command(), directory)?;
            Ok(())
        }
    }
}
