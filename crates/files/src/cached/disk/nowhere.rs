//! Pages of a cache that cannot be read from or written to a file, each for its reason: the file is gone, or ends
//! before it.

use super::super::FilesError;
use super::super::changed::Change;
use super::super::map::{FileKey, REGION_BYTES};
use super::{Below, FilesDisk};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

/// Reason why a cached page will never be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nowhere {
    /// The page belongs to no file: its file was removed.
    Removed,
    /// The page lies beyond the end of its file.
    Beyond,
    /// The file's bytes count: a clean copy may be outdated, and any copy where it was changed after a crash.
    Outdated,
}

/// Pages written back since the cache was opened, but not to any file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NotWritten {
    /// Pages of no file, and pages beyond the ends of files.
    pub nowhere: u64,
    /// Pages kept aside from files that another program changed.
    pub aside: u64,
}

/// Running counts of [`NotWritten`].
#[derive(Default)]
pub(super) struct NotWrittenCounts {
    pub nowhere: AtomicU64,
    pub aside: AtomicU64,
}

/// Destination of bytes that the cache wrote back to a file.
pub(super) enum Went {
    /// The number of bytes written to the file; the others lie beyond its end.
    Below(usize),
    /// All bytes were kept aside.
    Aside,
}

impl FilesDisk {
    /// Pages written back that are in no file.
    pub fn not_written(&self) -> NotWritten {
        let NotWrittenCounts { nowhere, aside } = &self.not_written;
        NotWritten { nowhere: nowhere.load(Relaxed), aside: aside.load(Relaxed) }
    }

    /// Counts the pages of `bytes` bytes that were not written to a file.
    pub(super) fn count(&self, bytes: usize, went: Option<Went>) {
        let pages = |bytes: usize| (bytes as u64).div_ceil(self.page_bytes);
        match went {
            None => self.not_written.nowhere.fetch_add(pages(bytes), Relaxed),
            Some(Went::Aside) => self.not_written.aside.fetch_add(pages(bytes), Relaxed),
            Some(Went::Below(inside)) => self.not_written.nowhere.fetch_add(pages(bytes) - pages(inside), Relaxed),
        };
    }

    /// Reason why the cached page at an address will never be asked for; none if it may be.
    ///
    /// A clean copy is outdated if a crash may have come between a change of the file and its record. A dirty copy has
    /// not been written to the file, so it is whole: from before or after the change.
    pub fn nowhere(&self, at: u64, dirty: bool) -> Option<Nowhere> {
        self.nowhere_of(at, dirty, |file| file.size().ok())
    }

    /// Like [`nowhere`](Self::nowhere), for a caller that knows the sizes of files in bytes.
    pub(in super::super) fn nowhere_of(
        &self,
        at: u64,
        dirty: bool,
        size: impl Fn(&Below) -> Option<u64>,
    ) -> Option<Nowhere> {
        let Some((file, offset)) = self.file_at(at) else { return Some(Nowhere::Removed) };
        if file.change() == Change::Since {
            return Some(Nowhere::Outdated);
        }
        if file.change() == Change::Conflict {
            // Clean pages are dropped. Dirty ones stay until it is decided which bytes count, whatever the file's size
            // is now.
            return (!dirty).then_some(Nowhere::Outdated);
        }
        if size(&file).is_some_and(|size| offset >= size) {
            return Some(Nowhere::Beyond);
        }
        let voids = self.voids.lock().unwrap_or_else(PoisonError::into_inner);
        let touches = |range: &Range<u64>| range.start < offset + self.page_bytes && offset < range.end;
        let outdated = !dirty && voids.get(&file.key).is_some_and(|ranges| ranges.iter().any(touches));
        outdated.then_some(Nowhere::Outdated)
    }

    /// Takes the regions of missing files, and the folders in which the files may be.
    pub(in super::super) fn miss(&mut self, missing: HashMap<u64, FileKey>, absent: Vec<PathBuf>) {
        (self.missing, self.absent) = (missing, absent);
    }

    /// Takes the pages kept aside from missing files.
    pub(in super::super) fn miss_aside(&mut self, pages: Vec<FileKey>) {
        self.missing_aside = pages;
    }

    /// Refuses a start while dirty pages belong to missing files: the given ones, and pages kept aside from such files.
    ///
    /// # Errors
    /// [`FilesError::Missing`], with the numbers of pages and files, and the folders that could not be searched.
    pub fn check_missing(&self, dirty: impl Iterator<Item = u64>) -> Result<(), FilesError> {
        let of = |at: u64| self.missing.get(&(at / REGION_BYTES));
        let lost: Vec<&FileKey> = dirty.filter_map(of).chain(&self.missing_aside).collect();
        let files = lost.iter().collect::<HashSet<_>>().len();
        match lost.len() {
            0 => Ok(()),
            pages => Err(FilesError::Missing { pages, files, absent: self.absent.clone() }),
        }
    }

    /// Replaces the known ranges by those announced as invalid before a crash.
    pub(in super::super) fn remember(&self, voids: &[(FileKey, Range<u64>)]) {
        let mut known = self.voids.lock().unwrap_or_else(PoisonError::into_inner);
        known.clear();
        voids.iter().for_each(|(key, range)| known.entry(*key).or_default().push(range.clone()));
    }

    /// Files on which a write or a sync failed since the last call.
    pub(in super::super) fn failures(&self) -> Vec<Arc<Below>> {
        self.files().into_iter().filter(|file| file.fails.swap(false, Relaxed)).collect()
    }
}
