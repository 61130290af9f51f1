//! Hybrid-ARC: an ARC-like division of NVRAM between clean and dirty pages, beside DRAM for clean ones. A baseline
//! of Hibachi.
//!
//! Fan, thesis 2017 (004), section 4.5.1: "an ARC-like algorithm to dynamically split NVRAM to cache both clean
//! pages and dirty pages, while DRAM is a clean cache for clean pages". Read as ARC (Megiddo, Modha, FAST 2003) with
//! the clean pages of both memories as its first list and the dirty pages as its second, each in LRU order and with
//! a ghost list: a clean ghost hit raises the desired number of clean pages by max(1, |Do| / |Co|), a dirty one
//! lowers it by max(1, |Co| / |Do|), real-valued, between the size of DRAM (where it starts) and that of both
//! memories, because dirty pages never live in DRAM. REPLACE takes the LRU clean page when there are more clean pages
//! than desired, or as many and the request is in Do, else the LRU dirty page. A write that finds NVRAM full of dirty
//! pages takes the LRU dirty page in any case. Ghosts are bounded as in [`Frames::surplus_ghost`].

use super::frames::{BORROWED, CLEAN_GHOST, DIRTY, DIRTY_GHOST, DRAM, Frames, Home, NVRAM};
use crate::info::{Config, Info};
use crate::interface::{Driver, PageState, Policy};
use crate::options::{BuildError, Options};
use crate::parts::Lists;
use entresol_core::{Outcome, Page, Request, Tier, Verb};

/// ARC between clean and dirty pages over two memories.
#[derive(Clone, Debug)]
pub struct HybridArc {
    frames: Frames,
    /// Clean pages of both memories.
    clean: Lists<1>,
    desired_clean: f64,
}

const STACK: usize = 0;

impl HybridArc {
    fn adapt(&mut self, home: Home) {
        let clean = self.frames.lists.len(CLEAN_GHOST) as f64;
        let dirty = self.frames.lists.len(DIRTY_GHOST) as f64;
        match home {
            Home::CleanGhost => self.desired_clean += (dirty / clean).max(1.0),
            Home::DirtyGhost => self.desired_clean -= (clean / dirty).max(1.0),
            _ => {}
        }
        self.desired_clean = self.desired_clean.clamp(self.frames.dram as f64, self.frames.total() as f64);
    }

    fn clean_first(&self, home: Home) -> bool {
        let clean = self.clean.len(STACK) as f64;
        clean > self.desired_clean || (clean == self.desired_clean && home == Home::DirtyGhost)
    }

    fn evict_clean<D: Driver>(&mut self, driver: &mut D) -> bool {
        let may = |page| driver.may_evict(page, self.frames.clean_tier(page));
        let Some(victim) = self.clean.back_where(STACK, may) else { return false };
        self.clean.remove(STACK, victim);
        self.frames.evict_clean(victim, driver);
        true
    }

    fn evict_dirty<D: Driver>(&mut self, driver: &mut D) -> bool {
        let Some(victim) = self.frames.lists.back_where(DIRTY, |page| driver.may_evict(page, NVRAM)) else {
            return false;
        };
        driver.evict(victim, NVRAM, true);
        self.frames.leave(victim);
        self.frames.enter(DIRTY_GHOST, victim);
        true
    }

    /// Finds a frame for a clean page, by an eviction if need be.
    fn room_for_clean<D: Driver>(&mut self, home: Home, driver: &mut D) -> Option<Tier> {
        if self.frames.free_tier().is_none() {
            let clean_first = self.clean_first(home);
            let _done = (clean_first && self.evict_clean(driver))
                || self.evict_dirty(driver)
                || (!clean_first && self.evict_clean(driver));
        }
        self.frames.free_tier()
    }

    /// Finds a frame of NVRAM for a dirty page. False when every page that could give way is pinned.
    fn room_for_dirty<D: Driver>(&mut self, home: Home, driver: &mut D) -> bool {
        if self.frames.nvram_free() {
            return true;
        }
        let borrowed = !self.frames.lists.is_empty(BORROWED);
        let clean_first = borrowed && self.clean_first(home);
        let freed = self.frames.dram_free() || (clean_first && self.evict_clean(driver));
        let promoted = freed && (self.frames.nvram_free() || self.frames.promote_borrower(driver));
        if promoted || self.evict_dirty(driver) {
            return true;
        }
        // All dirty pages are pinned: a clean one gives way after all.
        if !self.frames.dram_free() && !self.evict_clean(driver) {
            return false;
        }
        self.frames.nvram_free() || self.frames.promote_borrower(driver)
    }

    fn hit<D: Driver>(&mut self, home: Home, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let (Home::Clean(tier), true) = (home, request.op.is_write()) else {
            driver.overwrite(request, NVRAM);
            let Home::Clean(tier) = home else {
                self.frames.lists.move_to_front(DIRTY, page);
                return Outcome::Hit(NVRAM);
            };
            self.clean.move_to_front(STACK, page);
            if tier == NVRAM {
                self.frames.lists.move_to_front(BORROWED, page);
            }
            return Outcome::Hit(tier);
        };
        self.clean.remove(STACK, page);
        let space = tier == NVRAM || self.room_for_dirty(home, driver);
        if space {
            driver.start(page, Verb::Install { to: NVRAM });
        }
        if tier == DRAM {
            driver.start(page, Verb::Drop { from: DRAM });
        }
        self.frames.leave(page);
        if space {
            self.frames.enter(DIRTY, page);
        } else {
            driver.bypass(request);
        }
        Outcome::Hit(tier)
    }
}

impl Policy for HybridArc {
    const INFO: Info = Info {
        name: "hybrid-arc",
        family: "hybrid",
        summary: "ARC between clean pages in DRAM and NVRAM and dirty pages in NVRAM",
        paper: "Fan: Improving storage performance with non-volatile memory-based caching systems, thesis 2017, \
                section 4.5.1",
        tiers: &["dram", "nvram"],
        min_pages: &[1, 1],
        top_share: 0.5,
        write_aware: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, _options: &Options) -> Result<Self, BuildError> {
        let frames = Frames::new(config.pages, &config.tiers);
        Ok(HybridArc { desired_clean: frames.dram as f64, frames, clean: Lists::new(config.pages) })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let home = self.frames.home(page);
        if matches!(home, Home::Clean(_) | Home::Dirty) {
            return self.hit(home, request, driver);
        }
        self.adapt(home);
        let surplus = if home == Home::Absent { self.frames.surplus_ghost() } else { None };
        let tier = match request.op.is_write() {
            true => self.room_for_dirty(home, driver).then_some(NVRAM),
            false => self.room_for_clean(home, driver),
        };
        let Some(tier) = tier else { return driver.bypass(request) };
        if let Some(ghost) = surplus {
            self.frames.leave(ghost);
        }
        driver.admit(request, tier);
        self.frames.leave(page);
        if request.op.is_write() {
            self.frames.enter(DIRTY, page);
        } else {
            self.frames.enter_clean(page, tier);
            self.clean.push_front(STACK, page);
        }
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        self.frames.state(page)
    }

    fn occupancy(&self, tier: Tier) -> usize {
        self.frames.occupancy(tier)
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("desired clean pages", self.desired_clean);
        self.frames.gauges(visit);
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        self.frames.prefetch(page);
        self.clean.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        self.frames.memory_bytes() + self.clean.memory_bytes()
    }
}
