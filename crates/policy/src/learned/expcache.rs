//! ExpCache: clean pages (R) and dirty pages (W) apart, each in order of recency and of frequency; which order gives
//! the victim is drawn with weights that an online expert algorithm learns from two ghost caches.
//!
//! Yang, "High performance storage system design using emerging storage technologies", thesis 2021 (000), chapter 4:
//! algorithm 2 (the request), 3 (the weights), 4 (the victim). The numbers of lines below are theirs.
//!
//! Readings: algorithm 4, lines 20-21, evicts LFU(W) on unequal frequencies, as the text says, not LRU(W), as is
//! printed (`unequal=lru` does what is printed). Algorithm 3, lines 13-14, normalises once; line 5 takes
//! eta = sqrt(ln 6 / n) and eta_pre = eta for the first three accesses. The weights start at 1/2. Both ghosts hold
//! L/2 pages and take every victim (lines 37-42; the condition is that of the deletion only). A page readmitted from
//! G_LFU keeps the ghost's frequency. The tolerance is a number of accesses, `TF * L`. The weights change at every
//! miss, whether or not the cache is full; a page that may not be evicted is no candidate.

use super::ghosts::Ghosts;
use super::weights::Expert;
use crate::info::{Config, Info, OptionInfo, Tunable};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::{FrequencyLists, ListId, Lists};
use entresol_core::{Outcome, Page, Random, Request, Size, Tier, prefetch};

/// Cache with expert selection and read-write discriminated eviction. 28 bytes a handle, 64 a page of capacity: 48 for
/// as many frequencies as there may be, 16 for the LRU ghosts.
#[derive(Clone, Debug)]
pub struct ExpCache {
    capacity: usize,
    /// `TF * L`, in accesses.
    tolerance: u64,
    unequal: Unequal,
    /// The LRU orders of R and W.
    recency: Lists<2>,
    /// The LFU orders of R and W, and of the pages in G_LFU that came from R and from W (`GHOSTS` on). Each of the four
    /// is in order of last access within a frequency. A use makes a page the newest of its next frequency. A victim is
    /// the oldest of its own frequency, so it comes to the newest end of the ghosts.
    frequency: FrequencyLists<4>,
    notes: Vec<Note>,
    lru_ghosts: Ghosts,
    experts: Experts,
    random: Random,
}

/// Order by which the LFU expert evicts from W when the least frequent page of W is the rarer one (algorithm 4, lines
/// 20-21).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unequal {
    /// As the text says.
    Lfu,
    /// As is printed.
    Lru,
}

const READ: ListId = 0;
const WRITE: ListId = 1;
const GHOSTS: ListId = 2;

/// The list of a page that is held, or the one that it was evicted from.
const LIST: u64 = 1;
const HELD: u64 = 2;
const IN_LRU_GHOST: u64 = 4;
const IN_LFU_GHOST: u64 = 8;
const KNOWN: u64 = HELD | IN_LRU_GHOST | IN_LFU_GHOST;

/// Record of a page: four flags, and above them the number of the last access to it.
#[derive(Clone, Copy, Debug, Default)]
struct Note(u64);

impl Note {
    const FLAG_BITS: u32 = 4;

    #[inline(always)]
    fn new(stamp: u64, flags: u64) -> Self {
        Note(stamp << Self::FLAG_BITS | flags)
    }

    #[inline(always)]
    fn stamp(self) -> u64 {
        self.0 >> Self::FLAG_BITS
    }

    #[inline(always)]
    fn has(self, any_of: u64) -> bool {
        self.0 & any_of != 0
    }

    #[inline(always)]
    fn list(self) -> ListId {
        (self.0 & LIST) as ListId
    }

    #[inline(always)]
    fn set(&mut self, flags: u64) {
        self.0 |= flags;
    }

    #[inline(always)]
    fn clear(&mut self, flags: u64) {
        self.0 &= !flags;
    }
}

/// Algorithm 3 and its state.
#[derive(Clone, Copy, Debug)]
struct Experts {
    lru_weight: f64,
    previous_eta: f64,
    accesses: u64,
    lru_ghost_hits: u64,
    lfu_ghost_hits: u64,
}

impl Experts {
    /// Algorithm 3. Of equations 4.3a and 4.3b only the quotient of the two experts is needed:
    /// `v_LRU = 1 / (1 + (w_LFU / w_LRU)^(eta / eta_pre) exp(-eta (l_LFU - l_LRU)))`.
    fn update(&mut self) {
        let accesses = self.accesses as f64;
        let horizon = if self.accesses <= 3 { 3.0 } else { accesses };
        let eta = ((2.0 * horizon).ln() / accesses).sqrt();
        let stretch = if self.accesses <= 3 { 1.0 } else { eta / self.previous_eta };
        let odds = ((1.0 - self.lru_weight) / self.lru_weight).ln();
        let loss_difference = (self.lru_ghost_hits as f64 - self.lfu_ghost_hits as f64) / accesses;
        let share = 1.0 / (1.0 + (stretch * odds - eta * loss_difference).exp());
        let alpha = 1.0 / accesses;
        self.lru_weight = alpha / 2.0 + (1.0 - alpha) * share;
        self.previous_eta = eta;
    }
}

