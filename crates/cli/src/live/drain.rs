//! `entresol drain`: writes all dirty pages to the backing store.

use super::files::{self, DirectArgs};
use super::identity::{self, Identity};
use super::serve::{CacheArgs, open_to_drain};
use super::unwritten::{ADVICE, counted, list};
use super::{ReadFile, survey};
use crate::ending;
use anyhow::{Result, anyhow};
use clap::Args;
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::path::{Path, PathBuf};

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
    let direct = DirectArgs { drop_gone, generation_ok, nested_ok: true, ..DirectArgs::default() };
    let held = if backing.is_dir() {
        let opened = files::open(cache, backing, &CacheArgs::any_policy(), &direct);
        opened.map_err(|error| read_only(cache, backing).unwrap_or(error))?.cached()?.0
    } else {
        open_to_drain(cache, backing, identity, generation_ok)?
    };
    held.drain(quiet)
}

/// The refusal of a directory on a read-only file system, naming the pages that only the cache has; none for other
/// directories.
fn read_only(cache: &Path, directory: &Path) -> Option<anyhow::Error> {
    if !statvfs(directory).ok()?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return None;
    }
    let store = ReadFile::open(cache).ok()?;
    let (backing, superblock) = files::backing_of(cache, &store, directory).ok()?;
    let page_bytes = u64::from(superblock.geometry.page_bytes);
    let found = survey::survey(&store, false).ok()?;
    let dirty = found.pages.iter().filter(|(_, version)| version.dirty).map(|(page, _)| page * page_bytes);
    let counts = backing.by_file(&backing.disk(page_bytes).ok()?, &dirty.collect::<Vec<_>>()).ok()?;
    let pages = counted(counts.values().sum(), "page");
    let named = list(counts.into_iter().map(|(path, count)| (path.display().to_string(), count)).collect());
    let (cache, directory) = (cache.display(), directory.display());
    (!named.is_empty()).then(|| {
        let why = "its file system is read-only";
        anyhow!("{cache}: {pages} could not be written below ({directory}: {why}): {named}; they are dirty in the cache, and {ADVICE}")
    })
}
