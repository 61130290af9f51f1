//! I/O-Cache: a cache in non-volatile memory over hard disks that writes the longest run of consecutive dirty pages
//! (`io-cache`), and the same without a threshold (`longest`).
//!
//! Fan, "Improving storage performance with non-volatile memory-based caching systems", thesis 2017 (004), section
//! 3.3, equations 3.1 to 3.4; first in Fan, Haghdoost, Du, Voigt, "I/O-Cache: a non-volatile memory based buffer
//! cache policy to improve storage performance", MASCOTS 2015.
//!
//! A clean and a dirty LRU list share the frames; ghosts of both move the boundary P, the desired number of clean
//! pages. When the dirty side has to give, the longest run is written if it is *longer* than the threshold, its page
//! with the lowest number leaves and the others become clean; else the LRU dirty page is written and leaves.
//!
//! Choices where the text leaves one:
//! - P is an integer (so the text) and starts at 0; it falls by max(2, floor(2 |Co| / |Do|)), taken before the hit
//!   ghost leaves, with 1 for a zero denominator.
//! - A page that hits a ghost returns to the MRU end of the list of its operation (section 3.3.3).
//! - `variant=errata` (default): eviction and balance as in ARC's REPLACE: the clean side when |Ci| > P, or |Ci| = P
//!   and the request is in Do. For a page that is new to all lists the oldest ghost of the clean side is dropped
//!   when |C| > L; one of the dirty side only when the 2 L entries are used up, so that dirty ghosts can accumulate.
//!   `variant=literal`: the clean side only when |Ci| >= P and the request is in Do; a ghost of the dirty side is
//!   dropped whenever |C| <= L. In both, where the dirty side has no ghost and 2 L entries are used, a clean one goes.
//! - The pages that a group write has cleaned go to the LRU end of the clean list one behind the other in ascending
//!   order, so the highest is the next clean victim. Of equally long runs the one unchanged for longest is written
//!   (see [`Runs`]).
//! - The timer of section 3.3.7 (`max-dirty-seconds`) is off by default: the section offers it against failing
//!   hardware, and its evaluation does not use it. The age of a page counts from when it became dirty, since later
//!   writes do not make the earlier ones safer; what it cleans goes to the LRU end of the clean list, as above. It acts when a
//!   request comes and syncs nothing, so a live cache refuses it: the engine's own bound holds for every policy.
//! - When the lowest page of the run is pinned the next higher one leaves; when all are, the run is not written.

use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::{ListId, Lists, Runs};
use entresol_core::{Movement, Outcome, Page, Request, Tier, Verb};

/// I/O-Cache.
pub type IoCache = RunCache<false>;
/// I/O-Cache that always writes the longest run.
pub type Longest = RunCache<true>;

const CLEAN: ListId = 0;
const DIRTY: ListId = 1;
/// Added to a side's list number, gives the list of its ghosts.
const GHOST: ListId = 2;
const ABSENT: u8 = u8::MAX;

/// Reading of the paper where its text is unclear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Errata,
    Literal,
}

/// Dirty pages by the time at which they became dirty, oldest at the back.
#[derive(Clone, Debug)]
struct Timer {
    limit_us: u64,
    order: Lists<1>,
    since_us: Vec<u64>,
}

impl Timer {
    fn expired(&self, now_us: u64) -> Option<Page> {
        self.order.back(0).filter(|page| now_us.saturating_sub(self.since_us[page.index()]) >= self.limit_us)
    }
}

/// I/O-Cache with a threshold, or without.
#[derive(Clone, Debug)]
pub struct RunCache<const LONGEST: bool> {
    variant: Variant,
    /// A run is written as a group when it is longer.
    threshold: u32,
    capacity: usize,
    lists: Lists<4>,
    /// The list of each page.
    home: Vec<u8>,
    runs: Runs,
    /// P.
    desired_clean: usize,
    timer: Option<Timer>,
}

impl<const LONGEST: bool> RunCache<LONGEST> {
    fn full(&self) -> bool {
        self.lists.len(CLEAN) + self.lists.len(DIRTY) == self.capacity
    }

    /// Equations 3.3 and 3.4.
    fn adapt(&mut self, side: ListId) {
        if side == CLEAN {
            self.desired_clean = (self.desired_clean + 1).min(self.capacity);
        } else {
            let (clean, dirty) = (self.lists.len(CLEAN | GHOST), self.lists.len(DIRTY | GHOST));
            self.desired_clean = self.desired_clean.saturating_sub((2 * clean / dirty.max(1)).max(2));
        }
    }

