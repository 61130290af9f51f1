//! Hibachi: a cooperative buffer cache of DRAM for clean pages and NVRAM for dirty ones, over disk arrays.
//!
//! Fan, "Improving storage performance with non-volatile memory-based caching systems", thesis 2017 (004), section
//! 4.4; first in Fan, Wu, Park, Diehl, Voigt, Du, "Hibachi: a cooperative hybrid cache with NVRAM and DRAM for
//! storage arrays", MSST 2017.
//!
//! - *Right prediction* (4.4.2): clean pages are ordered by frequency (LFU-Aging), dirty ones by recency.
//! - *Right reaction* (4.4.3): a read hit on a dirty page counts for its frequency only, a write hit for its recency
//!   only. A dirty victim used more often than the least frequent clean page is cleaned and stays instead of it.
//! - *Right adjustment* (4.4.4): ghost hits move the desired number of clean pages, as in I/O-Cache.
//! - *Right transformation* (4.4.5): a run of consecutive dirty pages longer than the threshold is written as a
//!   group, its least frequent page leaves and the others become clean.
//!
//! Choices where the text leaves one:
//! - The desired number of clean pages starts at the size of DRAM and stays between it and that of both memories:
//!   "the dirty cache can only grow up to the capacity of the NVRAM" (4.4.6). It rises by 1 and falls by max(2,
//!   floor(2 |Co| / |Do|)), taken before the hit ghost leaves. The clean side gives way when it is larger than
//!   desired, or as large and the request is in Do (the reading of ARC's REPLACE). Ghosts are bounded as in
//!   [`Frames::surplus_ghost`].
//! - A clean page comes in with frequency 1, a dirty one with 0: its counter "increases only when a read hit
//!   happens". A page keeps its count when it changes sides. Ties of frequency go to the page that has had it
//!   longest, within a run to the lowest address.
//! - Counts are halved when the mean over the clean cache exceeds the limit, looked at once after each request;
//!   those of dirty pages by an epoch, when they are next read.
//! - The pages that a group write has cleaned go to "the LRU end of the clean cache": the old end of their own
//!   frequency, in ascending order, so the highest is the next victim among them. They stay in NVRAM as borrowers.
//! - A cleaned dirty page takes the DRAM frame of the clean page that leaves for it; when that page was a borrower,
//!   no DRAM frame falls free and it stays in NVRAM.
//! - A write that finds NVRAM full and DRAM not: a borrower moves to DRAM; without one the longest run, when above
//!   the threshold, is written and one of its pages moves, else the LRU dirty page is written and moves. Nothing is
//!   evicted while a frame is free. A write that finds NVRAM full of dirty pages takes from the dirty side in any case.
//! - On a write hit on a clean page in DRAM the room in NVRAM is made first, so that a partial write is completed
//!   from the copy in DRAM; that page no longer counts as clean then.

use super::frames::{BORROWED, CLEAN_GHOST, DIRTY, DIRTY_GHOST, DRAM, Frames, Home, NVRAM};
use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy};
use crate::options::{BuildError, Options};
use crate::parts::{FrequencyList, Run, Runs};
use entresol_core::{Movement, Outcome, Page, Request, Tier, Verb};

/// The frequency of a dirty page, as of an epoch of aging.
#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    count: u32,
    epoch: u32,
}

/// Hibachi.
#[derive(Clone, Debug)]
pub struct Hibachi {
    frames: Frames,
    clean: FrequencyList,
    runs: Runs,
    /// Counters of the dirty pages.
    counters: Vec<Counter>,
    /// Number of times that all counts were halved.
    epoch: u32,
    /// A run longer than this is written as a group.
    threshold: u32,
    /// Counts are halved when their mean exceeds this.
    mean_limit: f64,
    desired_clean: usize,
}

impl Hibachi {
    fn dirty_frequency(&self, page: Page) -> u32 {
        let Counter { count, epoch } = self.counters[page.index()];
        count.checked_shr(self.epoch - epoch).unwrap_or(0)
    }

    fn set_dirty_frequency(&mut self, page: Page, count: u32) {
        self.counters[page.index()] = Counter { count, epoch: self.epoch };
    }

    fn adapt(&mut self, home: Home) {
        let (dram, total) = (self.frames.dram, self.frames.total());
        match home {
            Home::CleanGhost => self.desired_clean = (self.desired_clean + 1).min(total),
            Home::DirtyGhost => {
                let step = 2 * self.frames.lists.len(CLEAN_GHOST) / self.frames.lists.len(DIRTY_GHOST);
                self.desired_clean = self.desired_clean.saturating_sub(step.max(2)).max(dram);
            }
            _ => {}
        }
    }

    /// LFU-Aging (4.4.2).
    #[inline(always)]
    fn age(&mut self) {
        if self.clean.total() as f64 > self.mean_limit * self.clean.len() as f64 {
            self.clean.halve();
            self.epoch += 1;
        }
    }

    fn clean_first(&self, home: Home) -> bool {
        let clean = self.clean.len();
        clean > self.desired_clean || (clean == self.desired_clean && home == Home::DirtyGhost)
    }

