//! A log below a policy: in which segment each page's version lies, and what reclaim copies and drops.
//!
//! The simulator and the block cache drive the same [`Log`] with the same movements, and so count the same hits, write-backs
//! and copies. It does no I/O. A store follows in its own time: it appends what enters the tier, and moves pages that
//! the log keeps when it makes a segment free.

use crate::Config;
use crate::ranked::Ranked;
use crate::reclaim::{COMPARED, Reclaim, Worn};
use crate::wear::Wear;
use entresol_core::{Movement, Page, Tier, Verb};
use std::collections::VecDeque;

/// Stands for no block, and for no page.
const NONE: u32 = u32::MAX;

/// Segments that are free when a request begins, as long as reclaim finds any.
const FREE_MIN: usize = 2;

/// Most pages that a policy with memory above appends in one decision: a group that it keeps, and one from memory.
const APPENDED_MAX: usize = 128;

/// Bytes of a segment in a log of many.
const SEGMENT_BYTES: u64 = 256 << 10;

/// Fewest segments for which that size is used.
const SEGMENTS_MIN: usize = 128;

/// Pages that a request looks at for the next reclaim: those of one segment, or of several small ones.
const LOOKED_AT_PAGES: usize = 64;

/// Fewest pages of a smaller segment.
const SEGMENT_PAGES_MIN: usize = 8;

/// Size of a log's segments, and the bound on its wear.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogLayout {
    /// Bytes of a segment. `None`: 256 KiB, or fewer in a log in which fewer than 128 of those fit.
    pub segment_bytes: Option<u64>,
    /// Bound on the pages written.
    pub wear: Wear,
}

impl LogLayout {
    fn segment_pages(self, blocks: usize, page_bytes: u32) -> usize {
        let of = |bytes: u64| ((bytes / u64::from(page_bytes)) as usize).max(1);
        let largest = of(SEGMENT_BYTES);
        self.segment_bytes.map_or(largest.min(blocks / SEGMENTS_MIN).max(SEGMENT_PAGES_MIN.min(largest)), of)
    }

    /// An empty log of so many pages in the last tier of a policy of this configuration. The tier has at most the
    /// capacity that the log leaves: none in a log that is too small. Under a policy without ranks a quarter of the log
    /// stays free for dead versions between live ones.
    pub fn below(self, blocks: usize, config: &mut Config, ranked: bool) -> Log {
        let tier = config.tiers.len() - 1;
        let segment_pages = self.segment_pages(blocks, config.page_bytes);
        let full = (blocks / segment_pages).saturating_sub(FREE_MIN + 1) * segment_pages;
        config.tiers[tier] = config.tiers[tier].min(if ranked { full } else { full - full / 4 });
        Log::new(self.wear, segment_pages, blocks, config, Tier(tier as u8))
    }
}

/// Contents of a log in the last tier of a policy.
pub struct Log {
    tier: Tier,
    capacity_pages: usize,
    segment_pages: usize,
    /// Segments that are free when a request begins: with memory above some more than the log has, for one decision.
    free_min: usize,
    reclaim: Reclaim,
    /// Page of each block whose version is the newest.
    pages: Vec<u32>,
    /// Block of each page's newest version, of pages up to the last one that was appended.
    blocks: Vec<u32>,
    /// Valid pages of each segment.
    valid: Vec<u32>,
    free: VecDeque<u32>,
    /// Segments that were looked at for the next reclaim.
    looked_at: usize,
    /// The segment that is being reclaimed.
    victim: Option<u32>,
    /// Next block to be written, in a segment that is not full.
    next: Option<u32>,
    /// Writes that went past the log because nothing might be written.
    past_writes: u64,
    /// Segments that were opened and not asked for yet, where somebody asks.
    opened: Option<Vec<u32>>,
}

impl Log {
    /// An empty log of so many blocks.
    fn new(wear: Wear, segment_pages: usize, blocks: usize, config: &Config, tier: Tier) -> Self {
        let more = if tier == Tier::TOP { 0 } else { APPENDED_MAX.div_ceil(segment_pages) };
        let segments = (blocks / segment_pages + more) as u32;
        Log {
            tier,
            capacity_pages: config.tiers[tier.index()],
            segment_pages,
            free_min: FREE_MIN + more,
            reclaim: Reclaim::new(segments, segment_pages as u32, config.page_bytes, wear, config.seed),
            pages: vec![NONE; segments as usize * segment_pages],
            blocks: Vec::new(),
            valid: vec![0; segments as usize],
            free: (0..segments).collect(),
            looked_at: 0,
            victim: None,
            next: None,
            past_writes: 0,
            opened: None,
        }
    }

