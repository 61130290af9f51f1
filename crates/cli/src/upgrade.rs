//! `entresol upgrade`: replaces the process that serves a cache, under its users.

use crate::arguments::TimeoutArg;
use crate::output;
use anyhow::Result;
use clap::Args;
use entresol_service::upgrade::upgrade;
use std::path::PathBuf;

/// Replace the process that serves a cache by one of the program on disk
///
/// The cache must be served with --restart on. Programs that use it see a pause. The new process starts first, and the
/// one before ends when the new one is in order; if the new one does not get to serve, the program before is started
/// again. The exit code is 0 if the upgrade was done. SIGUSR2 to the holder, which for `mount` is the process that was
/// started, does the same.
#[derive(Args)]
#[command(
    override_usage = "entresol upgrade [OPTIONS] <CACHE|SOCKET|DIR>\n       entresol upgrade [OPTIONS] --config <FILE>"
)]
pub struct UpgradeArgs {
    /// The cache, its control socket, or a directory where it is mounted [default: `cache` of --config]
    #[arg(value_name = "CACHE|SOCKET|DIR")]
    pub cache: PathBuf,
    #[command(flatten)]
    pub timeout: TimeoutArg,
}

/// Runs the command.
pub fn run(arguments: &UpgradeArgs, quiet: bool) -> Result<()> {
    let done = upgrade(&arguments.cache, arguments.timeout.limit())?;
    if quiet { Ok(()) } else { output::print(&done) }
}
