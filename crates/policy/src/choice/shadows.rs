//! Candidates as shadows: each the very policy, at the size of the cache scaled down as the pages are sampled, over a driver
//! that only counts (Waldspurger, Saemundsson, Ahmad, Park, "Cache modeling and optimization using miniature simulations",
//! ATC 2017).

use super::candidate::Boxed;
use super::chooser::{Change, Chooser, Met, PARTS};
use crate::counts::Counts;
use crate::interface::Driver;
use crate::parts::Sampler;
use entresol_core::{Address, Movement, NEVER, ObjectId, Page, Request, Tier};

/// What the movements of a policy cost, in reads from below.
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

const NONE: u32 = u32::MAX;

/// Handles of the sampled pages: slots, of which there are fewer than handles of all pages. A slot whose page no shadow knows
/// any more is given to another one.
#[derive(Clone)]
struct Slots {
    /// By the page's own handle.
    of_page: Vec<u32>,
    pages: Vec<Page>,
    slots_max: usize,
    /// Where the search for a forgotten one goes on.
    cursor: usize,
}

/// Slots that are asked back before one is handed out that no page had yet.
const ASKED: usize = 8;

impl Slots {
    fn find(&self, page: Page) -> Option<Page> {
        let slot = self.of_page[page.index()];
        (slot != NONE).then_some(Page(slot))
    }

    /// The slot of a page; none when all are of pages that are known.
    fn claim(&mut self, page: Page, forgotten: impl Fn(Page) -> bool) -> Option<Page> {
        if let Some(slot) = self.find(page) {
            return Some(slot);
        }
        let len = self.pages.len();
        let asked = if len < self.slots_max { ASKED.min(len) } else { len };
        let free = (0..asked).map(|step| (self.cursor + step) % len).find(|&at| forgotten(Page(at as u32)));
        let at = match free {
            Some(at) => {
                self.of_page[self.pages[at].index()] = NONE;
                self.pages[at] = page;
                self.cursor = (at + 1) % len;
                at
            }
            None if len < self.slots_max => {
                self.pages.push(page);
                len
            }
            None => return None,
        };
        self.of_page[page.index()] = at as u32;
        Some(Page(at as u32))
    }
}

/// All candidates over the sampled requests.
#[derive(Clone)]
pub(super) struct Shadows {
    shadows: Vec<(Boxed, Counts)>,
    slots: Slots,
    sampler: Sampler,
    weights: Weights,
    /// Share of the pages that are sampled.
    rate: f64,
    pub chooser: Chooser,
    met: Vec<Met>,
}

impl Shadows {
    /// For pages of so many handles, of which the shadows know so many at once.
    pub fn new(
        shadows: Vec<Boxed>,
        chooser: Chooser,
        weights: Weights,
        (sampler, rate): (Sampler, f64),
        (pages, slots_max): (usize, usize),
    ) -> Self {
        let met = vec![Met::default(); shadows.len()];
        let slots = Slots { of_page: vec![NONE; pages], pages: Vec::with_capacity(slots_max), slots_max, cursor: 0 };
        let shadows = shadows.into_iter().map(|shadow| (shadow, Counts::default())).collect();
        Shadows { shadows, slots, sampler, weights, rate, chooser, met }
    }

    /// Does a shadow know this page?
    #[inline]
    pub fn know(&self, page: Page) -> bool {
        self.slots.find(page).is_some_and(|slot| self.shadows.iter().any(|(shadow, _)| shadow.0.state(slot).known))
    }

    /// Takes notice of a request for a page that lives there. The change that is worth it, as [`Chooser::told`] finds it.
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
        shadows + 4 * (self.slots.of_page.capacity() + self.slots.pages.capacity())
    }
}

/// The world of a shadow: the sampled pages. It counts.
struct Small<'a> {
    driver: &'a dyn Driver,
    slots: &'a Slots,
    rate: f64,
    writing: bool,
    counts: &'a mut Counts,
}

impl Small<'_> {
    fn page(&self, slot: Page) -> Page {
        self.slots.pages[slot.index()]
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
