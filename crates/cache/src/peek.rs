//! Contents of a cache, for a caller that compares them with its own backing store. A look is no request or decision.

use super::maintenance::{self, StoreAccess};
use super::parts::Parts;
use super::{BlockCache, Opening};
use entresol_store::Entry;
use std::io;
use std::ops::Range;

impl BlockCache {
    /// Pages of a range of bytes that the cache holds, in memory or not, ascending, and whether each is dirty. A page
    /// that only memory has counts as clean until a [`flush`](crate::Block::flush) has appended it to the store. Requests
    /// for these pages wait meanwhile, and others go on.
    ///
    /// # Errors
    /// `InvalidInput` beyond the end; an error when the cache has stopped after a fault of its own.
    pub fn held_in(&self, offset: u64, bytes: u64) -> io::Result<Vec<(u64, bool)>> {
        self.check_range(offset, bytes)?;
        let pages = self.whole_pages(offset, bytes);
        if pages.is_empty() {
            return Ok(Vec::new());
        }
        let _pages = self.locks.pages.range(&pages);
        let mut guard = self.locks.exclusive()?;
        let mut held = Vec::new();
        for part in Parts::of(&mut guard, &pages)? {
            held.extend(guard.core().held_of(&part));
            guard.pass()?;
        }
        Ok(held)
    }

    /// Syncs the pages written below and counts them as clean: pages that are dirty afterwards are not durable below.
    ///
    /// # Errors
    /// The error that a store returned.
    pub fn settle(&self) -> io::Result<()> {
        let mut guard = self.locks.exclusive()?;
        if !guard.core().is_off() && maintenance::settle(&mut guard)? {
            maintenance::sync_store(&mut guard)?;
        }
        Ok(())
    }

    /// Reads the newest version of a page, wherever it is. The policy is not told, and no request is counted.
    ///
    /// # Errors
    /// The error that a store returned.
    pub fn peek(&self, page: u64, bytes: &mut [u8]) -> io::Result<()> {
        let range: Range<u64> = page..page + 1;
        let _page = self.locks.pages.range(&range);
        self.newest_by(page, bytes, || self.locks.guard(), |_| false).map(drop)
    }
}

impl Opening {
    /// Reads the cache device's copy of a page; false where it has none that can be read.
    pub fn peek(&mut self, page: u64, bytes: &mut [u8]) -> bool {
        let store = &mut self.write_back().store;
        let entry: Option<Entry> = store.index().get(page).filter(|entry| !entry.lost);
        entry.is_some_and(|entry| store.read(entry, bytes).is_ok())
    }
}
