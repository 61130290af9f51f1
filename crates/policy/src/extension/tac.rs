//! TAC: temperature-aware caching of hot regions in flash, written through.
//!
//! Canim, Mihaila, Bhattacharjee, Ross, Lang, "SSD bufferpool extensions for database systems", PVLDB 2010; described
//! in 000, section 3.2.2, and 001, section 3.
//!
//! The disk is divided into extents of 32 pages. Every read that DRAM does not serve warms its extent by the time
//! that flash saves or would save: the cost of a random or sequential read on disk minus that on flash. A page read
//! from disk is copied to flash while there is room, afterwards only when its extent is hotter than the coldest one
//! with a page there, which gives up its oldest page. All temperatures are discounted now and then.
//!
//! Readings. A write of a whole page reads nothing and warms nothing. A dirty page that leaves DRAM goes to disk and,
//! if flash holds it or would admit it, to flash too (001, section 3); until then the copy in flash is stale. The
//! aging interval is a parameter; its default of ten accesses for each page of flash is ours. The default costs are
//! the latencies of table 1 in 003, and 4 KiB at its bandwidths for sequential reads. Of equally cold extents the one
//! that was met first is the coldest.

use super::pool::DramPool;
use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::{Group, GroupLists, GroupTable, IndexHeap};
use entresol_core::{Op, Outcome, Page, Request, Tier, Verb};

const DRAM: Tier = Tier::TOP;
const FLASH: Tier = Tier::SECOND;
/// The weight of an access at which all temperatures are scaled down again.
const WEIGHT_MAX: f64 = 1.3407807929942597e154; // 2^512

/// Discount of the temperatures at each aging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aging {
    Halve,
    Reset,
}

/// Temperature-aware caching.
#[derive(Clone, Debug)]
pub struct Tac {
    pool: DramPool,
    capacity: usize,
    held: usize,
    extent_pages: u64,
    extents: GroupTable,
    /// Temperature of each extent in microseconds saved, times `weight`.
    temperature: Vec<f64>,
    /// Pages in flash by extent.
    cached: GroupLists,
    /// Extents with pages in flash by temperature: the bits of non-negative floats order like the floats.
    coldest: IndexHeap,
    /// Microseconds that flash saves on a random and on a sequential read.
    saved_us: [f64; 2],
    /// Scale of new heat: instead of halving every temperature, new heat counts double from then on.
    weight: f64,
    aging: Aging,
    age: usize,
    /// Accesses until the next aging.
    until_aging: usize,
    /// Slot at which the search for an extent to forget resumes.
    hand: u32,
}

const OPTIONS: &[OptionInfo] = &[
    OptionInfo { name: "extent", default: "32", help: "pages of an extent, the unit that has a temperature" },
    OptionInfo { name: "disk-random", default: "10000", help: "microseconds of a random read from disk" },
    OptionInfo { name: "disk-sequential", default: "41", help: "microseconds of a sequential read from disk" },
    OptionInfo { name: "flash-random", default: "25", help: "microseconds of a random read from flash" },
    OptionInfo { name: "flash-sequential", default: "4", help: "microseconds of a sequential read from flash" },
    OptionInfo {
        name: "age",
        default: "1000%",
        help: "reads below DRAM from one aging to the next, a size; per cents are of the pages of flash; 0p: never",
    },
    OptionInfo {
        name: "aging",
        default: "halve",
        help: "what aging does to temperatures: halve, or reset to zero (000, section 3.2.2)",
    },
    OptionInfo {
        name: "extents",
        default: "0",
        help: "extents remembered, at least one more than flash has pages; 0: as many as there are pages",
    },
];

