//! LC: lazy cleaning. Pages enter flash when they leave DRAM, dirty ones are written to disk later, in runs.
//!
//! Do, Zhang, Patel, DeWitt, Naughton, Halverson, "Turbocharging DBMS buffer pool using SSDs", SIGMOD 2011; described
//! in 001, section 3, and 000, section 3.2.2.
//!
//! Flash is managed by LRU-2, with one heap of clean and one of dirty pages. A frame is taken from the clean heap.
//! When more than a set share of flash is dirty the cleaner takes the coldest dirty page and writes it to disk
//! together with the dirty pages next to it, up to 32 in one I/O, until the share is kept again. Pages that came by
//! read-ahead are left out once flash is nearly full. Flash never holds a stale page: when DRAM writes a page its
//! copy in flash is given up at once.
//!
//! Readings. A page counts as used in flash when it enters and when a request finds it there; what is no longer in
//! flash leaves no history. Pages with one use come before those with two, the longest unused first. The cleaner runs
//! within the request that made the last page dirty. A run is gathered forwards from the coldest page, then backwards
//! while there is room in it. When no clean frame can be had the coldest dirty page is written back and dropped;
//! `replace=coldest` ignores the difference, as the LC of 001 (section 6.4) does. Giving up the copy of every page
//! that is written, and with it the history, makes hot written pages look as if used once each time they return;
//! `order=lru` goes by the last use alone, which does not suffer from that.

use super::pool::DramPool;
use crate::info::{Config, Info, OptionInfo, Tunable};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::{Bits, IndexHeap};
use entresol_core::{Movement, Op, Outcome, Page, Request, Size, Tier, Verb};

const DRAM: Tier = Tier::TOP;
const FLASH: Tier = Tier::SECOND;
/// Set in the LRU-2 key of a page that was used twice: its other bits are the time of the last use but one.
const TWICE: u64 = 1 << 63;

/// Heap from which a frame is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replace {
    CleanFirst,
    Coldest,
}

/// Order by which a page counts as cold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Lru2,
    Lru,
}

/// Lazy cleaning.
#[derive(Clone, Debug)]
pub struct Lc {
    pool: DramPool,
    /// Pool pages that came by read-ahead.
    scanned: Bits,
    capacity: usize,
    clean: IndexHeap,
    dirty: IndexHeap,
    /// Time of the last use in flash.
    last: Vec<u64>,
    now: u64,
    order: Order,
    replace: Replace,
    /// Share of flash, in per cent and in pages, that may be dirty before the cleaner runs.
    dirty_percent: f64,
    dirty_max: usize,
    group: usize,
    /// Sequential pages enter flash only while it holds fewer pages than this.
    filled: usize,
}

/// The threshold that the paper calls tunable. When it is lowered, the cleaner writes the excess at the next request.
const TUNABLES: &[Tunable] = &[Tunable { option: "dirty", levels: &[0.0, 5.0, 10.0, 20.0, 35.0, 50.0, 75.0, 100.0] }];

const OPTIONS: &[OptionInfo] = &[
    OptionInfo {
        name: "dirty",
        default: "50",
        help: "per cent of flash that may be dirty before the cleaner starts, the paper's tunable threshold",
    },
    OptionInfo {
        name: "group",
        default: "32",
        help: "most pages, neighbours on disk, that the cleaner writes in one I/O",
    },
    OptionInfo {
        name: "fill",
        default: "95",
        help: "per cent of flash up to which sequential pages are admitted; 100: always",
    },
    OptionInfo {
        name: "replace",
        default: "clean-first",
        help: "victim: clean-first (Do et al.), or coldest, clean or dirty, as in the LC that 001 compares with",
    },
    OptionInfo {
        name: "order",
        default: "lru-2",
        help: "coldest is what was used least recently: lru-2, by the last use but one (Do et al.), or lru, by the \
               last (001, section 6.4: \"based on LRU replacement\")",
    },
];

/// A share of `pages`, in pages.
fn share(pages: usize, percent: f64) -> usize {
    Size::Percent(percent).pages(1, pages as u64) as usize
}

