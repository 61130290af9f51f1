//! `entresol check`: compares the contents of a cache with their checksums and with the backing store.

use crate::arguments::keyword;
use crate::output;
use anyhow::Result;
use clap::Args;
use entresol_service::check::{self, Checked, Sound};
use entresol_service::hold::is_damage;
use entresol_service::identity::{self, Identity};
use entresol_store::Doubtful;
use std::path::PathBuf;

/// Verify a cache that is not in use: superblocks, tables, every page, and clean pages against the backing store
///
/// Changes nothing without --repair. Exit code 0 if all is sound (or was made so without a loss), 1 if something is
/// damaged (or was lost), 2 if the check could not be completed.
#[derive(Args)]
pub struct CheckArgs {
    /// The cache
    #[arg(long, value_name = "FILE")]
    pub cache: PathBuf,
    /// The file or block device that it caches, the directory of files, or the SQLite database
    #[arg(long, value_name = "FILE|DIR")]
    pub backing: PathBuf,
    /// The UUID that `entresol format` was given for a backing block device
    #[arg(long, value_name = "UUID", value_parser = identity::uuid)]
    pub identity: Option<Identity>,
    /// Repair the cache as far as possible. A damaged superblock is written again, and so is a damaged table whose copy
    /// is intact. A damaged clean page is dropped (the backing store has it). A damaged dirty page is marked as lost
    /// (reading it is an error until it is written again)
    #[arg(long)]
    pub repair: bool,
    /// With --repair: what to do with doubtful dirty pages. If a table and its copy are both damaged, the writes in it
    /// are not known, and older dirty pages may be out of date: keep them, or make them errors until they are written
    /// again. Both are listed. Other pages of that table are as the backing store has them
    #[arg(long, requires = "repair", value_name = "WHAT", value_parser = keyword::<Doubtful>())]
    pub doubtful: Option<Doubtful>,
}

/// Runs the command.
pub fn run(arguments: &CheckArgs) -> Result<()> {
    if !arguments.repair {
        return check(arguments).map(drop);
    }
    match check(arguments) {
        Ok(Sound::All) => return Ok(()),
        Ok(Sound::BySomeCopies) => {}
        Err(error) if !is_damage(&error) => return Err(error),
        Err(error) => say!("{error}"),
    }
    output::print(&check::repair(&arguments.cache, arguments.doubtful)?)?;
    check(arguments).map(drop)
}

/// Checks, and prints what the cache contains.
fn check(arguments: &CheckArgs) -> Result<Sound> {
    let Checked { text, outcome } = check::check(&arguments.cache, &arguments.backing, arguments.identity)?;
    output::print(&text)?;
    outcome
}
