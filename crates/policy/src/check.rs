//! The rules of the interface as a driver that verifies them. A page is a version number and every tier remembers which
//! version it holds. A policy that loses a version, serves a stale one or overfills a tier fails an assertion.
//!
//! Each policy's tests run it through [`run`]; the tests of the whole catalogue do so with refusals and small tiers.

use crate::info::Config;
use crate::interface::{Driver, PageState, Policy, TierSet};
use entresol_core::{Address, Hint, Movement, NEVER, ObjectId, Op, Outcome, Page, Random, Request, Tier, Verb};

/// Pages laid out in objects of equal length: page `p` is block `p % length` of object `p / length`.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Number of pages.
    pub pages: u32,
    /// Length of every object in pages.
    pub object_pages: u32,
}

impl Layout {
    /// One object that holds all pages.
    pub const fn one_object(pages: u32) -> Self {
        Layout { pages, object_pages: pages }
    }

    /// Address of a page in the backing store: its object, and its block there.
    pub fn address(self, page: Page) -> Address {
        let object = ObjectId(page.0 / self.object_pages);
        Address { object, block: u64::from(page.0 % self.object_pages) }
    }

    /// The page `step` blocks further in the same object.
    pub fn neighbour(self, page: Page, step: i64) -> Option<Page> {
        let other = i64::from(page.0) + step;
        let inside = (0..i64::from(self.pages)).contains(&other);
        let same = inside && other as u32 / self.object_pages == page.0 / self.object_pages;
        same.then_some(Page(other as u32))
    }
}

/// A driver that carries movements out on version numbers and checks each of them.
#[derive(Clone)]
pub struct Checker {
    layout: Layout,
    capacities: Vec<usize>,
    /// Newest version of each page that the host has written.
    latest: Vec<u32>,
    below: Vec<u32>,
    /// Version in each tier's valid frame, by tier and page.
    copies: Vec<Vec<Option<u32>>>,
    /// Superseded frames, by tier and page.
    superseded: Vec<Vec<u32>>,
    frames: Vec<usize>,
    refusals: Refusals,
    step: u64,
    allowed: Vec<(Page, Tier)>,
    request: Option<Request>,
    landed: usize,
    fetched: usize,
    next_use: u32,
    /// Movements of the last request, for tests that compare event by event.
    pub movements: Vec<Movement>,
}

/// Evictions that a [`Checker`] refuses: a fixed set of pages for every 16 requests, as pins would.
#[derive(Clone, Copy, Debug)]
pub struct Refusals {
    /// Share of pages that may not be evicted, in per cent.
    pub percent: u64,
    /// Seed of the choice.
    pub seed: u64,
}

impl Refusals {
    /// Every eviction is allowed.
    pub const NONE: Refusals = Refusals { percent: 0, seed: 0 };
}

impl Checker {
    /// An empty hierarchy of tiers of these capacities.
    pub fn new(layout: Layout, capacities: &[usize], refusals: Refusals) -> Self {
        let pages = layout.pages as usize;
        Checker {
            layout,
            capacities: capacities.to_vec(),
            latest: vec![0; pages],
            below: vec![0; pages],
            copies: vec![vec![None; pages]; capacities.len()],
            superseded: vec![vec![0; pages]; capacities.len()],
            frames: vec![0; capacities.len()],
            refusals,
            step: 0,
            allowed: Vec::new(),
            request: None,
            landed: 0,
            fetched: 0,
            next_use: NEVER,
            movements: Vec::new(),
        }
    }

