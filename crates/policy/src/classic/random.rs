//! RANDOM: every page held is as likely a victim as any other.
//!
//! Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 1966 (RAND). When
//! references are independent of each other it misses exactly as often as FIFO in the mean (Gelenbe, "A unified
//! approach to the evaluation of a class of replacement algorithms", IEEE Transactions on Computers 1973).
//!
//! The victim is drawn from an array of the pages held and the new page takes its place. A page that may not be
//! evicted is set aside at the end of the array for the next draw, so that the choice stays uniform among the rest.

use crate::info::{Config, Info};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use entresol_core::{Outcome, Page, Request, Tier};

const HELD: u8 = 1;
const DIRTY: u8 = 2;

/// A uniformly random victim.
#[derive(Clone, Debug)]
pub struct Random {
    capacity: usize,
    residents: Vec<Page>,
    flags: Vec<u8>,
    random: entresol_core::Random,
}

impl Random {
    /// Place in the array of a random page that may be evicted.
    #[inline]
    fn find_victim<D: Driver>(&mut self, driver: &mut D) -> Option<usize> {
        for candidates in (1..=self.residents.len()).rev() {
            let at = self.random.below(candidates as u64) as usize;
            if driver.may_evict(self.residents[at], Tier::TOP) {
                return Some(at);
            }
            self.residents.swap(at, candidates - 1);
        }
        None
    }
}

impl Policy for Random {
    const INFO: Info = Info {
        name: "random",
        family: "classic",
        summary: "a random page; repeatable by the seed",
        paper: "Belady: A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 1966",
        ..Info::PLAIN
    };

    fn new(config: &Config, _options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0].min(config.pages.max(1));
        let random = entresol_core::Random::new(config.seed);
        Ok(Random { capacity, residents: Vec::with_capacity(capacity), flags: vec![0; config.pages], random })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let written = if request.op.is_write() { DIRTY } else { 0 };
        if self.flags[page.index()] != 0 {
            self.flags[page.index()] |= written;
            driver.overwrite(request, Tier::TOP);
            return Outcome::Hit(Tier::TOP);
        }
        if self.residents.len() < self.capacity {
            self.residents.push(page);
        } else {
            let Some(at) = self.find_victim(driver) else {
                return driver.bypass(request);
            };
            let victim = std::mem::replace(&mut self.residents[at], page);
            let flags = std::mem::take(&mut self.flags[victim.index()]);
            driver.evict(victim, Tier::TOP, flags & DIRTY != 0);
        }
        driver.admit(request, Tier::TOP);
        self.flags[page.index()] = HELD | written;
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let flags = self.flags[page.index()];
        let held = flags & HELD != 0;
        PageState { tiers: TierSet::only(Tier::TOP, held), dirty: flags & DIRTY != 0, known: held }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.residents.len()
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.flags, page.index());
    }

    fn memory_bytes(&self) -> usize {
        self.residents.capacity() * size_of::<Page>() + self.flags.capacity()
    }
}
