//! `entresol bench`: databases with and without a cache, side by side.

pub mod daemon;
mod kill;
mod mounted;
mod place;
mod report;
pub mod tpcc;
mod variant;

use anyhow::Result;
use clap::Subcommand;

/// Drive a database with and without a cache, and print both
#[derive(Subcommand)]
pub enum BenchCommand {
    Tpcc(Box<tpcc::TpccArgs>),
    /// The process that mounts
    #[command(hide = true)]
    Daemon(Box<daemon::DaemonArgs>),
}

/// Runs the command.
pub fn run(command: &BenchCommand, quiet: bool) -> Result<()> {
    match command {
        BenchCommand::Tpcc(arguments) => tpcc::run(arguments, quiet),
        BenchCommand::Daemon(arguments) => daemon::run(arguments),
    }
}
