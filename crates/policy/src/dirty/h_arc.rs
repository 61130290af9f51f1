//! H-ARC: a cache in non-volatile memory that adapts its share of dirty pages, and within each side its share of
//! pages seen once.
//!
//! Fan, "Improving storage performance with non-volatile memory-based caching systems", thesis 2017 (004), section
//! 2.4.1, equations 2.1 to 2.12; first in Fan, Du, Voigt, "H-ARC: a non-volatile memory based cache policy for solid
//! state drives", MSST 2014.
//!
//! Four resident lists (clean and dirty, seen once and seen again) and the ghosts of each. A ghost hit moves the
//! boundary between clean and dirty (P), then the boundary inside that side (P_C or P_D); victims come from the list
//! that is longer than desired. `variant` says how the places are read where the text is silent or in error:
//!
//! - `errata` (default). P, P_C, P_D are real numbers and start at 0; quotients of ghost lengths are taken before the
//!   hit ghost leaves, with 1 for a zero denominator; P moves first and its new value scales the step of P_C or P_D.
//!   Eq. 2.9's second step is (|C2o| / |C1o|) / P, and eq. 2.10 decreases P_C. A page that hits a ghost returns to
//!   the frequency list of its operation (C2i for a read, D2i for a write). Eviction and balance is ARC's REPLACE one
//!   level up: the clean side when |Ci| > P, or |Ci| = P and the request is in Do; within a side the recency list
//!   when it is longer than desired, or equal and the request is in that side's frequency ghost. Where a list or
//!   side is empty (or pinned) the next one is taken.
//!   A request in neither list nor ghost, to a full cache: when |C| > L a ghost of the clean side goes first, of C1o
//!   when |C1| > L/2, else of C2o; otherwise one of the dirty side, likewise, but only when the 2 L entries are used
//!   up (dropping it earlier, as the letter has it, keeps ghosts from ever accumulating). When that ghost list is
//!   empty, its resident list gives up its LRU page without leaving a ghost.
//! - `literal`: the sentence on eviction and balance as printed (clean side when |Ci| >= P and the request is in Do,
//!   else the dirty one; recency list when longer than desired), and eq. 2.9 as printed ((|C1o| / |C2o|) / P). It
//!   starves the clean side: misses of both lists only ever evict dirty pages while there are any.
//! - `author`: as the thesis author's own simulator behaves: P moves by whole pages (+1, or -2, or by the floor of
//!   2 |Co| / |Do|); the steps of P_C and P_D are floors of the quotient over P; a recency list is evicted from when
//!   it is at least as long as the floor of its desired size; |C| <= L holds always, C1o giving up ghosts before C2o,
//!   and D1o before D2o when all 2 L entries are used; a clean side that fills L with residents evicts without a
//!   ghost.

use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::{ListId, Lists};
use entresol_core::{Outcome, Page, Request, Tier};

/// Reading of the paper where its text is unclear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Errata,
    Literal,
    Author,
}

/// Lists are numbered so that their properties are bits: 1 seen again, 2 ghost, 4 dirty.
const AGAIN: ListId = 1;
const GHOST: ListId = 2;
const DIRTY: ListId = 4;
const CLEAN: ListId = 0;
/// Not in any list.
const ABSENT: u8 = u8::MAX;

/// Hierarchical adaptive replacement cache.
#[derive(Clone, Debug)]
pub struct HArc {
    variant: Variant,
    capacity: usize,
    lists: Lists<8>,
    /// The list of each page.
    home: Vec<u8>,
    /// Desired number of clean pages: P.
    desired_clean: f64,
    /// Desired share of the recency list in each side: P_C, P_D.
    recency_share: [f64; 2],
}

impl HArc {
    /// Residents of a side, [`CLEAN`] or [`DIRTY`].
    #[inline(always)]
    fn residents(&self, side: ListId) -> usize {
        self.lists.len(side) + self.lists.len(side | AGAIN)
    }

    #[inline(always)]
    fn ghosts(&self, side: ListId) -> usize {
        self.residents(side | GHOST)
    }

