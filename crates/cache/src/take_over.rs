//! Taking over from a process that was killed: what was answered and only its memory had is repeated.

use super::maintenance::StoreAccess;
use super::plan::{PageBytes, RequestBytes};
use super::{BlockCache, CacheError, Tag};
use entresol_store::AnyStore;
use entresol_store::arena::{Arena, ArenaError, Survivors};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// The arena of a cache that is being opened, and what a former process left in it.
pub(super) struct TakenOver {
    arena: Arc<Arena>,
    uuid: [u8; 16],
    epoch: u64,
    survivors: Option<Survivors>,
}

impl TakenOver {
    /// Has the store keep its batches in an arena. The arena is a new one, or the store's own of its last use.
    pub fn find<D: entresol_disk::Disk>(arena: &Arc<Arena>, store: &mut AnyStore<D>) -> Result<Self, CacheError> {
        if !arena.fits(store.geometry().page_bytes as usize, store.batch_blocks()) {
            return Err(ArenaError::Unusable("it has other sizes than the cache").into());
        }
        let (uuid, epoch) = (store.identity().uuid, store.epoch());
        // The device has the epoch before.
        let survivors = match arena.is_new() {
            true => None,
            false if arena.is_of(uuid, epoch - 1) => Some(arena.survivors()?),
            false => return Err(ArenaError::Unusable("the cache was in use without it").into()),
        };
        if survivors.is_some() {
            arena.begin_repeating();
        }
        store.keep_in(arena);
        Ok(TakenOver { arena: Arc::clone(arena), uuid, epoch, survivors })
    }

    /// True if a former process left something.
    pub fn is_left(&self) -> bool {
        self.survivors.is_some()
    }

    /// Pages that the cache holds once what is left has been repeated, given those that the store holds.
    pub fn held(&self, mut stored: Vec<(u64, bool)>) -> Vec<(u64, bool)> {
        let Some(survivors) = &self.survivors else { return stored };
        let newer: BTreeMap<u64, bool> = survivors.pages().into_iter().map(|(page, _)| (page, true)).collect();
        let voids: BTreeSet<u64> = survivors.voids().into_iter().collect();
        stored.retain(|(page, _)| !newer.contains_key(page) && !voids.contains(page));
        stored.extend(newer);
        stored
    }

    /// Notes that the store is about to be in use.
    pub fn begin(&self) {
        self.arena.begin_epoch(self.uuid, self.epoch);
    }

    /// Repeats what is left, once the store is in use. No request and no thread comes before.
    pub fn repeat(self, cache: &BlockCache) -> io::Result<()> {
        self.arena.end_epoch();
        let Some(survivors) = self.survivors else {
            // A process that was killed before the store was in use has answered nothing.
            self.arena.forgive_missed();
            return Ok(());
        };
        let voids = survivors.voids();
        cache.make_void_again(&voids)?;
        for (page, bytes) in survivors.pages() {
            cache.repeat_write(page, bytes)?;
        }
        let is_incomplete = self.arena.is_incomplete();
        if is_incomplete {
            // What could not be kept again would be lost with this process. Failures are left for a client to be told.
            cache.flush_ahead()?;
        }
        survivors.release();
        if is_incomplete {
            self.arena.forgive_missed();
        }
        Ok(())
    }
}

impl BlockCache {
    /// Writes a page again, whatever the mode.
    fn repeat_write(&self, page: u64, bytes: &[u8]) -> io::Result<()> {
        let _page = self.locks.pages.page(page);
        let guard = self.locks.ready_to_write(page)?;
        let plan = self.decide_on_write(guard, page, PageBytes::checked(bytes), true, Tag::default())?;
        let _requested_later = plan.carry_out_now(RequestBytes::one(page, bytes));
        Ok(())
    }

    /// Invalidates pages again that the former process had invalidated, or declared gone in the store. The backing store
    /// has them newer, perhaps unsynced: until that is known no copy of theirs may be written there.
    fn make_void_again(&self, voids: &[u64]) -> io::Result<()> {
        let mut guard = self.locks.exclusive()?;
        guard.write_back().inherit_unsynced();
        guard.core().make_void(voids);
        for &page in voids {
            guard.make_ready()?;
            guard.core().declare_void(page)?;
        }
        Ok(())
    }
}
