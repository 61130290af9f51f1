//! LIRS: keeps the pages whose last two references lay close together, however long ago the last one was.
//!
//! Jiang, Zhang, "LIRS: an efficient low inter-reference recency set replacement policy to improve buffer cache
//! performance", SIGMETRICS 2002, section 3.3: the stack S, the queue Q, stack pruning; 1 % of the frames for HIR pages.
//!
//! Readings. HIR pages have at least 2 frames (1 in a cache of a single page, where all degenerates to LRU, as it does with 2
//! frames). S holds at most `stack` entries: beyond them the oldest page without a frame is forgotten; the
//! paper leaves S unbounded. While there are fewer LIR pages than planned a page that is brought in becomes one. When no
//! page of Q may be evicted, the LIR page nearest the bottom of S that may goes, and S with it.

use crate::info::{Config, Info, OptionInfo};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::options::{BuildError, Options};
use crate::parts::Lists;
use entresol_core::{Outcome, Page, Request, Tier};

const S: usize = 0;
/// Resident HIR pages; the back is what the paper calls the front, the next victim.
const Q: usize = 0;
/// Pages of S without a frame, the first evicted at the back. They lie in S in this order too.
const GONE: usize = 1;

const KIND: u8 = 3;
const UNKNOWN_PAGE: u8 = 0;
const LIR: u8 = 1;
const HIR: u8 = 2;
const GHOST: u8 = 3;
const DIRTY: u8 = 4;

/// Low inter-reference recency set.
#[derive(Clone, Debug)]
pub struct Lirs {
    capacity: usize,
    lir_target: usize,
    stack_bound: usize,
    lir: usize,
    stack: Lists<1>,
    queue: Lists<2>,
    marks: Vec<u8>,
}

impl Policy for Lirs {
    const INFO: Info = Info {
        name: "lirs",
        family: "adaptive",
        summary: "low inter-reference recency set: reuse distance instead of recency",
        paper: "Jiang, Zhang: LIRS: an efficient low inter-reference recency set replacement policy, SIGMETRICS 2002",
        options: &[
            OptionInfo {
                name: "hir",
                default: "1%",
                help: "frames for pages with a high inter-reference recency, of the capacity; at least 2",
            },
            OptionInfo {
                name: "stack",
                default: "200%",
                help: "entries of the stack S, of the capacity; at least the capacity",
            },
        ],
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0];
        let hir = options.pages("hir", config, capacity)?.max(2);
        Ok(Lirs {
            capacity,
            lir_target: capacity.saturating_sub(hir),
            stack_bound: options.pages("stack", config, capacity)?.max(capacity),
            lir: 0,
            stack: Lists::new(config.pages),
            queue: Lists::new(config.pages),
            marks: vec![UNKNOWN_PAGE; config.pages],
        })
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        match self.kind(page) {
            LIR => {
                let bottom = self.stack.back(S) == Some(page);
                self.stack.move_to_front(S, page);
                if bottom {
                    self.prune();
                }
            }
            HIR => self.hit_hir(page),
            _ => return self.miss(request, driver),
        }
        driver.overwrite(request, Tier::TOP);
        self.mark_written(request);
        Outcome::Hit(Tier::TOP)
    }

    fn state(&self, page: Page) -> PageState {
        let mark = self.marks[page.index()];
        let held = matches!(mark & KIND, LIR | HIR);
        PageState {
            tiers: TierSet::only(Tier::TOP, held),
            dirty: mark & DIRTY != 0,
            known: mark & KIND != UNKNOWN_PAGE,
        }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.lir + self.queue.len(Q)
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("LIR", self.lir as f64);
        visit("HIR", self.queue.len(Q) as f64);
        visit("S", self.stack.len(S) as f64);
        visit("ghosts", self.queue.len(GONE) as f64);
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        entresol_core::prefetch(&self.marks, page.index());
        self.stack.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        self.stack.memory_bytes() + self.queue.memory_bytes() + self.marks.capacity()
    }
}

