//! Pages of a cache that are not to be had or written below, each for its reason: its file is gone, or ends before it.

use super::super::FilesError;
use super::super::changed::Change;
use super::super::map::{FileKey, REGION_BYTES};
use super::{Below, FilesDisk};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

/// Why nobody will ask for a page of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nowhere {
    /// It belongs to no file: its file was removed.
    Removed,
    /// It lies beyond the end of its file.
    Beyond,
    /// The file has what counts: its clean copy may be of before.
    Outdated,
}

/// Pages that the cache handed down since it was opened, and that were not written to any file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NotWritten {
    /// Pages of no file, and pages beyond the ends of files.
    pub nowhere: u64,
    /// Pages that are kept from files which somebody else changed.
    pub aside: u64,
}

/// The same while they are counted.
#[derive(Default)]
pub(super) struct NotWrittenCounts {
    pub nowhere: AtomicU64,
    pub aside: AtomicU64,
}

/// Destination of a file's bytes that the cache handed down.
pub(super) enum Went {
    /// So many of them to the file; the others lie beyond its end.
    Below(usize),
    /// All of them aside.
    Aside,
}

impl FilesDisk {
    /// Pages that the cache handed down and that are in no file.
    pub fn not_written(&self) -> NotWritten {
        let NotWrittenCounts { nowhere, aside } = &self.not_written;
        NotWritten { nowhere: nowhere.load(Relaxed), aside: aside.load(Relaxed) }
    }

    /// Counts pages of so many bytes that went somewhere else than to a file.
    pub(super) fn count(&self, bytes: usize, went: Option<Went>) {
        let pages = |bytes: usize| (bytes as u64).div_ceil(self.page_bytes);
        match went {
            None => self.not_written.nowhere.fetch_add(pages(bytes), Relaxed),
            Some(Went::Aside) => self.not_written.aside.fetch_add(pages(bytes), Relaxed),
            Some(Went::Below(inside)) => self.not_written.nowhere.fetch_add(pages(bytes) - pages(inside), Relaxed),
        };
    }

    /// Why what a cache has of the page at an address will never be asked for; none where it may be.
    ///
    /// A clean copy is outdated where a crash may have come between a change of the file and the word of it. A dirty one has not
    /// been written to the file, so it is whole, of before or after the change.
    pub fn nowhere(&self, at: u64, dirty: bool) -> Option<Nowhere> {
        let Some((file, offset)) = self.file_at(at) else { return Some(Nowhere::Removed) };
        if file.change() == Change::Conflict {
            // Its clean pages are dropped; its dirty ones stay until it is said which bytes count, whatever size it has now.
            return (!dirty).then_some(Nowhere::Outdated);
        }
        if file.size().is_ok_and(|size| offset >= size) {
            return Some(Nowhere::Beyond);
        }
        let voids = self.voids.lock().unwrap_or_else(PoisonError::into_inner);
        let touches = |range: &Range<u64>| range.start < offset + self.page_bytes && offset < range.end;
        let outdated = !dirty && voids.get(&file.key).is_some_and(|ranges| ranges.iter().any(touches));
        outdated.then_some(Nowhere::Outdated)
    }

    /// Takes the regions of files that are missing, and where they may be.
    pub(in super::super) fn miss(&mut self, missing: HashMap<u64, FileKey>, absent: Vec<PathBuf>) {
        (self.missing, self.absent) = (missing, absent);
    }

    /// Takes pages that are kept from files that are missing.
    pub(in super::super) fn miss_aside(&mut self, pages: Vec<FileKey>) {
        self.missing_aside = pages;
    }

    /// Refuses a start while dirty pages belong to files that are missing: the given ones, and pages that were kept
    /// from such files.
    ///
    /// # Errors
    /// [`FilesError::Missing`], with the numbers of pages and files, and the paths that could not be looked into.
    pub fn check_missing(&self, dirty: impl Iterator<Item = u64>) -> Result<(), FilesError> {
        let of = |at: u64| self.missing.get(&(at / REGION_BYTES));
        let lost: Vec<&FileKey> = dirty.filter_map(of).chain(&self.missing_aside).collect();
        let files = lost.iter().collect::<HashSet<_>>().len();
        match lost.len() {
            0 => Ok(()),
            pages => Err(FilesError::Missing { pages, files, absent: self.absent.clone() }),
        }
    }

    /// Takes the ranges that were announced to be void before a crash, in place of others.
    pub(in super::super) fn remember(&self, voids: &[(FileKey, Range<u64>)]) {
        let mut known = self.voids.lock().unwrap_or_else(PoisonError::into_inner);
        known.clear();
        voids.iter().for_each(|(key, range)| known.entry(*key).or_default().push(range.clone()));
    }

    /// Files of which a write or a sync failed since this was last asked.
    pub(in super::super) fn failures(&self) -> Vec<Arc<Below>> {
        self.files().into_iter().filter(|file| file.fails.swap(false, Relaxed)).collect()
    }
}
