//! Candidates as shadows: each is the policy itself at the sampled share of the cache's size, over a driver that only
//! counts (Waldspurger, Saemundsson, Ahmad, Park, "Cache modeling and optimization using miniature simulations", ATC
//! 2017).

use super::chooser::{Change, Chooser, Met, PARTS};
use crate::candidate::Boxed;
use crate::counts::Counts;
use crate::interface::Driver;
use crate::parts::Sampler;
use crate::parts::slots::{ByHandle, Slots};
use entresol_core::{Address, Movement, NEVER, ObjectId, Page, Request, Tier};

/// Costs of a policy's movements, in the unit of a page read from the backing store by default.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    /// A page read from below.
    pub read: f64,
    /// A page written below.
    pub write: f64,
    /// A page written into the cache.
    pub admission: f64,
}

impl Weights {
    fn cost(&self, counts: &Counts) -> f64 {
        let written = counts.write_backs + counts.write_bypasses;
        let admitted = counts.tiers[Tier::TOP.index()].pages_in();
        self.read * counts.fetches as f64 + self.write * written as f64 + self.admission * admitted as f64
    }
}

/// All candidates over the sampled requests.
#[derive(Clone)]
pub(super) struct Shadows {
    shadows: Vec<(Boxed, Counts)>,
    slots: Slots<ByHandle>,
    sampler: Sampler,
    weights: Weights,
    /// Share of the pages that are sampled.
    rate: f64,
    pub chooser: Chooser,
    met: Vec<Met>,
}

impl Shadows {
    /// Shadows for caches with `pages` handles; the shadows know at most `slots_max` pages at once.
    pub fn new(
        shadows: Vec<Boxed>,
        chooser: Chooser,
        weights: Weights,
        (sampler, rate): (Sampler, f64),
        (pages, slots_max): (usize, usize),
    ) -> Self {
        let met = vec![Met::default(); shadows.len()];
        let slots = Slots::new(ByHandle::new(pages, slots_max), slots_max);
        let shadows = shadows.into_iter().map(|shadow| (shadow, Counts::default())).collect();
        Shadows { shadows, slots, sampler, weights, rate, chooser, met }
    }

    /// True if a shadow knows the page.
    #[inline]
    pub fn know(&self, page: Page) -> bool {
        self.slots.find(page).is_some_and(|slot| self.shadows.iter().any(|(shadow, _)| shadow.0.state(slot).known))
    }

    /// Records a request for a page if it is in the sample. Returns a change that [`Chooser::told`] finds worth making.
    #[inline(always)]
    pub fn told(&mut self, request: Request, driver: &dyn Driver, free: bool) -> Option<Change> {
        let hash = self.sampler.find(driver.address(request.page))?;
        self.met(request, (hash % PARTS as u64) as usize, driver, free)
    }

    #[cold]
    fn met(&mut self, request: Request, part: usize, driver: &dyn Driver, free: bool) -> Option<Change> {
        let shadows = &self.shadows;
        let forgotten = |slot| !shadows.iter().any(|(shadow, _)| shadow.0.state(slot).known);
        let slot = self.slots.claim(request.page, forgotten)?;
        let request = Request { page: slot, ..request };
        for ((shadow, counts), met) in self.shadows.iter_mut().zip(&mut self.met) {
            let before = self.weights.cost(counts);
            let writing = request.op.is_write();
            let mut small = Small { driver, slots: &self.slots, rate: self.rate, writing, counts };
            let outcome = shadow.0.access(request, &mut small);
            counts.outcome(request, outcome);
            *met = Met { cost: self.weights.cost(counts) - before, hit: outcome.is_hit() };
        }
        self.chooser.told(part, &self.met, free)
    }

    /// Bytes of state.
    pub fn memory_bytes(&self) -> usize {
        let shadows: usize = self.shadows.iter().map(|(shadow, _)| shadow.0.memory_bytes() + size_of::<Counts>()).sum();
        shadows + self.slots.memory_bytes()
    }
}

/// The driver of a shadow: counts its movements and maps slots to the sampled pages.
struct Small<'a> {
    driver: &'a dyn Driver,
    slots: &'a Slots<ByHandle>,
    rate: f64,
    writing: bool,
    counts: &'a mut Counts,
}

impl Small<'_> {
    fn page(&self, slot: Page) -> Page {
        self.slots.key(slot)
    }
}

impl Driver for Small<'_> {
    fn may_evict(&mut self, _page: Page, _tier: Tier) -> bool {
        true
    }

    fn emit(&mut self, movement: Movement) {
        self.counts.movement(movement, self.writing);
    }

    fn now_us(&self) -> u64 {
        self.driver.now_us()
    }

    fn next_use(&self) -> u32 {
        NEVER
    }

    fn address(&self, slot: Page) -> Address {
        self.driver.address(self.page(slot))
    }

    fn successor(&self, slot: Page) -> Option<Page> {
        self.driver.successor(self.page(slot)).and_then(|page| self.slots.find(page))
    }

    fn predecessor(&self, slot: Page) -> Option<Page> {
        self.driver.predecessor(self.page(slot)).and_then(|page| self.slots.find(page))
    }

    fn object_pages(&self, object: ObjectId) -> u64 {
        ((self.driver.object_pages(object) as f64 * self.rate) as u64).max(1)
    }
}
