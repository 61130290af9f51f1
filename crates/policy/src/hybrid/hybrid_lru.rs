//! Hybrid-LRU: DRAM is an LRU cache of clean pages, NVRAM an LRU write buffer of dirty ones. A baseline of Hibachi.
//!
//! Fan, thesis 2017 (004), section 4.5.1. A written page moves from DRAM to NVRAM; a page that leaves NVRAM is written
//! to disk and not kept. Any hit, read or write, makes a page the most recent of its memory.

use super::frames::{DRAM, NVRAM};
use crate::info::{Config, Info};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::{ListId, Lists};
use entresol_core::{Outcome, Page, Request, Tier, Verb};

/// LRU in DRAM for clean pages and in NVRAM for dirty ones. A list has the number of its tier.
#[derive(Clone, Debug)]
pub struct HybridLru {
    capacity: [usize; 2],
    lists: Lists<2>,
    /// The list of each page.
    home: Vec<u8>,
}

const CLEAN: ListId = DRAM.index();
const DIRTY: ListId = NVRAM.index();
const ABSENT: u8 = u8::MAX;

impl HybridLru {
    /// Frees a frame of a memory if it has none. False when all its pages are pinned.
    fn make_room<D: Driver>(&mut self, tier: Tier, driver: &mut D) -> bool {
        let list = tier.index();
        if self.lists.len(list) < self.capacity[list] {
            return true;
        }
        let Some(victim) = self.lists.back_where(list, |page| driver.may_evict(page, tier)) else { return false };
        driver.evict(victim, tier, tier == NVRAM);
        self.leave(list, victim);
        true
    }

    fn enter(&mut self, list: ListId, page: Page) {
        self.lists.push_front(list, page);
        self.home[page.index()] = list as u8;
    }

    fn leave(&mut self, list: ListId, page: Page) {
        self.lists.remove(list, page);
        self.home[page.index()] = ABSENT;
    }
}

impl Policy for HybridLru {
    const INFO: Info = Info {
        name: "hybrid-lru",
        family: "hybrid",
        summary: "LRU of clean pages in DRAM beside LRU of dirty pages in NVRAM",
        paper: "Fan: Improving storage performance with non-volatile memory-based caching systems, thesis 2017, \
                section 4.5.1",
        tiers: &["dram", "nvram"],
        min_pages: &[1, 1],
        top_share: 0.5,
        write_aware: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, _options: &Options) -> Result<Self, BuildError> {
        let &[dram, nvram] = config.tiers.as_slice() else { unreachable!("two tiers are checked") };
        Ok(HybridLru { capacity: [dram, nvram], lists: Lists::new(config.pages), home: vec![ABSENT; config.pages] })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let home = self.home[page.index()];
        if home != ABSENT && (home == DIRTY as u8 || !request.op.is_write()) {
            self.lists.move_to_front(ListId::from(home), page);
            driver.overwrite(request, NVRAM);
            return Outcome::Hit(Tier(home));
        }
        let in_dram = home != ABSENT;
        let to = if request.op.is_write() { NVRAM } else { DRAM };
        let space = self.make_room(to, driver);
        if space {
            driver.admit(request, to);
        }
        if in_dram {
            driver.start(page, Verb::Drop { from: DRAM });
            self.leave(CLEAN, page);
        }
        if space {
            self.enter(to.index(), page);
        } else {
            driver.bypass(request);
        }
        if in_dram { Outcome::Hit(DRAM) } else { Outcome::Miss { admitted: space } }
    }

    fn state(&self, page: Page) -> PageState {
        let home = self.home[page.index()];
        let held = home != ABSENT;
        let tiers = if held { TierSet::only(Tier(home), true) } else { TierSet::EMPTY };
        PageState { tiers, dirty: home == DIRTY as u8, known: held }
    }

    fn occupancy(&self, tier: Tier) -> usize {
        self.lists.len(tier.index())
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("clean", self.lists.len(CLEAN) as f64);
        visit("dirty", self.lists.len(DIRTY) as f64);
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.home, page.index());
        self.lists.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        self.lists.memory_bytes() + self.home.capacity()
    }
}
