//! Reuse: a page is worth the disk I/Os that it is expected to save per unit of time for which it would take a frame.
//!
//! Own design. For each class of history the distribution of the age at the next read, at the next write, or never, is
//! learned online (`tables.rs`); the rank of a page follows from its class and age by one look-up. The victim is the
//! resident with the lowest rank (`pages.rs`); a miss is admitted if its own rank is higher.
//!
//! Relatives.
//! - Beckmann, Chen, Cidon, "LHD: improving cache hit rate by maximizing hit density", NSDI 2018: hits per unit of
//!   time and space, learned online as a function of age and class. Its density runs to the end of a page's life,
//!   where ours stops at the best moment.
//! - Beckmann, Sanchez, "Maximizing cache performance under uncertainty", HPCA 2017 (EVA): the value of a page is what
//!   it gains beyond the mean of the cache; [`Tables::value`] is that.
//! - Gittins, "Bandit processes and dynamic allocation indices", JRSS B 1979: the best ratio of benefit to time over
//!   all moments to stop.
//! - Wang et al., "Separating data via block invalidation time inference for write amplification reduction in
//!   log-structured storage" (SepBIT), FAST 2022, and Oh et al., "MiDAS", FAST 2024, learn when blocks are
//!   overwritten.
//!
//! Ours: reads and writes apart. A clean page has a benefit of its next read only, a dirty page of any next access;
//! the tables have a rank for each. Classes are of number of accesses, mean gap and kind of the last access; pages
//! that were accessed once are told apart by their object. Misses of both kinds may be refused. A price per admission
//! trades disk I/Os for wear.
//!
//! - Tables are built after 64 requests, then at intervals that double up to twice the cache and 10,000 requests, so a
//!   cold cache learns early. Pages that still wait count by a sample with their ages so far, as survivors (Kaplan,
//!   Meier 1958); without them only short ages would be known at the start.
//! - One request does a bounded part of all this, whatever the size of the cache. A build takes 16 pages of the sample
//!   at each request, then four classes. An eviction ranks at most 16 blocks of eight pages in search of the coldest,
//!   one block in turn and four ghosts. With the clamps of ages that is at most 260 pages ranked or sampled and cells
//!   of tables built in a request. Only a driver that refuses the victim makes the policy search all residents.
//! - Known at once: the residents and twice as many ghosts. 8 bytes a handle, 4.3 a resident and 4 a ghost: 37 bytes
//!   for each page of a cache with three handles a page, and 0.34 MB of tables, beside 0.08 MB that all caches of a
//!   process share.
//! - With `writes=through` no page is dirty: history, gaps and classes are of reads alone, and a write leaves the rank
//!   as it is. Each write reaches the backing store at once, and a cached copy is always brought up to date. A live cache
//!   in another mode than write-back has that unless its user says `writes=back`.
//! - Random draws round mean gaps and choose the sample. The arithmetic gives the same results on all machines.

mod coldest;
mod history;
mod pages;
#[cfg(test)]
mod restart_tests;
mod saved;
#[cfg(test)]
mod saved_tests;
mod tables;
#[cfg(test)]
mod tests;

use crate::info::{Config, Info, OptionInfo, Tunable};
use crate::interface::{Driver, PageState, Policy, TierSet};
use crate::mutant::{self, Mutant};
use crate::options::{BuildError, Options};
use crate::ranked::Ranked;
use crate::state::Learned;
use entresol_core::{Outcome, Page, Random, Request, Tier, Verb};
use history::{GAPS, Gaps, History};
use pages::Pages;
use tables::{End, Tables, decode, encode};

/// Ticks in as many requests as the cache has pages.
const TICKS_OF_CACHE: usize = 32;
/// Ghosts for each page of the cache.
const GHOSTS: usize = 2;
/// Requests before the first build of the tables.
const FIRST_PERIOD: u64 = 64;
/// Requests between two builds: twice the cache and a constant, at most this many.
const PERIOD_MAX: u64 = 1 << 24;
const PERIOD_CONSTANT: u64 = 10_000;
/// Most known pages of the sample that counts as waiting, and the fewest known pages that one of it stands for.
const SAMPLE_MAX: usize = 4096;
const SAMPLE_STEP: usize = 16;
/// Pages of the sample that are counted at one request.
const SAMPLED_AT_ONCE: usize = 16;
/// Most requests of a pause, and known pages whose ages are clamped after each. That is four pages in each of as many
/// ticks as a clamped age takes to come again, or for each of the cache's pages; three for each are known.
const PAUSE_MAX: u32 = 64;
const CLAMPED: usize = 4;
/// Least value, in disk I/Os, of a written page that is admitted at no price.
const WRITE_VALUE: f64 = 0.1;
/// Evictions over which the mean rank of victims is taken.
const THETA_EVICTIONS: f64 = 256.0;