impl Policy for Tac {
    const INFO: Info = Info {
        name: "tac",
        family: "extension",
        summary: "temperature-aware caching of hot extents in write-through flash under a DRAM pool",
        paper: "Canim, Mihaila, Bhattacharjee, Ross, Lang: SSD bufferpool extensions for database systems, PVLDB 2010",
        options: OPTIONS,
        tiers: &["dram", "flash"],
        min_pages: &[0, 1],
        write_aware: true,
        addresses: true,
        neighbours: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let &[dram, flash] = config.tiers.as_slice() else { unreachable!("two tiers are checked") };
        let saved = |disk, flash| -> Result<f64, BuildError> {
            let disk: f64 = options.number(disk, 0.0..=1e9)?;
            Ok((disk - options.number::<f64>(flash, 0.0..=1e9)?).max(0.0))
        };
        let extents = match options.number::<usize>("extents", 0..)? {
            0 => config.pages,
            bound => bound.max(flash + 1).min(config.pages),
        };
        let age = options.pages("age", config, flash)?;
        Ok(Tac {
            pool: DramPool::new(config.pages, dram),
            capacity: flash,
            held: 0,
            extent_pages: options.number("extent", 1..)?,
            extents: GroupTable::new(extents),
            temperature: vec![0.0; extents],
            cached: GroupLists::new(config.pages, extents),
            coldest: IndexHeap::new(extents, flash.min(extents)),
            saved_us: [saved("disk-random", "flash-random")?, saved("disk-sequential", "flash-sequential")?],
            weight: 1.0,
            aging: options.choice("aging", &[("halve", Aging::Halve), ("reset", Aging::Reset)])?,
            age,
            until_aging: age,
            hand: 0,
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        if self.pool.hit(request, driver) {
            return Outcome::Hit(DRAM);
        }
        // A database first finds a free buffer, then looks for the page below; so does this policy.
        if !self.pool.exists() || (self.pool.is_full() && !self.evict_from_pool(driver)) {
            return self.past_the_pool(request, driver);
        }
        let page = request.page;
        let extent = self.extent(page, driver);
        self.warm(extent, request);
        if self.cached.contains(page) {
            if request.op != Op::Write {
                driver.start(page, Verb::Copy { from: FLASH, to: DRAM });
            }
            self.pool.enter(request, false, driver);
            return Outcome::Hit(FLASH);
        }
        if request.op.is_write() {
            self.pool.enter(request, false, driver);
            return Outcome::ADMITTED;
        }
        driver.start(page, Verb::Fetch { to: DRAM });
        self.pool.enter(request, false, driver);
        if self.make_room(extent, driver) {
            driver.start(page, Verb::Copy { from: DRAM, to: FLASH });
            self.cache(extent, page);
        }
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let dirty = self.pool.is_dirty(page);
        let tiers = TierSet::only(DRAM, self.pool.contains(page)).and(FLASH, self.cached.contains(page) && !dirty);
        PageState { tiers, dirty, known: !tiers.is_empty() }
    }

    fn occupancy(&self, tier: Tier) -> usize {
        if tier == DRAM { self.pool.len() } else { self.held }
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("extents", self.extents.len() as f64);
        if let Some((_, key)) = self.coldest.min() {
            visit("coldest_us", f64::from_bits(key) / self.weight);
        }
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        self.pool.prefetch(page);
        self.cached.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        self.pool.memory_bytes()
            + self.extents.memory_bytes()
            + self.temperature.capacity() * 8
            + self.cached.memory_bytes()
            + self.coldest.memory_bytes()
    }
}

impl Tac {
    /// The slot of a page's extent; an unknown extent is given one.
    fn extent<D: Driver>(&mut self, page: Page, driver: &D) -> u32 {
        let group = Group::of(driver.address(page), self.extent_pages);
        if let Some(slot) = self.extents.find(group) {
            return slot;
        }
        while self.extents.is_full() {
            // Some extent has no page in flash: flash holds fewer pages than there are slots, or the requested page,
            // which is not in flash, would have no handle.
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.extents.capacity() as u32;
            if self.cached.is_empty(slot) {
                self.extents.remove(slot);
            }
        }
        let slot = self.extents.insert(group);
        self.temperature[slot as usize] = 0.0;
        slot
    }

    /// Adds flash's saving on a read to the temperature of an extent.
    fn warm(&mut self, extent: u32, request: Request) {
        if request.op == Op::Write {
            return;
        }
        let heat = &mut self.temperature[extent as usize];
        *heat += self.saved_us[usize::from(request.sequential)] * self.weight;
        if !self.cached.is_empty(extent) {
            self.coldest.set(Page(extent), heat.to_bits());
        }
        if self.age > 0 {
            self.until_aging -= 1;
            if self.until_aging == 0 {
                self.until_aging = self.age;
                self.grow_old();
            }
        }
    }

    fn grow_old(&mut self) {
        let scale = match self.aging {
            Aging::Reset => 0.0,
            Aging::Halve => {
                self.weight *= 2.0;
                if self.weight < WEIGHT_MAX {
                    return;
                }
                self.weight.recip()
            }
        };
        self.weight = 1.0;
        for (slot, heat) in self.temperature.iter_mut().enumerate() {
            *heat *= scale;
            if !self.cached.is_empty(slot as u32) {
                self.coldest.set(Page(slot as u32), heat.to_bits());
            }
        }
    }

    fn cache(&mut self, extent: u32, page: Page) {
        self.cached.push(extent, page);
        self.coldest.set(Page(extent), self.temperature[extent as usize].to_bits());
        self.held += 1;
    }

    /// True if flash has a frame for a page of this extent. When all are taken, the coldest page leaves if its extent
    /// is colder.
    fn make_room<D: Driver>(&mut self, extent: u32, driver: &mut D) -> bool {
        if self.held < self.capacity {
            return true;
        }
        let heat = self.temperature[extent as usize].to_bits();
        if self.coldest.min().is_some_and(|(_, coldest)| coldest >= heat) {
            return false;
        }
        let coldest = self.coldest.min_where(|slot| {
            let colder = self.coldest.key(slot) < heat;
            colder && self.cached.iter(slot.0).any(|page| driver.may_evict(page, FLASH))
        });
        let Some((slot, _)) = coldest else { return false };
        let Some(page) = self.cached.iter(slot.0).find(|&page| driver.may_evict(page, FLASH)) else { return false };
        self.cached.remove(slot.0, page);
        if self.cached.is_empty(slot.0) {
            self.coldest.remove(slot);
        }
        self.held -= 1;
        driver.start(page, Verb::Drop { from: FLASH });
        true
    }

    /// Evicts the least recently used page that may be evicted; false if there is none.
    fn evict_from_pool<D: Driver>(&mut self, driver: &mut D) -> bool {
        let Some(page) = self.pool.victim(driver) else { return false };
        if self.pool.is_dirty(page) {
            self.pool.write_back(page, driver);
            if self.cached.contains(page) {
                driver.start(page, Verb::Copy { from: DRAM, to: FLASH });
            } else {
                let extent = self.extent(page, driver);
                if self.make_room(extent, driver) {
                    driver.start(page, Verb::Copy { from: DRAM, to: FLASH });
                    self.cache(extent, page);
                }
            }
        }
        self.pool.leave(page, driver);
        true
    }

    /// Serves a request from flash or disk, because there is no DRAM pool or every frame of it is pinned.
    fn past_the_pool<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let extent = self.extent(page, driver);
        self.warm(extent, request);
        let held = self.cached.contains(page);
        if !held && !self.make_room(extent, driver) {
            return driver.bypass(request);
        }
        if request.op.is_write() {
            driver.start(page, Verb::Install { to: FLASH });
            driver.start(page, Verb::WriteBack { from: FLASH });
        } else if !held {
            driver.start(page, Verb::Fetch { to: FLASH });
        }
        if held {
            return Outcome::Hit(FLASH);
        }
        self.cache(extent, page);
        Outcome::ADMITTED
    }
}