    /// Drives one request and checks everything observable about it.
    pub fn request<P: Policy>(&mut self, policy: &mut P, request: Request, next_use: u32) -> Outcome {
        self.begin(Some(request), next_use);
        let page = request.page;
        let before = self.valid_tiers(page);
        let outcome = policy.access(request, self);
        match outcome {
            Outcome::Hit(tier) => assert!(before.contains(tier), "{request:?}: no valid copy in {tier:?} to hit"),
            Outcome::Miss { admitted } => {
                let lost = Movement { page, verb: Verb::Drop { from: Tier::SECOND }, joined: false };
                let made_room = self.movements.contains(&lost);
                assert!(before.is_empty() || made_room, "{request:?}: a miss, yet {before:?} held it");
                let held = !self.valid_tiers(page).is_empty();
                assert_eq!(held, admitted, "{request:?}: admitted and held differ");
            }
        }
        let read_below = usize::from(request.op == Op::Read && !outcome.is_hit());
        assert_eq!(self.fetched, read_below, "{request:?}: {outcome:?} fetched {} times", self.fetched);
        let written = usize::from(request.op.is_write());
        assert_eq!(self.landed, written, "{request:?}: its bytes landed {} times", self.landed);
        self.verify_page(policy, page);
        self.verify_tiers(policy);
        outcome
    }

    /// Drives one hint and checks the result.
    pub fn hint<P: Policy>(&mut self, policy: &mut P, hint: Hint) {
        self.begin(None, NEVER);
        policy.hint(hint, self);
        assert_eq!(self.landed + self.fetched, 0, "{hint:?}: a hint carries no request");
        self.verify_tiers(policy);
    }

    /// Has a policy with ranks give up a page that it holds, as a store does that drops it.
    pub fn release<P: Policy>(&mut self, policy: &mut P, page: Page) {
        self.begin(None, NEVER);
        let tier = Tier(self.capacities.len() as u8 - 1);
        let dirty = policy.ranked().expect("a policy with ranks").release(page);
        let newer = self.below[page.index()] != self.latest[page.index()];
        assert_eq!(dirty, newer, "{page:?}: the policy and the tiers differ on dirtiness");
        self.below[page.index()] = self.latest[page.index()];
        assert!(self.copies[tier.index()][page.index()].take().is_some(), "{page:?}: released, and not held");
        self.frames[tier.index()] -= 1;
        self.verify_page(policy, page);
        self.verify_tiers(policy);
    }

    /// Checks every page: the policy's state of it against the contents of the tiers.
    pub fn verify_all<P: Policy>(&self, policy: &P) {
        (0..self.layout.pages).for_each(|page| self.verify_page(policy, Page(page)));
        self.verify_tiers(policy);
    }

    fn begin(&mut self, request: Option<Request>, next_use: u32) {
        self.step += 1;
        self.allowed.clear();
        self.movements.clear();
        self.request = request;
        self.landed = 0;
        self.fetched = 0;
        self.next_use = next_use;
    }

    fn valid_tiers(&self, page: Page) -> TierSet {
        let latest = Some(self.latest[page.index()]);
        let tiers = self.copies.iter().enumerate();
        tiers.fold(TierSet::EMPTY, |set, (t, copies)| set.and(Tier(t as u8), copies[page.index()] == latest))
    }

    fn verify_page<P: Policy>(&self, policy: &P, page: Page) {
        let PageState { tiers, dirty, known } = policy.state(page);
        let valid = self.valid_tiers(page);
        assert_eq!(tiers, valid, "{page:?}: the policy and the tiers differ on where it is");
        let newer = self.below[page.index()] != self.latest[page.index()];
        assert_eq!(dirty, newer, "{page:?}: the policy and the tiers differ on dirtiness");
        assert!(!(newer && valid.is_empty()), "{page:?}: its last write is lost");
        assert!(known || tiers.is_empty(), "{page:?}: held but not known");
    }

    fn verify_tiers<P: Policy>(&self, policy: &P) {
        for (t, &frames) in self.frames.iter().enumerate() {
            assert_eq!(policy.occupancy(Tier(t as u8)), frames, "tier {t}: occupancy");
        }
        if let Some(page) = self.movements.iter().map(|m| m.page).next_back() {
            self.verify_page(policy, page);
        }
    }

