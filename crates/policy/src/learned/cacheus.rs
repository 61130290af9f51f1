//! CACHEUS: LeCaR with better experts, a scan-resistant LRU and a churn-resistant LFU, and a learning rate that adapts.
//!
//! Rodriguez, Yusuf, Lyons, Paz, Rangaswami, Liu, Zhao, Narasimhan, "Learning cache replacement with CACHEUS", FAST
//! 2021: the experts SR-LRU and CR-LFU and the adaptive learning rate.
//!
//! SR-LRU splits the cache into S, which protects what was used again, and Q, which holds new pages and those
//! demoted from S; it evicts from Q only. A hit on a demoted page means that S is too small, a miss on a new page that
//! went to its history that Q is. CR-LFU evicts the most recent of the least frequent pages, over both S and Q.
//!
//! Readings, where the text is silent those of the authors' program: Q starts at one page or 1 % of the cache,
//! whichever is more; the learning rate starts at sqrt(2 ln 2 / c) and is looked at every c requests; hit rates and
//! learning rates are compared in thousandths; each history holds c/2 pages and keeps a page's frequency, which does
//! not grow when the page returns; pages that fill the empty cache do not count as new. A victim that both experts
//! name enters no history; the draw is made all the same. The hit rate is a fraction; a well-known implementation
//! divides integers, so that it is always 0 and the rate never adapts (`hit-rate=integer`). A page that may not be
//! evicted is no candidate; when all of Q is pinned, SR-LRU names the least recent page of S.

use super::weights::{Expert, Weights};
use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::{FrequencyList, ListId, Lists};
use entresol_core::{Outcome, Page, Random, Request, Tier, prefetch};

/// CACHEUS. 25 bytes a handle: two orders of the cache (20), a flag byte and the frequency of a page in history.
#[derive(Clone, Debug)]
pub struct Cacheus {
    capacity: usize,
    /// Length of each history in pages.
    history: usize,
    lists: Lists<4>,
    frequencies: FrequencyList,
    /// Per page: its list, [`KNOWN`], [`DIRTY`], [`DEMOTED`], [`NEW`]; 0 when nothing is known of it.
    flags: Vec<u8>,
    ghost_frequency: Vec<u32>,
    /// Desired length of S; that of Q is what remains of the capacity.
    s_limit: usize,
    /// Pages of Q that were demoted from S.
    demoted: usize,
    /// New pages in the history of SR-LRU.
    new_in_history: usize,
    weights: Weights,
    rate: LearningRate,
    random: Random,
}

const S: ListId = 0;
const Q: ListId = 1;
const LRU_HISTORY: ListId = 2;
const LFU_HISTORY: ListId = 3;
const LIST: u8 = 3;
const KNOWN: u8 = 4;
const DIRTY: u8 = 8;
const DEMOTED: u8 = 16;
const NEW: u8 = 32;

/// Periods without a better hit rate after which the learning rate starts again.
const PATIENCE: u32 = 10;
const SLOWEST: f64 = 0.001;

/// The adaptive learning rate: a hill climb on the hit rate of periods of `c` requests.
#[derive(Clone, Copy, Debug)]
struct LearningRate {
    now: f64,
    /// Learning rate of the period before.
    previous: f64,
    start: f64,
    period: u64,
    integer: bool,
    requests: u64,
    hits: u64,
    /// Hit rate of the period before, in thousandths.
    hit_rate: i64,
    idle_periods: u32,
    worse_periods: u32,
}

fn thousandths(x: f64) -> f64 {
    (x * 1000.0).round_ties_even() / 1000.0
}

impl LearningRate {
    fn new(capacity: usize, integer: bool) -> Self {
        let now = (2.0 * std::f64::consts::LN_2 / capacity as f64).sqrt();
        LearningRate {
            now,
            previous: 0.0,
            start: now.clamp(SLOWEST, 1.0),
            period: capacity as u64,
            integer,
            requests: 0,
            hits: 0,
            hit_rate: 0,
            idle_periods: 0,
            worse_periods: 0,
        }
    }

    /// Counts a request before it is served; `coin` decides on a direction where nothing else does.
    #[inline(always)]
    fn tick(&mut self, coin: impl FnOnce() -> bool) {
        self.requests += 1;
        if self.requests == self.period {
            self.requests = 0;
            self.end_period(coin);
        }
    }