    /// The ghost that gives way to a page that is new to all lists.
    fn surplus_ghost(&self) -> Option<Page> {
        let clean = self.lists.len(CLEAN) + self.lists.len(CLEAN | GHOST);
        if clean > self.capacity {
            return self.lists.back(CLEAN | GHOST);
        }
        let dirty = self.lists.len(DIRTY) + self.lists.len(DIRTY | GHOST);
        let used_up = clean + dirty >= 2 * self.capacity;
        if !used_up && self.variant == Variant::Errata {
            return None;
        }
        let spare = if used_up { self.lists.back(CLEAN | GHOST) } else { None };
        self.lists.back(DIRTY | GHOST).or(spare)
    }

    /// Eviction and balance. False when every page is pinned; nothing has changed then.
    fn make_room<D: Driver>(&mut self, in_dirty_ghost: bool, driver: &mut D) -> bool {
        let clean = self.lists.len(CLEAN);
        let clean_first = match self.variant {
            Variant::Errata => clean > self.desired_clean || (clean == self.desired_clean && in_dirty_ghost),
            Variant::Literal => clean >= self.desired_clean && in_dirty_ghost,
        };
        let done = clean_first && self.evict_clean(driver);
        done || self.evict_dirty(driver) || (!clean_first && self.evict_clean(driver))
    }

    fn evict_clean<D: Driver>(&mut self, driver: &mut D) -> bool {
        let Some(victim) = self.lists.back_where(CLEAN, |page| driver.may_evict(page, Tier::TOP)) else {
            return false;
        };
        driver.evict(victim, Tier::TOP, false);
        self.transfer(CLEAN, CLEAN | GHOST, victim);
        true
    }

    fn evict_dirty<D: Driver>(&mut self, driver: &mut D) -> bool {
        if let Some(run) = self.runs.longest().filter(|run| run.length > self.threshold) {
            let mut victim = Some(run.first);
            while let Some(page) = victim
                && !driver.may_evict(page, Tier::TOP)
            {
                victim = self.runs.above(page);
            }
            if let Some(victim) = victim {
                self.write_run(run.first, victim, driver);
                return true;
            }
        }
        let Some(victim) = self.lists.back_where(DIRTY, |page| driver.may_evict(page, Tier::TOP)) else {
            return false;
        };
        driver.evict(victim, Tier::TOP, true);
        self.runs.remove(victim);
        self.stop_timer(victim);
        self.transfer(DIRTY, DIRTY | GHOST, victim);
        true
    }

    /// Writes the run that starts at `first` in one I/O; `victim` leaves and the others become clean.
    fn write_run<D: Driver>(&mut self, first: Page, victim: Page, driver: &mut D) {
        let RunCache { runs, lists, home, timer, .. } = self;
        runs.take(first, driver, |page, driver| {
            driver.emit(Movement { page, verb: Verb::WriteBack { from: Tier::TOP }, joined: page != first });
            if let Some(timer) = timer {
                timer.order.remove(0, page);
            }
            lists.remove(DIRTY, page);
            if page == victim {
                lists.push_front(DIRTY | GHOST, page);
                home[page.index()] = (DIRTY | GHOST) as u8;
            } else {
                lists.push_back(CLEAN, page);
                home[page.index()] = CLEAN as u8;
            }
        });
        driver.start(victim, Verb::Drop { from: Tier::TOP });
    }

    /// Section 3.3.7: writes the pages that have been dirty for too long.
    fn expire<D: Driver>(&mut self, driver: &mut D) {
        while let Some(page) = self.timer.as_ref().and_then(|timer| timer.expired(driver.now_us())) {
            driver.start(page, Verb::WriteBack { from: Tier::TOP });
            self.runs.remove(page);
            self.stop_timer(page);
            self.lists.remove(DIRTY, page);
            self.lists.push_back(CLEAN, page);
            self.home[page.index()] = CLEAN as u8;
        }
    }

    fn becomes_dirty<D: Driver>(&mut self, page: Page, driver: &D) {
        self.runs.insert(page, driver);
        if let Some(timer) = &mut self.timer {
            timer.order.push_front(0, page);
            timer.since_us[page.index()] = driver.now_us();
        }
    }

    fn stop_timer(&mut self, page: Page) {
        if let Some(timer) = &mut self.timer {
            timer.order.remove(0, page);
        }
    }

    #[inline(always)]
    fn transfer(&mut self, from: ListId, to: ListId, page: Page) {
        self.lists.transfer(from, to, page);
        self.home[page.index()] = to as u8;
    }

    #[inline(always)]
    fn forget(&mut self, ghost: Page) {
        self.lists.remove(ListId::from(self.home[ghost.index()]), ghost);
        self.home[ghost.index()] = ABSENT;
    }

