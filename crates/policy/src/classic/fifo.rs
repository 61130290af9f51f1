//! FIFO: evicts the page that came first, however often it was used since.
//!
//! Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 1966, where it is
//! shown to have no stack property. A page that may not be evicted keeps its place at the old end of the queue and is
//! asked again at the next eviction.

use crate::info::{Config, Info};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::Ring;
use entresol_core::{Outcome, Page, Request, Tier};

const HELD: u8 = 1;
const DIRTY: u8 = 2;

/// First in, first out.
#[derive(Clone, Debug)]
pub struct Fifo {
    capacity: usize,
    queue: Ring,
    /// `HELD` and `DIRTY` of each page: a hit touches nothing else.
    flags: Vec<u8>,
}

impl Policy for Fifo {
    const INFO: Info = Info {
        name: "fifo",
        family: "classic",
        summary: "first in, first out",
        paper: "Belady: A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 1966",
        ..Info::PLAIN
    };

    fn new(config: &Config, _options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0].min(config.pages.max(1));
        Ok(Fifo { capacity, queue: Ring::new(capacity), flags: vec![0; config.pages] })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let index = request.page.index();
        let written = if request.op.is_write() { DIRTY } else { 0 };
        if self.flags[index] != 0 {
            self.flags[index] |= written;
            driver.overwrite(request, Tier::TOP);
            return Outcome::Hit(Tier::TOP);
        }
        if self.queue.len() == self.capacity {
            let mut at = 0;
            while self.queue.get(at).is_some_and(|page| !driver.may_evict(page, Tier::TOP)) {
                at += 1;
            }
            if at == self.capacity {
                return driver.bypass(request);
            }
            let victim = self.queue.remove(at);
            let flags = std::mem::take(&mut self.flags[victim.index()]);
            driver.evict(victim, Tier::TOP, flags & DIRTY != 0);
        }
        driver.admit(request, Tier::TOP);
        self.queue.push(request.page);
        self.flags[index] = HELD | written;
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let flags = self.flags[page.index()];
        let held = flags & HELD != 0;
        PageState { tiers: TierSet::only(Tier::TOP, held), dirty: flags & DIRTY != 0, known: held }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.queue.len()
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.flags, page.index());
    }

    fn memory_bytes(&self) -> usize {
        self.queue.memory_bytes() + self.flags.capacity()
    }
}
