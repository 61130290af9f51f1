//! An LRU pool of memory above a policy of one tier. Pages enter that tier when they leave the pool, as in FaCE (Kang,
//! Lee, Moon, VLDB Journal 2016, section 1): what memory holds takes no space below, and a page that is written again and
//! again in memory is written once to the tier below it.
//!
//! The pool serves what it holds. The policy below decides on reads that find a page in its tier, when they happen, and on
//! the pages that leave the pool: those that were written there, and those that its tier does not hold. It hears of them as
//! of a write or of a read. A read that finds the page nowhere is served from the level below both.
//!
//! A page that was read from the tier below is in both. When it is written in the pool its copy below is superseded: the policy
//! below counts it until the page leaves the pool, and nothing is done with it any more, though the policy may ask for that. Of a
//! page that is written in part the policy below hears only if it holds the page.

use super::pool::DramPool;
use crate::info::{Config, Info};
use crate::interface::{Choice, Driver, PageState, Policy, TierSet, pass_questions_on};
use crate::options::{BuildError, Options};
use crate::parts::Bits;
use crate::ranked::Ranked;
use crate::state::Learned;
use entresol_core::{Hint, Movement, ObjectId, Op, Outcome, Page, Request, Tier, Verb};

const POOL: Tier = Tier::TOP;
const BELOW: Tier = Tier::SECOND;

/// A policy of one tier below an LRU pool, or any policy without a pool.
#[derive(Clone, Debug)]
pub struct Pooled<P> {
    policy: P,
    pool: Option<Box<Pool>>,
}

/// The pool, and those of its pages that none but sequential requests have used.
#[derive(Clone, Debug)]
struct Pool {
    lru: DramPool,
    scanned: Bits,
}

/// The configuration of a policy, and the pages of the pool above it: of two tiers for a policy of one, the upper is a pool.
pub fn divided(info: &Info, config: &Config) -> (Config, Option<usize>) {
    match config.tiers.as_slice() {
        &[pool, below] if info.tiers.len() == 1 => (Config { tiers: vec![below], ..config.clone() }, Some(pool)),
        _ => (config.clone(), None),
    }
}

impl Pool {
    fn new(handles: usize, capacity: usize) -> Self {
        Pool { lru: DramPool::new(handles, capacity), scanned: Bits::new(handles) }
    }
}

impl<P: Policy> Pooled<P> {
    const TIERS: [&'static str; 2] = ["dram", P::INFO.tiers[0]];
    const MIN_PAGES: [usize; 2] = [1, P::INFO.min_pages[0]];

    /// A policy below a pool of so many pages, or alone. `handles` is the number of handles.
    pub fn over(policy: P, pool: Option<usize>, handles: usize) -> Self {
        debug_assert!(pool.is_none() || P::INFO.tiers.len() == 1, "a policy of two tiers has a pool of its own");
        Pooled { policy, pool: pool.map(|capacity| Box::new(Pool::new(handles, capacity))) }
    }

    /// Number of tiers.
    pub fn tiers(&self) -> usize {
        P::INFO.tiers.len() + usize::from(self.pool.is_some())
    }

    /// Shows the policy a page that is in the lowest tier already. The pool stays as it is.
    #[inline]
    pub fn show<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let Some(pool) = self.pool.as_deref_mut() else { return self.policy.access(request, driver) };
        let mut lower = Lower { driver, pool: &mut pool.lru, leaving: None };
        lowered(self.policy.access(request, &mut lower))
    }

    /// Serves a request by the pool, or by the policy below it.
    fn access_pool(&mut self, pool: &mut Pool, request: Request, driver: &mut dyn Driver) -> Outcome {
        let page = request.page;
        if pool.lru.contains(page) {
            self.supersede(&pool.lru, request, driver);
            pool.lru.hit(request, driver);
            if !request.sequential {
                pool.scanned.remove(page);
            }
            return Outcome::Hit(POOL);
        }
        if pool.lru.is_full() && !self.make_room(pool, driver) {
            return lowered(self.policy.access(request, &mut Lower { driver, pool: &mut pool.lru, leaving: None }));
        }
        let outcome = match (self.is_below(page), request.op) {
            (true, Op::Read | Op::Update) => {
                driver.start(page, Verb::Copy { from: BELOW, to: POOL });
                let read = Request { op: Op::Read, ..request };
                self.policy.access(read, &mut Lower { driver, pool: &mut pool.lru, leaving: None });
                Outcome::Hit(BELOW)
            }
            (true, Op::Write) => Outcome::Hit(BELOW),
            (false, Op::Read) => {
                driver.start(page, Verb::Fetch { to: POOL });
                Outcome::ADMITTED
            }
            (false, Op::Write | Op::Update) => Outcome::ADMITTED,
        };
        self.supersede(&pool.lru, request, driver);
        pool.lru.enter(request, false, driver);
        if request.sequential {
            pool.scanned.insert(page);
        }
        outcome
    }