    fn take_frame(&mut self, page: Page, to: Tier, version: u32) {
        let copy = &mut self.copies[to.index()][page.index()];
        if copy.replace(version).is_none() {
            self.frames[to.index()] += 1;
            let (frames, capacity) = (self.frames[to.index()], self.capacities[to.index()]);
            assert!(frames <= capacity, "{page:?}: {to:?} holds {frames} frames of {capacity}");
        }
    }

    fn free_frame(&mut self, page: Page, from: Tier) {
        let current = self.request.is_some_and(|request| request.page == page);
        assert!(current || self.allowed.contains(&(page, from)), "{page:?}: dropped from {from:?} unasked");
        let version = self.copies[from.index()][page.index()].take();
        let version = version.unwrap_or_else(|| panic!("{page:?}: dropped from {from:?}, which does not hold it"));
        self.frames[from.index()] -= 1;
        // A version that a bypassing write is about to make obsolete need not be saved.
        let obsolete = current && self.request.is_some_and(|request| request.op == Op::Write);
        let newest = version == self.latest[page.index()];
        let saved = self.below[page.index()] == version || !self.valid_tiers(page).is_empty();
        assert!(!newest || saved || obsolete, "{page:?}: its newest copy was dropped from {from:?}");
    }

    fn land(&mut self, page: Page, verb: Verb) {
        let request = self.request.unwrap_or_else(|| panic!("{verb:?} without a request"));
        assert_eq!(request.page, page, "{verb:?} of another page than the request's");
        assert!(request.op.is_write(), "{verb:?} of a read");
        self.landed += 1;
        self.latest[page.index()] += 1;
    }

    fn apply(&mut self, page: Page, verb: Verb) {
        match verb {
            Verb::Fetch { to } => {
                let newest = self.below[page.index()] == self.latest[page.index()];
                assert!(newest, "{page:?}: a stale version was fetched");
                self.fetched += usize::from(self.request.is_some_and(|request| request.page == page));
                self.take_frame(page, to, self.below[page.index()]);
            }
            Verb::Install { to } => {
                self.land(page, verb);
                self.take_frame(page, to, self.latest[page.index()]);
            }
            Verb::Copy { from, to } => {
                assert_ne!(from, to, "{page:?}: copied onto itself");
                let version = self.copies[from.index()][page.index()];
                let version = version.unwrap_or_else(|| panic!("{page:?}: copied from {from:?}, which has it not"));
                assert_eq!(version, self.latest[page.index()], "{page:?}: a stale copy was copied");
                self.take_frame(page, to, version);
            }
            Verb::WriteBack { from } => {
                let version = self.copies[from.index()][page.index()];
                let version = version.unwrap_or_else(|| panic!("{page:?}: written back from {from:?}, not there"));
                assert!(version > self.below[page.index()], "{page:?}: what was written back is not newer");
                self.below[page.index()] = version;
            }
            Verb::Drop { from } => self.free_frame(page, from),
            Verb::Requeue { tier } => {
                let held = self.copies[tier.index()][page.index()].is_some();
                assert!(held, "{page:?}: requeued in {tier:?}, which does not hold it");
            }
            Verb::Supersede { tier } => {
                let held = self.copies[tier.index()][page.index()].take();
                assert!(held.is_some(), "{page:?}: superseded in {tier:?}, which does not hold it");
                self.superseded[tier.index()][page.index()] += 1;
            }
            Verb::Reclaim { tier } => {
                let count = &mut self.superseded[tier.index()][page.index()];
                assert!(*count > 0, "{page:?}: nothing superseded to reclaim in {tier:?}");
                *count -= 1;
                self.frames[tier.index()] -= 1;
            }
            Verb::Bypass => self.bypass(page),
            Verb::FetchObject { object, pages, to } => self.fetch_object(object, pages, to),
            Verb::DropObject { object, pages, from } => self.drop_object(object, pages, from),
        }
    }

