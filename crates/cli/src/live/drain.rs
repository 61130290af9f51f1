//! `entresol drain`: everything dirty goes below.

use super::serve::{CacheArgs, Opened, open};
use anyhow::{Context, Result, bail};
use clap::Args;
use entresol_core::Size;
use std::path::PathBuf;

/// Write everything dirty of a cache that is not in use to the backing store, which is complete without the cache then
#[derive(Args)]
pub struct DrainArgs {
    /// The cache
    #[arg(long, value_name = "FILE")]
    pub cache: PathBuf,
    /// The backing store that it caches
    #[arg(long, value_name = "FILE")]
    pub backing: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &DrainArgs, quiet: bool) -> Result<()> {
    let name = arguments.cache.display();
    let policy = CacheArgs {
        policy: "lru".to_owned(),
        mode: super::serve::ModeArg::WriteBack,
        cache_size: Size::Percent(100.0),
        dram: None,
    };
    let Opened { cache, found, .. } = open(&arguments.cache, &arguments.backing, &policy)?;
    // A page whose only copy is bad ends a drain; it is listed as lost from then on, and the next goes on without it.
    let mut lost = cache.lost_pages()?.len();
    while let Err(error) = cache.drain() {
        let now = cache.lost_pages()?.len();
        if now == lost {
            return Err(error).with_context(|| name.to_string());
        }
        lost = now;
    }
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