    /// Equations 2.7 to 2.12: a ghost hit in list `home`.
    fn adapt(&mut self, home: ListId) {
        let side = home & DIRTY;
        let limit = self.capacity as f64;
        let author = self.variant == Variant::Author;
        let ratio = |numerator: usize, denominator: usize| {
            let quotient = numerator as f64 / denominator.max(1) as f64;
            if author { quotient.floor() } else { quotient }
        };
        if side == CLEAN {
            self.desired_clean = (self.desired_clean + 1.0).min(limit);
        } else {
            let step = ratio(2 * self.ghosts(CLEAN), self.ghosts(DIRTY)).max(2.0);
            self.desired_clean = (self.desired_clean - step).max(0.0);
        }
        let desired = if side == CLEAN { self.desired_clean } else { limit - self.desired_clean };
        let scale = if desired == 0.0 { 1.0 } else { desired };
        let (hit, other) = (self.lists.len(home), self.lists.len(home ^ AGAIN));
        let mut step = ratio(other, hit).max(1.0);
        if self.variant == Variant::Literal && home == CLEAN | GHOST && other >= hit {
            step = ratio(hit, other);
        }
        let share = &mut self.recency_share[side / DIRTY];
        let change = step / scale;
        *share = if home & AGAIN == 0 { (*share + change).min(1.0) } else { (*share - change).max(0.0) };
    }

    /// The resident lists in the order in which eviction and balance tries them for a request found in `home`.
    fn balanced_order(&self, home: Option<ListId>) -> [ListId; 4] {
        let (clean, desired) = (self.residents(CLEAN) as f64, self.desired_clean);
        let in_dirty_ghost = home.is_some_and(|home| home & DIRTY != 0);
        let clean_first = match self.variant {
            Variant::Literal => clean >= desired && in_dirty_ghost,
            _ => clean > desired || (clean == desired && in_dirty_ghost),
        };
        let first = if clean_first { CLEAN } else { DIRTY };
        let [a, b] = self.balanced_lists(first, home);
        let [c, d] = self.balanced_lists(first ^ DIRTY, home);
        [a, b, c, d]
    }

    fn balanced_lists(&self, side: ListId, home: Option<ListId>) -> [ListId; 2] {
        let of_side = if side == CLEAN { self.desired_clean } else { self.capacity as f64 - self.desired_clean };
        let desired = self.recency_share[side / DIRTY] * of_side;
        let recent = self.lists.len(side) as f64;
        let recency_first = match self.variant {
            Variant::Errata => recent > desired || (recent == desired && home == Some(side | GHOST | AGAIN)),
            Variant::Literal => recent > desired,
            Variant::Author => recent >= desired.floor(),
        };
        if recency_first { [side, side | AGAIN] } else { [side | AGAIN, side] }
    }

    /// Frees a frame of the full cache for a request found in ghost list `home`, if in any. False when every page
    /// is pinned; nothing has changed then.
    fn make_room<D: Driver>(&mut self, home: Option<ListId>, driver: &mut D) -> bool {
        let surplus = if home.is_none() { self.surplus() } else { None };
        match surplus {
            Some(list) if self.lists.is_empty(list | GHOST) => {
                let order = [list, list ^ AGAIN, list ^ DIRTY, list ^ DIRTY ^ AGAIN];
                self.evict(order, false, driver)
            }
            _ => {
                let order = self.balanced_order(home);
                let oldest = surplus.and_then(|list| self.lists.back(list | GHOST));
                if !self.evict(order, true, driver) {
                    return false;
                }
                if let Some(ghost) = oldest {
                    self.forget(ghost);
                }
                true
            }
        }
    }

    /// The resident list whose ghosts have to give way before a page that is new to all lists comes, if any.
    fn surplus(&self) -> Option<ListId> {
        let clean = self.residents(CLEAN) + self.ghosts(CLEAN);
        let dirty = self.residents(DIRTY) + self.ghosts(DIRTY);
        let used_up = clean + dirty >= 2 * self.capacity;
        if self.variant == Variant::Author {
            let side = match clean >= self.capacity {
                true => CLEAN,
                false if used_up => DIRTY,
                false => return None,
            };
            let lists = if self.ghosts(side) > 0 { side | GHOST } else { side };
            return Some(if self.lists.is_empty(lists) { side | AGAIN } else { side });
        }
        let side = match clean > self.capacity {
            true => CLEAN,
            false if used_up => DIRTY,
            false => return None,
        };
        let once = self.lists.len(side) + self.lists.len(side | GHOST);
        Some(if 2 * once > self.capacity { side } else { side | AGAIN })
    }

