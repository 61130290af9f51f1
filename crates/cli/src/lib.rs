//! The command `entresol`, and the parts that the laboratory's program shares with it.

#[macro_use(say)]
extern crate entresol_service;

mod advise;
mod arguments;
mod attach;
mod burst;
mod check;
mod commands;
mod config;
mod drain;
mod emulate;
mod format;
mod holder;
mod journal;
mod metrics;
mod mount;
mod moved;
#[cfg(feature = "mutants")]
mod mutants;
mod namer;
mod names;
mod output;
mod policies;
mod probe;
mod record;
mod replay;
mod resolve;
mod run;
mod serve;
mod set;
pub mod shared;
mod simulate;
mod stats;
mod terminal;
mod tiers;
mod top;
mod trace;
mod trace_source;
mod tune;
mod upgrade;

#[doc(hidden)]
pub use entresol_service::say;

use anyhow::{Context, Result};
use clap::{CommandFactory, FromArgMatches};
use commands::{Cli, Command};
use entresol_hold::Server;
use entresol_service::hold::is_damage;
use std::process::ExitCode;

/// Runs the command named by this process's arguments.
pub fn main() -> ExitCode {
    #[cfg(feature = "mutants")]
    if let Err(error) = mutants::leave_out() {
        return refuse(&format!("{error:#}"));
    }
    let mut command = config::with_option(Cli::command());
    let (arguments, origins) = match config::extended(&command, std::env::args_os().collect()) {
        Ok(extended) => extended,
        Err(error) => return refuse(&format!("{error:#}")),
    };
    let matches = command.try_get_matches_from_mut(arguments);
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return usage(&error.format(&mut command), &origins),
    };
    ended(need_proc(&cli.command).and_then(|()| {
        let server = Server::inherited().context("the holder")?;
        match &cli.command {
            // The exit code is that of the command that was run.
            Command::Run(arguments) => run::run(arguments, server, cli.quiet),
            Command::Burst(burst::BurstCommand::Run(arguments)) => burst::run_program(arguments, cli.quiet),
            // The exit code is that of the holder's last server.
            Command::Mount(arguments) => mount::run(arguments, server, cli.quiet),
            Command::Serve(command) => serve::run(command, server, cli.quiet),
            _ => run(&cli).map(|()| ExitCode::SUCCESS),
        }
    }))
}

/// Exit code of a command that found damage.
const DAMAGED: u8 = 1;

/// The exit code of a command; its error goes to standard error.
fn ended(result: Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        // A closed pipe (`entresol policies | head`) is the reader's choice, not an error.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let code = refuse(&format!("{error:#}"));
            if probe::is_interruption(&error) {
                ExitCode::from(probe::INTERRUPTED)
            } else if is_damage(&error) {
                ExitCode::from(DAMAGED)
            } else {
                code
            }
        }
    }
}

/// Prints one line on standard error. Control characters are replaced, so that a file's name or contents cannot steer
/// the terminal.
fn refuse(text: &str) -> ExitCode {
    let tamed: String = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    say!("entresol: {tamed}");
    ExitCode::from(2)
}

/// Prints help and version unchanged, and a usage error as one line with clap's suggestion.
fn usage(error: &clap::Error, origins: &config::Origins) -> ExitCode {
    let help = error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if help || !error.use_stderr() {
        // A reader may close the pipe early, which is no error.
        let _ = error.print();
        return if help { ExitCode::from(2) } else { ExitCode::SUCCESS };
    }
    let rendered = error.render().to_string();
    let lines = rendered.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let said = lines.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let place = origins.of(error).map(|place| format!("{place}: ")).unwrap_or_default();
    let mut text = String::new();
    for line in said {
        match line.strip_prefix("tip: ") {
            Some(tip) => text += &format!("; {tip}"),
            None if text.is_empty() => text += line.strip_prefix("error: ").unwrap_or(line),
            None => text += &format!(" {line}"),
        }
    }
    refuse(&(place + &text))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.root_cause().downcast_ref::<std::io::Error>();
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Refuses a command that works on a cache if /proc is not mounted, as in a bare root: files and mounts are found
/// through /proc.
fn need_proc(command: &Command) -> Result<()> {
    let works_on_a_cache = matches!(
        command,
        Command::Attach(_)
            | Command::Detach(_)
            | Command::Mount(_)
            | Command::Run(_)
            | Command::Serve(_)
            | Command::Format(_)
            | Command::Check(_)
            | Command::Drain(_)
    );
    if works_on_a_cache && !std::path::Path::new("/proc/self/fd").exists() {
        anyhow::bail!("/proc is not mounted here; caches and mounts need it");
    }
    Ok(())
}

fn run(cli: &Cli) -> Result<()> {
    match &cli.command {
        Command::Simulate(arguments) => simulate::run(arguments, cli.quiet),
        Command::Tune(arguments) => tune::run(arguments, cli.quiet),
        Command::Replay(arguments) => replay::run(arguments, cli.quiet),
        Command::Probe(arguments) => probe::run(arguments, cli.quiet),
        Command::Trace(command) => trace::run(command, cli.quiet),
        Command::Demo(arguments) => moved::run("demo", arguments),
        Command::Bench(arguments) => moved::run("bench", arguments),
        Command::Burst(command) => burst::run(command, cli.quiet),
        Command::Emulate(arguments) => emulate::run(arguments, cli.quiet),
        Command::Policies(arguments) => policies::run(arguments),
        Command::Run(_) | Command::Mount(_) | Command::Serve(_) => unreachable!("run where its code can be passed on"),
        Command::Attach(arguments) => attach::attach(arguments, cli.quiet),
        Command::Detach(arguments) => attach::detach(arguments, cli.quiet),
        Command::Format(arguments) => format::run(arguments, cli.quiet),
        Command::Check(arguments) => check::run(arguments),
        Command::Drain(arguments) => drain::run(arguments, cli.quiet),
        Command::Stats(arguments) => stats::run(arguments),
        Command::Set(arguments) => set::run(arguments, cli.quiet),
        Command::Upgrade(arguments) => upgrade::run(arguments, cli.quiet),
        Command::Resolve(arguments) => resolve::run(arguments, cli.quiet),
        Command::Record(arguments) => record::run(arguments, cli.quiet),
        Command::Top(arguments) => top::run(arguments),
        Command::Metrics(arguments) => metrics::run(arguments),
        Command::Advise(command) => advise::run(command, cli.quiet),
        Command::Names(arguments) => names::run(arguments, cli.quiet),
        Command::Namer(arguments) => namer::run(arguments),
        Command::Onlooker { mountpoint } => entresol_service::onlooker::run(mountpoint),
        Command::Config => output::print(&config::printed(&Cli::command())),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut config::with_option(Cli::command()), "entresol", &mut script);
            output::print(&String::from_utf8(script)?)
        }
        Command::Man { directory } => {
            let made = std::fs::create_dir_all(directory);
            made.and_then(|()| clap_mangen::generate_to(config::with_option(Cli::command()), directory))
                .with_context(|| directory.display().to_string())
        }
    }
}
