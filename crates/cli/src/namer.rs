//! `entresol names-of`: the process that reads names of files for another command.

use anyhow::Result;
use clap::Args;
use entresol_names::postgres::Connection;
use entresol_service::namer::answer;

/// Read names of files for another command, a line of JSON for each line of paths
#[derive(Args)]
pub struct NamerArgs {
    /// The process that serves the mount
    process: u32,
    /// Directory where the cache is mounted
    mountpoint: String,
    /// As for `stats`
    #[arg(long)]
    ask: Option<Connection>,
}

/// Runs the command: answers lines until there are no more.
pub fn run(arguments: &NamerArgs) -> Result<()> {
    answer(arguments.process, &arguments.mountpoint, arguments.ask.as_ref())
}
