//! W-TinyLFU: a small LRU window, and a main cache that a page enters only if it is asked for more often than the
//! page it replaces.
//!
//! Einziger, Friedman, Manes, "TinyLFU: a highly efficient cache admission policy", ACM Transactions on Storage 13(4),
//! 2017, sections 3 and 4 (arXiv 1512.00727). The window takes 1 % of the cache. The main cache is a segmented LRU
//! (Karedla, Love, Wherry 1994): 80 % of it protected, the rest on probation. What the window pushes out competes with
//! the oldest page on probation by the frequencies in `sketch.rs`; the loser leaves.
//!
//! Readings.
//! - The newcomer must be strictly more frequent. While the main cache has room it is admitted unasked.
//! - Every request counts in the sketch, hits included; the sample is ten times the cache, and the reset halves the
//!   number of uses seen as well as the counters.
//! - When nothing is on probation the oldest protected page competes.
//! - The frequency of a page outlives its stay, so what is counted is the page's address, not its handle: an engine
//!   may give the handle to another page. Where handles are never given away, `key=handle` says so and is faster.
//! - When the loser may not be evicted the winner goes instead; when neither may, the next page on probation, in the
//!   protected segment, in the window.

use super::sketch::Sketch;
use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::Lists;
use entresol_core::{Outcome, Page, Random, Request, Tier, prefetch};

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// The lowest two bits say where a page is: nowhere (0), or in the list of this number less one.
const PLACE: u8 = 3;
const DIRTY: u8 = 4;

/// Keeps the blocks of different objects apart before they are mixed: an odd number with its bits well spread.
const OBJECT_SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

const fn place(list: usize) -> u8 {
    list as u8 + 1
}

/// A window and a segmented main cache behind an admission filter.
#[derive(Clone, Debug)]
pub struct WTinyLfu {
    capacity: usize,
    window: usize,
    protected: usize,
    by_address: bool,
    sketch: Sketch,
    lists: Lists<3>,
    flags: Vec<u8>,
    /// Newcomers that were admitted to the full main cache, and those that were rejected.
    admitted: u64,
    rejected: u64,
}

impl WTinyLfu {
    #[inline(always)]
    fn hash<D: Driver>(&self, page: Page, driver: &D) -> u64 {
        if !self.by_address {
            return Random::mix(u64::from(page.0) + 1);
        }
        let address = driver.address(page);
        Random::mix(address.block ^ (u64::from(address.object.0) + 1).wrapping_mul(OBJECT_SPREAD))
    }

    #[inline(always)]
    fn transfer(&mut self, page: Page, from: usize, to: usize) {
        self.lists.transfer(from, to, page);
        self.flags[page.index()] = place(to) | self.flags[page.index()] & DIRTY;
    }

    /// A hit moves a page to the front of its list, or from probation to the protected segment, whose oldest page
    /// goes on probation if there are too many.
    #[inline]
    fn touch(&mut self, page: Page) {
        let list = usize::from(self.flags[page.index()] & PLACE) - 1;
        if list != PROBATION {
            self.lists.move_to_front(list, page);
            return;
        }
        self.transfer(page, PROBATION, PROTECTED);
        if self.lists.len(PROTECTED) > self.protected {
            let oldest = self.lists.back(PROTECTED).expect("more pages than none");
            self.transfer(oldest, PROTECTED, PROBATION);
        }
    }

    /// Lets the oldest page of the window compete for a place in the full main cache. True if a frame of the window
    /// is free now.
    #[inline]
    fn make_room<D: Driver>(&mut self, driver: &mut D) -> bool {
        let newcomer = self.lists.back(WINDOW).expect("a full window");
        let veteran = self.lists.back(PROBATION).or_else(|| self.lists.back(PROTECTED));
        let admit = veteran.is_some_and(|veteran| {
            self.sketch.estimate(self.hash(newcomer, driver)) > self.sketch.estimate(self.hash(veteran, driver))
        });
        self.admitted += u64::from(admit);
        self.rejected += u64::from(!admit);
        let order = if admit { [veteran, Some(newcomer)] } else { [Some(newcomer), veteran] };
        let victim = order.into_iter().flatten().find(|&page| driver.may_evict(page, Tier::TOP)).or_else(|| {
            let lists = [PROBATION, PROTECTED, WINDOW].into_iter();
            lists.filter_map(|list| self.lists.back_where(list, |page| driver.may_evict(page, Tier::TOP))).next()
        });
        let Some(victim) = victim else { return false };
        let flags = std::mem::take(&mut self.flags[victim.index()]);
        let list = usize::from(flags & PLACE) - 1;
        self.lists.remove(list, victim);
        driver.evict(victim, Tier::TOP, flags & DIRTY != 0);
        if list != WINDOW {
            self.transfer(newcomer, WINDOW, PROBATION);
        }
        true
    }