    fn evict<D: Driver>(&mut self, order: [ListId; 4], leave_ghost: bool, driver: &mut D) -> bool {
        for list in order {
            let Some(victim) = self.lists.back_where(list, |page| driver.may_evict(page, Tier::TOP)) else { continue };
            self.lists.remove(list, victim);
            driver.evict(victim, Tier::TOP, list & DIRTY != 0);
            self.home[victim.index()] = ABSENT;
            if leave_ghost {
                self.enter(list | GHOST, victim);
            }
            return true;
        }
        false
    }

    #[inline(always)]
    fn enter(&mut self, list: ListId, page: Page) {
        self.lists.push_front(list, page);
        self.home[page.index()] = list as u8;
    }

    #[inline(always)]
    fn forget(&mut self, ghost: Page) {
        self.lists.remove(ListId::from(self.home[ghost.index()]), ghost);
        self.home[ghost.index()] = ABSENT;
    }
}

impl Policy for HArc {
    const INFO: Info = Info {
        name: "h-arc",
        family: "dirty",
        summary: "hierarchical ARC: adapts between clean and dirty, and in each between recency and frequency; for reads alone \
                  it remembers one evicted page at most, and hardly adapts",
        paper: "Fan, Du, Voigt: H-ARC: a non-volatile memory based cache policy for solid state drives, MSST 2014; \
                Fan, thesis 2017, chapter 2",
        options: &[OptionInfo {
            name: "variant",
            default: "errata",
            help: "errata: eviction and balance as ARC's REPLACE one level up, equation 2.9 corrected; literal: both \
                   as printed in section 2.4.1; author: whole-page steps and the comparisons of the author's simulator",
        }],
        write_aware: true,
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let variants = [("errata", Variant::Errata), ("literal", Variant::Literal), ("author", Variant::Author)];
        Ok(HArc {
            variant: options.choice("variant", &variants)?,
            capacity: config.tiers[0],
            lists: Lists::new(config.pages),
            home: vec![ABSENT; config.pages],
            desired_clean: 0.0,
            recency_share: [0.0; 2],
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        let home = self.home[page.index()];
        let side = if request.op.is_write() { DIRTY } else { CLEAN };
        let known = home != ABSENT;
        let home = ListId::from(home);
        if known && home & GHOST == 0 {
            let to = (home & DIRTY) | side | AGAIN;
            if home == to {
                self.lists.move_to_front(to, page);
            } else {
                self.lists.transfer(home, to, page);
                self.home[page.index()] = to as u8;
            }
            driver.overwrite(request, Tier::TOP);
            return Outcome::Hit(Tier::TOP);
        }
        if known {
            self.adapt(home);
        }
        let full = self.residents(CLEAN) + self.residents(DIRTY) == self.capacity;
        if full && !self.make_room(known.then_some(home), driver) {
            return driver.bypass(request);
        }
        driver.admit(request, Tier::TOP);
        if known {
            self.forget(page);
            self.enter(side | AGAIN, page);
            let clean = self.residents(CLEAN) + self.ghosts(CLEAN);
            if self.variant == Variant::Author && clean > self.capacity {
                let once = self.lists.back(CLEAN | GHOST);
                let ghost = once.or_else(|| self.lists.back(CLEAN | GHOST | AGAIN));
                self.forget(ghost.expect("residents alone do not exceed the capacity"));
            }
        } else {
            self.enter(side, page);
        }
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let home = self.home[page.index()];
        let known = home != ABSENT;
        let held = known && ListId::from(home) & GHOST == 0;
        PageState { tiers: TierSet::only(Tier::TOP, held), dirty: held && ListId::from(home) & DIRTY != 0, known }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.residents(CLEAN) + self.residents(DIRTY)
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("desired clean pages", self.desired_clean);
        visit("desired recency share of clean", self.recency_share[0]);
        visit("desired recency share of dirty", self.recency_share[1]);
        let names = ["clean once", "clean again", "clean once ghosts", "clean again ghosts"];
        let dirty = ["dirty once", "dirty again", "dirty once ghosts", "dirty again ghosts"];
        for (list, name) in names.into_iter().chain(dirty).enumerate() {
            visit(name, self.lists.len(list) as f64);
        }
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.home, page.index());
        self.lists.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        self.lists.memory_bytes() + self.home.capacity()
    }
}