    /// Notes a decided request and makes room for the next one. `emit` is called with each movement that this takes.
    #[inline]
    pub fn settle(
        &mut self,
        writes: bool,
        now_us: u64,
        mut policy: Option<&mut dyn Ranked>,
        mut emit: impl FnMut(Movement),
    ) {
        // Policies with ranks knew the price when they decided, and keep to it.
        self.past_writes += u64::from(writes && policy.is_some() && self.reclaim.price().is_none());
        let changed = self.reclaim.request(writes, now_us);
        self.look_ahead(&policy);
        let full = self.make_room(&mut policy, &mut emit);
        if let Some(policy) = policy.filter(|_| changed || full) {
            policy.set_bar(self.reclaim.threshold(), self.reclaim.price());
        }
    }

    /// Makes room for the next decision; true if there was too little. `emit` is called with each movement that this
    /// takes.
    pub fn make_room(&mut self, policy: &mut Option<&mut dyn Ranked>, mut emit: impl FnMut(Movement)) -> bool {
        let full = self.free.len() < self.free_min;
        while self.free.len() < self.free_min {
            self.reclaim_one(policy, &mut emit);
        }
        full
    }

    /// Carries a movement out.
    #[inline]
    pub fn movement(&mut self, Movement { page, verb, .. }: Movement) {
        match verb {
            Verb::Fetch { to } | Verb::Install { to } | Verb::Copy { to, .. } if to == self.tier => self.append(page),
            Verb::Requeue { tier } if tier == self.tier => self.append(page),
            Verb::Drop { from: tier } | Verb::Supersede { tier } if tier == self.tier => self.forget(page),
            _ => {}
        }
    }

    fn forget(&mut self, page: Page) {
        let Some(block) = self.blocks.get_mut(page.index()).filter(|block| **block != NONE) else { return };
        let block = std::mem::replace(block, NONE);
        self.pages[block as usize] = NONE;
        let segment = block as usize / self.segment_pages;
        self.valid[segment] -= 1;
        self.free_if_dead(segment);
    }

    /// A full segment without a valid page is free.
    fn free_if_dead(&mut self, segment: usize) {
        let is_open = self.next.is_some_and(|next| next as usize / self.segment_pages == segment);
        if self.valid[segment] == 0 && !is_open && self.victim != Some(segment as u32) {
            self.reclaim.unseal(segment as u32);
            self.free.push_back(segment as u32);
        }
    }

    fn append(&mut self, page: Page) {
        self.forget(page);
        let block = self.next.take().unwrap_or_else(|| {
            let segment = self.free.pop_front().expect("reclaim keeps segments free");
            if let Some(opened) = &mut self.opened {
                opened.push(segment);
            }
            segment * self.segment_pages as u32
        });
        self.pages[block as usize] = page.0;
        if page.index() >= self.blocks.len() {
            self.blocks.resize(page.index() + 1, NONE);
        }
        self.blocks[page.index()] = block;
        self.reclaim.wrote();
        let (next, segment) = (block + 1, block as usize / self.segment_pages);
        self.valid[segment] += 1;
        if (next as usize).is_multiple_of(self.segment_pages) {
            self.reclaim.seal(segment as u32);
        } else {
            self.next = Some(next);
        }
    }

    /// Looks at a few of the segments that the next reclaim compares, as the open one fills: one request does a small
    /// part of that work.
    fn look_ahead(&mut self, policy: &Option<&mut dyn Ranked>) {
        let filled = self.next.map_or(0, |next| next as usize % self.segment_pages);
        if self.free.len() > self.free_min || self.looked_at * self.segment_pages >= COMPARED * filled {
            return;
        }
        let segments = looked_at_once(self.segment_pages);
        self.looked_at += segments;
        self.reclaim.compare(segments, ranks(&self.pages, self.segment_pages, policy));
    }