/// Expected disk I/Os saved per page and time.
#[derive(Clone, Debug)]
pub struct Reuse {
    pages: Pages,
    tables: Tables,
    gaps: Gaps,
    random: Random,
    /// Ticks since the start.
    tick: u32,
    tick_requests: u32,
    until_tick: u32,
    until_build: u64,
    period: u64,
    period_max: u64,
    /// True during a build, which goes on at each request.
    building: bool,
    /// Pages that the sample of the build lacks, and the known pages that one of it stands for.
    to_sample: usize,
    sampled: usize,
    /// Mean rank of victims as the build began.
    theta_of_build: f64,
    /// Requests left until the next tick or part of a build, and as many as there were after the last.
    pause: u32,
    paused: u32,
    /// Mean rank of recent victims: disk I/Os that a frame saves per request.
    theta: f64,
    price: f64,
    /// Rank that a page must exceed while frames are free, in a store that drops pages by itself.
    bar: Option<f32>,
    /// True while nothing may be written to that store.
    is_closed: bool,
    /// Values that a read and a write must exceed to be admitted, encoded; -1 for none.
    least_values: [i16; 2],
    /// True if writes reach the backing store at once.
    through: bool,
    builds: u64,
}

impl Reuse {
    #[inline(always)]
    fn advance(&mut self) {
        self.pause -= 1;
        if self.pause == 0 {
            self.end_pause();
        }
    }

    /// Begins a tick, does a part of a build of the tables, or both.
    #[inline(never)]
    fn end_pause(&mut self) {
        self.until_tick -= self.paused;
        self.until_build = self.until_build.saturating_sub(u64::from(self.paused));
        if self.until_tick == 0 {
            self.until_tick = self.tick_requests;
            self.tick = self.tick.wrapping_add(1);
        }
        self.pages.clamp_next(CLAMPED, self.tick);
        if self.until_build == 0 && !self.building {
            self.begin_build();
        }
        if self.building {
            self.build_on();
        }
        let most = if self.building { 1 } else { PAUSE_MAX.min(self.until_build as u32).max(1) };
        self.paused = self.until_tick.min(most);
        self.pause = self.paused;
    }

    fn begin_build(&mut self) {
        let known = self.pages.residents() + self.pages.ghosts();
        self.sampled = known.div_ceil(SAMPLE_MAX).max(SAMPLE_STEP);
        self.to_sample = if mutant::is(Mutant::WaitingNotCounted) { 0 } else { known / self.sampled };
        self.theta_of_build = self.theta;
        self.tables.begin_build();
        self.building = true;
        self.period = (2 * self.period).min(self.period_max);
        self.until_build = self.period;
    }

    /// Goes on with a build: by pages of the sample, then by classes.
    fn build_on(&mut self) {
        let pages = self.to_sample.min(SAMPLED_AT_ONCE);
        for history in self.pages.sample(pages, &mut self.random) {
            self.tables.wait(history.class(), history.age(self.tick));
        }
        self.to_sample -= pages;
        if self.to_sample > 0 {
            return;
        }
        self.building = self.tables.build_next(self.theta_of_build, self.sampled);
        while self.building && mutant::is(Mutant::BuiltAtOnce) {
            self.building = self.tables.build_next(self.theta_of_build, self.sampled);
        }
        self.builds += u64::from(!self.building);
    }

    fn set_price(&mut self, price: f64) {
        self.price = price;
        self.least_values = [if price > 0.0 { encode(price) } else { -1 }, encode(price.max(WRITE_VALUE))];
        if self.through {
            self.least_values[1] = self.least_values[0];
        }
    }

    /// Feature of a page's first access: its object.
    #[inline]
    fn feature<D: Driver>(&self, page: Page, driver: &D) -> u32 {
        if mutant::is(Mutant::OneObject) { 0 } else { driver.address(page).object.0 % GAPS as u32 }
    }

    /// Counts an access of a page with this history and returns the history with it.
    #[inline(always)]
    fn learn<D: Driver>(&mut self, page: Page, old: History, writing: bool, driver: &D) -> History {
        if !old.is_known() {
            return History::first(self.tick, writing, self.feature(page, driver));
        }
        if self.through && writing && !mutant::is(Mutant::WritesCounted) {
            return old;
        }
        let end = if writing { End::Write } else { End::Read };
        self.tables.count(old.cell(self.tick), end);
        self.gaps.access(old, self.tick, writing, &mut self.random)
    }

    #[inline(always)]
    fn count_forgotten(&mut self, forgotten: Option<History>) {
        if let Some(history) = forgotten.filter(|_| !mutant::is(Mutant::ForgottenNotCounted)) {
            self.tables.count(history.cell(self.tick), End::Never);
        }
    }

