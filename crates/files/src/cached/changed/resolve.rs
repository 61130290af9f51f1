//! The files of a directory that are in conflict, and the end of a conflict.

use super::super::disk::stamp;
use super::super::file::CachedFile;
use super::super::map::FileKey;
use super::super::{CachedFiles, start::Backing};
use super::{Change, News};
use crate::below::{OpenDirectory as _, OpenFile};
use crate::cached::FilesDisk;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

/// A file that another program changed while the cache had dirty pages of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Path in the backing directory.
    pub path: PathBuf,
    /// Number of pages that are neither served nor written to the file; none if they could not be counted.
    pub pages: Option<u64>,
}

/// Choice of the bytes that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The dirty pages of the cache: they overwrite the file's bytes.
    Cache,
    /// The bytes of the file: the dirty pages are lost.
    Below,
}

impl CachedFile {
    /// Ends a conflict; returns the number of its pages.
    fn resolve(&self, keep: Keep) -> io::Result<u64> {
        let mut shape = self.alone();
        if self.below.change() != Change::Conflict {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is in no conflict"));
        }
        let pages = self.find_unserved()?.len() as u64;
        let changes = &self.shared().disk.changes;
        match keep {
            Keep::Below => {
                self.forget_all()?;
                let seen = stamp(&self.below.file()?.attributes()?);
                self.below.end_conflict(changes, seen)?;
                self.take_anew(&mut shape, seen.size);
            }
            Keep::Cache => {
                // The cache must not keep clean pages of a file with other bytes, even across a crash.
                self.forget_clean()?;
                let size = self.below.write_back_aside(changes, self.shared().page_bytes)?;
                self.forget_clean()?;
                self.take_back(&mut shape, size);
            }
        }
        *self.unserved.lock().unwrap_or_else(PoisonError::into_inner) = None;
        changes.is_stale(self.below.key);
        Ok(pages)
    }
}

impl CachedFiles {
    fn all_known(&self) -> Vec<Arc<CachedFile>> {
        self.files().values().map(|known| known.file.clone()).collect()
    }

    /// Compares every file that has regions in the cache with its stamp. Files with closed descriptors are compared
    /// when they are used again. A failed comparison is repeated at the next call.
    pub fn look(&self) {
        for file in self.all_known().into_iter().filter(|file| file.below.is_open()) {
            let _again = file.look();
        }
    }

    /// Change of each known file by other programs, in no order.
    #[cfg(test)]
    pub(in super::super) fn all_changes(&self) -> Vec<Change> {
        self.all_known().iter().map(|file| file.below.change()).collect()
    }

    /// Like [`look`](Self::look), for all files.
    pub(in super::super) fn look_at_all(&self) {
        for file in self.all_known() {
            let _again = file.look();
        }
    }

    /// Files in conflict, by path.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn conflicts(&self) -> io::Result<Vec<Conflict>> {
        let root = self.root_path()?;
        let of = |file: Arc<CachedFile>| {
            let conflict = file.below.change() == Change::Conflict;
            conflict.then(|| Conflict {
                path: file.below.path(&root).unwrap_or_default(),
                pages: file.unserved().ok().map(|pages| pages.len() as u64),
            })
        };
        let mut conflicts: Vec<Conflict> = self.all_known().into_iter().filter_map(of).collect();
        conflicts.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok(conflicts)
    }

    /// Outcomes since the last call for files that other programs changed.
    pub fn news(&self) -> Vec<(PathBuf, News)> {
        let news = std::mem::take(&mut *self.changes().news.lock().unwrap_or_else(PoisonError::into_inner));
        let (known, root) = (self.all_known(), self.root_path().unwrap_or_default());
        let path = |key| known.iter().find(|file| file.below.key == key)?.below.path(&root).ok();
        news.into_iter().filter_map(|(key, news)| Some((path(key)?, news))).collect()
    }

    /// Ends the conflict of the file at a path in the backing directory; returns the number of its pages.
    ///
    /// # Errors
    /// `NotFound` for a file that the cache does not know, `InvalidInput` for a file without a conflict; else the error
    /// of a store. The conflict then continues.
    pub fn resolve(&self, path: &Path, keep: Keep) -> io::Result<u64> {
        let root = self.root_path()?;
        let is_there = |file: &Arc<CachedFile>| file.below.path(&root).is_ok_and(|found| found == path);
        let Some(file) = self.all_known().into_iter().find(is_there) else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the cache has no pages of such a file"));
        };
        file.resolve(keep)
    }
}

impl Backing {
    /// Conflicts of a cache that is not in use, and those that a start would find because files were changed since the
    /// close. `dirty` are the addresses of the cache's dirty pages.
    ///
    /// # Errors
    /// The error of the system.
    pub fn conflicts(&self, disk: &FilesDisk, dirty: &[u64], page_bytes: u64) -> io::Result<Vec<Conflict>> {
        let root = self.root().path()?;
        let mut pages: BTreeMap<FileKey, BTreeSet<u64>> = BTreeMap::new();
        for &at in dirty {
            if let Some((below, offset)) =
                disk.file_at(at).filter(|(below, _)| matches!(below.change(), Change::Bytes | Change::Conflict))
            {
                pages.entry(below.key).or_default().insert(offset / page_bytes);
            }
        }
        let mut conflicts = Vec::new();
        for below in disk.files() {
            let mut pages = pages.remove(&below.key).unwrap_or_default();
            let known = below.change() == Change::Conflict;
            if known {
                let kept = super::kept(self.hidden(), below.key, page_bytes as usize)?;
                pages.extend(kept.into_iter().map(|offset| offset / page_bytes));
            }
            if known || !pages.is_empty() {
                conflicts.push(Conflict { path: below.path(&root)?, pages: Some(pages.len() as u64) });
            }
        }
        conflicts.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok(conflicts)
    }
}
