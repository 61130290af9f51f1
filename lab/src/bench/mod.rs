//! `entresol-lab bench`: databases with and without a cache, side by side.

mod analysts;
pub mod ch;
mod ch_report;
pub mod daemon;
mod kill;
mod mounted;
pub mod outside;
mod outside_report;
pub mod overhead;
mod overhead_report;
mod parts;
mod place;
mod recorder;
mod report;
mod restart;
mod restart_report;
mod span;
pub mod survive;
mod testbed;
pub mod tpcc;
pub mod tpch;
mod tpch_report;
mod turns;
mod variant;
mod witness;

use anyhow::Result;
use clap::Subcommand;

/// Drive a database with and without a cache, and print both
#[derive(Subcommand)]
pub enum BenchCommand {
    Tpcc(Box<tpcc::TpccArgs>),
    Tpch(Box<tpch::TpchArgs>),
    Ch(Box<ch::ChArgs>),
    Pgbench(Box<outside::PgbenchArgs>),
    Sysbench(Box<outside::SysbenchArgs>),
    Overhead(Box<overhead::OverheadArgs>),
    Survive(Box<survive::SurviveArgs>),
    /// The program that writes and reads on a mount
    #[command(hide = true)]
    ProbePauses(survive::ProbeArgs),
    /// The process that mounts
    #[command(hide = true)]
    Daemon(Box<daemon::DaemonArgs>),
}

pub fn run(command: &BenchCommand, quiet: bool) -> Result<()> {
    match command {
        BenchCommand::Tpcc(arguments) => tpcc::run(arguments, quiet),
        BenchCommand::Tpch(arguments) => tpch::run(arguments, quiet),
        BenchCommand::Ch(arguments) => ch::run(arguments, quiet),
        BenchCommand::Pgbench(arguments) => outside::pgbench(arguments, quiet),
        BenchCommand::Sysbench(arguments) => outside::sysbench(arguments, quiet),
        BenchCommand::Overhead(arguments) => overhead::run(arguments, quiet),
        BenchCommand::Survive(arguments) => survive::run(arguments, quiet),
        BenchCommand::ProbePauses(arguments) => survive::probe(arguments),
        BenchCommand::Daemon(arguments) => daemon::run(arguments),
    }
}
