//! LRU-2: evicts the page whose second-to-last reference is the oldest.
//!
//! O'Neil, O'Neil, Weikum, "The LRU-K page replacement algorithm for database disk buffering", SIGMOD 1993,
//! section 2.1 and figure 2.1, for K = 2. There HIST(p,2) becomes HIST(p,1) plus the correlated period, which is LAST(p).
//!
//! Readings. Pages with one uncorrelated reference have an infinite backward distance; among them LRU decides. The retained
//! information is bounded by a number of pages instead of a time: that of the page evicted first goes first. When the
//! correlated reference period protects every page, the one that would be next without it is evicted. With a period
//! a rejected candidate costs a visit of the heap; the default is none.

use super::places::{NOWHERE, Places};
use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy};
use crate::options::{BuildError, Options};
use crate::parts::IndexHeap;
use entresol_core::{Outcome, Page, Request, Tier};

/// Pages with one reference, the least recent at the back.
const ONCE: usize = 0;
/// Pages with two, in no order: the heap has it.
const TWICE: usize = 1;
const HISTORY: usize = 2;

/// LRU-K with K = 2.
#[derive(Clone, Debug)]
pub struct Lru2 {
    capacity: usize,
    correlated: u64,
    history: usize,
    now: u64,
    places: Places<3, 2>,
    /// Pages of `TWICE` by HIST(p,2).
    second_last: IndexHeap,
    /// LAST(p).
    last: Vec<u64>,
    /// HIST(p,1). Empty without a correlated reference period: then it is LAST(p).
    first: Vec<u64>,
}

impl Policy for Lru2 {
    const INFO: Info = Info {
        name: "lru-2",
        family: "adaptive",
        summary: "evicts the page with the oldest second-to-last reference",
        paper: "O'Neil, O'Neil, Weikum: The LRU-K page replacement algorithm for database disk buffering, SIGMOD 1993",
        options: &[
            OptionInfo {
                name: "correlated",
                default: "0",
                help: "correlated reference period in requests: references this close to the last count as one, and the page is not evicted meanwhile",
            },
            OptionInfo {
                name: "history",
                default: "100%",
                help: "evicted pages whose reference times are retained, of the capacity",
            },
        ],
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0];
        let correlated = options.number("correlated", 0..)?;
        Ok(Lru2 {
            capacity,
            correlated,
            history: options.pages("history", config, capacity)?,
            now: 0,
            places: Places::new(config.pages),
            second_last: IndexHeap::new(config.pages, capacity),
            last: vec![0; config.pages],
            first: if correlated > 0 { vec![0; config.pages] } else { Vec::new() },
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        self.now += 1;
        let home = self.places.home(page);
        if home == ONCE || home == TWICE {
            self.hit(page, home);
            self.places.serve(request, driver);
            return Outcome::Hit(Tier::TOP);
        }
        self.miss(request, home == HISTORY, driver)
    }

    fn state(&self, page: Page) -> PageState {
        self.places.state(page)
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.places.residents()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        for (name, list) in [("once", ONCE), ("twice", TWICE), ("history", HISTORY)] {
            visit(name, self.places.len(list) as f64);
        }
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        self.places.prefetch(page);
        entresol_core::prefetch(&self.last, page.index());
    }

    fn memory_bytes(&self) -> usize {
        let times = (self.last.capacity() + self.first.capacity()) * size_of::<u64>();
        self.places.memory_bytes() + self.second_last.memory_bytes() + times
    }
}

impl Lru2 {
    fn hit(&mut self, page: Page, home: usize) {
        let last = std::mem::replace(&mut self.last[page.index()], self.now);
        if self.now - last > self.correlated {
            if home == ONCE {
                self.places.shift(page, TWICE);
            }
            self.second_last.set(page, last);
            self.set_first(page);
        } else if home == ONCE {
            self.places.move_to_front(ONCE, page);
        }
    }

    fn set_first(&mut self, page: Page) {
        if let Some(first) = self.first.get_mut(page.index()) {
            *first = self.now;
        }
    }

    fn miss<D: Driver>(&mut self, request: Request, remembered: bool, driver: &mut D) -> Outcome {
        let page = request.page;
        if self.places.residents() == self.capacity {
            let unprotected = if self.correlated > 0 { self.victim(self.correlated, driver) } else { None };
            let Some(victim) = unprotected.or_else(|| self.victim(0, driver)) else {
                return driver.bypass(request);
            };
            if remembered {
                self.places.forget(page);
            }
            self.evict(victim, driver);
        }
        if remembered {
            let first = self.first.get(page.index()).unwrap_or(&self.last[page.index()]);
            self.second_last.set(page, *first);
        }
        self.last[page.index()] = self.now;
        self.set_first(page);
        self.places.enter(request, if remembered { TWICE } else { ONCE }, driver);
        Outcome::ADMITTED
    }

    /// The page to evict among those whose last reference is more than `protected` requests ago.
    fn victim<D: Driver>(&self, protected: u64, driver: &mut D) -> Option<Page> {
        let eligible = |page: Page| self.now - self.last[page.index()] > protected;
        let mut once = self.places.oldest_first(ONCE).take_while(|&page| eligible(page));
        once.find(|&page| driver.may_evict(page, Tier::TOP)).or_else(|| {
            let mut allowed = |page| eligible(page) && driver.may_evict(page, Tier::TOP);
            self.second_last.min_where(&mut allowed).map(|(page, _)| page)
        })
    }

    fn evict<D: Driver>(&mut self, victim: Page, driver: &mut D) {
        self.second_last.remove(victim);
        if self.history == 0 {
            self.places.evict(victim, NOWHERE, driver);
            return;
        }
        self.places.evict(victim, HISTORY, driver);
        if self.places.len(HISTORY) > self.history {
            self.places.forget_oldest(HISTORY);
        }
    }
}