    fn end_period(&mut self, coin: impl FnOnce() -> bool) {
        let hit_rate = match self.integer {
            true => 1000 * (self.hits / self.period),
            false => (1000 * self.hits + self.period / 2) / self.period,
        } as i64;
        let gain = hit_rate - self.hit_rate;
        let step = thousandths(self.now) - thousandths(self.previous);
        let before = self.now;
        if gain != 0 && step != 0.0 {
            // Further in the direction that helped, back in the one that did not.
            let further = (gain > 0) == (step > 0.0);
            let change = (self.now * step).abs();
            self.now = if further { (self.now + change).min(1.0) } else { (self.now - change).max(SLOWEST) };
            self.idle_periods = 0;
            self.worse_periods = 0;
        } else if gain <= 0 {
            self.idle_periods += u32::from(gain < 0 || hit_rate == 0);
            self.worse_periods += u32::from(gain < 0);
            if self.idle_periods >= PATIENCE {
                self.now = self.start;
                self.idle_periods = 0;
            } else if gain < 0 && self.worse_periods >= PATIENCE {
                self.now = self.start;
                self.worse_periods = 0;
            } else if gain < 0 {
                self.wander(coin);
            }
        }
        self.previous = before;
        self.hit_rate = hit_rate;
        self.hits = 0;
    }

    fn wander(&mut self, coin: impl FnOnce() -> bool) {
        self.now = if self.now >= 1.0 {
            0.9
        } else if self.now <= SLOWEST {
            0.005
        } else if coin() {
            (self.now * 1.25).min(1.0)
        } else {
            (self.now * 0.75).max(SLOWEST)
        };
    }
}

impl Cacheus {
    fn len(&self) -> usize {
        self.lists.len(S) + self.lists.len(Q)
    }

    /// Rounds the quotient of two counts, at least 1.
    fn stride(count: usize, other: usize) -> usize {
        let other = other.max(1);
        ((2 * count + other) / (2 * other)).max(1)
    }

    fn grow_s(&mut self) {
        let stride = Self::stride(self.new_in_history, self.demoted);
        self.s_limit = (self.s_limit + stride).min(self.capacity - 1);
    }

    fn grow_q(&mut self) {
        let stride = Self::stride(self.demoted, self.new_in_history);
        self.s_limit = self.s_limit.saturating_sub(stride).max(1);
    }

    fn demote_lru_of_s(&mut self) {
        if let Some(page) = self.lists.back(S) {
            self.lists.transfer(S, Q, page);
            let flags = &mut self.flags[page.index()];
            *flags = *flags & !LIST | Q as u8 | DEMOTED;
            self.demoted += 1;
        }
    }

    #[inline(always)]
    fn hit(&mut self, page: Page, flags: u8) {
        self.frequencies.bump(page);
        if (flags & LIST) as ListId == S {
            self.lists.move_to_front(S, page);
            return;
        }
        if flags & DEMOTED != 0 {
            self.grow_s();
            self.demoted -= 1;
        }
        self.lists.remove(Q, page);
        if self.lists.len(S) >= self.s_limit {
            self.demote_lru_of_s();
        }
        self.lists.push_front(S, page);
        self.flags[page.index()] = flags & !(LIST | DEMOTED) | S as u8;
    }

    /// Takes a page out of history, blames its expert and returns its frequency; `None` when it is in no history.
    fn remember(&mut self, page: Page) -> Option<u32> {
        let flags = std::mem::take(&mut self.flags[page.index()]);
        if flags == 0 {
            return None;
        }
        let list = (flags & LIST) as ListId;
        self.lists.remove(list, page);
        if list == LRU_HISTORY && flags & NEW != 0 {
            self.new_in_history -= 1;
            self.grow_q();
        }
        let expert = if list == LRU_HISTORY { Expert::Lru } else { Expert::Lfu };
        self.weights.blame(expert, self.rate.now);
        Some(self.ghost_frequency[page.index()])
    }

    /// Frees a frame; false when every page is pinned.
    fn evict<D: Driver>(&mut self, driver: &mut D) -> bool {
        let expert = self.weights.choose(self.random.next_f64());
        let mut may_evict = |page| driver.may_evict(page, Tier::TOP);
        let lru = self.lists.back_where(Q, &mut may_evict).or_else(|| self.lists.back_where(S, &mut may_evict));
        let Some(lru) = lru else { return false };
        let lfu = self.frequencies.newest_where(may_evict).unwrap_or(lru);
        let victim = if expert == Expert::Lru { lru } else { lfu };
        let flags = std::mem::take(&mut self.flags[victim.index()]);
        self.lists.remove((flags & LIST) as ListId, victim);
        let frequency = self.frequencies.remove(victim);
        self.demoted -= usize::from(flags & DEMOTED != 0);
        if lru != lfu {
            self.note_victim(victim, expert, flags & NEW, frequency);
        }
        driver.evict(victim, Tier::TOP, flags & DIRTY != 0);
        true
    }

