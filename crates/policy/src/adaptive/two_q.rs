//! 2Q: a page proves itself in a FIFO queue, or by coming back soon after it left it, before LRU cares for it.
//!
//! Johnson, Shasha, "2Q: a low overhead high performance buffer management replacement algorithm", VLDB 1994,
//! section 3.2, figure 3: the full version with `reclaimfor`. Kin and Kout as the authors recommend: 25 % and 50 % of
//! the frames; a hit in A1in changes nothing.
//!
//! Readings. `reclaimfor(X)` runs before X leaves A1out, as printed: the identifier that falls off the end of A1out may
//! be any, and if it is that of X the page is admitted to Am all the same. An empty Am makes A1in give the
//! frame, and so does an Am (or A1in) without a page that may be evicted the other queue; a page of Am leaves no ghost.

use super::places::{NOWHERE, Places};
use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy};
use crate::options::{BuildError, Options};
use entresol_core::{Outcome, Page, Request, Tier};

const A1IN: usize = 0;
const AM: usize = 1;
const A1OUT: usize = 2;

/// 2Q, full version.
#[derive(Clone, Debug)]
pub struct TwoQ {
    capacity: usize,
    kin: usize,
    kout: usize,
    places: Places<3, 2>,
}

impl Policy for TwoQ {
    const INFO: Info = Info {
        name: "2q",
        family: "adaptive",
        summary: "two queues: a FIFO filter before LRU",
        paper: "Johnson, Shasha: 2Q: a low overhead high performance buffer management replacement algorithm, VLDB 1994",
        options: &[
            OptionInfo {
                name: "kin",
                default: "25%",
                help: "pages A1in keeps before it gives frames, of the capacity",
            },
            OptionInfo { name: "kout", default: "50%", help: "identifiers A1out remembers, of the capacity" },
        ],
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0];
        let (kin, kout) = (options.pages("kin", config, capacity)?, options.pages("kout", config, capacity)?);
        Ok(TwoQ { capacity, kin, kout, places: Places::new(config.pages) })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let home = self.places.home(request.page);
        if home == AM || home == A1IN {
            if home == AM {
                self.places.move_to_front(AM, request.page);
            }
            self.places.serve(request, driver);
            return Outcome::Hit(Tier::TOP);
        }
        if self.places.residents() == self.capacity && !self.reclaim(driver) {
            return driver.bypass(request);
        }
        self.places.enter(request, if home == A1OUT { AM } else { A1IN }, driver);
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        self.places.state(page)
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.places.residents()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        for (name, list) in [("A1in", A1IN), ("Am", AM), ("A1out", A1OUT)] {
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

impl TwoQ {
    /// `reclaimfor` in a full cache; false when no page may be evicted.
    fn reclaim<D: Driver>(&mut self, driver: &mut D) -> bool {
        let order = if self.places.len(A1IN) > self.kin { [A1IN, AM] } else { [AM, A1IN] };
        for list in order {
            let Some(victim) = self.places.victim(list, driver) else { continue };
            if list == AM || self.kout == 0 {
                self.places.evict(victim, NOWHERE, driver);
                return true;
            }
            self.places.evict(victim, A1OUT, driver);
            if self.places.len(A1OUT) > self.kout {
                self.places.forget_oldest(A1OUT);
            }
            return true;
        }
        false
    }
}
