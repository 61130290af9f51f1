//! AD-LRU: a cold and a hot LRU queue; the queue that must shrink gives up its least recent clean page first.
//!
//! Jin, Ou, Härder, Li, "AD-LRU: an efficient buffer replacement algorithm for flash-based databases", Data &
//! Knowledge Engineering 72, 2012. A page enters the cold queue; its second reference moves it to the hot
//! one. The victim comes from the cold queue while that is longer than `min_lc`, else from the hot queue. Within the
//! queue it is the least recent clean page (the paper's pointer FC); where all are dirty, the LRU page whose reference
//! bit is clear, and a page whose bit is set loses it and moves to the MRU end instead. The bit is set when a page is
//! admitted and whenever it is hit.
//!
//! Readings: `min_lc` is 10 % of the buffer; when the queue to shrink
//! has no page to give, the other one gives.
//!
//! FC needs no pointer here: clean and dirty pages of a queue are lists of their own. A page changes its colour only
//! by a reference, which makes it the most recent one anyway, and second chances happen only among dirty pages, so
//! both lists stay in the order of the queue.

use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::{ListId, Lists};
use entresol_core::{Outcome, Page, Request, Tier, prefetch};

/// Adaptive double LRU.
#[derive(Clone, Debug)]
pub struct AdLru {
    capacity: usize,
    /// The cold queue gives no page while it is this short.
    min_cold: usize,
    /// Cold clean, cold dirty, hot clean, hot dirty.
    lists: Lists<4>,
    /// Per page: its list ([`DIRTY`], [`HOT`]), [`HELD`], [`REFERENCED`]; 0 when it is not held.
    flags: Vec<u8>,
}

const DIRTY: u8 = 1;
const HOT: u8 = 2;
const HELD: u8 = 4;
const REFERENCED: u8 = 8;

const fn list(flags: u8) -> ListId {
    (flags & (HOT | DIRTY)) as ListId
}

impl AdLru {
    fn queue_len(&self, queue: u8) -> usize {
        self.lists.len(list(queue)) + self.lists.len(list(queue | DIRTY))
    }

    fn victim<D: Driver>(&mut self, driver: &mut D) -> Option<Page> {
        let queues = if self.queue_len(0) > self.min_cold { [0, HOT] } else { [HOT, 0] };
        queues.into_iter().find_map(|queue| {
            let clean = self.lists.back_where(list(queue), |page| driver.may_evict(page, Tier::TOP));
            clean.or_else(|| self.dirty_victim(list(queue | DIRTY), driver))
        })
    }

    fn dirty_victim<D: Driver>(&mut self, list: ListId, driver: &mut D) -> Option<Page> {
        let mut candidate = self.lists.back(list)?;
        loop {
            let next = self.lists.towards_front(candidate);
            if self.flags[candidate.index()] & REFERENCED != 0 {
                self.flags[candidate.index()] &= !REFERENCED;
                self.lists.move_to_front(list, candidate);
                // A candidate without a next page is the last one left and comes again.
                candidate = next.unwrap_or(candidate);
            } else if driver.may_evict(candidate, Tier::TOP) {
                return Some(candidate);
            } else {
                candidate = next?;
            }
        }
    }
}

impl Policy for AdLru {
    const INFO: Info = Info {
        name: "ad-lru",
        family: "dirty",
        summary: "adaptive double LRU: a cold and a hot queue, clean pages first, second chance for dirty ones",
        paper: "Jin, Ou, Härder, Li: AD-LRU: an efficient buffer replacement algorithm for flash-based databases, \
                Data & Knowledge Engineering 72, 2012",
        options: &[OptionInfo {
            name: "min-lc",
            default: "10%",
            help: "length down to which the cold queue gives victims, in pages or per cent of the cache",
        }],
        write_aware: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0];
        Ok(AdLru {
            capacity,
            min_cold: options.pages("min-lc", config, capacity)?.min(capacity),
            lists: Lists::new(config.pages),
            flags: vec![0; config.pages],
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let flags = self.flags[page.index()];
        let written = if request.op.is_write() { DIRTY } else { 0 };
        if flags != 0 {
            let now = flags | HOT | REFERENCED | written;
            self.flags[page.index()] = now;
            if list(now) == list(flags) {
                self.lists.move_to_front(list(now), page);
            } else {
                self.lists.transfer(list(flags), list(now), page);
            }
            driver.overwrite(request, Tier::TOP);
            return Outcome::Hit(Tier::TOP);
        }
        if self.occupancy(Tier::TOP) == self.capacity {
            let Some(victim) = self.victim(driver) else { return driver.bypass(request) };
            let flags = std::mem::take(&mut self.flags[victim.index()]);
            self.lists.remove(list(flags), victim);
            driver.evict(victim, Tier::TOP, flags & DIRTY != 0);
        }
        driver.admit(request, Tier::TOP);
        self.lists.push_front(list(written), page);
        self.flags[page.index()] = HELD | REFERENCED | written;
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let flags = self.flags[page.index()];
        let held = flags != 0;
        PageState { tiers: TierSet::only(Tier::TOP, held), dirty: flags & DIRTY != 0, known: held }
    }

    #[inline(always)]
    fn occupancy(&self, _tier: Tier) -> usize {
        (0..4).map(|list| self.lists.len(list)).sum()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("cold", self.queue_len(0) as f64);
        visit("hot", self.queue_len(HOT) as f64);
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        prefetch(&self.flags, page.index());
        self.lists.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        self.lists.memory_bytes() + self.flags.capacity()
    }
}
