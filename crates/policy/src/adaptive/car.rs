//! CAR: ARC with clocks in place of its LRU lists, so that a hit only sets a bit.
//!
//! Bansal, Modha, "CAR: clock with adaptive replacement", FAST 2004, figure 2 (the line numbers below).
//!
//! Readings. `p` and its step are real numbers and the ratio is taken before the ghost is removed, as in ARC. A page that
//! may not be evicted is in use and counts as referenced: it goes the way of a page with its bit set; when all have
//! been asked in vain the request is bypassed. libCacheSim 0.3.5 differs from the figure: it bounds the ghosts (lines 6 to
//! 10) when a ghost is asked for, not when none is.

use super::places::{NOWHERE, Places};
use crate::info::{Config, Info};
use crate::interface::{Driver, PageState, Policy};
use crate::options::{BuildError, Options};
use entresol_core::{Outcome, Page, Request, Tier};

const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;

/// Clock with adaptive replacement.
#[derive(Clone, Debug)]
pub struct Car {
    capacity: usize,
    /// Desired length of T1 in pages.
    target: f64,
    /// The back of T1 and T2 is where the clock's hand points, the front is right behind it.
    places: Places<4, 2>,
}

impl Policy for Car {
    const INFO: Info = Info {
        name: "car",
        family: "adaptive",
        summary: "clock with adaptive replacement: ARC with two clocks",
        paper: "Bansal, Modha: CAR: clock with adaptive replacement, FAST 2004",
        ..Info::PLAIN
    };

    fn new(config: &Config, _options: &Options) -> Result<Self, BuildError> {
        Ok(Car { capacity: config.tiers[0], target: 0.0, places: Places::new(config.pages) })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let home = self.places.home(request.page);
        if home == T1 || home == T2 {
            self.places.reference(request.page);
            self.places.serve(request, driver);
            return Outcome::Hit(Tier::TOP);
        }
        self.miss(request, home, driver)
    }

    fn state(&self, page: Page) -> PageState {
        self.places.state(page)
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.places.residents()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("p", self.target);
        for (name, list) in [("T1", T1), ("T2", T2), ("B1", B1), ("B2", B2)] {
            visit(name, self.places.len(list) as f64);
        }
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        self.places.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        self.places.memory_bytes()
    }
}

impl Car {
    fn miss<D: Driver>(&mut self, request: Request, home: usize, driver: &mut D) -> Outcome {
        if self.places.residents() == self.capacity {
            if !self.replace(driver) {
                return driver.bypass(request);
            }
            if home == NOWHERE {
                self.bound_history();
            }
        }
        let [b1, b2] = [B1, B2].map(|list| self.places.len(list) as f64);
        // Lines 14 to 20.
        match home {
            B1 => self.target = (self.target + (b2 / b1).max(1.0)).min(self.capacity as f64),
            B2 => self.target = (self.target - (b1 / b2).max(1.0)).max(0.0),
            _ => {}
        }
        self.places.enter(request, if home == NOWHERE { T1 } else { T2 }, driver);
        Outcome::ADMITTED
    }

    /// Lines 6 to 10: a page without history is about to enter T1.
    fn bound_history(&mut self) {
        let [t1, t2, b1, b2] = [T1, T2, B1, B2].map(|list| self.places.len(list));
        if t1 + b1 == self.capacity {
            self.places.forget_oldest(B1);
        } else if t1 + t2 + b1 + b2 == 2 * self.capacity {
            self.places.forget_oldest(B2);
        }
    }

    /// Lines 22 to 39; false when no page may be evicted.
    fn replace<D: Driver>(&mut self, driver: &mut D) -> bool {
        // A page of T1 that is refused goes to T2 and may be asked there once more.
        let mut refusals_left = 2 * self.capacity;
        while refusals_left > 0 {
            let t1 = self.places.len(T1);
            let (clock, ghosts) = if t1 as f64 >= self.target.max(1.0) { (T1, B1) } else { (T2, B2) };
            let head = self.places.oldest(clock).expect("p <= c, so T2 has a page when T1 is short of p");
            if self.places.unreference(head) {
                self.places.shift(head, T2);
            } else if driver.may_evict(head, Tier::TOP) {
                self.places.evict(head, ghosts, driver);
                return true;
            } else {
                refusals_left -= 1;
                self.places.shift(head, T2);
            }
        }
        false
    }
}