    fn bypass(&mut self, page: Page) {
        if self.request.is_some_and(|request| request.op == Op::Read) {
            let newest = self.below[page.index()] == self.latest[page.index()];
            assert!(newest, "{page:?}: a read went past a newer copy");
            self.fetched += 1;
            return;
        }
        self.land(page, Verb::Bypass);
        self.below[page.index()] = self.latest[page.index()];
        let holders = self.copies.iter().filter(|copies| copies[page.index()].is_some()).count();
        assert_eq!(holders, 0, "{page:?}: a write went past copies that are now stale");
    }

    fn object_range(&self, object: ObjectId, pages: u32) -> std::ops::Range<u32> {
        assert_eq!(pages, self.layout.object_pages, "{object:?}: its length");
        object.0 * pages..((object.0 + 1) * pages).min(self.layout.pages)
    }

    fn fetch_object(&mut self, object: ObjectId, pages: u32, to: Tier) {
        for page in self.object_range(object, pages).map(Page) {
            let newest = self.below[page.index()] == self.latest[page.index()];
            assert!(newest, "{page:?}: a stale version was fetched with its object");
            self.take_frame(page, to, self.below[page.index()]);
        }
    }

    fn drop_object(&mut self, object: ObjectId, pages: u32, from: Tier) {
        for page in self.object_range(object, pages).map(Page) {
            self.allowed.push((page, from));
            self.free_frame(page, from);
        }
    }
}

impl Driver for Checker {
    fn may_evict(&mut self, page: Page, tier: Tier) -> bool {
        let Refusals { percent, seed } = self.refusals;
        let pinned = Random::mix(seed ^ (u64::from(page.0) << 32) ^ (self.step / 16)) % 100 < percent;
        if !pinned {
            self.allowed.push((page, tier));
        }
        !pinned
    }

    fn emit(&mut self, movement: Movement) {
        self.movements.push(movement);
        self.apply(movement.page, movement.verb);
    }

    fn now_us(&self) -> u64 {
        // A tenth of a second a request, so that timers of seconds fire within a short test.
        self.step * 100_000
    }

    fn next_use(&self) -> u32 {
        self.next_use
    }

    fn address(&self, page: Page) -> Address {
        self.layout.address(page)
    }

    fn successor(&self, page: Page) -> Option<Page> {
        self.layout.neighbour(page, 1)
    }

    fn predecessor(&self, page: Page) -> Option<Page> {
        self.layout.neighbour(page, -1)
    }

    fn object_pages(&self, _object: ObjectId) -> u64 {
        u64::from(self.layout.object_pages)
    }
}

/// A short workload that takes a policy through all its cases: skewed reuse, loops, scans, runs of writes, phases.
pub fn workload(seed: u64, layout: Layout, requests: usize) -> Vec<Request> {
    let mut random = Random::new(seed);
    let pages = u64::from(layout.pages);
    let mut cursor = 0;
    let mut out = Vec::with_capacity(requests);
    while out.len() < requests {
        let phase = out.len() * 8 / requests.max(1);
        let write_percent = [10, 60, 0, 90][phase % 4];
        let page = match random.below(10) {
            0..=4 => random.below(1 + random.clone().below(1 + random.clone().below(pages))),
            5..=6 => {
                cursor = (cursor + 1) % pages;
                cursor
            }
            7..=8 => (phase as u64 * 13 + random.below(8)) % pages,
            _ => random.below(pages),
        };
        let op = match random.below(100) {
            x if x < write_percent / 4 => Op::Update,
            x if x < write_percent => Op::Write,
            _ => Op::Read,
        };
        out.push(Request { page: Page(page as u32), op, sequential: random.chance(0.2) });
    }
    out
}

/// Index of the next request to the same page, [`NEVER`] where there is none.
pub fn next_uses(requests: &[Request]) -> Vec<u32> {
    let mut upcoming = std::collections::HashMap::new();
    let mut next = vec![NEVER; requests.len()];
    for (i, request) in requests.iter().enumerate().rev() {
        next[i] = upcoming.insert(request.page, i as u32).unwrap_or(NEVER);
    }
    next
}

