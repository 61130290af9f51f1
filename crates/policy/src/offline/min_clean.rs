//! min-clean: MIN that spares dirty pages. A heuristic, not an optimum.
//!
//! Ours. With write-backs as well as misses to be saved, optimal replacement is NP-hard (Beckmann, Gibbons, Haeupler,
//! McGuffey, "Writeback-aware caching", APOCS 2020), so this is no bound. Of the pages whose next uses are farthest,
//! the window, the farthest clean one goes; when all of them are dirty, the farthest one. A window of one page is MIN.
//!
//! Pages that are never used again count as used at the end of time, in the order of their handles; of two at the end
//! of time a clean one in the window goes before a dirty one as elsewhere. The window is kept as two heaps with one
//! boundary: those in it, by nearest use, and the others, by farthest; the pages in it once more by dirtiness.

use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::{Bits, IndexHeap};
use entresol_core::{Outcome, Page, Request, Tier};

/// Farthest next use first, clean pages before dirty ones.
#[derive(Clone, Debug)]
pub struct MinClean {
    capacity: usize,
    window: usize,
    /// Pages in the window, the nearest use first.
    boundary: IndexHeap,
    /// Clean and dirty pages in the window, the farthest use first.
    clean: IndexHeap,
    dirty: IndexHeap,
    /// Pages nearer than the window, the farthest use first.
    near: IndexHeap,
    /// Pages that differ from the level below.
    modified: Bits,
}

/// A key of its own for every page: by next use, then by handle. Negated it sorts the farthest first.
#[inline(always)]
const fn key(page: Page, next_use: u32) -> u64 {
    (next_use as u64) << 32 | page.0 as u64
}

impl MinClean {
    #[inline(always)]
    fn held(&self) -> usize {
        self.boundary.len() + self.near.len()
    }

    /// Records the next use of a page, held or new.
    fn expect(&mut self, page: Page, next_use: u32) {
        self.forget(page);
        self.enter_window(page, key(page, next_use));
        if self.boundary.len() > self.window {
            let (nearest, key) = self.boundary.min().expect("a window of one page or more");
            self.leave_window(nearest);
            self.near.set(nearest, !key);
        }
    }

    /// Takes a page out of the order, if it is in it; the window closes up.
    fn forget(&mut self, page: Page) {
        if self.boundary.contains(page) {
            self.leave_window(page);
            if let Some((farthest, negated)) = self.near.min() {
                self.near.remove(farthest);
                self.enter_window(farthest, !negated);
            }
        } else {
            self.near.remove(page);
        }
    }

    fn enter_window(&mut self, page: Page, key: u64) {
        self.boundary.set(page, key);
        let side = if self.modified.contains(page) { &mut self.dirty } else { &mut self.clean };
        side.set(page, !key);
    }

    fn leave_window(&mut self, page: Page) {
        self.boundary.remove(page);
        // One of the two heaps held the page.
        self.clean.remove(page);
        self.dirty.remove(page);
    }

    /// The victim: clean in the window, dirty in the window, then anything.
    fn find_victim<D: Driver>(&self, driver: &mut D) -> Option<Page> {
        let heaps = [&self.clean, &self.dirty, &self.near];
        heaps
            .into_iter()
            .find_map(|heap| heap.min_where(|page| driver.may_evict(page, Tier::TOP)))
            .map(|(page, _)| page)
    }
}

impl Policy for MinClean {
    const INFO: Info = Info {
        name: "min-clean",
        family: "offline",
        summary: "Belady's order, clean pages first within a window: a heuristic, not an optimum",
        paper: "own, after Belady 1966; write-aware optimum NP-hard: Beckmann et al.: Writeback-aware caching, APOCS 2020",
        options: &[OptionInfo {
            name: "window",
            default: "10%",
            help: "farthest pages among which a clean one is looked for, of the cache; at least a page (then it is min)",
        }],
        write_aware: true,
        future: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0];
        let window = options.pages("window", config, capacity)?.clamp(1, capacity);
        let heap = |pages: usize| IndexHeap::new(config.pages, pages.min(config.pages) + 1);
        Ok(MinClean {
            capacity,
            window,
            boundary: heap(window),
            clean: heap(window),
            dirty: heap(window),
            near: heap(capacity),
            modified: Bits::new(config.pages),
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let hit = self.boundary.contains(page) || self.near.contains(page);
        if hit {
            driver.overwrite(request, Tier::TOP);
        } else {
            if self.held() == self.capacity {
                let Some(victim) = self.find_victim(driver) else {
                    return driver.bypass(request);
                };
                self.forget(victim);
                driver.evict(victim, Tier::TOP, self.modified.remove(victim));
            }
            driver.admit(request, Tier::TOP);
        }
        // The page leaves the order with its old dirtiness and enters it with the new one.
        if request.op.is_write() {
            self.modified.insert(page);
        }
        self.expect(page, driver.next_use());
        if hit { Outcome::Hit(Tier::TOP) } else { Outcome::ADMITTED }
    }

    fn state(&self, page: Page) -> PageState {
        let held = self.boundary.contains(page) || self.near.contains(page);
        PageState { tiers: TierSet::only(Tier::TOP, held), dirty: self.modified.contains(page), known: held }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.held()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("clean_in_window", self.clean.len() as f64);
        visit("dirty_in_window", self.dirty.len() as f64);
    }

    fn memory_bytes(&self) -> usize {
        let heaps = [&self.boundary, &self.clean, &self.dirty, &self.near];
        heaps.into_iter().map(IndexHeap::memory_bytes).sum::<usize>() + self.modified.memory_bytes()
    }
}