impl ExpCache {
    /// Algorithm 2, lines 17-24: takes a page out of the ghosts and returns the frequency it comes back with.
    fn remember(&mut self, page: Page) -> u32 {
        let note = std::mem::take(&mut self.notes[page.index()]);
        if note.has(IN_LRU_GHOST) {
            self.lru_ghosts.take();
            self.experts.lru_ghost_hits += 1;
        }
        if !note.has(IN_LFU_GHOST) {
            return 1;
        }
        self.experts.lfu_ghost_hits += 1;
        self.frequency.remove(GHOSTS + note.list(), page)
    }

    /// Algorithm 4: the victim and its list. `None` when every page is pinned.
    fn victim<D: Driver>(&self, expert: Expert, driver: &mut D) -> Option<(Page, ListId)> {
        let mut may_evict = |page| driver.may_evict(page, Tier::TOP);
        let mut candidate = |list: ListId| match expert {
            Expert::Lru => self.recency.back_where(list, &mut may_evict),
            Expert::Lfu => self.frequency.oldest_where(list, &mut may_evict),
        };
        let (read, write) = match (candidate(READ), candidate(WRITE)) {
            (Some(read), Some(write)) => (read, write),
            (read, write) => return read.map(|page| (page, READ)).or(write.map(|page| (page, WRITE))),
        };
        if expert == Expert::Lfu {
            let (rare, common) = (self.frequency.frequency(read), self.frequency.frequency(write));
            if rare < common {
                return Some((read, READ));
            }
            if rare > common && self.unequal == Unequal::Lru {
                return self.recency.back_where(WRITE, may_evict).map(|page| (page, WRITE));
            }
            if rare > common {
                return Some((write, WRITE));
            }
        }
        // Lines 8 and 23: clean pages first, unless the dirty one has been idle for much longer.
        let tolerated = self.stamp(read) <= self.stamp(write) + self.tolerance;
        Some(if tolerated { (read, READ) } else { (write, WRITE) })
    }

    /// Algorithm 2, lines 28-42. False when every page is pinned.
    fn evict<D: Driver>(&mut self, driver: &mut D) -> bool {
        let draw = self.random.next_f64();
        let expert = if draw < self.experts.lru_weight { Expert::Lru } else { Expert::Lfu };
        let Some((victim, list)) = self.victim(expert, driver) else { return false };
        self.recency.remove(list, victim);
        let frequency = self.frequency.remove(list, victim);
        self.notes[victim.index()].clear(HELD);
        if self.capacity >= 2 {
            self.note_in_lru_ghosts(victim);
            self.note_in_lfu_ghosts(victim, list, frequency);
            self.prefetch_next();
        }
        driver.evict(victim, Tier::TOP, list == WRITE);
        true
    }

    #[inline(always)]
    fn stamp(&self, page: Page) -> u64 {
        self.notes[page.index()].stamp()
    }

    fn note_in_lru_ghosts(&mut self, victim: Page) {
        let notes = &self.notes;
        let live = |page: Page, stamp| notes[page.index()].has(IN_LRU_GHOST) && notes[page.index()].stamp() == stamp;
        if let Some(forgotten) = self.lru_ghosts.put(victim, self.stamp(victim), live) {
            self.notes[forgotten.index()].clear(IN_LRU_GHOST);
        }
        self.notes[victim.index()].set(IN_LRU_GHOST);
    }

    fn note_in_lfu_ghosts(&mut self, victim: Page, list: ListId, frequency: u32) {
        if self.lfu_ghosts() == self.capacity / 2 {
            let rank = |page: Page| (self.frequency.frequency(page), self.stamp(page));
            let oldest = [READ, WRITE].into_iter().filter_map(|list| self.frequency.oldest(GHOSTS + list));
            if let Some(forgotten) = oldest.min_by_key(|&page| rank(page)) {
                self.frequency.remove(GHOSTS + self.notes[forgotten.index()].list(), forgotten);
                self.notes[forgotten.index()].clear(IN_LFU_GHOST);
            }
        }
        // The ghosts of this frequency are younger only if the victim could not be evicted in its turn.
        let (notes, stamp) = (&self.notes, self.stamp(victim));
        let younger = |ghost: Page| notes[ghost.index()].stamp() > stamp;
        self.frequency.insert_below(GHOSTS + list, victim, frequency, younger);
        self.notes[victim.index()].set(IN_LFU_GHOST);
    }

    fn lfu_ghosts(&self) -> usize {
        self.frequency.len(GHOSTS + READ) + self.frequency.len(GHOSTS + WRITE)
    }

    /// Prefetches the state that the next eviction touches: the pages that come up in the ghosts, and those at the ends
    /// of the lists, one of which will be evicted.
    #[inline(always)]
    fn prefetch_next(&self) {
        if let Some(page) = self.lru_ghosts.upcoming() {
            prefetch(&self.notes, page.index());
        }
        for list in [READ, WRITE] {
            let ends = [self.recency.back(list), self.frequency.oldest(list), self.frequency.oldest(GHOSTS + list)];
            ends.into_iter().flatten().for_each(|page| self.prefetch(page));
        }
    }