impl Policy for Lc {
    const INFO: Info = Info {
        name: "lc",
        family: "extension",
        summary: "lazy cleaning: LRU-2 write-back flash under a DRAM pool, cleaned in runs above a dirty share",
        paper: "Do, Zhang, Patel, DeWitt, Naughton, Halverson: Turbocharging DBMS buffer pool using SSDs, SIGMOD 2011",
        options: OPTIONS,
        tunables: TUNABLES,
        tiers: &["dram", "flash"],
        min_pages: &[0, 1],
        write_aware: true,
        addresses: true,
        neighbours: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let &[dram, flash] = config.tiers.as_slice() else { unreachable!("two tiers are checked") };
        let dirty_percent = options.number("dirty", 0.0..=100.0)?;
        Ok(Lc {
            pool: DramPool::new(config.pages, dram),
            scanned: Bits::new(config.pages),
            capacity: flash,
            clean: IndexHeap::new(config.pages, flash.min(config.pages)),
            dirty: IndexHeap::new(config.pages, flash.min(config.pages)),
            last: vec![0; config.pages],
            now: 0,
            order: options.choice("order", &[("lru-2", Order::Lru2), ("lru", Order::Lru)])?,
            replace: options
                .choice("replace", &[("clean-first", Replace::CleanFirst), ("coldest", Replace::Coldest)])?,
            dirty_percent,
            dirty_max: share(flash, dirty_percent),
            group: options.number("group", 1..)?,
            filled: share(flash, options.number("fill", 0.0..=100.0)?),
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        if self.pool.contains(page) {
            if request.op.is_write() && self.in_flash(page) {
                self.forget(page);
                driver.start(page, Verb::Drop { from: FLASH });
            }
            self.pool.hit(request, driver);
            return Outcome::Hit(DRAM);
        }
        // A database first finds a free buffer, then looks for the page below; so does this policy.
        if !self.pool.exists() || (self.pool.is_full() && !self.evict_from_pool(driver)) {
            return self.past_the_pool(request, driver);
        }
        if !self.in_flash(page) {
            if !request.op.is_write() {
                driver.start(page, Verb::Fetch { to: DRAM });
            }
            if request.sequential {
                self.scanned.insert(page);
            }
            self.pool.enter(request, false, driver);
            return Outcome::ADMITTED;
        }
        if request.op != Op::Write {
            driver.start(page, Verb::Copy { from: FLASH, to: DRAM });
        }
        let dirty = self.dirty.contains(page);
        if request.op.is_write() {
            self.forget(page);
            driver.start(page, Verb::Drop { from: FLASH });
        } else {
            self.touch(page);
        }
        self.pool.enter(request, dirty, driver);
        Outcome::Hit(FLASH)
    }

    fn state(&self, page: Page) -> PageState {
        let tiers = TierSet::only(DRAM, self.pool.contains(page)).and(FLASH, self.in_flash(page));
        let dirty = self.pool.is_dirty(page) || self.dirty.contains(page);
        PageState { tiers, dirty, known: !tiers.is_empty() }
    }

    fn occupancy(&self, tier: Tier) -> usize {
        if tier == DRAM { self.pool.len() } else { self.held() }
    }

    fn tunable(&self, _at: usize) -> f64 {
        self.dirty_percent
    }

    fn tune(&mut self, _at: usize, percent: f64) {
        self.dirty_percent = percent;
        self.dirty_max = share(self.capacity, percent);
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("dirty", self.dirty.len() as f64 / self.capacity as f64);
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        self.pool.prefetch(page);
        entresol_core::prefetch(&self.last, page.index());
        self.clean.prefetch(page);
        self.dirty.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        self.pool.memory_bytes()
            + self.scanned.memory_bytes()
            + self.clean.memory_bytes()
            + self.dirty.memory_bytes()
            + self.last.capacity() * 8
    }
}

impl Lc {
    #[inline(always)]
    fn in_flash(&self, page: Page) -> bool {
        self.clean.contains(page) || self.dirty.contains(page)
    }

    #[inline(always)]
    fn held(&self) -> usize {
        self.clean.len() + self.dirty.len()
    }

    /// Counts a use of a page in flash.
    fn touch(&mut self, page: Page) {
        self.now += 1;
        let before = std::mem::replace(&mut self.last[page.index()], self.now);
        let heap = if self.dirty.contains(page) { &mut self.dirty } else { &mut self.clean };
        heap.set(page, if self.order == Order::Lru2 { TWICE | before } else { self.now });
    }

    /// Adds a page to flash, with its first use.
    fn enter(&mut self, page: Page, dirty: bool) {
        self.now += 1;
        self.last[page.index()] = self.now;
        let heap = if dirty { &mut self.dirty } else { &mut self.clean };
        heap.set(page, self.now);
    }

    /// Removes a page from flash; true if it was dirty.
    fn forget(&mut self, page: Page) -> bool {
        self.clean.remove(page);
        self.dirty.remove(page)
    }

    /// True if a page may enter flash and has a frame there; one is freed if need be.
    fn make_room<D: Driver>(&mut self, sequential: bool, driver: &mut D) -> bool {
        if sequential && self.held() >= self.filled {
            return false;
        }
        if self.held() < self.capacity {
            return true;
        }
        let mut free = |page| driver.may_evict(page, FLASH);
        let clean = self.clean.min_where(&mut free);
        let dirty = match clean {
            Some(_) if self.replace == Replace::CleanFirst => None,
            _ => self.dirty.min_where(&mut free),
        };
        let coldest = clean.into_iter().chain(dirty).min_by_key(|&(_, key)| key);
        let Some((victim, _)) = coldest else { return false };
        let dirty = self.forget(victim);
        driver.evict(victim, FLASH, dirty);
        if dirty {
            self.pool.cleaned_below(victim);
        }
        true
    }

    /// Writes the coldest dirty pages to disk, with their neighbours, until the dirty share is kept.
    fn clean<D: Driver>(&mut self, driver: &mut D) {
        while self.dirty.len() > self.dirty_max {
            let Some((coldest, _)) = self.dirty.min() else { return };
            let dirty = |page: &Page| self.dirty.contains(*page);
            let following = std::iter::successors(Some(coldest), |page| driver.successor(*page).filter(dirty));
            let (last, after) = following.take(self.group).fold((coldest, 0), |(_, n), page| (page, n + 1));
            let preceding = std::iter::successors(Some(coldest), |page| driver.predecessor(*page).filter(dirty));
            let (first, before) =
                preceding.take(self.group + 1 - after).fold((coldest, 0), |(_, n), page| (page, n + 1));
            let mut page = first;
            for i in 0..before + after - 1 {
                driver.emit(Movement { page, verb: Verb::WriteBack { from: FLASH }, joined: i > 0 });
                self.clean.set(page, self.dirty.key(page));
                self.dirty.remove(page);
                self.pool.cleaned_below(page);
                if page != last {
                    page = driver.successor(page).expect("a page of the run");
                }
            }
        }
    }

    /// Evicts the least recently used page that may be evicted; false if there is none.
    fn evict_from_pool<D: Driver>(&mut self, driver: &mut D) -> bool {
        let Some(page) = self.pool.victim(driver) else { return false };
        let sequential = self.scanned.remove(page);
        let dirty = self.pool.is_dirty(page);
        if !self.in_flash(page) {
            if self.make_room(sequential, driver) {
                driver.start(page, Verb::Copy { from: DRAM, to: FLASH });
                self.enter(page, dirty);
            } else {
                self.pool.write_back(page, driver);
            }
        }
        self.pool.leave(page, driver);
        self.clean(driver);
        true
    }

    /// Serves a request from flash or disk, because there is no DRAM pool or every frame of it is pinned.
    fn past_the_pool<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        if self.in_flash(page) {
            self.touch(page);
            if request.op.is_write() {
                driver.start(page, Verb::Install { to: FLASH });
                if self.clean.contains(page) {
                    self.dirty.set(page, self.clean.key(page));
                    self.clean.remove(page);
                    self.clean(driver);
                }
            }
            return Outcome::Hit(FLASH);
        }
        if !self.make_room(request.sequential, driver) {
            return driver.bypass(request);
        }
        driver.admit(request, FLASH);
        self.enter(page, request.op.is_write());
        self.clean(driver);
        Outcome::ADMITTED
    }
}
