//! `entresol drain`: writes all dirty pages to the backing store.

use anyhow::Result;
use clap::Args;
use entresol_service::drain::drain;
use entresol_service::ending;
use entresol_service::identity::{self, Identity};
use std::path::PathBuf;

/// Write every dirty page of a cache that is not in use to the backing store, which is then complete without the cache
#[derive(Args)]
pub struct DrainArgs {
    /// The cache
    #[arg(long, value_name = "FILE")]
    pub cache: PathBuf,
    /// The file or block device that it caches, the directory of files, or the SQLite database
    #[arg(long, value_name = "FILE|DIR")]
    pub backing: PathBuf,
    /// The UUID that `entresol format` was given for a backing block device
    #[arg(long, value_name = "UUID", value_parser = identity::uuid)]
    pub identity: Option<Identity>,
    /// Drop dirty pages of files that no longer exist; these pages are lost
    #[arg(long)]
    pub drop_gone: bool,
    /// Drain although the generations of the cache and the backing store differ: one of them seems to be an older copy.
    /// Only if you know that the two belong together; otherwise older pages overwrite newer ones
    #[arg(long)]
    pub generation_ok: bool,
}

/// Runs the command.
pub fn run(arguments: &DrainArgs, quiet: bool) -> Result<()> {
    ending::heed_size_limit()?;
    let &DrainArgs { ref cache, ref backing, identity, drop_gone, generation_ok } = arguments;
    drain(cache, backing, identity, drop_gone, generation_ok, quiet)
}
