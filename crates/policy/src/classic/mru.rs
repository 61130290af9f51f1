//! MRU: evicts the page that was used last, which is right for a loop longer than the cache.
//!
//! Chou and DeWitt, "An evaluation of buffer management strategies for relational database systems",
//! VLDB 1985 (there for looping references). The page that is being brought in is never its own victim. The order in
//! which pages leave depends on their last uses alone and not on the size of the cache, so a larger cache contains a
//! smaller one (Mattson et al. 1970, section on priority lists).

use crate::info::{Config, Info};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::{Bits, Lists};
use entresol_core::{Outcome, Page, Request, Tier};

const STACK: usize = 0;

/// Most recently used.
#[derive(Clone, Debug)]
pub struct Mru {
    capacity: usize,
    stack: Lists<1>,
    dirty: Bits,
}

impl Policy for Mru {
    const INFO: Info = Info {
        name: "mru",
        family: "classic",
        summary: "most recently used goes first",
        paper: "Chou, DeWitt: An evaluation of buffer management strategies for relational database systems, VLDB 1985",
        stack: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, _options: &Options) -> Result<Self, BuildError> {
        Ok(Mru { capacity: config.tiers[0], stack: Lists::new(config.pages), dirty: Bits::new(config.pages) })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        if self.stack.contains(page) {
            self.stack.move_to_front(STACK, page);
            driver.overwrite(request, Tier::TOP);
            if request.op.is_write() {
                self.dirty.insert(page);
            }
            return Outcome::Hit(Tier::TOP);
        }
        if self.stack.len(STACK) == self.capacity {
            let Some(victim) = self.stack.front_where(STACK, |page| driver.may_evict(page, Tier::TOP)) else {
                return driver.bypass(request);
            };
            self.stack.remove(STACK, victim);
            driver.evict(victim, Tier::TOP, self.dirty.remove(victim));
        }
        driver.admit(request, Tier::TOP);
        self.stack.push_front(STACK, page);
        if request.op.is_write() {
            self.dirty.insert(page);
        }
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let held = self.stack.contains(page);
        PageState { tiers: TierSet::only(Tier::TOP, held), dirty: self.dirty.contains(page), known: held }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.stack.len(STACK)
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        self.stack.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        self.stack.memory_bytes() + self.dirty.memory_bytes()
    }
}