    /// Algorithm 2, lines 4-13.
    #[inline(always)]
    fn hit(&mut self, request: Request, list: ListId) {
        let page = request.page;
        if list == READ && request.op.is_write() {
            let frequency = self.frequency.remove(READ, page);
            self.frequency.insert(WRITE, page, frequency.saturating_add(1));
            self.recency.transfer(READ, WRITE, page);
            self.notes[page.index()].set(LIST);
        } else {
            self.frequency.bump(list, page);
            self.recency.move_to_front(list, page);
        }
    }
}

/// In per cent of the cache, as the thesis varies it (000, section 4.3.3).
const TOLERANCE_LEVELS: &[f64] = &[0.0, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0];

/// Accesses that are a share of the cache; the share is in per cent.
fn tolerance(capacity: usize, percent: f64) -> u64 {
    Size::Percent(percent).pages(1, capacity as u64)
}

impl Policy for ExpCache {
    const INFO: Info = Info {
        name: "expcache",
        family: "learned",
        summary: "clean and dirty pages apart, LRU or LFU drawn with weights learned online from two ghost caches",
        paper: "Yang: High performance storage system design using emerging storage technologies, thesis, University \
                of Minnesota 2021, chapter 4",
        options: &[
            OptionInfo {
                name: "tolerance",
                default: "10%",
                help: "a clean page goes first unless a dirty one has been idle for this many accesses longer, in \
                       per cent of the cache or a number: the tolerance factor TF",
            },
            OptionInfo {
                name: "unequal",
                default: "lfu",
                help: "what is evicted when the least frequent dirty page is rarer than any clean one: that page \
                       (lfu, as the text says) or the least recent dirty page (lru, as algorithm 4 is printed)",
            },
        ],
        tunables: &[Tunable { option: "tolerance", levels: TOLERANCE_LEVELS }],
        write_aware: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let (pages, capacity) = (config.pages, config.tiers[0]);
        Ok(ExpCache {
            capacity,
            tolerance: options.pages("tolerance", config, capacity)? as u64,
            unequal: options.choice("unequal", &[("lfu", Unequal::Lfu), ("lru", Unequal::Lru)])?,
            recency: Lists::new(pages),
            frequency: FrequencyLists::new(pages, capacity + capacity / 2),
            notes: vec![Note::default(); pages],
            // There are no more ghosts than pages.
            lru_ghosts: Ghosts::new((capacity / 2).min(pages)),
            experts: Experts { lru_weight: 0.5, previous_eta: 1.0, accesses: 0, lru_ghost_hits: 0, lfu_ghost_hits: 0 },
            random: Random::new(config.seed),
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let note = self.notes[page.index()];
        self.experts.accesses += 1;
        if note.has(HELD) {
            self.notes[page.index()] = Note::new(self.experts.accesses, HELD | note.list() as u64);
            self.hit(request, note.list());
            driver.overwrite(request, Tier::TOP);
            return Outcome::Hit(Tier::TOP);
        }
        let frequency = self.remember(page);
        self.experts.update();
        if self.occupancy(Tier::TOP) == self.capacity && !self.evict(driver) {
            return driver.bypass(request);
        }
        driver.admit(request, Tier::TOP);
        let list = if request.op.is_write() { WRITE } else { READ };
        self.notes[page.index()] = Note::new(self.experts.accesses, HELD | list as u64);
        self.recency.push_front(list, page);
        self.frequency.insert(list, page, frequency);
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let note = self.notes[page.index()];
        let held = note.has(HELD);
        PageState { tiers: TierSet::only(Tier::TOP, held), dirty: held && note.list() == WRITE, known: note.has(KNOWN) }
    }

    #[inline(always)]
    fn occupancy(&self, _tier: Tier) -> usize {
        self.recency.len(READ) + self.recency.len(WRITE)
    }

    fn tunable(&self, _at: usize) -> f64 {
        let level = TOLERANCE_LEVELS.iter().find(|&&percent| tolerance(self.capacity, percent) == self.tolerance);
        level.copied().unwrap_or(self.tolerance as f64 * 100.0 / self.capacity as f64)
    }

    fn tune(&mut self, _at: usize, percent: f64) {
        self.tolerance = tolerance(self.capacity, percent);
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("w_lru", self.experts.lru_weight);
        visit("w_lfu", 1.0 - self.experts.lru_weight);
        visit("|R|", self.recency.len(READ) as f64);
        visit("|W|", self.recency.len(WRITE) as f64);
        visit("lru ghosts", self.lru_ghosts.len() as f64);
        visit("lfu ghosts", self.lfu_ghosts() as f64);
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        prefetch(&self.notes, page.index());
        self.recency.prefetch(page);
        self.frequency.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        self.recency.memory_bytes()
            + self.frequency.memory_bytes()
            + self.notes.capacity() * size_of::<Note>()
            + self.lru_ghosts.memory_bytes()
    }
}
