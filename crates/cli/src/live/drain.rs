//! `entresol drain`: everything dirty goes below.

use super::identity::{self, Identity};
use super::serve::{CacheArgs, DeviceArgs, Opened, open};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::io;
use std::path::PathBuf;

/// Write everything dirty of a cache that is not in use to the backing store, which is complete without the cache then
#[derive(Args)]
pub struct DrainArgs {
    /// The cache
    #[arg(long, value_name = "FILE")]
    pub cache: PathBuf,
    /// The file that it caches, or the directory of files
    #[arg(long, value_name = "FILE|DIR")]
    pub backing: PathBuf,
    /// The UUID that `entresol format` was given for a backing block device
    #[arg(long, value_name = "UUID", value_parser = identity::uuid)]
    pub identity: Option<Identity>,
}

/// Runs the command.
pub fn run(arguments: &DrainArgs, quiet: bool) -> Result<()> {
    if arguments.backing.is_dir() {
        return super::files::drain(&arguments.cache, &arguments.backing, quiet);
    }
    let name = arguments.cache.display();
    let devices = DeviceArgs { identity: arguments.identity, direct: false };
    let Opened { cache, found, .. } = open(&arguments.cache, &arguments.backing, &CacheArgs::any_policy(), &devices)?;
    past_lost_pages(|| cache.drain(), || Ok(cache.lost_pages()?.len())).with_context(|| name.to_string())?;
    cache.close().with_context(|| name.to_string())?;
    let lost = cache.lost_pages()?;
    if let Some(first) = lost.first() {
        let backing = arguments.backing.display();
        bail!("{name}: {} pages could not be read and are not in {backing}, first: page {first}", lost.len());
    }
    let stats = cache.stats()?;
    if stats.dirty_pages > 0 {
        bail!("{name}: {} pages are dirty still", stats.dirty_pages);
    }
    if !quiet {
        eprintln!(
            "{} dirty pages found, {} pages written; {} is complete without the cache",
            found.dirty,
            stats.keeper.below_pages,
            arguments.backing.display()
        );
    }
    Ok(())
}

/// Drains until all that can be read is below. A page whose only copy is bad ends a drain; it is listed as lost from then
/// on, and the next goes on without it.
pub fn past_lost_pages(
    drain: impl Fn() -> io::Result<()>,
    lost_pages: impl Fn() -> io::Result<usize>,
) -> io::Result<()> {
    let mut lost = lost_pages()?;
    while let Err(error) = drain() {
        let now = lost_pages()?;
        if now == lost {
            return Err(error);
        }
        lost = now;
    }
    Ok(())
}
