//! The files of a directory that are in conflict, and how that ends.

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

/// A file that somebody else changed while the cache had dirty pages of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Its path in the backing directory.
    pub path: PathBuf,
    /// Pages that are neither served nor written to it; none where they could not be counted.
    pub pages: Option<u64>,
}

/// Whose bytes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// The dirty pages of the cache: they are written over what the file has.
    Cache,
    /// The bytes of the file: the dirty pages are lost.
    Below,
}

impl CachedFile {
    /// Ends a conflict; how many pages it was about.
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
                // Of what the file has other bytes now the cache must not say that it knows it, over a crash either.
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

    /// Compares every file that the cache has room for pages of with how it was left, but those whose descriptors were closed for
    /// others: these are compared when they are used again. What cannot be looked at is looked at again the next time.
    pub fn look(&self) {
        for file in self.all_known().into_iter().filter(|file| file.below.is_open()) {
            let _again = file.look();
        }
    }

    /// Change of each known file by somebody else, in no order.
    #[cfg(test)]
    pub(in super::super) fn all_changes(&self) -> Vec<Change> {
        self.all_known().iter().map(|file| file.below.change()).collect()
    }

    /// The same of all files.
    pub(in super::super) fn look_at_all(&self) {
        for file in self.all_known() {
            let _again = file.look();
        }
    }

    /// Files in conflict, by path.
    ///
    /// # Errors
    /// When the directory is not to be had.
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

    /// Returns the outcomes for files that somebody else changed, since this was last asked.
    pub fn news(&self) -> Vec<(PathBuf, News)> {
        let news = std::mem::take(&mut *self.changes().news.lock().unwrap_or_else(PoisonError::into_inner));
        let (known, root) = (self.all_known(), self.root_path().unwrap_or_default());
        let path = |key| known.iter().find(|file| file.below.key == key)?.below.path(&root).ok();
        news.into_iter().filter_map(|(key, news)| Some((path(key)?, news))).collect()
    }

    /// Ends the conflict of a file, by where it is in the backing directory; how many pages it was about.
    ///
    /// # Errors
    /// `NotFound` for a file that the cache does not know, `InvalidInput` for one in no conflict; else what a store answered: it is in
    /// conflict still.
    pub fn resolve(&self, path: &Path, keep: Keep) -> io::Result<u64> {
        let root = self.root_path()?;
        let is_there = |file: &Arc<CachedFile>| file.below.path(&root).is_ok_and(|found| found == path);
        let Some(file) = self.all_known().into_iter().find(is_there) else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the cache has nothing of such a file"));
        };
        file.resolve(keep)
    }
}

impl Backing {
    /// Files in conflict of a cache that is not in use, and those that a start would find to be: they were changed since it was closed.
    /// `dirty` are the pages of the cache that are so, by their addresses in it.
    ///
    /// # Errors
    /// The error of the system.
    pub fn conflicts(&self, disk: &FilesDisk, dirty: &[u64], page_bytes: u64) -> io::Result<Vec<Conflict>> {
        let root = self.root().path()?;
        let mut pages: BTreeMap<FileKey, BTreeSet<u64>> = BTreeMap::new();
        for &at in dirty {
            if let Some((below, offset)) = disk.file_at(at).filter(|(below, _)| below.change().is_apart()) {
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
