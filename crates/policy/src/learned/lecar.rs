//! LeCaR: at every eviction one of two experts, LRU or LFU, is drawn, and the trust in each follows its regrets.
//!
//! Vietri, Rodriguez, Martinez, Lyons, Liu, Rangaswami, Zhao, Narasimhan, "Driving cache replacement with ML-based
//! LeCaR", HotStorage 2018, algorithms 1 (LeCaR) and 2 (UpdateWeight). A victim goes to the history of the expert
//! that chose it. A miss found there costs that expert trust: `w = w * exp(-lr * d^t)`, where `t` is the number of
//! requests since the eviction.
//!
//! Readings where the text is silent: each history holds half as many pages as the cache; lr = 0.45 and
//! d = 0.005^(1/c); weights stay within 0.01 and 0.99; a victim that both experts name enters no history; the
//! frequency of a page survives in history and counts one more when the page returns; among the least frequent pages
//! the one that has had its frequency longest is evicted (`ties`). The draw is made at every eviction, even when both
//! experts agree. A page that may not be evicted does not exist for either expert.

use super::weights::{Expert, Weights};
use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::{FrequencyList, ListId, Lists};
use entresol_core::{Outcome, Page, Random, Request, Tier, prefetch};

/// Learning cache replacement. 29 bytes a handle: two orders of the cache (20), a flag byte and, for a page in
/// history, its frequency and the time it was evicted.
#[derive(Clone, Debug)]
pub struct Lecar {
    capacity: usize,
    /// Length of each history in pages.
    history: usize,
    learning_rate: f64,
    /// ln d.
    log_discount: f64,
    ties: Ties,
    lists: Lists<3>,
    frequencies: FrequencyList,
    /// Per page: its list, [`KNOWN`] and [`DIRTY`]; 0 when nothing is known of it.
    flags: Vec<u8>,
    ghosts: Vec<Ghost>,
    weights: Weights,
    /// Requests so far.
    clock: u32,
    random: Random,
}

#[derive(Clone, Copy, Debug, Default)]
struct Ghost {
    frequency: u32,
    evicted_at: u32,
}

/// Rule by which LFU chooses among the least frequent pages.
#[derive(Clone, Copy, Debug)]
enum Ties {
    Oldest,
    MostRecent,
}

const CACHE: ListId = 0;
const LRU_HISTORY: ListId = 1;
const LFU_HISTORY: ListId = 2;
const LIST: u8 = 3;
const KNOWN: u8 = 4;
const DIRTY: u8 = 8;

impl Lecar {
    /// Takes a page out of history, lets its expert regret, and returns the frequency it comes back with.
    fn remember(&mut self, page: Page) -> u32 {
        let flags = std::mem::take(&mut self.flags[page.index()]);
        if flags == 0 {
            return 1;
        }
        let list = (flags & LIST) as ListId;
        self.lists.remove(list, page);
        let Ghost { frequency, evicted_at } = self.ghosts[page.index()];
        let age = f64::from(self.clock.wrapping_sub(evicted_at));
        let expert = if list == LRU_HISTORY { Expert::Lru } else { Expert::Lfu };
        self.weights.blame(expert, self.learning_rate * (age * self.log_discount).exp());
        frequency.saturating_add(1)
    }

    /// Frees a frame; false when every page is pinned.
    fn evict<D: Driver>(&mut self, driver: &mut D) -> bool {
        let expert = self.weights.choose(self.random.next_f64());
        let Some(lru) = self.lists.back_where(CACHE, |page| driver.may_evict(page, Tier::TOP)) else { return false };
        let lfu = match self.ties {
            Ties::Oldest => self.frequencies.oldest_where(|page| driver.may_evict(page, Tier::TOP)),
            Ties::MostRecent => self.frequencies.newest_where(|page| driver.may_evict(page, Tier::TOP)),
        };
        let lfu = lfu.unwrap_or(lru);
        let (victim, history) = match expert {
            Expert::Lru => (lru, LRU_HISTORY),
            Expert::Lfu => (lfu, LFU_HISTORY),
        };
        let dirty = std::mem::take(&mut self.flags[victim.index()]) & DIRTY != 0;
        self.lists.remove(CACHE, victim);
        let frequency = self.frequencies.remove(victim);
        if lru != lfu && self.history > 0 {
            self.note_victim(victim, history, frequency);
        }
        driver.evict(victim, Tier::TOP, dirty);
        true
    }