    /// Lets the write of a resident reach the backing store, in write-through.
    #[inline(always)]
    fn write_through<D: Driver>(&self, request: Request, driver: &mut D) {
        if self.through && request.op.is_write() {
            driver.start(request.page, Verb::WriteBack { from: Tier::TOP });
        }
    }

    /// True if a page that misses is not worth its room, in a store that drops pages by itself.
    #[inline]
    fn is_barred(&self, history: History, dirty: bool) -> bool {
        let Some(bar) = self.bar else { return false };
        if self.is_closed {
            return true;
        }
        let cell = history.cell(self.tick);
        let (rank, value) = (self.tables.rank(cell, dirty), self.tables.value(cell, dirty));
        decode(rank) <= bar || value <= self.least_values[usize::from(dirty)]
    }

    /// Lets a miss pass the cache.
    fn refuse<D: Driver>(&mut self, request: Request, history: History, driver: &mut D) -> Outcome {
        let (tick, tables) = (self.tick, &self.tables);
        if self.pages.history(request.page).is_known() {
            self.pages.set_history(request.page, history);
        } else {
            let rank = |history: History| tables.rank(history.cell(tick), history.is_dirty());
            let forgotten = self.pages.add_ghost(request.page, history, rank);
            self.count_forgotten(forgotten);
        }
        driver.bypass(request)
    }

    /// Lets the write of a resident pass the cache, which drops its copy: the new version may not be stored.
    fn give_up<D: Driver>(&mut self, request: Request, history: History, driver: &mut D) -> Outcome {
        driver.start(request.page, Verb::Drop { from: Tier::TOP });
        self.pages.set_history(request.page, history.resident(false));
        self.release(request.page);
        driver.bypass(request);
        Outcome::Hit(Tier::TOP)
    }

    /// Serves a miss of a full cache: by a frame of a colder page, or past the cache.
    #[inline(never)]
    fn compete<D: Driver>(&mut self, request: Request, history: History, dirty: bool, driver: &mut D) -> Outcome {
        let (page, tick, tables) = (request.page, self.tick, &self.tables);
        let rank = |history: History| tables.rank(history.cell(tick), history.is_dirty());
        let resident = history.resident(dirty);
        let every =
            mutant::is(if request.op.is_write() { Mutant::EveryWriteAdmitted } else { Mutant::EveryReadAdmitted });
        let cell = history.cell(tick);
        let limit = if every { i16::MAX } else { tables.rank(cell, dirty) };
        let least = self.least_values[usize::from(dirty)];
        let pays = || tables.value(cell, dirty) > least || every || mutant::is(Mutant::NoPrice);
        let mut victim = if !self.is_closed && self.pages.least() < limit && pays() {
            self.pages.coldest(limit, rank)
        } else {
            None
        };
        if victim.is_some_and(|victim| !driver.may_evict(self.pages.page(victim.at), Tier::TOP)) {
            victim = self.pages.resident_where(limit, rank, |page| driver.may_evict(page, Tier::TOP));
        }
        let Some(victim) = victim else { return self.refuse(request, history, driver) };
        let evicted = self.pages.page(victim.at);
        let old = self.pages.history(evicted);
        self.theta += (f64::from(decode(rank(old))) - self.theta) * (1.0 / THETA_EVICTIONS);
        driver.evict(evicted, Tier::TOP, old.is_dirty());
        let forgotten = self.pages.replace(victim, page, resident, rank);
        self.count_forgotten(forgotten);
        driver.admit(request, Tier::TOP);
        Outcome::ADMITTED
    }
}

impl Policy for Reuse {
    const INFO: Info = Info {
        name: "reuse",
        family: "learned",
        summary: "expected disk I/Os saved per page and time, learned per class of history, reads and writes apart; \
                  refuses misses that would save fewer than the coldest page",
        paper: "own; ranks after Beckmann, Chen, Cidon: LHD: improving cache hit rate by maximizing hit density, NSDI \
                2018, and Gittins: Bandit processes and dynamic allocation indices, JRSS B 1979",
        options: &[
            OptionInfo {
                name: "price",
                default: "0",
                help: "disk I/Os, 0 to 1, that an admission to the full cache must save beyond what its frame saves \
                       with other pages: spares the device writes",
            },
            OptionInfo {
                name: "writes",
                default: "back",
                help: "when a written page reaches the backing store: as it leaves the cache (back) or at once \
                       (through); then no page is dirty, and only reads count",
            },
        ],
        tunables: &[Tunable { option: "price", levels: &[0.0, 0.1, 0.2, 0.33, 0.5, 0.65, 0.95] }],
        write_aware: true,
        addresses: true,
        ranked: true,
        through: Some("writes=through"),
        ..Info::PLAIN
    };

