//! Changes of whole ranges of pages: discards, and what somebody else changed below.
//!
//! A range may have millions of pages. The locks of its pages are held from the first to the last, and the upkeep is owned, so that
//! nothing of it is written below meanwhile. The core's lock is held for a few pages at a time, and never during I/O: requests for
//! other pages go on in between.

use super::search::Search;
use super::turn::Turn;
use super::upkeep::{self, Lease};
use super::{BlockCache, check_writable};
#[cfg(test)]
use crate::store::Layout;
use std::io;
use std::ops::Range;

/// Pages that are looked at in one hold of the core's lock.
pub(crate) const LOOKED_AT: u64 = 256;

/// Pages of a range, ascending, in parts for one hold of the core's lock each. All that something is held of are among them.
struct Parts {
    /// Pages that something was held of. None where all are looked at, which takes less than to find these.
    found: Option<std::vec::IntoIter<u64>>,
    pages: Range<u64>,
}

impl Parts {
    fn of(turn: &mut Turn, pages: &Range<u64>) -> io::Result<Self> {
        let mut search = Search::new(pages.clone());
        let found = turn.core().should_search(&search).then(|| {
            let mut found = Vec::new();
            while turn.core().search(&mut search, &mut found) {
                turn.pass()?;
            }
            found.sort_unstable();
            found.dedup();
            Ok::<_, io::Error>(found.into_iter())
        });
        Ok(Parts { found: found.transpose()?, pages: pages.clone() })
    }
}

impl Iterator for Parts {
    type Item = Vec<u64>;

    fn next(&mut self) -> Option<Vec<u64>> {
        let each = LOOKED_AT as usize;
        let part: Vec<u64> = match &mut self.found {
            // There is something to do about nearly all of them.
            Some(found) => found.take(each / 2).collect(),
            None => self.pages.by_ref().take(each).collect(),
        };
        Some(part).filter(|part| !part.is_empty())
    }
}

impl BlockCache {
    /// Discards whole pages. What the cache holds something of goes through the queue, so that the order of things is kept; gaps
    /// between such pages are discarded below at once.
    pub(super) fn discard_pages(&self, pages: Range<u64>) -> io::Result<()> {
        let _pages = self.locks.pages.range(&pages);
        let mut turn = self.locks.exclusive()?;
        check_writable(turn.core().mode())?;
        self.unflushed.note();
        let mut free_from = pages.start;
        for part in Parts::of(&mut turn, &pages)? {
            for page in turn.core().begin_to_void(&part) {
                discard_gap(&mut turn, free_from..page)?;
                turn.make_ready()?;
                turn.core().discard_held(page)?;
                free_from = page + 1;
            }
            turn.pass()?;
        }
        discard_gap(&mut turn, free_from..pages.end)
    }

    /// Makes void what is held of whole pages, which `change` changes below. Nothing of them is written below meanwhile.
    pub(super) fn change_pages(&self, pages: &Range<u64>, change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let _pages = self.locks.pages.range(pages);
        let mut turn = self.locks.exclusive()?;
        let changed = turn.unlocked(change)?;
        self.unflushed.note();
        forget(&mut turn, pages).and(changed)
    }
}

/// Discards pages below of which nothing is held.
fn discard_gap(turn: &mut Turn, pages: Range<u64>) -> io::Result<()> {
    if pages.is_empty() {
        return Ok(());
    }
    turn.make_ready()?;
    if turn.keeper().must_commit_what_was_forgotten() {
        // Else a crash might bring back what was forgotten, until it is evicted.
        upkeep::commit(turn)?;
    }
    let (_, backing) = turn.stores();
    let (at, bytes) = turn.keeper().changes_below(pages);
    turn.unlocked(|| backing.discard(at, bytes))?
}

fn forget(turn: &mut Turn, pages: &Range<u64>) -> io::Result<()> {
    // Room is made for each part, and nothing of the others goes below meanwhile.
    turn.keeper().begin_void(pages.clone());
    let mut failed = Ok(());
    for part in Parts::of(turn, pages)? {
        for page in turn.core().make_void(&part) {
            // What is held is void all the same.
            failed = failed.and_then(|()| turn.make_ready()).and_then(|()| turn.core().declare_void(page));
        }
        turn.pass()?;
    }
    turn.keeper().end_void();
    failed
}

/// While the parts of a range are made void, what the policy gives up of it is not queued: it would be written over the change.
#[cfg(test)]
pub(crate) fn nothing_is_queued_of_what_is_made_void(layout: Layout) -> Result<(), String> {
    use super::keeper::Keeper;
    use crate::Block;
    use crate::cache::{CacheConfig, Upkeep};
    use entresol_crashtest::{Power, SimDisk};

    let geometry = crate::store::Geometry { page_bytes: 512, segment_pages: 8, segments: 40, layout };
    let power = Power::steady();
    let [cache, backing] = [geometry.size_bytes(), 100 * 512].map(|bytes| SimDisk::new(bytes, &power));
    BlockCache::format(&cache, geometry, &backing, [1; 16], [2; 16]).expect("room");
    let lru = entresol_policy::catalogue::info("lru").expect("a policy");
    let config = CacheConfig { upkeep: Upkeep::Requests, ..CacheConfig::new(lru, &[50]) };
    let cache = BlockCache::open(cache, backing, [2; 16], &config).expect("a cache");
    (0..20).for_each(|page| cache.write(page * 512, &[1; 512], false).expect("a write"));
    let mut turn = cache.locks.exclusive().expect("a turn");
    let keeper = turn.keeper();
    keeper.begin_void(5..15);
    let dirty = |keeper: &Keeper, page| keeper.log.index().get(page).expect("it is cached");
    for page in [4, 5, 14, 15] {
        let entry = dirty(keeper, page);
        keeper.write_back_logged(page, entry);
    }
    let queued: Vec<u64> = keeper.pending.keys().copied().collect();
    if queued != [4, 15] {
        return Err(format!("{queued:?} are queued, not 4 and 15"));
    }
    // The places of such pages can be given up all the same, whether the policy holds them or not.
    keeper.release(6);
    for page in [6, 7] {
        let entry = dirty(keeper, page);
        let is_needed = |keeper: &mut Keeper| match layout {
            Layout::Log => keeper.needed_of(&[vec![(page, entry.place)]]).map(|needed| !needed.is_empty()),
            Layout::Slots => keeper.vacate(page, entry),
        };
        let failed = |error: io::Error| format!("page {page}: {error}");
        is_needed(keeper).and_then(|_| upkeep::settle(keeper)).map_err(failed)?;
        if is_needed(keeper).map_err(failed)? {
            return Err(format!("the place of page {page} is needed although it is being made void"));
        }
    }
    keeper.end_void();
    Ok(())
}