    fn note_victim(&mut self, victim: Page, history: ListId, frequency: u32) {
        if self.lists.len(history) == self.history
            && let Some(forgotten) = self.lists.back(history)
        {
            self.lists.remove(history, forgotten);
            self.flags[forgotten.index()] = 0;
        }
        self.lists.push_front(history, victim);
        self.flags[victim.index()] = KNOWN | history as u8;
        self.ghosts[victim.index()] = Ghost { frequency, evicted_at: self.clock };
    }
}

impl Policy for Lecar {
    const INFO: Info = Info {
        name: "lecar",
        family: "learned",
        summary: "draws LRU or LFU at every eviction, with weights learned from regrets",
        paper: "Vietri, Rodriguez, Martinez, Lyons, Liu, Rangaswami, Zhao, Narasimhan: Driving cache replacement with \
                ML-based LeCaR, HotStorage 2018",
        options: &[
            OptionInfo { name: "learning-rate", default: "0.45", help: "how fast trust follows regret, 0 to 100" },
            OptionInfo {
                name: "discount",
                default: "0.005",
                help: "what a regret is worth after as many requests as the cache has pages, 1e-9 to 1: d = x^(1/c)",
            },
            OptionInfo {
                name: "ties",
                default: "oldest",
                help: "which of the least frequent pages LFU evicts: the oldest or the most-recent at its frequency",
            },
        ],
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0];
        let discount: f64 = options.number("discount", 1e-9..=1.0)?;
        Ok(Lecar {
            capacity,
            history: capacity / 2,
            learning_rate: options.number("learning-rate", 0.0..=100.0)?,
            log_discount: discount.ln() / capacity as f64,
            ties: options.choice("ties", &[("oldest", Ties::Oldest), ("most-recent", Ties::MostRecent)])?,
            lists: Lists::new(config.pages),
            frequencies: FrequencyList::new(config.pages, capacity),
            flags: vec![0; config.pages],
            ghosts: vec![Ghost::default(); config.pages],
            weights: Weights::EVEN,
            clock: 0,
            random: Random::new(config.seed),
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let flags = self.flags[page.index()];
        let written = if request.op.is_write() { DIRTY } else { 0 };
        self.clock = self.clock.wrapping_add(1);
        if flags != 0 && (flags & LIST) as ListId == CACHE {
            self.flags[page.index()] = flags | written;
            self.lists.move_to_front(CACHE, page);
            self.frequencies.bump(page);
            driver.overwrite(request, Tier::TOP);
            return Outcome::Hit(Tier::TOP);
        }
        let frequency = self.remember(page);
        if self.lists.len(CACHE) == self.capacity && !self.evict(driver) {
            return driver.bypass(request);
        }
        driver.admit(request, Tier::TOP);
        self.lists.push_front(CACHE, page);
        self.frequencies.insert(page, frequency);
        self.flags[page.index()] = KNOWN | CACHE as u8 | written;
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let flags = self.flags[page.index()];
        let held = flags != 0 && (flags & LIST) as ListId == CACHE;
        PageState { tiers: TierSet::only(Tier::TOP, held), dirty: flags & DIRTY != 0, known: flags != 0 }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.lists.len(CACHE)
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("w_lru", self.weights.lru);
        visit("w_lfu", self.weights.lfu);
        visit("lru history", self.lists.len(LRU_HISTORY) as f64);
        visit("lfu history", self.lists.len(LFU_HISTORY) as f64);
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
            + self.ghosts.capacity() * size_of::<Ghost>()
    }
}
