//! LRU-WSR: LRU that gives a dirty page a second chance unless it is cold.
//!
//! Jung, Shim, Park, Kang, Cha, "LRU-WSR: integration of LRU and writes sequence reordering for flash memory", IEEE
//! Transactions on Consumer Electronics 54(3), 2008: the candidate is the LRU page. A clean one is
//! evicted. A dirty one is evicted when its cold flag is set; otherwise the flag is set and the page moves to the MRU
//! end, and the next candidate is looked at.
//!
//! Readings: only dirty pages carry the flag, which any hit clears; a write to a clean page in the cache makes it
//! dirty (a published simulator forgets it and counts 2 to 5 % too few writes). A page that may not be evicted stays
//! where it is.
//!
//! A second chance sets a flag that only a hit clears, so the walk for a victim is constant when averaged over hits.

use crate::info::{Config, Info};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::Lists;
use entresol_core::{Outcome, Page, Request, Tier, prefetch};

/// LRU with writes sequence reordering.
#[derive(Clone, Debug)]
pub struct LruWsr {
    capacity: usize,
    stack: Lists<1>,
    /// Per page: [`HELD`], [`DIRTY`], [`COLD`]; 0 when it is not held.
    flags: Vec<u8>,
}

const STACK: usize = 0;
const HELD: u8 = 1;
const DIRTY: u8 = 2;
const COLD: u8 = 4;

impl LruWsr {
    fn victim<D: Driver>(&mut self, driver: &mut D) -> Option<Page> {
        let mut candidate = self.stack.back(STACK)?;
        loop {
            let next = self.stack.towards_front(candidate);
            if self.flags[candidate.index()] & (DIRTY | COLD) == DIRTY {
                self.flags[candidate.index()] |= COLD;
                self.stack.move_to_front(STACK, candidate);
                // A candidate without a next page is the last one left and comes again, cold.
                candidate = next.unwrap_or(candidate);
            } else if driver.may_evict(candidate, Tier::TOP) {
                return Some(candidate);
            } else {
                candidate = next?;
            }
        }
    }
}

impl Policy for LruWsr {
    const INFO: Info = Info {
        name: "lru-wsr",
        family: "dirty",
        summary: "LRU with a second chance for dirty pages that are not cold",
        paper: "Jung, Shim, Park, Kang, Cha: LRU-WSR: integration of LRU and writes sequence reordering for flash \
                memory, IEEE Trans. Consumer Electronics 54(3), 2008",
        write_aware: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, _options: &Options) -> Result<Self, BuildError> {
        Ok(LruWsr { capacity: config.tiers[0], stack: Lists::new(config.pages), flags: vec![0; config.pages] })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let flags = self.flags[page.index()];
        let written = if request.op.is_write() { DIRTY } else { 0 };
        if flags != 0 {
            self.flags[page.index()] = (flags | written) & !COLD;
            self.stack.move_to_front(STACK, page);
            driver.overwrite(request, Tier::TOP);
            return Outcome::Hit(Tier::TOP);
        }
        if self.stack.len(STACK) == self.capacity {
            let Some(victim) = self.victim(driver) else { return driver.bypass(request) };
            let flags = std::mem::take(&mut self.flags[victim.index()]);
            self.stack.remove(STACK, victim);
            driver.evict(victim, Tier::TOP, flags & DIRTY != 0);
        }
        driver.admit(request, Tier::TOP);
        self.stack.push_front(STACK, page);
        self.flags[page.index()] = HELD | written;
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let flags = self.flags[page.index()];
        let held = flags != 0;
        PageState { tiers: TierSet::only(Tier::TOP, held), dirty: flags & DIRTY != 0, known: held }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.stack.len(STACK)
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        prefetch(&self.flags, page.index());
        self.stack.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        self.stack.memory_bytes() + self.flags.capacity()
    }
}