    fn new(config: &Config, options: &Options) -> Result<Self, BuildError> {
        let capacity = config.tiers[0].min(config.pages.max(1));
        let ghosts = (GHOSTS * capacity).min(config.pages.saturating_sub(capacity));
        let tick_requests = (capacity / TICKS_OF_CACHE).max(1) as u32;
        let through = options.choice("writes", &[("back", false), ("through", true)])?;
        let gaps = Gaps::new();
        let period_max = (2 * capacity as u64 + PERIOD_CONSTANT).min(PERIOD_MAX);
        let period = if mutant::is(Mutant::LateBuild) { period_max } else { FIRST_PERIOD };
        let pause = tick_requests.min(PAUSE_MAX).min(period as u32);
        let mut reuse = Reuse {
            pages: Pages::new(config.pages, capacity, ghosts),
            tables: Tables::new(capacity, tick_requests, !through),
            gaps,
            random: Random::new(config.seed),
            tick: 0,
            tick_requests,
            until_tick: tick_requests,
            until_build: period,
            period,
            period_max,
            building: false,
            to_sample: 0,
            sampled: 0,
            theta_of_build: 0.0,
            pause,
            paused: pause,
            theta: 0.0,
            price: 0.0,
            bar: None,
            is_closed: false,
            least_values: [0; 2],
            through,
            builds: 0,
        };
        reuse.set_price(options.number("price", 0.0..=1.0)?);
        Ok(reuse)
    }

    #[inline]
    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        self.advance();
        let page = request.page;
        let writing = request.op.is_write();
        let dirty = writing && !self.through;
        let old = self.pages.history(page);
        let is_resident = old.is_resident();
        let history = self.learn(page, old, writing, driver);
        if is_resident && writing && self.is_closed {
            return self.give_up(request, history, driver);
        }
        let outcome = if is_resident {
            self.pages.set_history(page, history.resident(dirty));
            driver.overwrite(request, Tier::TOP);
            Outcome::Hit(Tier::TOP)
        } else if self.pages.is_full() {
            self.compete(request, history, dirty, driver)
        } else if self.is_barred(history, dirty) {
            self.refuse(request, history, driver)
        } else {
            let (tick, tables) = (self.tick, &self.tables);
            let rank = |history: History| tables.rank(history.cell(tick), history.is_dirty());
            self.pages.fill(page, history.resident(dirty), rank);
            driver.admit(request, Tier::TOP);
            Outcome::ADMITTED
        };
        if outcome != Outcome::BYPASSED {
            self.write_through(request, driver);
        }
        outcome
    }

    fn state(&self, page: Page) -> PageState {
        let history = self.pages.history(page);
        PageState {
            tiers: TierSet::only(Tier::TOP, history.is_resident()),
            dirty: history.is_dirty(),
            known: history.is_known(),
        }
    }

    fn occupancy(&self, _tier: Tier) -> usize {
        self.pages.residents()
    }

    fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        visit("theta", self.theta);
        visit("price", self.price);
        visit("ghosts", self.pages.ghosts() as f64);
        visit("builds", self.builds as f64);
    }

    fn ranked(&mut self) -> Option<&mut dyn Ranked> {
        Some(self)
    }

    fn learned(&mut self) -> Option<&mut dyn Learned> {
        Some(self)
    }

    fn tunable(&self, _at: usize) -> f64 {
        self.price
    }

    fn tune(&mut self, _at: usize, value: f64) {
        self.set_price(value);
    }

    #[inline(always)]
    fn prefetch(&self, page: Page) {
        self.pages.prefetch(page);
    }

    fn memory_bytes(&self) -> usize {
        self.pages.memory_bytes() + self.tables.memory_bytes()
    }
}

impl Ranked for Reuse {
    fn rank(&self, page: Page) -> f32 {
        let history = self.pages.history(page);
        if !history.is_known() {
            return 0.0;
        }
        decode(self.tables.rank(history.cell(self.tick), history.is_dirty()))
    }

    fn release(&mut self, page: Page) -> bool {
        let (tick, tables) = (self.tick, &self.tables);
        let dirty = self.pages.history(page).is_dirty();
        let rank = |history: History| tables.rank(history.cell(tick), history.is_dirty());
        let forgotten = self.pages.release(page, rank);
        self.count_forgotten(forgotten);
        dirty
    }

    fn set_bar(&mut self, rank: f32, price: Option<f64>) {
        self.bar = Some(rank);
        self.theta = f64::from(rank);
        self.is_closed = price.is_none();
        if let Some(price) = price {
            self.set_price(price);
        }
    }
}
