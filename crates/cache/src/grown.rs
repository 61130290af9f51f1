//! A backing store that is larger than at the last open: from now on the cache serves all of it.
//!
//! A page that the old end cut off is in the cache with zeros behind that end. At a start the backing store's bytes
//! there are written over these zeros, before the first request. Only when they are durable does the superblock get
//! the new size in bytes, so a crash in between has the work done again.

use super::durability::SharedDisk;
use super::maintenance::StoreAccess;
use super::{BlockCache, Mode};
use crate::Block;
use entresol_disk::Disk;
use entresol_store::{AnyStore, Identity, StoreError};
use std::io;
use std::ops::Range;

/// Growth of the backing store, found at a start.
pub(super) struct Grown {
    backing: SharedDisk,
    /// Size of the backing store in bytes, where the superblock has another.
    bytes: Option<u64>,
    /// Range of bytes behind the old end, in the same page.
    behind: Option<Range<u64>>,
    /// The cache holds that page.
    cached: bool,
}

impl Grown {
    /// Compares the sizes. The next superblock gets the backing store's present number of pages, so that pages behind
    /// the old end are known after a crash.
    ///
    /// # Errors
    /// `BackingSize` when the backing store has shrunk; `GrownReadOnly` when a page was cut off in read-only mode.
    pub fn found(store: &mut AnyStore<SharedDisk>, backing: &SharedDisk, mode: Mode) -> Result<Self, StoreError> {
        let page_bytes = u64::from(store.geometry().page_bytes);
        let (size, identity) = (backing.size_bytes(), store.identity());
        let pages = size.div_ceil(page_bytes);
        if size < identity.backing_bytes {
            return Err(StoreError::BackingSize { found: pages, expected: identity.backing_pages });
        }
        let behind = |end: u64| end..end.next_multiple_of(page_bytes).min(size);
        let behind = identity.torn_end(page_bytes).map(behind).filter(|behind| !behind.is_empty());
        let entry = behind.as_ref().and_then(|behind| store.index().get(behind.start / page_bytes));
        // A page whose only copy is lost stays lost until it is written whole.
        let cached = entry.is_some_and(|entry| !entry.lost);
        if cached && mode == Mode::ReadOnly {
            return Err(StoreError::GrownReadOnly);
        }
        store.set_identity(Identity { backing_pages: pages, ..identity });
        let bytes = (identity.backing_bytes != size).then_some(size);
        Ok(Grown { backing: backing.clone(), bytes, behind, cached })
    }

    /// True if the backing store has another size than the superblock says: a larger one.
    pub fn is_so(&self) -> bool {
        self.bytes.is_some()
    }

    /// Completes the page that was cut off, then notes the size.
    pub fn settle(self, cache: &BlockCache) -> io::Result<()> {
        let Some(bytes) = self.bytes else { return Ok(()) };
        if let Some(behind) = self.behind.clone().filter(|_| self.cached) {
            let mut found = vec![0; (behind.end - behind.start) as usize];
            self.backing.read_at(behind.start, &mut found)?;
            cache.write(behind.start, &found, true)?;
        }
        let mut guard = cache.locks.exclusive()?;
        let store = &mut guard.write_back().store;
        store.set_identity(Identity { backing_bytes: bytes, ..store.identity() });
        // Repeated after requests, the completion would undo them, so the size is written now. Without a page that was
        // cut off nothing is repeated.
        let noted = if self.behind.is_some() { store.write_open() } else { Ok(()) };
        let noted = guard.write_back().noted(noted);
        guard.mend()?;
        noted
    }
}
