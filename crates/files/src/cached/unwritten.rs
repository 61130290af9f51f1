//! Pages missing from the backing store, by file: lost pages, refused pages, and pages that no file takes.

use super::file::CachedFile;
use super::start::Backing;
use super::{CachedFiles, FilesDisk, NotWritten};
use crate::below::OpenDirectory as _;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

impl CachedFiles {
    /// Pages whose only copy could not be read, each by its file and its offset in bytes.
    ///
    /// # Errors
    /// When the cache has stopped after an internal fault.
    pub fn lost_pages(&self) -> io::Result<Vec<(PathBuf, u64)>> {
        Ok(self.named(&self.shared.cache.lost_pages()?))
    }

    /// Files and byte offsets of the given cached pages. Pages of no file are left out.
    pub fn named(&self, pages: &[u64]) -> Vec<(PathBuf, u64)> {
        let root = self.root.path().unwrap_or_default();
        let named = pages.iter().filter_map(|page| {
            let (below, offset) = self.shared.disk.file_at(page * self.shared.page_bytes)?;
            let path = below.path(&root).map(|path| root.join(path)).unwrap_or_default();
            Some((path, offset))
        });
        named.collect()
    }

    /// Files with dirty pages that cannot be written, each with the error of the system.
    ///
    /// # Errors
    /// When the cache has stopped after an internal fault.
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

    /// Files on which a write or a sync by the cache failed since the last call.
    pub fn failures(&self) -> Vec<PathBuf> {
        let root = self.root.path().unwrap_or_default();
        let failed = self.shared.disk.failures();
        failed.iter().filter_map(|below| below.path(&root).ok().map(|path| root.join(path))).collect()
    }

    /// Pages written back since the cache was opened that are in no file.
    pub fn not_written(&self) -> NotWritten {
        self.shared.disk.not_written()
    }

    /// Number of failed syncs of directories in which a name was removed, and the last error of the system. The files
    /// removed there are kept until a sync succeeds.
    pub fn failed_directory_syncs(&self) -> (u64, Option<String>) {
        self.shared.directory_syncs.failed()
    }
}

impl Backing {
    /// Counts addresses of the cache by file, with the files' paths in the directory.
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