    fn least_frequent_clean<D: Driver>(&self, driver: &mut D) -> Option<Page> {
        self.clean.oldest_where(|page| driver.may_evict(page, self.frames.clean_tier(page)))
    }

    fn evict_clean<D: Driver>(&mut self, driver: &mut D) -> bool {
        let Some(victim) = self.least_frequent_clean(driver) else { return false };
        self.clean.remove(victim);
        self.frames.evict_clean(victim, driver);
        true
    }

    fn long_run(&self) -> Option<Run> {
        self.runs.longest().filter(|run| run.length > self.threshold)
    }

    /// Frees a frame of NVRAM at the cost of the dirty side; both memories are full.
    fn evict_dirty<D: Driver>(&mut self, driver: &mut D) -> bool {
        if let Some(run) = self.long_run()
            && let Some(victim) = self.least_frequent_of(run, driver)
        {
            self.write_run(run, driver);
            self.clean.remove(victim);
            self.frames.leave(victim);
            driver.start(victim, Verb::Drop { from: NVRAM });
            self.frames.enter(DIRTY_GHOST, victim);
            return true;
        }
        let Some(victim) = self.frames.lists.back_where(DIRTY, |page| driver.may_evict(page, NVRAM)) else {
            return false;
        };
        let frequency = self.dirty_frequency(victim);
        let other = self.least_frequent_clean(driver);
        driver.start(victim, Verb::WriteBack { from: NVRAM });
        self.runs.remove(victim);
        self.frames.leave(victim);
        match other.filter(|&other| frequency > self.clean.frequency(other)) {
            Some(other) => {
                let freed = self.frames.clean_tier(other);
                self.clean.remove(other);
                self.frames.evict_clean(other, driver);
                self.enter_cleaned(victim, frequency, freed, driver);
            }
            None => {
                driver.start(victim, Verb::Drop { from: NVRAM });
                self.frames.enter(DIRTY_GHOST, victim);
            }
        }
        true
    }

    /// Adds a page that has just been cleaned to the clean cache in this tier, which has a frame for it.
    fn enter_cleaned<D: Driver>(&mut self, page: Page, frequency: u32, tier: Tier, driver: &mut D) {
        if tier == DRAM {
            driver.start(page, Verb::Copy { from: NVRAM, to: DRAM });
            driver.start(page, Verb::Drop { from: NVRAM });
        }
        self.frames.enter_clean(page, tier);
        self.clean.insert(page, frequency);
    }

    /// The least read page of a run; of equals the one with the lowest address.
    fn least_frequent_of<D: Driver>(&self, run: Run, driver: &mut D) -> Option<Page> {
        let mut least: Option<(u32, Page)> = None;
        for page in self.runs.pages(run) {
            let frequency = self.dirty_frequency(page);
            if least.is_none_or(|(other, _)| frequency < other) && driver.may_evict(page, NVRAM) {
                least = Some((frequency, page));
            }
        }
        least.map(|(_, page)| page)
    }

    /// Writes a run in one I/O; all its pages become clean borrowers.
    fn write_run<D: Driver>(&mut self, run: Run, driver: &mut D) {
        let Hibachi { runs, frames, clean, counters, epoch, .. } = self;
        runs.take(run.first, driver, |page, driver| {
            driver.emit(Movement { page, verb: Verb::WriteBack { from: NVRAM }, joined: page != run.first });
            let Counter { count, epoch: then } = counters[page.index()];
            frames.leave(page);
            frames.enter_last_borrower(page);
            clean.insert_oldest(page, count.checked_shr(*epoch - then).unwrap_or(0));
        });
    }

    /// Frees a frame of NVRAM by cleaning; DRAM has a free frame and no borrower may move there.
    fn clean_into_dram<D: Driver>(&mut self, driver: &mut D) -> bool {
        if let Some(run) = self.long_run() {
            self.write_run(run, driver);
            return self.frames.promote_borrower(driver);
        }
        let Some(page) = self.frames.lists.back_where(DIRTY, |page| driver.may_evict(page, NVRAM)) else {
            return false;
        };
        let frequency = self.dirty_frequency(page);
        driver.start(page, Verb::WriteBack { from: NVRAM });
        self.runs.remove(page);
        self.frames.leave(page);
        self.enter_cleaned(page, frequency, DRAM, driver);
        true
    }

    /// Finds a frame for a clean page, by an eviction if need be.
    fn room_for_clean<D: Driver>(&mut self, home: Home, driver: &mut D) -> Option<Tier> {
        if self.frames.free_tier().is_none() {
            let clean_first = self.clean_first(home);
            let _done = (clean_first && self.evict_clean(driver))
                || self.evict_dirty(driver)
                || (!clean_first && self.evict_clean(driver));
        }
        self.frames.free_tier()
    }

