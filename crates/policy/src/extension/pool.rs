//! The DRAM pool above a flash cache: LRU, with two bits a page that say which other copies are older.

use crate::interface::Driver;
use crate::parts::{Bits, Lists};
use entresol_core::{Page, Request, Tier, Verb};

const DRAM: Tier = Tier::TOP;
const POOL: usize = 0;

/// An LRU pool in the top tier. A policy moves pages between the pool, the second tier and the level below.
#[derive(Clone, Debug)]
pub(super) struct DramPool {
    capacity: usize,
    lru: Lists<1>,
    /// Pages newer than disk.
    dirty: Bits,
    /// Pages written since they were last in step with the second tier: a copy there is stale.
    ahead: Bits,
}

impl DramPool {
    /// An empty pool; capacity 0 means no pool.
    pub(super) fn new(pages: usize, capacity: usize) -> Self {
        DramPool { capacity, lru: Lists::new(pages), dirty: Bits::new(pages), ahead: Bits::new(pages) }
    }

    /// True if there is a pool.
    #[inline(always)]
    pub(super) fn exists(&self) -> bool {
        self.capacity > 0
    }

    pub(super) fn len(&self) -> usize {
        self.lru.len(POOL)
    }

    #[inline(always)]
    pub(super) fn is_full(&self) -> bool {
        self.len() == self.capacity
    }

    #[inline(always)]
    pub(super) fn contains(&self, page: Page) -> bool {
        self.lru.contains(page)
    }

    #[inline(always)]
    pub(super) fn is_dirty(&self, page: Page) -> bool {
        self.dirty.contains(page)
    }

    #[inline(always)]
    pub(super) fn is_ahead(&self, page: Page) -> bool {
        self.ahead.contains(page)
    }

    /// Serves a request for a page of the pool; false when it is not there.
    #[inline(always)]
    pub(super) fn hit<D: Driver + ?Sized>(&mut self, request: Request, driver: &mut D) -> bool {
        let held = self.contains(request.page);
        if held {
            self.lru.move_to_front(POOL, request.page);
            self.update(request, driver);
        }
        held
    }

    /// Adds the page of a request, which has been brought to DRAM unless the request overwrites it. `dirty` when
    /// the copy it came from was newer than disk.
    #[inline(always)]
    pub(super) fn enter<D: Driver + ?Sized>(&mut self, request: Request, dirty: bool, driver: &mut D) {
        self.lru.push_front(POOL, request.page);
        if dirty {
            self.dirty.insert(request.page);
        }
        self.update(request, driver);
    }

    #[inline(always)]
    fn update<D: Driver + ?Sized>(&mut self, request: Request, driver: &mut D) {
        if request.op.is_write() {
            driver.start(request.page, Verb::Install { to: DRAM });
            self.dirty.insert(request.page);
            self.ahead.insert(request.page);
        }
    }

    /// The least recently used page that may be evicted.
    #[inline(always)]
    pub(super) fn victim<D: Driver>(&self, driver: &mut D) -> Option<Page> {
        self.back_where(|page| driver.may_evict(page, DRAM))
    }

    /// The least recently used page that satisfies a condition.
    pub(super) fn back_where(&self, wanted: impl FnMut(Page) -> bool) -> Option<Page> {
        self.lru.back_where(POOL, wanted)
    }

    /// Frees the frame of a page, whose newest version is safe.
    #[inline(always)]
    pub(super) fn leave<D: Driver + ?Sized>(&mut self, page: Page, driver: &mut D) {
        self.lru.remove(POOL, page);
        self.dirty.remove(page);
        self.ahead.remove(page);
        driver.start(page, Verb::Drop { from: DRAM });
    }

    /// Writes a page to disk if it is newer.
    #[inline(always)]
    pub(super) fn write_back<D: Driver>(&mut self, page: Page, driver: &mut D) {
        if self.dirty.remove(page) {
            driver.start(page, Verb::WriteBack { from: DRAM });
        }
    }

    /// Records that the second tier has the pool's version of a page, or has none and needs none.
    #[inline(always)]
    pub(super) fn in_step(&mut self, page: Page) {
        self.ahead.remove(page);
    }

    /// Records that the second tier's version of a page was written to disk.
    #[inline(always)]
    pub(super) fn cleaned_below(&mut self, page: Page) {
        if !self.ahead.contains(page) {
            self.dirty.remove(page);
        }
    }

    /// The least recently used page.
    pub(super) fn back(&self) -> Option<Page> {
        self.lru.back(POOL)
    }

    /// The page used next after this one.
    pub(super) fn towards_front(&self, page: Page) -> Option<Page> {
        self.lru.towards_front(page)
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, page: Page) {
        self.lru.prefetch(page);
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.lru.memory_bytes() + self.dirty.memory_bytes() + self.ahead.memory_bytes()
    }
}
