//! The drain of a cache: writes all dirty pages to the backing store.

use super::cache_options::CacheOptions;
use super::files::{self, FileOptions};
use super::hold::ReadFile;
use super::identity::Identity;
use super::open_cache::OpenCache;
use super::serve::open_to_drain;
use super::unwritten::{advice, list};
use super::words::counted;
use anyhow::{Result, anyhow, bail};
use entresol_fsck::survey;
use rustix::fs::{StatVfsMountFlags, statvfs};
use std::io;
use std::path::Path;

/// Opens a cache that is not in use, writes everything dirty back and closes it.
///
/// With `drop_gone`, dirty pages of files that no longer exist are dropped. With `generation_ok`, the generations of the
/// cache and the backing store are not compared.
pub fn drain(
    cache: &Path,
    backing: &Path,
    identity: Option<Identity>,
    drop_gone: bool,
    generation_ok: bool,
    quiet: bool,
) -> Result<()> {
    let direct = FileOptions { drop_gone, generation_ok, nested_ok: true, ..FileOptions::default() };
    let held = if backing.is_dir() {
        let opened = files::open(cache, backing, &CacheOptions::any_policy(), &direct, None);
        opened.map_err(|error| read_only(cache, backing).unwrap_or(error))?.cached()?.0
    } else {
        open_to_drain(cache, backing, identity, generation_ok)?
    };
    held.drain(quiet)
}

impl OpenCache {
    /// Writes everything dirty back and closes the cache; reports the pages found and written.
    pub(crate) fn drain(self, quiet: bool) -> Result<()> {
        let (name, backing) = (self.path.display(), self.backing.display());
        let before = self.mark()?;
        if let Err(error) = past_lost_pages(|| self.cache.drain(), || Ok(self.cache.lost_pages()?.len())) {
            return Err(self.undrained(error));
        }
        let tally = self.tally(self.found.dirty, self.found.dropped, before)?;
        let conflicts = self.conflicts()?;
        let stats = self.close()?;
        self.check_conflicts(&conflicts)?;
        let lost = self.lost()?;
        if let Some(first) = lost.first() {
            bail!("{name}: {} pages could not be read and are not in {backing}, first: {first}", lost.len());
        }
        if stats.dirty_pages > 0 {
            bail!("{name}: {} pages are dirty still", stats.dirty_pages);
        }
        if !quiet {
            say!("{tally}; {backing} is complete without the cache");
        }
        Ok(())
    }
}

/// Drains until every readable page is written back. A page whose only copy is bad ends a drain. It is then listed as
/// lost, and the next drain goes on without it.
pub(crate) fn past_lost_pages(
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

/// The refusal of a directory on a read-only file system, naming the pages that only the cache has; none for other
/// directories.
fn read_only(cache: &Path, directory: &Path) -> Option<anyhow::Error> {
    if !statvfs(directory).ok()?.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return None;
    }
    let store = ReadFile::open(cache).ok()?;
    let (backing, superblock) = files::backing_of(cache, &store, directory).ok()?;
    let page_bytes = u64::from(superblock.geometry.page_bytes);
    let found = survey(&store, false).ok()?;
    let dirty = found.pages.iter().filter(|(_, version)| version.dirty).map(|(page, _)| page * page_bytes);
    let counts = backing.by_file(&backing.disk(page_bytes).ok()?, &dirty.collect::<Vec<_>>()).ok()?;
    let pages = counted(counts.values().sum(), "page");
    let named = list(counts.into_iter().map(|(path, count)| (path.display().to_string(), count)).collect());
    (!named.is_empty()).then(|| {
        let (advice, why) = (advice(cache, directory), "its file system is read-only");
        let (cache, directory) = (cache.display(), directory.display());
        anyhow!("{cache}: {pages} could not be written below ({directory}: {why}): {named}; they are dirty in the cache, and {advice}")
    })
}
