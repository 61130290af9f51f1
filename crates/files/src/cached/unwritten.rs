//! Pages that are not below, by the files that they belong to: lost ones, refused ones, and those that no file takes.

use super::file::CachedFile;
use super::start::Backing;
use super::{CachedFiles, FilesDisk, NotWritten};
use crate::below::OpenDirectory as _;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

impl CachedFiles {
    /// Pages whose only copy could not be read, with the file that each belongs to and the byte in it.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn lost_pages(&self) -> io::Result<Vec<(PathBuf, u64)>> {
        Ok(self.named(&self.shared.cache.lost_pages()?))
    }

    /// Positions of these pages of the cache below: the file and the byte in it. Pages of no file are left out.
    pub fn named(&self, pages: &[u64]) -> Vec<(PathBuf, u64)> {
        let root = self.root.path().unwrap_or_default();
        let named = pages.iter().filter_map(|page| {
            let (below, offset) = self.shared.disk.file_at(page * self.shared.page_bytes)?;
            let path = below.path(&root).map(|path| root.join(path)).unwrap_or_default();
            Some((path, offset))
        });
        named.collect()
    }

    /// Files that the cache has dirty pages of and that cannot be written, each with what the system says of that.
    ///
    /// # Errors
    /// When the cache has stopped after a fault of its own.
    pub fn unwritable(&self) -> io::Result<Vec<(PathBuf, io::Error)>> {
        let (dirty, root) = (self.shared.cache.dirty_by_object()?, self.root.path()?);
        let known: Vec<Arc<CachedFile>> = self.files().values().map(|known| known.file.clone()).collect();
        let is_dirty = |file: &Arc<CachedFile>| file.object().is_some_and(|object| dirty.contains_key(&object));
        let refused = |file: Arc<CachedFile>| {
            let error = file.below.ensure_writable().err()?;
            let path = file.below.path(&root).unwrap_or_default();
            Some((path, error))
        };
        Ok(known.into_iter().filter(is_dirty).filter_map(refused).collect())
    }

    /// Files of which a write or a sync of the cache's failed since this was last asked.
    pub fn failures(&self) -> Vec<PathBuf> {
        let root = self.root.path().unwrap_or_default();
        let failed = self.shared.disk.failures();
        failed.iter().filter_map(|below| below.path(&root).ok().map(|path| root.join(path))).collect()
    }

    /// Pages that the cache handed down since it was opened and that are in no file.
    pub fn not_written(&self) -> NotWritten {
        self.shared.disk.not_written()
    }

    /// Number of failed syncs of directories in which a name was removed, and the last error of the system. The files
    /// that were removed there are kept until the sync succeeds.
    pub fn failed_directory_syncs(&self) -> (u64, Option<String>) {
        self.shared.directory_syncs.failed()
    }
}

impl Backing {
    /// Counts addresses in the cache by the files that they belong to, whose paths are those in the directory.
    ///
    /// # Errors
    /// The error of the system.
    pub fn by_file(&self, disk: &FilesDisk, addresses: &[u64]) -> io::Result<BTreeMap<PathBuf, usize>> {
        let root = self.root().path()?;
        let mut counts = BTreeMap::new();
        for (below, _) in addresses.iter().filter_map(|&at| disk.file_at(at)) {
            *counts.entry(below.path(&root)?).or_default() += 1;
        }
        Ok(counts)
    }
}