    fn hit<D: Driver>(&mut self, home: ListId, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        if home == CLEAN && request.op.is_write() {
            self.transfer(CLEAN, DIRTY, page);
            self.becomes_dirty(page, driver);
        } else {
            self.lists.move_to_front(home, page);
        }
        driver.overwrite(request, Tier::TOP);
        Outcome::Hit(Tier::TOP)
    }
}

const OPTIONS: &[OptionInfo] = &[
    OptionInfo {
        name: "variant",
        default: "errata",
        help: "errata: eviction and balance as ARC's REPLACE one level up, dirty ghosts kept while 2 L entries are \
               not used up; literal: both as printed in sections 3.3.4 and 3.3.5",
    },
    OptionInfo {
        name: "max-dirty-seconds",
        default: "0",
        help: "a page that has been dirty for this many seconds is written and becomes clean (section 3.3.7 suggests \
               3600); 0: never. For the simulator: a live cache of any policy has --dirty-age",
    },
    OptionInfo {
        name: "threshold",
        default: "10",
        help: "the longest run of consecutive dirty pages is written as a group when it is longer than this many pages",
    },
];

impl<const LONGEST: bool> Policy for RunCache<LONGEST> {
    const INFO: Info = Info {
        name: if LONGEST { "longest" } else { "io-cache" },
        family: "run",
        summary: if LONGEST {
            "I/O-Cache without a threshold: always writes the longest run of consecutive dirty pages"
        } else {
            "I/O-Cache: adapts between clean and dirty, writes long runs of consecutive dirty pages as a group"
        },
        paper: "Fan, Haghdoost, Du, Voigt: I/O-Cache: a non-volatile memory based buffer cache policy to improve \
                storage performance, MASCOTS 2015; Fan, thesis 2017, chapter 3",
        options: if LONGEST { OPTIONS.split_at(2).0 } else { OPTIONS },
        write_aware: true,
        addresses: true,
        neighbours: true,
        clock: true,
        simulated: &["max-dirty-seconds"],
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0];
        let seconds = options.number::<u64>("max-dirty-seconds", 0..=u64::from(u32::MAX))?;
        let timer = (seconds > 0).then(|| Timer {
            limit_us: seconds * 1_000_000,
            order: Lists::new(config.pages),
            since_us: vec![0; config.pages],
        });
        Ok(RunCache {
            variant: options.choice("variant", &[("errata", Variant::Errata), ("literal", Variant::Literal)])?,
            threshold: if LONGEST { 0 } else { options.number("threshold", 0..=u32::MAX)? },
            capacity,
            lists: Lists::new(config.pages),
            home: vec![ABSENT; config.pages],
            runs: Runs::new(config.pages, capacity),
            desired_clean: 0,
            timer,
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        if self.timer.is_some() {
            self.expire(driver);
        }
        let page = request.page;
        let home = self.home[page.index()];
        if home < GHOST as u8 {
            return self.hit(ListId::from(home), request, driver);
        }
        let ghost_side = (home != ABSENT).then(|| ListId::from(home) & DIRTY);
        if let Some(side) = ghost_side {
            self.adapt(side);
        }
        if self.full() {
            let surplus = if ghost_side.is_none() { self.surplus_ghost() } else { None };
            if !self.make_room(ghost_side == Some(DIRTY), driver) {
                return driver.bypass(request);
            }
            if let Some(ghost) = surplus {
                self.forget(ghost);
            }
        }
        driver.admit(request, Tier::TOP);
        if ghost_side.is_some() {
            self.forget(page);
        }
        let side = if request.op.is_write() { DIRTY } else { CLEAN };
        self.lists.push_front(side, page);
        self.home[page.index()] = side as u8;
        if side == DIRTY {
            self.becomes_dirty(page, driver);
        }
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let home = self.home[page.index()];
        PageState {
            tiers: TierSet::only(Tier::TOP, home < GHOST as u8),
            dirty: home == DIRTY as u8,
            known: home != ABSENT,
        }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.lists.len(CLEAN) + self.lists.len(DIRTY)
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("desired clean pages", self.desired_clean as f64);
        for (list, name) in ["clean", "dirty", "clean ghosts", "dirty ghosts"].into_iter().enumerate() {
            visit(name, self.lists.len(list) as f64);
        }
        visit("longest run", self.runs.longest().map_or(0.0, |run| f64::from(run.length)));
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.home, page.index());
        self.lists.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        let timer = self.timer.as_ref().map_or(0, |t| t.order.memory_bytes() + t.since_us.capacity() * 8);
        self.lists.memory_bytes() + self.home.capacity() + self.runs.memory_bytes() + timer
    }
}
