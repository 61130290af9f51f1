//! A search for the held pages of a range through all that is held, for ranges longer than that.
//!
//! The search is made in parts, and requests go on in between. A version that moves meanwhile moves to a later stage:
//! from frames to the store, to its rear, to the queue, to the account of unsynced writes. Requests for pages of the
//! range wait, and maintenance is owned. So every page of the range that was held when the search began is found.

use super::executor::{Executor, Left};
use std::ops::Range;

/// Pages looked at in one hold of the core's lock.
pub(crate) const LOOKED_AT: u64 = 256;

/// Blocks of the index scanned in the time of one look at a page by its number, which misses the processor's caches.
/// The number is an order of magnitude.
const BLOCKS_PER_LOOK: u64 = 16;

/// Places where something of a page may be held, in search order.
#[derive(Clone, Copy)]
enum Stage {
    Left,
    Frames,
    Log,
    Lost,
    Queue,
    Unsynced,
}

/// Progress of a search.
pub(super) struct Search {
    pages: Range<u64>,
    stage: Stage,
    /// Position within the stage's place; frames are searched from their end.
    at: Option<u64>,
}

impl Search {
    /// A search for pages of a range.
    pub fn new(pages: Range<u64>) -> Self {
        Search { pages, stage: Stage::Left, at: None }
    }

    /// Goes on a little and adds pages to those found, some of them twice. True if more is left to search.
    pub fn go_on(&mut self, left: Option<&Left>, executor: &Executor, found: &mut Vec<u64>) -> bool {
        let most = LOOKED_AT as usize;
        let write_back = &executor.write_back;
        let from = self.at.unwrap_or(self.pages.start);
        let rest = from.min(self.pages.end)..self.pages.end;
        let after = |part: &[u64]| part.last().map(|last| last + 1).filter(|_| part.len() == most);
        let in_frames = |(part, first): (Vec<u64>, usize)| (part, (first > 0).then_some(first as u64));
        let end = self.at.map_or(usize::MAX, |at| at as usize);
        let (part, next) = match self.stage {
            Stage::Left => left.map_or((Vec::new(), None), |left| in_frames(left.pages_before(end, most))),
            Stage::Frames => in_frames(executor.framed_before(end, most)),
            Stage::Log => write_back.store.index().pages_from(self.at.unwrap_or(0), most, write_back.store.rear()),
            Stage::Lost => {
                let part: Vec<u64> = write_back.store.index().lost_among(rest).take(most).collect();
                let next = after(&part);
                (part, next)
            }
            Stage::Queue => {
                let part: Vec<u64> = write_back.dirty_queue.range(rest).map(|(&page, _)| page).take(most).collect();
                let next = after(&part);
                (part, next)
            }
            Stage::Unsynced => {
                let from = self.at.unwrap_or(0);
                let part = write_back.unsynced.listed(from as usize, most);
                let next = (part.len() == most).then_some(from + most as u64);
                (part, next)
            }
        };
        found.extend(part.into_iter().filter(|page| self.pages.contains(page)));
        self.at = next;
        if next.is_some() {
            return true;
        }
        self.stage = match self.stage {
            Stage::Left => Stage::Frames,
            Stage::Frames => Stage::Log,
            Stage::Log => Stage::Lost,
            Stage::Lost => Stage::Queue,
            Stage::Queue => Stage::Unsynced,
            Stage::Unsynced => return false,
        };
        true
    }

    /// True if the search takes less than a look at every page of the range.
    pub fn is_shorter(&self, left: Option<&Left>, executor: &Executor) -> bool {
        let write_back = &executor.write_back;
        let apart = left.map_or(0, Left::len)
            + executor.frames_len()
            + write_back.dirty_queue.len()
            + write_back.unsynced.len();
        let all = write_back.store.index().span(write_back.store.rear()) + apart as u64;
        all / BLOCKS_PER_LOOK < self.pages.end - self.pages.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Block;
    use crate::maintenance::StoreAccess;
    use crate::{BlockCache, CacheConfig, Maintenance};
    use entresol_core::Random;
    use entresol_crashtest::{Power, SimDisk};
    use entresol_store::{Geometry, Layout};
    use std::collections::BTreeSet;

    const PAGE: u64 = 512;
    const PAGES: u64 = 6000;

    /// All pages of a range that were held when a search began are found, though other requests go on in between.
    fn check(layout: Layout, policy: &str, tiers: &[usize], seed: u64) {
        let mut random = Random::new(seed);
        let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 32, segments: 120, layout };
        let power = Power::steady();
        let [disk, backing] = [geometry.size_bytes(), PAGES * PAGE].map(|bytes| SimDisk::new(bytes, &power));
        BlockCache::format(&disk, geometry, &backing, [1; 16], [2; 16]).expect("room");
        let info = entresol_policy::catalogue::info(policy).expect("a policy");
        let config = CacheConfig { maintenance: Maintenance::Requests, ..CacheConfig::new(info, tiers) };
        let cache = BlockCache::open(disk, backing, [2; 16], &config).expect("a cache");
        let request = |random: &mut Random, page: u64| {
            if random.chance(0.5) {
                cache.write(page * PAGE, &[1; PAGE as usize], false).expect("a write");
            } else {
                cache.read(page * PAGE, &mut [0; PAGE as usize]).expect("a read");
            }
        };
        let (mut between, mut apart) = (0, [0; 3]);
        for _ in 0..20 {
            for _ in 0..random.below(4000) {
                let page = random.below(PAGES);
                request(&mut random, page);
            }
            if random.chance(0.2) {
                cache.flush().expect("a flush");
            }
            let first = random.below(PAGES);
            let range = first..first + 1 + random.below(PAGES - first);
            let mut guard = cache.locks.exclusive().expect("the core's lock");
            let held: Vec<u64> = guard.core().held_in(&range);
            let write_back = guard.write_back();
            apart[0] += write_back.dirty_queue.range(range.clone()).count();
            apart[1] += write_back.unsynced.pages().filter(|page| range.contains(page)).count();
            apart[2] += held.iter().filter(|&&page| write_back.store.index().get(page).is_none()).count();
            let (mut search, mut found) = (Search::new(range.clone()), Vec::new());
            while guard.core().search(&mut search, &mut found) {
                let page = random.below(PAGES);
                // The request must not need maintenance, which is owned here.
                guard.write_back().apart = true;
                let is_ready = guard.write_back().is_ready();
                guard.write_back().apart = false;
                if !range.contains(&page) && is_ready {
                    between += 1;
                    guard.unlocked(|| request(&mut random, page)).expect("the lock");
                }
            }
            assert!(found.iter().all(|page| range.contains(page)));
            let found = BTreeSet::from_iter(found);
            let missed: Vec<&u64> = held.iter().filter(|page| !found.contains(page)).collect();
            assert!(
                missed.is_empty(),
                "{layout:?}, {policy}, seed {seed}: {missed:?} of {range:?} are held, and not found"
            );
        }
        assert!(between > 0 && apart[0] + apart[1] > 0, "{layout:?}, {policy}: {between}, {apart:?}");
        // The store has no copy of pages that only frames have.
        assert!(tiers.len() < 2 || apart[2] > 0, "{layout:?}, {policy}: {apart:?}");
    }

    #[test]
    fn all_that_is_held_is_found_while_requests_go_on() {
        println!("seeds 1 to 4");
        for layout in [Layout::Log, Layout::Slots] {
            for seed in 1..=4 {
                check(layout, "lru", &[1500], seed);
                check(layout, "face-gsc", &[600, 1500], seed);
            }
        }
    }
}
