//! CFLRU: an LRU list whose least recent part gives up clean pages first.
//!
//! Park, Jung, Kang, Kim, Lee, "CFLRU: a replacement algorithm for flash memory", CASES 2006: the list
//! is divided into a working region and, at its LRU end, a clean-first region of `w` pages, the window. The victim
//! is the least recent clean page of the window; when the window has none, the least recent page of all, which is
//! then dirty.
//!
//! Reading: the window is static, a tenth of the cache by default (the paper also describes one that adapts).
//!
//! The paper's search of the window costs up to `w` steps. Here the window is kept as two lists, clean and dirty
//! pages apart, which makes every step constant: a page enters the window only at its recent end (from the rear of
//! the working region) and changes its colour only by a reference, which takes it out of the window. So both lists
//! stay in order of recency and the victim is the last clean one, else the last dirty one.

use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::{ListId, Lists};
use entresol_core::{Outcome, Page, Request, Tier, prefetch};

/// Clean-first LRU.
#[derive(Clone, Debug)]
pub struct Cflru {
    capacity: usize,
    /// Length of the clean-first region in pages.
    window: usize,
    lists: Lists<3>,
    /// Per page: its list, [`HELD`] and [`DIRTY`]; 0 when it is not held.
    flags: Vec<u8>,
}

const WORKING: ListId = 0;
const WINDOW_CLEAN: ListId = 1;
const WINDOW_DIRTY: ListId = 2;
const LIST: u8 = 3;
const HELD: u8 = 4;
const DIRTY: u8 = 8;

impl Cflru {
    fn victim<D: Driver>(&self, driver: &mut D) -> Option<Page> {
        // The working region is only reached when the whole window is pinned.
        [WINDOW_CLEAN, WINDOW_DIRTY, WORKING]
            .into_iter()
            .find_map(|list| self.lists.back_where(list, |page| driver.may_evict(page, Tier::TOP)))
    }

    /// Refills the window after a page has left it. No reference takes more than one page out.
    #[inline(always)]
    fn refill_window(&mut self) {
        if self.lists.len(WINDOW_CLEAN) + self.lists.len(WINDOW_DIRTY) == self.window {
            return;
        }
        if let Some(page) = self.lists.back(WORKING) {
            let dirty = self.flags[page.index()] & DIRTY;
            let list = if dirty == 0 { WINDOW_CLEAN } else { WINDOW_DIRTY };
            self.lists.transfer(WORKING, list, page);
            self.flags[page.index()] = HELD | dirty | list as u8;
        }
    }
}

impl Policy for Cflru {
    const INFO: Info = Info {
        name: "cflru",
        family: "dirty",
        summary: "LRU that evicts clean pages first within a window at its LRU end",
        paper: "Park, Jung, Kang, Kim, Lee: CFLRU: a replacement algorithm for flash memory, CASES 2006",
        options: &[OptionInfo {
            name: "window",
            default: "10%",
            help: "length of the clean-first region, in pages or per cent of the cache; at least one page",
        }],
        write_aware: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0];
        Ok(Cflru {
            capacity,
            // A window of one page is plain LRU, and so would be none at all.
            window: options.pages("window", config, capacity)?.clamp(1, capacity),
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
            self.flags[page.index()] = HELD | (flags | written) & DIRTY | WORKING as u8;
            if (flags & LIST) as ListId == WORKING {
                self.lists.move_to_front(WORKING, page);
            } else {
                self.lists.transfer((flags & LIST) as ListId, WORKING, page);
                self.refill_window();
            }
            driver.overwrite(request, Tier::TOP);
            return Outcome::Hit(Tier::TOP);
        }
        if self.occupancy(Tier::TOP) == self.capacity {
            let Some(victim) = self.victim(driver) else { return driver.bypass(request) };
            let flags = std::mem::take(&mut self.flags[victim.index()]);
            self.lists.remove((flags & LIST) as ListId, victim);
            driver.evict(victim, Tier::TOP, flags & DIRTY != 0);
        }
        driver.admit(request, Tier::TOP);
        self.lists.push_front(WORKING, page);
        self.flags[page.index()] = HELD | written | WORKING as u8;
        self.refill_window();
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let flags = self.flags[page.index()];
        let held = flags != 0;
        PageState { tiers: TierSet::only(Tier::TOP, held), dirty: flags & DIRTY != 0, known: held }
    }

    #[inline(always)]
    fn occupancy(&self, _tier: Tier) -> usize {
        self.lists.len(WORKING) + self.lists.len(WINDOW_CLEAN) + self.lists.len(WINDOW_DIRTY)
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("window clean", self.lists.len(WINDOW_CLEAN) as f64);
        visit("window dirty", self.lists.len(WINDOW_DIRTY) as f64);
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