    /// Supersedes the copy below of a page that is about to be written in the pool.
    #[inline]
    fn supersede(&self, pool: &DramPool, request: Request, driver: &mut dyn Driver) {
        let page = request.page;
        if request.op.is_write() && !pool.is_ahead(page) && self.is_below(page) {
            driver.start(page, Verb::Supersede { tier: BELOW });
        }
    }

    /// Frees a frame of the pool. A page of which the tier below lacks this version goes to the policy below. False if no page
    /// may be evicted.
    fn make_room(&mut self, pool: &mut Pool, driver: &mut dyn Driver) -> bool {
        let Some(page) = pool.lru.back_where(|page| driver.may_evict(page, POOL)) else { return false };
        let sequential = pool.scanned.remove(page);
        let (is_ahead, is_below) = (pool.lru.is_ahead(page), self.is_below(page));
        if is_ahead && is_below {
            driver.start(page, Verb::Reclaim { tier: BELOW });
        }
        if is_ahead || !is_below {
            let op = if is_ahead { Op::Write } else { Op::Read };
            let request = Request { page, op, sequential };
            self.policy.access(request, &mut Lower { driver, pool: &mut pool.lru, leaving: Some(page) });
        }
        pool.lru.leave(page, driver);
        true
    }

    fn is_below(&self, page: Page) -> bool {
        self.policy.state(page).tiers.contains(Tier::TOP)
    }
}

impl<P: Policy> Policy for Pooled<P> {
    const INFO: Info = if P::INFO.tiers.len() == 1 {
        Info { tiers: &Self::TIERS, min_pages: &Self::MIN_PAGES, stack: false, ..P::INFO }
    } else {
        P::INFO
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let (own, pool) = divided(&P::INFO, config);
        Ok(Pooled::over(P::new(&own, options)?, pool, config.pages))
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let Some(mut pool) = self.pool.take() else { return self.policy.access(request, driver) };
        let outcome = self.access_pool(&mut pool, request, driver);
        self.pool = Some(pool);
        outcome
    }

    fn hint<D: Driver>(&mut self, hint: Hint, driver: &mut D) {
        match self.pool.as_deref_mut() {
            None => self.policy.hint(hint, driver),
            Some(pool) => self.policy.hint(hint, &mut Lower { driver, pool: &mut pool.lru, leaving: None }),
        }
    }

    #[inline]
    fn state(&self, page: Page) -> PageState {
        let below = self.policy.state(page);
        let Some(pool) = &self.pool else { return below };
        let (in_pool, ahead) = (pool.lru.contains(page), pool.lru.is_ahead(page));
        let in_step = below.tiers.contains(Tier::TOP) && !ahead;
        PageState {
            tiers: TierSet::only(POOL, in_pool).and(BELOW, in_step),
            dirty: below.dirty || ahead,
            known: below.known || in_pool,
        }
    }

    fn occupancy(&self, tier: Tier) -> usize {
        match &self.pool {
            None => self.policy.occupancy(tier),
            Some(pool) if tier == POOL => pool.lru.len(),
            Some(_) => self.policy.occupancy(Tier::TOP),
        }
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        self.policy.gauges(visit);
    }