/// Drives a policy over a workload under the rules, with a query hint now and then, and returns the number of hits.
pub fn run<P: Policy>(
    policy: &mut P,
    layout: Layout,
    config: &Config,
    requests: &[Request],
    refusals: Refusals,
) -> u64 {
    let mut checker = Checker::new(layout, &config.tiers, refusals);
    let next = next_uses(requests);
    let mut hits = 0;
    for (i, &request) in requests.iter().enumerate() {
        if i % 97 == 50 {
            let objects = [ObjectId(0), ObjectId(i as u32 / 97 % config.objects as u32)];
            let used = if objects[0] == objects[1] { &objects[..1] } else { &objects[..] };
            checker.hint(policy, Hint::QueryBegin { query: i as u32, objects: used });
        }
        if i % 97 == 90 {
            checker.hint(policy, Hint::QueryEnd { query: i as u32 - 40 });
        }
        hits += u64::from(checker.request(policy, request, next[i]).is_hit());
    }
    checker.verify_all(policy);
    hits
}

/// Drives a policy under the rules beside a plain model of it and compares outcome and movements of every request.
///
/// The model is a function of the request, its next use and its time in microseconds. Nothing is refused.
pub fn run_beside<P: Policy>(
    policy: &mut P,
    layout: Layout,
    config: &Config,
    requests: &[Request],
    mut model: impl FnMut(Request, u32, u64) -> (Outcome, Vec<Movement>),
) {
    let mut checker = Checker::new(layout, &config.tiers, Refusals::NONE);
    let next = next_uses(requests);
    for (i, &request) in requests.iter().enumerate() {
        let outcome = checker.request(policy, request, next[i]);
        let (expected, movements) = model(request, next[i], checker.now_us());
        assert_eq!(outcome, expected, "request {i}, {request:?}: outcome (left: policy, right: model)");
        assert_eq!(checker.movements, movements, "request {i}, {request:?}: movements (left: policy, right: model)");
    }
    checker.verify_all(policy);
}

/// One input of a policy.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A reference to a page.
    Request(Request),
    /// A hint.
    Hint(Hint<'a>),
}

/// Drives a policy under the rules beside a plain model of it, as [`run_beside`] does, with queries that begin, end and
/// overlap at random moments; about one in thirty requests begins one, of one to three objects.
///
/// The model answers a request with an outcome and a hint with none.
pub fn run_beside_queries<P: Policy>(
    policy: &mut P,
    layout: Layout,
    config: &Config,
    requests: &[Request],
    seed: u64,
    mut model: impl FnMut(Event) -> (Option<Outcome>, Vec<Movement>),
) {
    let mut checker = Checker::new(layout, &config.tiers, Refusals::NONE);
    let mut random = Random::new(seed);
    let mut running = std::collections::VecDeque::new();
    for (i, &request) in requests.iter().enumerate() {
        let mut tell = |checker: &mut Checker, hint: Hint| {
            checker.hint(policy, hint);
            let (outcome, movements) = model(Event::Hint(hint));
            assert_eq!(outcome, None, "request {i}, {hint:?}: the model took the hint for a request");
            assert_eq!(checker.movements, movements, "request {i}, {hint:?}: movements (left: policy, right: model)");
        };
        if random.chance(1.0 / 30.0) {
            let mut objects: Vec<ObjectId> =
                (0..1 + random.below(3)).map(|_| ObjectId(random.below(config.objects as u64) as u32)).collect();
            objects.sort();
            objects.dedup();
            running.push_back(i as u32);
            tell(&mut checker, Hint::QueryBegin { query: i as u32, objects: &objects });
        }
        if random.chance(1.0 / 30.0)
            && let Some(query) = running.pop_front()
        {
            tell(&mut checker, Hint::QueryEnd { query });
        }
        let outcome = checker.request(policy, request, NEVER);
        let (expected, movements) = model(Event::Request(request));
        assert_eq!(Some(outcome), expected, "request {i}, {request:?}: outcome (left: policy, right: model)");
        assert_eq!(checker.movements, movements, "request {i}, {request:?}: movements (left: policy, right: model)");
    }
    checker.verify_all(policy);
}