impl Lirs {
    #[inline(always)]
    fn kind(&self, page: Page) -> u8 {
        self.marks[page.index()] & KIND
    }

    #[inline(always)]
    fn set_kind(&mut self, page: Page, kind: u8) {
        let mark = &mut self.marks[page.index()];
        *mark = *mark & !KIND | kind;
    }

    #[inline(always)]
    fn mark_written(&mut self, request: Request) {
        self.marks[request.page.index()] |= DIRTY * u8::from(request.op.is_write());
    }

    fn hit_hir(&mut self, page: Page) {
        if self.stack.contains(page) {
            self.queue.remove(Q, page);
            self.stack.move_to_front(S, page);
            self.become_lir(page);
        } else {
            self.queue.move_to_front(Q, page);
            self.stack.push_front(S, page);
            self.bound_stack();
        }
    }

    fn miss<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        if self.lir + self.queue.len(Q) == self.capacity && !self.make_room(driver) {
            return driver.bypass(request);
        }
        driver.admit(request, Tier::TOP);
        if self.kind(page) == GHOST {
            self.queue.remove(GONE, page);
            self.stack.move_to_front(S, page);
            self.become_lir(page);
        } else {
            self.stack.push_front(S, page);
            if self.lir < self.lir_target {
                self.become_lir(page);
            } else {
                self.set_kind(page, HIR);
                self.queue.push_front(Q, page);
                self.bound_stack();
            }
        }
        self.mark_written(request);
        Outcome::ADMITTED
    }

    /// A page at the top of S joins the LIR pages; the one at the bottom makes place for it.
    fn become_lir(&mut self, page: Page) {
        self.set_kind(page, LIR);
        self.lir += 1;
        if self.lir > self.lir_target
            && let Some(bottom) = self.stack.back(S)
        {
            debug_assert_eq!(self.kind(bottom), LIR);
            self.stack.remove(S, bottom);
            self.set_kind(bottom, HIR);
            self.queue.push_front(Q, bottom);
            self.lir -= 1;
        }
        self.prune();
    }

    /// Stack pruning: the bottom of S is a LIR page.
    fn prune(&mut self) {
        while let Some(bottom) = self.stack.back(S) {
            match self.kind(bottom) {
                LIR => return,
                GHOST => self.forget_ghost(bottom),
                _ => self.stack.remove(S, bottom),
            }
        }
    }

    fn forget_ghost(&mut self, page: Page) {
        self.stack.remove(S, page);
        self.queue.remove(GONE, page);
        self.marks[page.index()] = UNKNOWN_PAGE;
    }

    /// After a push onto S: keeps its length, and its bottom if there is no LIR page.
    fn bound_stack(&mut self) {
        if self.stack.len(S) > self.stack_bound
            && let Some(oldest) = self.queue.back(GONE)
        {
            self.forget_ghost(oldest);
        }
        if self.lir == 0 {
            self.prune();
        }
    }

    /// Frees a frame; false when no page may be evicted.
    fn make_room<D: Driver>(&mut self, driver: &mut D) -> bool {
        if let Some(victim) = self.queue.back_where(Q, |page| driver.may_evict(page, Tier::TOP)) {
            self.drop_frame(victim, driver);
            if self.stack.contains(victim) {
                self.queue.transfer(Q, GONE, victim);
                self.marks[victim.index()] = GHOST;
            } else {
                self.queue.remove(Q, victim);
                self.marks[victim.index()] = UNKNOWN_PAGE;
            }
            return true;
        }
        let allowed = |page: Page| self.kind(page) == LIR && driver.may_evict(page, Tier::TOP);
        let Some(victim) = self.stack.back_where(S, allowed) else { return false };
        self.drop_frame(victim, driver);
        self.stack.remove(S, victim);
        self.marks[victim.index()] = UNKNOWN_PAGE;
        self.lir -= 1;
        self.prune();
        true
    }

    fn drop_frame<D: Driver>(&self, victim: Page, driver: &mut D) {
        driver.evict(victim, Tier::TOP, self.marks[victim.index()] & DIRTY != 0);
    }
}
