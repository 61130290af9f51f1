//! Changes of whole ranges of pages: discards, and changes by somebody else in the backing store.
//!
//! A range may have millions of pages. All its page locks are held from beginning to end, and maintenance is
//! owned, so that none of its pages is written below meanwhile. The core's lock is held for a few pages at a time, and
//! never during I/O: requests for other pages go on in between.

use super::BlockCache;
use super::locks::CoreGuard;
use super::maintenance::{self, StoreAccess};
use super::parts::Parts;
use super::write::check_writable;
#[cfg(test)]
use entresol_store::Layout;
use std::io;
use std::ops::Range;

impl BlockCache {
    /// Discards whole pages. Discards of held pages go through the queue, which keeps their order with writes. Gaps
    /// between held pages are discarded below at once.
    pub(super) fn discard_pages(&self, pages: Range<u64>) -> io::Result<()> {
        let _pages = self.locks.pages.range(&pages);
        let mut guard = self.locks.exclusive()?;
        check_writable(guard.core().mode())?;
        self.unflushed.note();
        let mut free_from = pages.start;
        for part in Parts::of(&mut guard, &pages)? {
            for page in guard.core().begin_to_void(&part) {
                discard_gap(&mut guard, free_from..page)?;
                guard.make_ready()?;
                guard.core().discard_held(page)?;
                free_from = page + 1;
            }
            guard.pass()?;
        }
        discard_gap(&mut guard, free_from..pages.end)
    }

    /// Invalidates whole pages, which `change` changes below. None of them is written below meanwhile.
    pub(super) fn change_pages(&self, pages: &Range<u64>, change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let _pages = self.locks.pages.range(pages);
        let mut guard = self.locks.exclusive()?;
        let changed = guard.unlocked(change)?;
        self.unflushed.note();
        forget(&mut guard, pages).and(changed)
    }
}

/// Discards pages below of which nothing is held.
fn discard_gap(guard: &mut CoreGuard, pages: Range<u64>) -> io::Result<()> {
    if pages.is_empty() {
        return Ok(());
    }
    guard.make_ready()?;
    if guard.write_back().must_commit_what_was_forgotten() {
        // Otherwise a crash might bring back forgotten versions, until they are evicted.
        maintenance::commit(guard)?;
    }
    let backing = guard.write_back().backing().clone();
    let (at, bytes) = guard.write_back().changes_below(pages);
    guard.unlocked(|| backing.discard(at, bytes))?
}

fn forget(guard: &mut CoreGuard, pages: &Range<u64>) -> io::Result<()> {
    // Each part needs free segments, and freeing them must write no page of the other parts below.
    guard.write_back().begin_void(pages.clone());
    let mut failed = Ok(());
    for part in Parts::of(guard, pages)? {
        for page in guard.core().make_void(&part) {
            // The held pages are invalidated even after an error.
            failed = failed.and_then(|()| guard.make_ready()).and_then(|()| guard.core().declare_void(page));
        }
        guard.pass()?;
    }
    guard.write_back().end_void();
    failed
}

/// During an invalidation, pages that the policy gives up are not queued: they would be written over the change.
#[cfg(test)]
pub(crate) fn nothing_is_queued_of_what_is_made_void(layout: Layout) -> Result<(), String> {
    use super::durability::WriteBack;
    use crate::Block;
    use crate::{CacheConfig, Maintenance};
    use entresol_crashtest::{Power, SimDisk};

    let segments = if layout == Layout::Segments { 44 } else { 40 };
    let geometry = entresol_store::Geometry { page_bytes: 512, segment_pages: 8, segments, layout };
    let power = Power::steady();
    let [cache, backing] = [geometry.size_bytes(), 100 * 512].map(|bytes| SimDisk::new(bytes, &power));
    BlockCache::format(&cache, geometry, &backing, [1; 16], [2; 16]).expect("room");
    let lru = entresol_policy::catalogue::info("lru").expect("a policy");
    let config = CacheConfig { maintenance: Maintenance::Requests, ..CacheConfig::new(lru, &[50]) };
    let cache = BlockCache::open(cache, backing, [2; 16], &config).expect("a cache");
    (0..20).for_each(|page| cache.write(page * 512, &[1; 512], false).expect("a write"));
    let mut guard = cache.locks.exclusive().expect("the core's lock");
    let write_back = guard.write_back();
    write_back.begin_void(5..15);
    let dirty = |write_back: &WriteBack, page| write_back.store.index().get(page).expect("it is cached");
    for page in [4, 5, 14, 15] {
        let entry = dirty(write_back, page);
        write_back.write_back_stored(page, entry);
    }
    let queued: Vec<u64> = write_back.dirty_queue.keys().copied().collect();
    if queued != [4, 15] {
        return Err(format!("{queued:?} are queued, not 4 and 15"));
    }
    // The blocks of such pages can be given up all the same, whether the policy holds the pages or not.
    write_back.release(6);
    for page in [6, 7] {
        let entry = dirty(write_back, page);
        let is_needed = |write_back: &mut WriteBack| match layout {
            Layout::Log => write_back.needed_of(&[vec![(page, entry.address)]]).map(|needed| !needed.is_empty()),
            Layout::Slots | Layout::Segments => write_back.reclaim_slots(page, entry),
        };
        let failed = |error: io::Error| format!("page {page}: {error}");
        is_needed(write_back).and_then(|_| maintenance::settle(write_back)).map_err(failed)?;
        if is_needed(write_back).map_err(failed)? {
            return Err(format!("the copy of page {page} is needed although it is being invalidated"));
        }
    }
    write_back.end_void();
    Ok(())
}
