//! LRU-DRAM: LRU in volatile memory, whose dirty pages must reach storage soon, as the kernel's flusher sees to it.
//!
//! Fan, "Improving storage performance with non-volatile memory-based caching systems", thesis 2017 (004), sections
//! 3.2 and 3.4: "cached dirty pages will be flushed to storage no longer than thirty seconds after they
//! become dirty". It is the baseline that shows what a cache need not write when it is non-volatile.
//!
//! Readings: the age of a page counts from the write that made it dirty; later writes do not renew it, but a write
//! after the flush starts a new age. A flush happens at the first request that comes when its time has come, before
//! the request itself; it is one I/O a page, in the order in which the pages became dirty, and changes no recency.

use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::Lists;
use entresol_core::{Outcome, Page, Request, Tier, Verb, prefetch};

/// LRU whose dirty pages are flushed at a fixed age.
#[derive(Clone, Debug)]
pub struct LruDram {
    capacity: usize,
    flush_us: u64,
    stack: Lists<1>,
    /// Dirty pages, the one that became dirty first at the back.
    dirty: Lists<1>,
    /// Time at which each dirty page became dirty, in microseconds.
    dirty_since_us: Vec<u64>,
}

const ONLY: usize = 0;

impl LruDram {
    #[inline(always)]
    fn flush_due<D: Driver>(&mut self, now_us: u64, driver: &mut D) {
        while let Some(page) = self.dirty.back(ONLY) {
            if now_us.saturating_sub(self.dirty_since_us[page.index()]) < self.flush_us {
                return;
            }
            self.dirty.remove(ONLY, page);
            driver.start(page, Verb::WriteBack { from: Tier::TOP });
        }
    }

    #[inline(always)]
    fn note_write(&mut self, request: Request, now_us: u64) {
        if request.op.is_write() && !self.dirty.contains(request.page) {
            self.dirty.push_front(ONLY, request.page);
            self.dirty_since_us[request.page.index()] = now_us;
        }
    }
}

impl Policy for LruDram {
    const INFO: Info = Info {
        name: "lru-dram",
        family: "dirty",
        summary: "LRU in volatile memory: a dirty page is flushed when it has been dirty for 30 seconds",
        paper: "Fan: Improving storage performance with non-volatile memory-based caching systems, thesis, \
                University of Minnesota 2017, section 3.4",
        options: &[OptionInfo {
            name: "flush-seconds",
            default: "30",
            help: "age at which a dirty page is flushed, in seconds of the requests' own time; 0 to 1e9",
        }],
        write_aware: true,
        clock: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let seconds: f64 = options.number("flush-seconds", 0.0..=1e9)?;
        Ok(LruDram {
            capacity: config.tiers[0],
            flush_us: (seconds * 1e6) as u64,
            stack: Lists::new(config.pages),
            dirty: Lists::new(config.pages),
            dirty_since_us: vec![0; config.pages],
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let now_us = driver.now_us();
        self.flush_due(now_us, driver);
        if self.stack.contains(page) {
            self.stack.move_to_front(ONLY, page);
            driver.overwrite(request, Tier::TOP);
            self.note_write(request, now_us);
            return Outcome::Hit(Tier::TOP);
        }
        if self.stack.len(ONLY) == self.capacity {
            let Some(victim) = self.stack.back_where(ONLY, |page| driver.may_evict(page, Tier::TOP)) else {
                return driver.bypass(request);
            };
            let dirty = self.dirty.contains(victim);
            if dirty {
                self.dirty.remove(ONLY, victim);
            }
            self.stack.remove(ONLY, victim);
            driver.evict(victim, Tier::TOP, dirty);
        }
        driver.admit(request, Tier::TOP);
        self.stack.push_front(ONLY, page);
        self.note_write(request, now_us);
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let held = self.stack.contains(page);
        PageState { tiers: TierSet::only(Tier::TOP, held), dirty: self.dirty.contains(page), known: held }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.stack.len(ONLY)
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("dirty", self.dirty.len(ONLY) as f64);
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        self.stack.prefetch(page);
        prefetch(&self.dirty_since_us, page.index());
    }

    fn memory_bytes(&self) -> usize {
        self.stack.memory_bytes() + self.dirty.memory_bytes() + self.dirty_since_us.capacity() * 8
    }
}
