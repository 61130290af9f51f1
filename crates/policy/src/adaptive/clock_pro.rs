//! CLOCK-Pro: LIRS on a clock. Hot and cold pages and the ghosts of cold ones on one clock with three hands.
//!
//! Jiang, Chen, Zhang, "CLOCK-Pro: an effective improvement of the CLOCK replacement", USENIX ATC 2005, sections
//! 4.2 and 4.3; the number of cold pages adapts as in section 4.4.
//!
//! The list is the clock unrolled at HAND_hot: the hand is always at the back, moving it is moving the page there to
//! the front, and "the list head" is the front. HAND_cold points to the last cold page with a frame, the one furthest from
//! the list head, and HAND_test to the last page in its test period. Walking there past hot pages and ghosts would take
//! a turn of the clock per miss when few pages are cold, so these two kinds have lists of their own in the clock's order:
//! pages join them at the list head only, or go there when HAND_hot passes them.
//!
//! Readings. All pages are cold at first; the target of cold pages starts at 1 % and stays within [1, capacity]. A
//! re-access during the test period is noticed, and raises the target, when HAND_cold finds the bit or the ghost
//! is asked for; a test that ends with the bit set does not lower it. A referenced cold page that is past its
//! test gets a new one (`retest=no`: it does not). A ghost that is asked for leaves the clock before room is made. HAND_hot
//! moves when there are more hot pages than the target allows, and then on to the next hot page. Refusals: a
//! cold page that may not be evicted goes to the list head as it is; when all have been asked any page will do.

use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::Lists;
use entresol_core::{Outcome, Page, Request, Tier};

const CLOCK: usize = 0;

const KIND: u8 = 3;
const UNKNOWN_PAGE: u8 = 0;
const HOT: u8 = 1;
const COLD: u8 = 2;
/// A cold page without a frame; it is in its test period.
const GHOST: u8 = 3;
const TEST: u8 = 4;
const REFERENCED: u8 = 8;
const DIRTY: u8 = 16;

/// CLOCK-Pro.
#[derive(Clone, Debug)]
pub struct ClockPro {
    capacity: usize,
    adaptive: bool,
    retest: bool,
    /// Desired number of cold pages with a frame.
    cold_target: usize,
    hot: usize,
    ghosts: usize,
    clock: Lists<1>,
    /// The cold pages with a frame, in the order of the clock: HAND_cold is at the back.
    cold: Lists<1>,
    /// The pages in their test period, ghosts included, in the order of the clock: HAND_test is at the back.
    tests: Lists<1>,
    marks: Vec<u8>,
}

impl Policy for ClockPro {
    const INFO: Info = Info {
        name: "clock-pro",
        family: "adaptive",
        summary: "reuse distance on a clock: hot and cold pages, three hands",
        paper: "Jiang, Chen, Zhang: CLOCK-Pro: an effective improvement of the CLOCK replacement, USENIX ATC 2005",
        options: &[
            OptionInfo {
                name: "cold",
                default: "adaptive",
                help: "desired number of cold pages: adaptive, or fixed at a size or share of the capacity",
            },
            OptionInfo {
                name: "retest",
                default: "yes",
                help: "a cold page referenced after its test period gets a new one: yes or no",
            },
        ],
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0];
        let adaptive = options.text("cold") == "adaptive";
        let cold_target = if adaptive { capacity / 100 } else { options.pages("cold", config, capacity)? };
        Ok(ClockPro {
            capacity,
            adaptive,
            retest: options.choice("retest", &[("yes", true), ("no", false)])?,
            cold_target: cold_target.clamp(1, capacity),
            hot: 0,
            ghosts: 0,
            clock: Lists::new(config.pages),
            cold: Lists::new(config.pages),
            tests: Lists::new(config.pages),
            marks: vec![UNKNOWN_PAGE; config.pages],
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        if matches!(self.kind(request.page), HOT | COLD) {
            self.marks[request.page.index()] |= REFERENCED;
            driver.overwrite(request, Tier::TOP);
            self.mark_written(request);
            return Outcome::Hit(Tier::TOP);
        }
        self.miss(request, driver)
    }

    fn state(&self, page: Page) -> PageState {
        let mark = self.marks[page.index()];
        let held = matches!(mark & KIND, HOT | COLD);
        PageState {
            tiers: TierSet::only(Tier::TOP, held),
            dirty: mark & DIRTY != 0,
            known: mark & KIND != UNKNOWN_PAGE,
        }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.hot + self.cold.len(CLOCK)
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("cold target", self.cold_target as f64);
        visit("hot", self.hot as f64);
        visit("cold", self.cold.len(CLOCK) as f64);
        visit("ghosts", self.ghosts as f64);
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.marks, page.index());
    }

    fn memory_bytes(&self) -> usize {
        let lists = [&self.clock, &self.cold, &self.tests];
        lists.into_iter().map(Lists::memory_bytes).sum::<usize>() + self.marks.capacity()
    }
}

impl ClockPro {
    #[inline(always)]
    fn kind(&self, page: Page) -> u8 {
        self.marks[page.index()] & KIND
    }

    #[inline(always)]
    fn marked(&self, page: Page, mark: u8) -> bool {
        self.marks[page.index()] & mark != 0
    }

    #[inline(always)]
    fn mark_written(&mut self, request: Request) {
        self.marks[request.page.index()] |= DIRTY * u8::from(request.op.is_write());
    }

