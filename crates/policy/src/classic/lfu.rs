//! LFU: evicts the page that was used least often since it came.
//!
//! Aho, Denning, Ullman, "Principles of optimal page replacement", JACM 1971; the constant-time structure is that of
//! Shah, Mitra, Matani, "An O(1) algorithm for implementing the LFU cache eviction scheme", 2010. Counts start at 1
//! and are forgotten with the page ("in-cache LFU"); with `counts=all` they are kept of every page ("perfect LFU"; both
//! names are from Breslau, Cao, Fan, Phillips, Shenker, "Web caching and Zipf-like distributions", INFOCOM 1999). Papers
//! that have LFU as a baseline seldom say which one it is, and the two can lie far apart.
//!
//! Reading. The definition leaves ties open, and they alone move the misses by up to 17 %. `ties=oldest` evicts the
//! page that has had the lowest count longest; `ties=most-recent` the one that came to it last, as CR-LFU in CACHEUS
//! (Rodriguez et al., FAST 2021) does, which keeps part of a scan in the cache.

use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::{Bits, FrequencyList};
use entresol_core::{Outcome, Page, Request, Tier};

/// Least frequently used.
#[derive(Clone, Debug)]
pub struct Lfu {
    capacity: usize,
    pages: FrequencyList,
    dirty: Bits,
    ties: Ties,
    /// Uses of every page, for `counts=all`.
    uses: Option<Vec<u32>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ties {
    Oldest,
    MostRecent,
}

impl Policy for Lfu {
    const INFO: Info = Info {
        name: "lfu",
        family: "classic",
        summary: "least frequently used, counted while in the cache or for ever",
        paper: "Aho, Denning, Ullman: Principles of optimal page replacement, JACM 1971",
        options: &[
            OptionInfo {
                name: "ties",
                default: "oldest",
                help: "victim among equal counts: oldest (longest at its count), most-recent (CR-LFU, FAST 2021)",
            },
            OptionInfo {
                name: "counts",
                default: "cached",
                help: "whose uses are counted: those of pages in the cache (cached), or of all pages ever seen (all)",
            },
        ],
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0];
        let ties = options.choice("ties", &[("oldest", Ties::Oldest), ("most-recent", Ties::MostRecent)])?;
        let all = options.choice("counts", &[("cached", false), ("all", true)])?;
        Ok(Lfu {
            capacity,
            pages: FrequencyList::new(config.pages, capacity),
            dirty: Bits::new(config.pages),
            ties,
            uses: all.then(|| vec![0; config.pages]),
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let uses = self.uses.as_mut().map_or(1, |uses| {
            let uses = &mut uses[page.index()];
            *uses = uses.saturating_add(1);
            *uses
        });
        if self.pages.contains(page) {
            self.pages.bump(page);
            driver.overwrite(request, Tier::TOP);
            if request.op.is_write() {
                self.dirty.insert(page);
            }
            return Outcome::Hit(Tier::TOP);
        }
        if self.pages.len() == self.capacity {
            let may_go = |page| driver.may_evict(page, Tier::TOP);
            let victim = match self.ties {
                Ties::Oldest => self.pages.oldest_where(may_go),
                Ties::MostRecent => self.pages.newest_where(may_go),
            };
            let Some(victim) = victim else {
                return driver.bypass(request);
            };
            self.pages.remove(victim);
            driver.evict(victim, Tier::TOP, self.dirty.remove(victim));
        }
        driver.admit(request, Tier::TOP);
        self.pages.insert(page, uses);
        if request.op.is_write() {
            self.dirty.insert(page);
        }
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let held = self.pages.contains(page);
        let counted = self.uses.as_ref().is_some_and(|uses| uses[page.index()] > 0);
        PageState { tiers: TierSet::only(Tier::TOP, held), dirty: self.dirty.contains(page), known: held || counted }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.pages.len()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("mean_frequency", self.pages.total() as f64 / self.pages.len().max(1) as f64);
        visit("min_frequency", f64::from(self.pages.min_frequency().unwrap_or(0)));
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        self.pages.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        let uses = self.uses.as_ref().map_or(0, |uses| uses.capacity() * 4);
        self.pages.memory_bytes() + self.dirty.memory_bytes() + uses
    }
}
