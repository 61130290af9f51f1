//! LFU-Aging: LFU that forgets, so that a page that was busy once does not stay for ever.
//!
//! 004 (Fan 2017), section 4.4.2, after Arlitt, Cherkasova, Dilley, Friedrich, Jin, "Evaluating content management
//! techniques for web proxy caches", 2000: all counts are halved when their mean over the pages held exceeds 5.5.
//!
//! Readings. Counts are rounded down by the halving, so that a page used once counts 0 after it. The mean is looked at
//! after every request that counts. Of equal counts the page that has had its own longest goes first; where two
//! counts become one, the pages of the higher one are taken for the newer. The halving visits each distinct count once
//! and no page ("lazily").

use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::{Bits, FrequencyList};
use entresol_core::{Outcome, Page, Request, Tier};

/// Least frequently used, with counts that age.
#[derive(Clone, Debug)]
pub struct LfuAging {
    capacity: usize,
    pages: FrequencyList,
    dirty: Bits,
    /// Mean count above which all counts are halved.
    threshold: f64,
    /// Number of times that all counts were halved.
    halvings: u64,
}

impl LfuAging {
    #[inline]
    fn age(&mut self) {
        if self.pages.total() as f64 > self.threshold * self.pages.len() as f64 {
            self.pages.halve();
            self.halvings += 1;
        }
    }
}

impl Policy for LfuAging {
    const INFO: Info = Info {
        name: "lfu-aging",
        family: "classic",
        summary: "least frequently used; all counts are halved when their mean grows too high",
        paper: "Fan: Improving storage performance with non-volatile memory-based caching systems, thesis 2017, 4.4.2",
        options: &[OptionInfo {
            name: "threshold",
            default: "5.5",
            help: "mean count of the pages held above which all counts are halved, at least 1",
        }],
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0];
        let pages = FrequencyList::new(config.pages, capacity);
        let threshold = options.number("threshold", 1.0..)?;
        Ok(LfuAging { capacity, pages, dirty: Bits::new(config.pages), threshold, halvings: 0 })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        if self.pages.contains(page) {
            self.pages.bump(page);
            driver.overwrite(request, Tier::TOP);
            if request.op.is_write() {
                self.dirty.insert(page);
            }
            self.age();
            return Outcome::Hit(Tier::TOP);
        }
        if self.pages.len() == self.capacity {
            let Some(victim) = self.pages.oldest_where(|page| driver.may_evict(page, Tier::TOP)) else {
                return driver.bypass(request);
            };
            self.pages.remove(victim);
            driver.evict(victim, Tier::TOP, self.dirty.remove(victim));
        }
        driver.admit(request, Tier::TOP);
        self.pages.insert(page, 1);
        if request.op.is_write() {
            self.dirty.insert(page);
        }
        self.age();
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let held = self.pages.contains(page);
        PageState { tiers: TierSet::only(Tier::TOP, held), dirty: self.dirty.contains(page), known: held }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.pages.len()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("mean_frequency", self.pages.total() as f64 / self.pages.len().max(1) as f64);
        visit("halvings", self.halvings as f64);
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        self.pages.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        self.pages.memory_bytes() + self.dirty.memory_bytes()
    }
}