    /// Clears some marks and sets others.
    #[inline(always)]
    fn remark(&mut self, page: Page, clear: u8, set: u8) {
        let mark = &mut self.marks[page.index()];
        *mark = *mark & !clear | set;
    }

    fn miss<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let tested = self.kind(page) == GHOST;
        if tested {
            self.ghosts -= 1;
            self.forget(page);
            self.raise_cold_target();
        }
        if self.occupancy(Tier::TOP) == self.capacity && !self.run_hand_cold(driver) {
            return driver.bypass(request);
        }
        driver.admit(request, Tier::TOP);
        self.clock.push_front(CLOCK, page);
        if tested {
            self.marks[page.index()] = HOT;
            self.hot += 1;
            self.run_hand_hot();
        } else {
            self.marks[page.index()] = COLD | TEST;
            self.cold.push_front(CLOCK, page);
            self.tests.push_front(CLOCK, page);
        }
        self.mark_written(request);
        Outcome::ADMITTED
    }

    /// Moves a page to the list head, its kind and marks unchanged.
    fn move_to_head(&mut self, page: Page) {
        self.clock.move_to_front(CLOCK, page);
        for list in [&mut self.cold, &mut self.tests] {
            if list.contains(page) {
                list.move_to_front(CLOCK, page);
            }
        }
    }

    fn forget(&mut self, page: Page) {
        for list in [&mut self.clock, &mut self.cold, &mut self.tests] {
            if list.contains(page) {
                list.remove(CLOCK, page);
            }
        }
        self.marks[page.index()] = UNKNOWN_PAGE;
    }

    fn raise_cold_target(&mut self) {
        if self.adaptive && self.cold_target < self.capacity {
            self.cold_target += 1;
        }
    }

    /// Ends the test period of a cold page, if it is in one; a ghost leaves the clock.
    fn end_test(&mut self, page: Page) {
        if !self.marked(page, TEST) {
            return;
        }
        if self.adaptive && !self.marked(page, REFERENCED) && self.cold_target > 1 {
            self.cold_target -= 1;
        }
        if self.kind(page) == GHOST {
            self.ghosts -= 1;
            self.forget(page);
        } else {
            self.remark(page, TEST, 0);
            self.tests.remove(CLOCK, page);
        }
    }

    /// HAND_cold frees a frame; false when no page may be evicted.
    fn run_hand_cold<D: Driver>(&mut self, driver: &mut D) -> bool {
        let mut refusals_left = self.capacity;
        while let Some(page) = self.cold.back(CLOCK).filter(|_| refusals_left > 0) {
            if self.marked(page, REFERENCED) {
                self.keep_cold(page);
            } else if driver.may_evict(page, Tier::TOP) {
                self.evict_cold(page, driver);
                return true;
            } else {
                refusals_left -= 1;
                self.move_to_head(page);
            }
        }
        self.evict_any(driver)
    }

    /// A cold page with its bit set goes to the list head: hot, if it is in its test period.
    fn keep_cold(&mut self, page: Page) {
        self.move_to_head(page);
        if self.marked(page, TEST) {
            self.cold.remove(CLOCK, page);
            self.tests.remove(CLOCK, page);
            self.remark(page, KIND | TEST | REFERENCED, HOT);
            self.hot += 1;
            self.raise_cold_target();
            self.run_hand_hot();
        } else if self.retest {
            self.tests.push_front(CLOCK, page);
            self.remark(page, REFERENCED, TEST);
        } else {
            self.remark(page, REFERENCED, 0);
        }
    }

    fn evict_cold<D: Driver>(&mut self, page: Page, driver: &mut D) {
        driver.evict(page, Tier::TOP, self.marked(page, DIRTY));
        if !self.marked(page, TEST) {
            self.forget(page);
            return;
        }
        self.cold.remove(CLOCK, page);
        self.marks[page.index()] = GHOST | TEST;
        self.ghosts += 1;
        while self.ghosts > self.capacity {
            // HAND_test: "terminate the test period of the cold page pointed to".
            let oldest = self.tests.back(CLOCK).expect("a ghost is in its test period");
            self.end_test(oldest);
        }
    }

    /// No cold page may be evicted: any page that may, from HAND_hot on. Nothing is remembered of it.
    fn evict_any<D: Driver>(&mut self, driver: &mut D) -> bool {
        let allowed = |page: Page| self.kind(page) != GHOST && driver.may_evict(page, Tier::TOP);
        let Some(victim) = self.clock.back_where(CLOCK, allowed) else { return false };
        driver.evict(victim, Tier::TOP, self.marked(victim, DIRTY));
        self.hot -= usize::from(self.kind(victim) == HOT);
        self.forget(victim);
        true
    }

    /// HAND_hot: hot pages beyond their share become cold, those referenced since the last turn excepted. It ends
    /// test periods on its way and stops at a hot page.
    fn run_hand_hot(&mut self) {
        if self.hot + self.cold_target <= self.capacity {
            return;
        }
        while let Some(page) = self.clock.back(CLOCK) {
            let too_many = self.hot + self.cold_target > self.capacity;
            if self.kind(page) != HOT {
                if !too_many && self.hot == 0 {
                    return;
                }
                self.end_test(page);
            } else if !too_many {
                return;
            } else if self.marked(page, REFERENCED) {
                self.remark(page, REFERENCED, 0);
            } else {
                self.remark(page, KIND, COLD);
                self.hot -= 1;
                self.cold.push_front(CLOCK, page);
            }
            if self.kind(page) != UNKNOWN_PAGE {
                self.move_to_head(page);
            }
        }
    }
}
