//! S3-FIFO: three FIFO queues; a small one keeps pages that are used once from ever entering the main one.
//!
//! Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for cache eviction", SOSP 2023, section 4 and
//! algorithm 1. A page that comes for the first time enters S (10 % of the cache), one that is remembered in the
//! ghost queue G enters M. A page that leaves S goes to M if it was used more than once there, else to G. M re-inserts
//! a page as long as its count is above 0, counting down. Counts stop at 3: two bits.
//!
//! Readings.
//! - EVICTS, line "if M is full then EVICTM" evicts from M at once and goes on with S, so one request may free more
//!   than one frame.
//! - The count starts again at 0 when a page moves from S to M ("the access bits are cleared during the move",
//!   section 4.1; algorithm 1 does not show it).
//! - INSERT makes room before it looks into G, so the page asked for may just have been pushed out of G.
//! - G holds as many pages as M: 90 % of the cache (`ghost`). A returning page leaves G.
//! - `warm-up`: until the cache is full, `small` lets S grow beyond its share, as algorithm 1 does;
//!   `main` sends pages to M once S has its share, as the authors' simulator does since.
//! - A page of S that may not be evicted keeps its place; one of M is re-inserted without counting down.

use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::Lists;
use entresol_core::{Outcome, Page, Request, Tier};

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;

/// The lowest two bits say where a page is: nowhere (0), or in the list of this number less one.
const PLACE: u8 = 3;
const DIRTY: u8 = 4;
/// The highest two bits count uses.
const COUNT_SHIFT: u32 = 6;
const COUNT_MAX: u8 = 3;

const fn place(list: usize) -> u8 {
    list as u8 + 1
}

/// Small, main and ghost queue.
#[derive(Clone, Debug)]
pub struct S3Fifo {
    capacity: usize,
    small: usize,
    ghost: usize,
    /// Uses in S from which on a page moves to M instead of leaving.
    promote: u8,
    /// New pages go to M when S has its share and the cache is not full.
    fill_main: bool,
    queues: Lists<3>,
    flags: Vec<u8>,
}

impl S3Fifo {
    #[inline(always)]
    fn held(&self) -> usize {
        self.queues.len(SMALL) + self.queues.len(MAIN)
    }

    /// Evicts from the queue that algorithm 1 names, or from the other one if nothing in it may go.
    #[inline]
    fn make_room<D: Driver>(&mut self, driver: &mut D) -> bool {
        if self.queues.len(SMALL) < self.small && self.evict_main(driver) {
            return true;
        }
        self.evict_small(driver) || self.evict_main(driver)
    }

    /// EVICTS: the pages at the old end of S that were used move to M, the first that was not is evicted.
    /// True if a frame is free now.
    fn evict_small<D: Driver>(&mut self, driver: &mut D) -> bool {
        let mut candidate = self.queues.back(SMALL);
        while let Some(page) = candidate {
            candidate = self.queues.towards_front(page);
            let flags = self.flags[page.index()];
            if flags >> COUNT_SHIFT >= self.promote {
                self.flags[page.index()] = place(MAIN) | flags & DIRTY;
                self.queues.transfer(SMALL, MAIN, page);
                if self.queues.len(MAIN) >= self.capacity - self.small {
                    self.evict_main(driver);
                }
            } else if driver.may_evict(page, Tier::TOP) {
                driver.evict(page, Tier::TOP, flags & DIRTY != 0);
                self.remember(page);
                return true;
            }
        }
        self.held() < self.capacity
    }

    /// Moves an evicted page from S to G, which forgets its oldest if it is full.
    #[inline]
    fn remember(&mut self, page: Page) {
        self.queues.remove(SMALL, page);
        self.flags[page.index()] = 0;
        if self.ghost == 0 {
            return;
        }
        if self.queues.len(GHOST) == self.ghost {
            let oldest = self.queues.back(GHOST).expect("a full ghost queue");
            self.queues.remove(GHOST, oldest);
            self.flags[oldest.index()] = 0;
        }
        self.queues.push_front(GHOST, page);
        self.flags[page.index()] = place(GHOST);
    }