    /// Reclaims a segment. Pages of a policy without ranks are all kept.
    fn reclaim_one(&mut self, policy: &mut Option<&mut dyn Ranked>, emit: &mut impl FnMut(Movement)) {
        let (pages, segment_pages) = (&self.pages, self.segment_pages);
        let ranks = ranks(pages, segment_pages, policy);
        // The best that was looked at may have died since.
        let victim = self.reclaim.take(ranks).or_else(|| {
            self.reclaim.compare(looked_at_once(segment_pages), ranks);
            self.reclaim.take(ranks)
        });
        let victim = victim.expect("all but a few segments are sealed");
        self.looked_at = 0;
        self.victim = Some(victim.segment);
        let valid = valid(pages, segment_pages, victim.segment);
        let (kept, dropped): (Vec<Page>, Vec<Page>) = valid.partition(|&page| rank(policy, page) > victim.cut);
        for page in dropped {
            if policy.as_mut().is_some_and(|policy| policy.release(page)) {
                emit(Movement { page, verb: Verb::WriteBack { from: self.tier }, joined: false });
            }
            emit(Movement { page, verb: Verb::Drop { from: self.tier }, joined: false });
            self.forget(page);
        }
        for (at, page) in kept.into_iter().enumerate() {
            emit(Movement { page, verb: Verb::Requeue { tier: self.tier }, joined: at > 0 });
            self.append(page);
        }
        self.victim = None;
        self.free.push_back(victim.segment);
    }

    /// Pages of a segment.
    pub fn segment_pages(&self) -> u32 {
        self.segment_pages as u32
    }

    /// Keeps the segments that are opened for [`take_opened`](Log::take_opened).
    pub fn keep_opened(&mut self) {
        self.opened = Some(Vec::new());
    }

    /// Takes the segments opened since the last call, in order.
    pub fn take_opened(&mut self, visit: &mut dyn FnMut(u32)) {
        self.opened.iter_mut().flat_map(|opened| opened.drain(..)).for_each(visit);
    }

    /// Pages that the tier holds at most.
    pub fn capacity_pages(&self) -> usize {
        self.capacity_pages
    }

    /// Sets another bound on wear, for what is written after this time in microseconds.
    pub fn set_wear(&mut self, wear: Wear, now_us: u64) {
        self.reclaim.set_wear(wear, now_us);
    }

    /// Pages written, beside the bound on them.
    pub fn worn(&self) -> Worn {
        Worn { past_writes: self.past_writes, ..self.reclaim.worn() }
    }

    /// Visits the figures worth plotting over time.
    pub fn gauges(&self, visit: &mut dyn FnMut(&'static str, f64)) {
        self.reclaim.gauges(visit);
    }

    /// Bytes of all state.
    pub fn memory_bytes(&self) -> usize {
        let words = self.pages.capacity() + self.blocks.capacity() + self.valid.capacity() + self.free.capacity();
        self.reclaim.memory_bytes() + 4 * words
    }
}

/// Segments that a request looks at for the next reclaim.
fn looked_at_once(segment_pages: usize) -> usize {
    (LOOKED_AT_PAGES / segment_pages).clamp(1, COMPARED)
}

/// Pages of a segment whose versions there are the newest.
fn valid(pages: &[u32], segment_pages: usize, segment: u32) -> impl Iterator<Item = Page> + '_ {
    let blocks = &pages[segment as usize * segment_pages..][..segment_pages];
    blocks.iter().filter(|&&page| page != NONE).map(|&page| Page(page))
}

/// Rank of a page; above all others for a policy without ranks.
fn rank(policy: &Option<&mut dyn Ranked>, page: Page) -> f32 {
    policy.as_ref().map_or(f32::INFINITY, |policy| policy.rank(page))
}