    /// Finds a frame of NVRAM for a dirty page. False when every page that could give way is pinned.
    fn room_for_dirty<D: Driver>(&mut self, home: Home, driver: &mut D) -> bool {
        if self.frames.nvram_free() {
            return true;
        }
        if !self.frames.dram_free() {
            // Evicting a clean page helps only when a borrower, it or another, can make room in NVRAM.
            let borrowed = !self.frames.lists.is_empty(BORROWED);
            let clean_first = borrowed && self.clean_first(home);
            let done = (clean_first && self.evict_clean(driver))
                || self.evict_dirty(driver)
                || (!clean_first && self.evict_clean(driver));
            if !done || self.frames.nvram_free() {
                return done;
            }
        }
        self.frames.promote_borrower(driver) || self.clean_into_dram(driver)
    }

    fn enter_dirty<D: Driver>(&mut self, page: Page, frequency: u32, driver: &D) {
        self.frames.enter(DIRTY, page);
        self.runs.insert(page, driver);
        self.set_dirty_frequency(page, frequency);
    }

    fn hit_clean<D: Driver>(&mut self, tier: Tier, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        if !request.op.is_write() {
            self.clean.bump(page);
            if tier == NVRAM {
                self.frames.lists.move_to_front(BORROWED, page);
            }
            return Outcome::Hit(tier);
        }
        let frequency = self.clean.remove(page);
        let space = tier == NVRAM || self.room_for_dirty(Home::Clean(tier), driver);
        if space {
            driver.start(page, Verb::Install { to: NVRAM });
        }
        if tier == DRAM {
            driver.start(page, Verb::Drop { from: DRAM });
        }
        self.frames.leave(page);
        if space {
            self.enter_dirty(page, frequency, driver);
        } else {
            driver.bypass(request);
        }
        Outcome::Hit(tier)
    }

    fn miss<D: Driver>(&mut self, home: Home, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        self.adapt(home);
        let surplus = if home == Home::Absent { self.frames.surplus_ghost() } else { None };
        let tier = match request.op.is_write() {
            true => self.room_for_dirty(home, driver).then_some(NVRAM),
            false => self.room_for_clean(home, driver),
        };
        let Some(tier) = tier else { return driver.bypass(request) };
        if let Some(ghost) = surplus {
            self.frames.leave(ghost);
        }
        driver.admit(request, tier);
        self.frames.leave(page);
        if request.op.is_write() {
            self.enter_dirty(page, 0, driver);
        } else {
            self.frames.enter_clean(page, tier);
            self.clean.insert(page, 1);
        }
        Outcome::ADMITTED
    }
}

impl Policy for Hibachi {
    const INFO: Info = Info {
        name: "hibachi",
        family: "hybrid",
        summary: "LFU-Aging of clean pages in DRAM and NVRAM, LRU of dirty pages in NVRAM, group writes of long runs",
        paper: "Fan, Wu, Park, Diehl, Voigt, Du: Hibachi: a cooperative hybrid cache with NVRAM and DRAM for storage \
                arrays, MSST 2017; Fan, thesis 2017, chapter 4",
        options: &[
            OptionInfo {
                name: "threshold",
                default: "10",
                help: "the longest run of consecutive dirty pages is written as a group when it is longer than this \
                       many pages (section 4.4.5)",
            },
            OptionInfo {
                name: "aging",
                default: "5.5",
                help: "frequency counts are halved when their mean over the clean pages exceeds this (section 4.4.2)",
            },
        ],
        tiers: &["dram", "nvram"],
        min_pages: &[1, 1],
        top_share: 0.5,
        write_aware: true,
        addresses: true,
        neighbours: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let frames = Frames::new(config.pages, &config.tiers);
        Ok(Hibachi {
            clean: FrequencyList::new(config.pages, frames.total()),
            runs: Runs::new(config.pages, frames.nvram),
            counters: vec![Counter::default(); config.pages],
            epoch: 0,
            threshold: options.number("threshold", 0..=u32::MAX)?,
            mean_limit: options.number("aging", 1.0..=1e9)?,
            desired_clean: frames.dram,
            frames,
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let outcome = match self.frames.home(page) {
            Home::Clean(tier) => self.hit_clean(tier, request, driver),
            Home::Dirty => {
                if request.op.is_write() {
                    self.frames.lists.move_to_front(DIRTY, page);
                } else {
                    self.set_dirty_frequency(page, self.dirty_frequency(page).saturating_add(1));
                }
                driver.overwrite(request, NVRAM);
                Outcome::Hit(NVRAM)
            }
            home => self.miss(home, request, driver),
        };
        self.age();
        outcome
    }

    fn state(&self, page: Page) -> PageState {
        self.frames.state(page)
    }

    fn occupancy(&self, tier: Tier) -> usize {
        self.frames.occupancy(tier)
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("desired clean pages", self.desired_clean as f64);
        self.frames.gauges(visit);
        visit("longest run", self.runs.longest().map_or(0.0, |run| f64::from(run.length)));
        visit("mean frequency", self.clean.total() as f64 / self.clean.len().max(1) as f64);
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        self.frames.prefetch(page);
        self.clean.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        let counters = self.counters.capacity() * size_of::<Counter>();
        self.frames.memory_bytes() + self.clean.memory_bytes() + self.runs.memory_bytes() + counters
    }
}
