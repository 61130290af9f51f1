//! `entresol drain`: everything dirty goes below.

use super::files::{self, DirectArgs};
use super::identity::{self, Identity};
use super::serve::{CacheArgs, open_to_drain};
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;

/// Write everything dirty of a cache that is not in use to the backing store, which is complete without the cache then
#[derive(Args)]
pub struct DrainArgs {
    /// The cache
    #[arg(long, value_name = "FILE")]
    pub cache: PathBuf,
    /// The file that it caches, the directory of files, or the SQLite database
    #[arg(long, value_name = "FILE|DIR")]
    pub backing: PathBuf,
    /// The UUID that `entresol format` was given for a backing block device
    #[arg(long, value_name = "UUID", value_parser = identity::uuid)]
    pub identity: Option<Identity>,
    /// Lose what the cache alone has of files that are not there any more
    #[arg(long)]
    pub drop_gone: bool,
    /// Write the pages below although the generation of the cache is not that of the backing store: one of them seems to be an
    /// older copy. Only for who knows that the two belong together: older pages are written over newer ones else
    #[arg(long)]
    pub generation_ok: bool,
}

/// Runs the command.
pub fn run(arguments: &DrainArgs, quiet: bool) -> Result<()> {
    let &DrainArgs { ref cache, ref backing, identity, drop_gone, generation_ok } = arguments;
    let direct = DirectArgs { drop_gone, generation_ok, nested_ok: true, ..DirectArgs::default() };
    let held = if backing.is_dir() {
        files::open(cache, backing, &CacheArgs::any_policy(), &direct)?.cached()?.0
    } else {
        open_to_drain(cache, backing, identity, generation_ok)?
    };
    held.drain(quiet)
}
