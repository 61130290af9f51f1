//! ARC: balances recency and frequency by what its ghosts would have hit.
//!
//! Megiddo, Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003, figure 4: cases I to IV and
//! the subroutine REPLACE.
//!
//! Readings. The target `p` and its step are real numbers, and the ratio of the ghost lists is taken while the
//! ghost that was hit is still counted; `step=whole` divides integers instead, as several implementations do.
//! REPLACE takes the other list when the chosen one has no page, or none that may be evicted; the ghost then goes to
//! the list of the page's own side, so that |T1 + B1| <= c holds. A page that cannot be brought in leaves no trace but
//! the step of `p` that its ghost caused.

use super::places::{NOWHERE, Places};
use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy};
use crate::options::{BuildError, Options};
use entresol_core::{Outcome, Page, Request, Tier};

const T1: usize = 0;
const T2: usize = 1;
const B1: usize = 2;
const B2: usize = 3;

/// Adaptive replacement cache.
#[derive(Clone, Debug)]
pub struct Arc {
    capacity: usize,
    whole_steps: bool,
    /// Desired length of T1 in pages.
    target: f64,
    places: Places<4, 2>,
}

impl Policy for Arc {
    const INFO: Info = Info {
        name: "arc",
        family: "adaptive",
        summary: "adaptive replacement cache: recency and frequency balanced by ghost hits",
        paper: "Megiddo, Modha: ARC: a self-tuning, low overhead replacement cache, FAST 2003",
        options: &[OptionInfo {
            name: "step",
            default: "real",
            help: "step of the target size of T1 on a ghost hit: real (ratio of the ghost lists) or whole (rounded down)",
        }],
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let whole_steps = options.choice("step", &[("real", false), ("whole", true)])?;
        Ok(Arc { capacity: config.tiers[0], whole_steps, target: 0.0, places: Places::new(config.pages) })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let home = self.places.home(request.page);
        if home == T1 || home == T2 {
            self.places.shift(request.page, T2);
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

impl Arc {
    /// Cases II to IV.
    fn miss<D: Driver>(&mut self, request: Request, home: usize, driver: &mut D) -> Outcome {
        let [t1, t2, b1, b2] = [T1, T2, B1, B2].map(|list| self.places.len(list));
        match home {
            B1 => self.target = (self.target + self.step(b2, b1)).min(self.capacity as f64),
            B2 => self.target = (self.target - self.step(b1, b2)).max(0.0),
            _ => {}
        }
        if t1 + t2 == self.capacity {
            let Some((victim, ghosts)) = self.replace(home, driver) else {
                return driver.bypass(request);
            };
            let mut ghosts = ghosts;
            if home == NOWHERE {
                if t1 + b1 == self.capacity && t1 == self.capacity {
                    // Case IV A, B1 empty: the page leaves without a ghost.
                    ghosts = NOWHERE;
                } else if t1 + b1 == self.capacity {
                    self.places.forget_oldest(B1);
                } else if t1 + t2 + b1 + b2 == 2 * self.capacity {
                    self.places.forget_oldest(B2);
                }
            }
            self.places.evict(victim, ghosts, driver);
        }
        self.places.enter(request, if home == NOWHERE { T1 } else { T2 }, driver);
        Outcome::ADMITTED
    }

    /// The step of `p` when a ghost of a list of length `own` is hit.
    fn step(&self, other: usize, own: usize) -> f64 {
        let ratio = if self.whole_steps { (other / own) as f64 } else { other as f64 / own as f64 };
        ratio.max(1.0)
    }

    /// REPLACE: the victim and the list its ghost goes to.
    fn replace<D: Driver>(&self, home: usize, driver: &mut D) -> Option<(Page, usize)> {
        let t1 = self.places.len(T1) as f64;
        let from_t1 = t1 >= 1.0 && (t1 > self.target || (home == B2 && t1 == self.target));
        let order = if from_t1 { [(T1, B1), (T2, B2)] } else { [(T2, B2), (T1, B1)] };
        order.into_iter().find_map(|(list, ghosts)| Some((self.places.victim(list, driver)?, ghosts)))
    }
}