/// Adds the rank of each valid page of a segment, as reclaim asks for them.
fn ranks(pages: &[u32], segment_pages: usize, policy: &Option<&mut dyn Ranked>) -> impl Fn(u32, &mut Vec<f32>) + Copy {
    move |segment, into| into.extend(valid(pages, segment_pages, segment).map(|page| rank(policy, page)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Checker, Layout, Refusals};
    use crate::interface::{Driver, Policy};
    use crate::learned::Reuse;
    use crate::options::Options;
    use entresol_core::{NEVER, Random, Request};
    use std::cell::Cell;
    use std::collections::{BTreeMap, HashMap};

    const PAGES: usize = 600;
    const BLOCKS: usize = 320;
    /// A look ahead, and two reclaims with a look and two passes over their segments of 16 pages.
    const ASKED_MAX: usize = LOOKED_AT_PAGES + 2 * (LOOKED_AT_PAGES + 2 * 16);

    /// Pages with ranks by their numbers, and the number of ranks that were asked for.
    struct Ranks {
        asked: Cell<usize>,
        dirty: BTreeMap<Page, bool>,
        ranks: HashMap<Page, f32>,
    }

    impl Ranked for Ranks {
        fn rank(&self, page: Page) -> f32 {
            self.asked.set(self.asked.get() + 1);
            self.ranks[&page]
        }

        fn release(&mut self, page: Page) -> bool {
            self.dirty.remove(&page).expect("a page that is held")
        }

        fn set_bar(&mut self, _threshold: f32, price: Option<f64>) {
            assert!(price.is_none_or(|price| (0.0..=0.95).contains(&price)));
        }
    }

    fn config() -> Config {
        Config { tiers: vec![BLOCKS], ..Config::single(PAGES, BLOCKS) }
    }

    /// Drives a log, and returns pages written, copied and dropped.
    fn drive(seed: u64, ranked: bool, wear: &str) -> (u64, u64, u64) {
        let mut random = Random::new(seed);
        let mut config = config();
        let layout = LogLayout { segment_bytes: Some(16 * 4096), wear: wear.parse().expect("valid") };
        let mut log = layout.below(BLOCKS, &mut config, ranked);
        let mut policy = Ranks { asked: Cell::new(0), dirty: BTreeMap::new(), ranks: HashMap::new() };
        let (mut written, mut copied, mut dropped) = (0, 0, 0);
        for at in 0..30_000 {
            let page = Page((random.next_f64().powi(2) * PAGES as f64) as u32);
            let writes = random.chance(0.5);
            let held = policy.dirty.get(&page).copied();
            policy.ranks.insert(page, 1.0 / (1 + page.0) as f32);
            if held.is_none() && policy.dirty.len() == config.tiers[0] {
                let (&victim, _) = policy.dirty.iter().next_back().expect("it is full");
                policy.dirty.remove(&victim);
                log.movement(Movement { page: victim, verb: Verb::Drop { from: Tier::TOP }, joined: false });
            }
            if writes || held.is_none() {
                let verb = if writes { Verb::Install { to: Tier::TOP } } else { Verb::Fetch { to: Tier::TOP } };
                log.movement(Movement { page, verb, joined: false });
                policy.dirty.insert(page, writes || held == Some(true));
                written += 1;
            }
            let before = policy.dirty.clone();
            policy.asked.set(0);
            let mut written_back = Vec::new();
            let mut emit = |movement: Movement| match movement.verb {
                Verb::Requeue { .. } => copied += 1,
                Verb::WriteBack { .. } => written_back.push(movement.page),
                Verb::Drop { .. } => {
                    dropped += 1;
                    let saved = written_back.last() == Some(&movement.page);
                    assert_eq!(before[&movement.page], saved, "seed {seed}, request {at}: {movement:?}");
                }
                verb => panic!("{verb:?}"),
            };
            if ranked {
                log.settle(writes, at, Some(&mut policy), &mut emit);
            } else {
                log.settle(writes, at, None, &mut emit);
            }
            assert!(log.free.len() >= log.free_min, "seed {seed}, request {at}");
            let asked = policy.asked.get();
            assert!(asked <= ASKED_MAX, "seed {seed}, request {at}: {asked} ranks in a request");
            let in_log = log.pages.iter().filter(|&&page| page != NONE).count();
            assert_eq!(in_log, policy.dirty.len(), "seed {seed}, request {at}");
            for page in policy.dirty.keys() {
                assert_eq!(log.pages[log.blocks[page.index()] as usize], page.0, "seed {seed}, request {at}");
            }
        }
        (written, copied, dropped)
    }

    #[test]
    fn a_log_holds_what_its_policy_holds() {
        for seed in 0..4 {
            let (.., dropped) = drive(seed, true, "unbounded");
            assert!(dropped > 0, "seed {seed}");
            let (_, copied, dropped) = drive(seed, false, "unbounded");
            assert!(dropped == 0 && copied > 0, "seed {seed}: a policy without ranks loses no page to reclaim");
        }
    }

    #[test]
    fn a_budget_saves_copies() {
        let amplification = |wear| {
            let (written, copied, _) = drive(9, true, wear);
            copied as f64 / written as f64
        };
        let (unbounded, bounded) = (amplification("unbounded"), amplification("amplification=1.2"));
        assert!(bounded < 0.5 * unbounded, "{bounded} of {unbounded}");
    }

    /// Blocks of the log of the loads below, and the pages that they are for.
    const LOADED: usize = 1024;
    const LOADING: u64 = 10 * LOADED as u64;
    const REQUESTS: usize = 60_000;

    /// A request by its number.
    type Load = fn(usize, &mut Random) -> Request;

    fn request(random: &mut Random, page: u64, writes: f64) -> Request {
        let page = (page % LOADING) as u32;
        if random.chance(writes) { Request::write(page) } else { Request::read(page) }
    }

    fn skewed(random: &mut Random, power: i32) -> u64 {
        (random.next_f64().powi(power) * LOADING as f64) as u64
    }

    /// Reads that fill the cache, writes, both, phases with pages of their own, and a scan again and again.
    const LOADS: [(&str, Load); 5] = [
        ("reads", |_, random| {
            let page = skewed(random, 2);
            request(random, page, 0.02)
        }),
        ("writes", |_, random| {
            let page = skewed(random, 4);
            request(random, page, 0.9)
        }),
        ("both", |_, random| {
            let page = skewed(random, 6);
            request(random, page, 0.3)
        }),
        ("phases", |at, random| {
            let (phase, page) = (at / 12_000, skewed(random, 5));
            request(random, page + 997 * phase as u64, [0.05, 0.8][phase % 2])
        }),
        ("scans", |at, random| request(random, at as u64 % (2 * LOADED as u64), 0.1)),
    ];

    /// Runs `reuse` over a log beside the checker. Returns what is written, beside the bound, after a third of the
    /// requests and after all.
    fn worn(seed: u64, load: Load, wear: &str, options: &[&str]) -> [Worn; 2] {
        let mut random = Random::new(seed);
        let mut config = Config { seed, ..Config::single(LOADING as usize, LOADED) };
        let layout = LogLayout { segment_bytes: Some(8 * 4096), wear: wear.parse().expect("valid") };
        let mut log = layout.below(LOADED, &mut config, true);
        let options = Options::parse(&Reuse::INFO, options.iter().copied()).expect("good options");
        let mut reuse = Reuse::new(&config, &options).expect("a policy");
        let mut checker = Checker::new(Layout::one_object(LOADING as u32), &config.tiers, Refusals::NONE);
        let mut third = log.worn();
        for at in 0..REQUESTS {
            let request = load(at, &mut random);
            checker.request(&mut reuse, request, NEVER);
            checker.movements.iter().for_each(|&movement| log.movement(movement));
            // A request every two minutes.
            log.settle(request.op.is_write(), 120_000_000 * at as u64, reuse.ranked(), |movement| {
                checker.may_evict(movement.page, Tier::TOP);
                checker.emit(movement);
            });
            if at % 10_000 == 0 {
                checker.verify_all(&reuse);
            }
            if at == REQUESTS / 3 {
                third = log.worn();
            }
        }
        checker.verify_all(&reuse);
        [third, log.worn()]
    }

    #[test]
    fn a_bound_on_wear_is_kept_and_used() {
        // What may be written later.
        let credit = 0.4 * LOADED as f64;
        for (seed, (name, load)) in (0..).zip(LOADS.into_iter().chain(LOADS)) {
            let options = if seed % 2 == 0 { &[][..] } else { &["writes=through"] };
            let [third, all] = worn(seed, load, "unbounded", options);
            let freely = (all.written_pages - third.written_pages) as f64;
            assert_eq!(all.past_writes, 0, "{name}");
            for wear in ["amplification=1.1", "amplification=2", "amplification=0.3+0.01", "1DWPD"] {
                let [third, all] = worn(seed, load, wear, options);
                let [allowed_then, allowed] = [third, all].map(|worn| worn.allowed_pages.expect("a bound") as f64);
                let run = format!("{name}, seed {seed}, {wear}: {third:?}, {all:?}, {freely} without a bound");
                println!("{run}");
                // Two segments, and what a decision and a reclaim write at once.
                assert!(all.written_pages as f64 <= allowed + 4.0 * 8.0, "{run}");
                let (written, allowed) = ((all.written_pages - third.written_pages) as f64, allowed - allowed_then);
                assert!(written <= allowed + credit + 32.0, "{run}");
                // A phase that needs less cannot save all of it for the next, and the pressure of one lasts into the other.
                let least = if name == "phases" { 0.8 } else { 0.95 };
                assert!(written + credit >= least * allowed || freely < allowed, "{run}");
                let is_tight = wear == "amplification=0.3+0.01" && matches!(name, "writes" | "both");
                assert!(!is_tight || all.past_writes > third.past_writes, "{run}");
            }
        }
    }
}