    #[inline(always)]
    fn held(&self) -> usize {
        self.lists.len(WINDOW) + self.lists.len(PROBATION) + self.lists.len(PROTECTED)
    }
}

impl Policy for WTinyLfu {
    const INFO: Info = Info {
        name: "w-tinylfu",
        family: "modern",
        summary: "LRU window and segmented LRU behind a frequency filter",
        paper: "Einziger, Friedman, Manes: TinyLFU: a highly efficient cache admission policy, ACM TOS 2017",
        options: &[
            OptionInfo { name: "window", default: "1%", help: "size of the window, of the cache; at least a page" },
            OptionInfo { name: "protected", default: "80%", help: "size of the protected segment, of the main cache" },
            OptionInfo {
                name: "sample",
                default: "10",
                help: "uses between two halvings of the frequencies, in multiples of the cache, at least 1",
            },
            OptionInfo {
                name: "doorkeeper",
                default: "yes",
                help: "a Bloom filter takes the first use of a page: yes, no",
            },
            OptionInfo {
                name: "key",
                default: "address",
                help: "what frequencies are counted of: address, or handle where one belongs to one page for ever",
            },
        ],
        addresses: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0];
        let window = options.pages("window", config, capacity)?.clamp(1, capacity);
        let protected = options.pages("protected", config, capacity - window)?.min(capacity - window);
        let sample = options.number::<u64>("sample", 1..=1 << 20)?.saturating_mul(capacity as u64);
        let doorkeeper = options.choice("doorkeeper", &[("yes", true), ("no", false)])?;
        Ok(WTinyLfu {
            capacity,
            window,
            protected,
            by_address: options.choice("key", &[("address", true), ("handle", false)])?,
            // The sketch need not hold frequencies of more pages than there are.
            sketch: Sketch::new(capacity.min(config.pages.max(1)), sample, doorkeeper),
            lists: Lists::new(config.pages),
            flags: vec![0; config.pages],
            admitted: 0,
            rejected: 0,
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let written = if request.op.is_write() { DIRTY } else { 0 };
        self.sketch.record(self.hash(page, driver));
        if self.flags[page.index()] != 0 {
            self.flags[page.index()] |= written;
            self.touch(page);
            driver.overwrite(request, Tier::TOP);
            return Outcome::Hit(Tier::TOP);
        }
        if self.held() == self.capacity {
            if !self.make_room(driver) {
                return driver.bypass(request);
            }
        } else if self.lists.len(WINDOW) == self.window {
            let newcomer = self.lists.back(WINDOW).expect("a full window");
            self.transfer(newcomer, WINDOW, PROBATION);
        }
        driver.admit(request, Tier::TOP);
        self.lists.push_front(WINDOW, page);
        self.flags[page.index()] = place(WINDOW) | written;
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let flags = self.flags[page.index()];
        PageState { tiers: TierSet::only(Tier::TOP, flags != 0), dirty: flags & DIRTY != 0, known: flags != 0 }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.held()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("window", self.lists.len(WINDOW) as f64);
        visit("probation", self.lists.len(PROBATION) as f64);
        visit("protected", self.lists.len(PROTECTED) as f64);
        visit("admitted", self.admitted as f64);
        visit("rejected", self.rejected as f64);
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        prefetch(&self.flags, page.index());
        self.lists.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        self.lists.memory_bytes() + self.flags.capacity() + self.sketch.memory_bytes()
    }
}