    fn verdict(&self, object: ObjectId) -> Option<&'static str> {
        self.policy.verdict(object)
    }

    fn choice(&self) -> Option<Choice> {
        self.policy.choice()
    }

    fn placed(&self, object: ObjectId) -> u64 {
        self.policy.placed(object)
    }

    fn go_on<D: Driver>(&mut self, driver: &mut D) -> bool {
        match self.pool.as_deref_mut() {
            None => self.policy.go_on(driver),
            Some(pool) => self.policy.go_on(&mut Lower { driver, pool: &mut pool.lru, leaving: None }),
        }
    }

    fn ranked(&mut self) -> Option<&mut dyn Ranked> {
        self.policy.ranked()
    }

    fn learned(&mut self) -> Option<&mut dyn Learned> {
        self.policy.learned()
    }

    fn tunable(&self, at: usize) -> f64 {
        self.policy.tunable(at)
    }

    fn tune(&mut self, at: usize, value: f64) {
        self.policy.tune(at, value);
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        if let Some(pool) = &self.pool {
            pool.lru.prefetch(page);
        }
        self.policy.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        let bytes = |pool: &Pool| pool.lru.memory_bytes() + pool.scanned.memory_bytes();
        self.policy.memory_bytes() + self.pool.as_deref().map_or(0, bytes)
    }
}

/// An outcome of the policy below the pool.
fn lowered(outcome: Outcome) -> Outcome {
    if outcome.is_hit() { Outcome::Hit(BELOW) } else { outcome }
}

/// The driver of the policy below a pool: its tier is the second one.
struct Lower<'d> {
    driver: &'d mut dyn Driver,
    pool: &'d mut DramPool,
    /// The page of the decision, if it leaves the pool.
    leaving: Option<Page>,
}

impl Lower<'_> {
    /// Writes the pool's newer pages of an object to the level below, from where the object is to be fetched.
    fn write_back_object(&mut self, object: ObjectId) {
        let mut next = self.pool.back();
        while let Some(page) = next {
            next = self.pool.towards_front(page);
            if self.pool.is_ahead(page) && self.driver.address(page).object == object {
                self.driver.start(page, Verb::WriteBack { from: POOL });
                self.pool.in_step(page);
            }
        }
    }
}

impl Driver for Lower<'_> {
    fn may_evict(&mut self, page: Page, _tier: Tier) -> bool {
        self.driver.may_evict(page, BELOW)
    }

    fn emit(&mut self, Movement { page, verb, joined }: Movement) {
        match verb {
            Verb::FetchObject { object, .. } => self.write_back_object(object),
            // Nothing is done with a superseded copy. That of the page that leaves the pool is reclaimed already.
            Verb::WriteBack { .. } | Verb::Requeue { .. } | Verb::Supersede { .. } if self.pool.is_ahead(page) => {
                return;
            }
            Verb::Drop { .. } if self.pool.is_ahead(page) => {
                if self.leaving != Some(page) {
                    self.driver.start(page, Verb::Reclaim { tier: BELOW });
                }
                return;
            }
            _ => {}
        }
        let mut emit = |verb| self.driver.emit(Movement { page, verb, joined });
        let is_leaving = self.leaving == Some(page);
        match verb {
            Verb::Fetch { .. } | Verb::Install { .. } if is_leaving => {
                emit(Verb::Copy { from: POOL, to: BELOW });
                self.pool.in_step(page);
            }
            Verb::Bypass if is_leaving => {
                if self.pool.is_ahead(page) {
                    emit(Verb::WriteBack { from: POOL });
                    self.pool.in_step(page);
                }
            }
            Verb::Fetch { .. } => emit(Verb::Fetch { to: BELOW }),
            Verb::Install { .. } => emit(Verb::Install { to: BELOW }),
            Verb::Bypass => emit(Verb::Bypass),
            Verb::WriteBack { .. } => emit(Verb::WriteBack { from: BELOW }),
            Verb::Drop { .. } => emit(Verb::Drop { from: BELOW }),
            Verb::Requeue { .. } => emit(Verb::Requeue { tier: BELOW }),
            Verb::Supersede { .. } => emit(Verb::Supersede { tier: BELOW }),
            Verb::Reclaim { .. } => emit(Verb::Reclaim { tier: BELOW }),
            Verb::FetchObject { object, pages, .. } => emit(Verb::FetchObject { object, pages, to: BELOW }),
            Verb::DropObject { object, pages, .. } => emit(Verb::DropObject { object, pages, from: BELOW }),
            Verb::Copy { .. } => unreachable!("a policy of one tier copies nothing"),
        }
    }

    pass_questions_on!(driver);
}
