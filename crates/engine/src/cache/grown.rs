//! A backing store that is larger than when the cache was last opened: the cache serves all of it from then on.
//!
//! A page that was cut off by the old end is in the cache with zeros behind that. What the backing store has there now is written over
//! these zeros before anybody asks, and only when that is durable does the superblock have the new size in bytes: a crash in between
//! has it done again.

use super::maintenance::StoreAccess;
use super::write_back::SharedDisk;
use super::{BlockCache, Mode};
use crate::Block;
use crate::disk::Disk;
use crate::store::{AnyStore, Identity, StoreError};
use std::io;
use std::ops::Range;

/// Growth of the backing store, as a start finds it.
pub(super) struct Grown {
    backing: SharedDisk,
    /// Bytes that the backing store has now, where the superblock says something else.
    bytes: Option<u64>,
    /// Range of bytes behind the old end, in the same page.
    behind: Option<Range<u64>>,
    /// The cache has that page.
    cached: bool,
}

impl Grown {
    /// Compares. The store's next superblock has the backing store's pages of now, so that pages behind the old end are known when
    /// they are found after a crash.
    ///
    /// # Errors
    /// `BackingSize` when the backing store has fewer bytes than it had, `GrownReadOnly` when a page was cut off and nothing may be written.
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
        // A page whose only copy is lost stays so until it is written as a whole.
        let cached = entry.is_some_and(|entry| !entry.lost);
        if cached && mode == Mode::ReadOnly {
            return Err(StoreError::GrownReadOnly);
        }
        store.set_identity(Identity { backing_pages: pages, ..identity });
        let bytes = (identity.backing_bytes != size).then_some(size);
        Ok(Grown { backing: backing.clone(), bytes, behind, cached })
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
        // Done again after requests it would undo them; without a page that was cut off there is nothing to be done again.
        let noted = if self.behind.is_some() { store.write_open() } else { Ok(()) };
        let noted = guard.write_back().noted(noted);
        guard.mend()?;
        noted
    }
}
