//! `entresol resolve`: decides which version of a file counts after a change made without its cache.

use crate::arguments::{TimeoutArg, keyword};
use crate::output;
use anyhow::Result;
use clap::Args;
use entresol_files::Keep;
use entresol_service::resolve::resolve;
use std::path::PathBuf;

/// End the conflict of a file that was changed without its cache while the cache had dirty pages of it
///
/// `stats`, `check` and `drain` name such files. Until the conflict is ended, reads of those pages and syncs
/// of the file fail, and nothing is written to the file. Look at the file in the backing directory first: the
/// version that is not kept is lost for good.
#[derive(Args)]
pub struct ResolveArgs {
    /// The file, by its path in the mount or in the backing directory
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The version to keep: `cache` writes the cache's dirty pages over the file and restores the size that
    /// it had; `below` drops those pages
    #[arg(long, value_name = "WHOSE", value_parser = keyword::<Keep>())]
    pub keep: Keep,
    /// The cache, needed if the backing directory does not name it
    #[arg(long, value_name = "FILE")]
    pub cache: Option<PathBuf>,
    #[command(flatten)]
    pub timeout: TimeoutArg,
}

/// Runs the command.
pub fn run(arguments: &ResolveArgs, quiet: bool) -> Result<()> {
    let ResolveArgs { file, keep, cache, timeout } = arguments;
    let said = resolve(file, cache.as_deref(), *keep, timeout.limit())?;
    if quiet { Ok(()) } else { output::print(&format!("{said}\n")) }
}