    /// EVICTM: CLOCK with a two-bit count. True if a page was evicted.
    fn evict_main<D: Driver>(&mut self, driver: &mut D) -> bool {
        // As many rounds as the count has values bring all counts to 0 and then ask for every page.
        for _ in 0..(usize::from(COUNT_MAX) + 1) * self.queues.len(MAIN) {
            let page = self.queues.back(MAIN).expect("a page of M for each step");
            let flags = &mut self.flags[page.index()];
            if *flags >> COUNT_SHIFT > 0 {
                *flags -= 1 << COUNT_SHIFT;
            } else if driver.may_evict(page, Tier::TOP) {
                let dirty = *flags & DIRTY != 0;
                *flags = 0;
                self.queues.remove(MAIN, page);
                driver.evict(page, Tier::TOP, dirty);
                return true;
            }
            self.queues.move_to_front(MAIN, page);
        }
        false
    }
}

impl Policy for S3Fifo {
    const INFO: Info = Info {
        name: "s3-fifo",
        family: "modern",
        summary: "small, main and ghost FIFO queues: what is used once leaves early",
        paper: "Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache eviction, SOSP 2023",
        options: &[
            OptionInfo {
                name: "small",
                default: "10%",
                help: "size of the small queue, of the cache; at least a page",
            },
            OptionInfo { name: "ghost", default: "90%", help: "pages remembered in the ghost queue, of the cache" },
            OptionInfo {
                name: "promote",
                default: "2",
                help: "uses in the small queue that move a page to the main one, 1 to 3",
            },
            OptionInfo {
                name: "warm-up",
                default: "small",
                help: "queue of new pages while the cache fills up: small (algorithm 1), main (once small has its share)",
            },
        ],
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0];
        Ok(S3Fifo {
            capacity,
            small: options.pages("small", config, capacity)?.clamp(1, capacity),
            ghost: options.pages("ghost", config, capacity)?,
            promote: options.number("promote", 1..=COUNT_MAX)?,
            fill_main: options.choice("warm-up", &[("small", false), ("main", true)])?,
            queues: Lists::new(config.pages),
            flags: vec![0; config.pages],
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let written = if request.op.is_write() { DIRTY } else { 0 };
        let flags = &mut self.flags[page.index()];
        let at = *flags & PLACE;
        if at == place(SMALL) || at == place(MAIN) {
            if *flags >> COUNT_SHIFT < COUNT_MAX {
                *flags += 1 << COUNT_SHIFT;
            }
            *flags |= written;
            driver.overwrite(request, Tier::TOP);
            return Outcome::Hit(Tier::TOP);
        }
        if self.held() == self.capacity && !self.make_room(driver) {
            return driver.bypass(request);
        }
        let remembered = self.flags[page.index()] == place(GHOST);
        if remembered {
            self.queues.remove(GHOST, page);
        }
        let fills_main = self.fill_main && self.queues.len(SMALL) >= self.small;
        let queue = if remembered || fills_main { MAIN } else { SMALL };
        self.queues.push_front(queue, page);
        self.flags[page.index()] = place(queue) | written;
        driver.admit(request, Tier::TOP);
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let flags = self.flags[page.index()];
        let held = flags & PLACE != 0 && flags & PLACE != place(GHOST);
        PageState { tiers: TierSet::only(Tier::TOP, held), dirty: flags & DIRTY != 0, known: flags != 0 }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.held()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("small", self.queues.len(SMALL) as f64);
        visit("main", self.queues.len(MAIN) as f64);
        visit("ghost", self.queues.len(GHOST) as f64);
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.flags, page.index());
    }

    fn memory_bytes(&self) -> usize {
        self.queues.memory_bytes() + self.flags.capacity()
    }
}