    fn note_victim(&mut self, victim: Page, expert: Expert, new: u8, frequency: u32) {
        let history = if expert == Expert::Lru { LRU_HISTORY } else { LFU_HISTORY };
        if self.lists.len(history) == self.history
            && let Some(forgotten) = self.lists.back(history)
        {
            self.lists.remove(history, forgotten);
            let flags = std::mem::take(&mut self.flags[forgotten.index()]);
            self.new_in_history -= usize::from(history == LRU_HISTORY && flags & NEW != 0);
        }
        self.lists.push_front(history, victim);
        self.new_in_history += usize::from(history == LRU_HISTORY && new != 0);
        self.flags[victim.index()] = KNOWN | history as u8 | new;
        self.ghost_frequency[victim.index()] = frequency;
    }

    /// The list a missed page goes to and whether it counts as new.
    fn place(&self, returning: bool, filling: bool) -> (ListId, u8) {
        if returning || self.lists.len(S) < self.s_limit && self.lists.is_empty(Q) {
            (S, 0)
        } else if filling && self.lists.len(Q) < self.capacity - self.s_limit {
            (Q, 0)
        } else {
            (Q, NEW)
        }
    }
}

impl Policy for Cacheus {
    const INFO: Info = Info {
        name: "cacheus",
        family: "learned",
        summary: "draws a scan-resistant LRU or a churn-resistant LFU, with learned weights and an adaptive learning rate",
        paper: "Rodriguez, Yusuf, Lyons, Paz, Rangaswami, Liu, Zhao, Narasimhan: Learning cache replacement with \
                CACHEUS, FAST 2021",
        options: &[OptionInfo {
            name: "hit-rate",
            default: "float",
            help: "hit rate that the learning rate follows: a fraction (float), or divided as integers (integer), \
                   which makes it 0 and the learning rate constant",
        }],
        min_pages: &[2],
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0];
        if capacity < 2 {
            return Err(BuildError::TooSmall { policy: Self::INFO.name, tier: "cache", min: 2, given: capacity });
        }
        let integer = options.choice("hit-rate", &[("float", false), ("integer", true)])?;
        Ok(Cacheus {
            capacity,
            history: capacity / 2,
            lists: Lists::new(config.pages),
            frequencies: FrequencyList::new(config.pages, capacity),
            flags: vec![0; config.pages],
            ghost_frequency: vec![0; config.pages],
            // Q gets 1 %, rounded, at least one page.
            s_limit: capacity - ((capacity + 50) / 100).max(1),
            demoted: 0,
            new_in_history: 0,
            weights: Weights::EVEN,
            rate: LearningRate::new(capacity, integer),
            random: Random::new(config.seed),
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let written = if request.op.is_write() { DIRTY } else { 0 };
        self.rate.tick(|| self.random.chance(0.5));
        let flags = self.flags[page.index()];
        if flags != 0 && (flags & LIST) as ListId <= Q {
            self.rate.hits += 1;
            self.hit(page, flags);
            self.flags[page.index()] |= written;
            driver.overwrite(request, Tier::TOP);
            return Outcome::Hit(Tier::TOP);
        }
        let remembered = self.remember(page);
        let filling = self.len() < self.capacity;
        let (list, new) = self.place(remembered.is_some(), filling);
        if !filling && !self.evict(driver) {
            return driver.bypass(request);
        }
        driver.admit(request, Tier::TOP);
        self.lists.push_front(list, page);
        self.frequencies.insert(page, remembered.unwrap_or(1));
        self.flags[page.index()] = KNOWN | list as u8 | new | written;
        if remembered.is_some() || new != 0 {
            while self.lists.len(S) >= self.s_limit {
                self.demote_lru_of_s();
            }
        }
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let flags = self.flags[page.index()];
        let held = flags != 0 && (flags & LIST) as ListId <= Q;
        PageState { tiers: TierSet::only(Tier::TOP, held), dirty: flags & DIRTY != 0, known: flags != 0 }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.len()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("w_lru", self.weights.lru);
        visit("w_lfu", self.weights.lfu);
        visit("learning rate", self.rate.now);
        visit("|S|", self.lists.len(S) as f64);
        visit("|Q|", self.lists.len(Q) as f64);
        visit("desired |S|", self.s_limit as f64);
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        prefetch(&self.flags, page.index());
        self.lists.prefetch(page);
        self.frequencies.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        self.lists.memory_bytes()
            + self.frequencies.memory_bytes()
            + self.flags.capacity()
            + self.ghost_frequency.capacity() * 4
    }
}
