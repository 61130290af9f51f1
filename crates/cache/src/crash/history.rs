//! One random run of a cache: requests, crashes in the middle of requests and of recoveries, and checks of all
//! pages after.

mod kill;
pub(super) mod rot;

use super::tables::Tables;
use crate::Block;
use crate::plan::open_plans;
use crate::{BlockCache, CacheConfig, Clock, Maintenance, Mode};
use entresol_core::Random;
use entresol_crashtest::pages::{Oracle, SECTOR};
use entresol_crashtest::{Fault, Power, SimDisk, runs};
use entresol_disk::Disk;
use entresol_policy::{Options, Wear, catalogue};
use entresol_store::arena::Arena;
use entresol_store::{Geometry, Identity, Layout, format_before, repair};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const BACKING: [u8; 16] = [9; 16];
/// Least capacity of a cache in pages.
const CAPACITY_MIN: u64 = 8;
/// Segments to which a cache grows.
const SEGMENTS_MAX: u32 = 40;
/// Offset in bytes of the end of a table's header and first eight entries (docs/cache-format.md).
const FIRST_ENTRIES_END: u64 = 104 + 8 * 12;
/// The policy that heeds queries, and most pages for which the tables of a history compete.
const PLACING: &str = "table-placement";
const PLACING_PAGES_MAX: u64 = 40;

/// Kind of cache of a history.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub policy: &'static str,
    pub tiers: Vec<usize>,
    pub mode: Mode,
    pub geometry: Geometry,
    pub backing_pages: u64,
    pub maintenance: Maintenance,
    /// The shares of dirty pages at which cleaning ahead begins and ends.
    pub dirty_limits: (f64, f64),
    /// Pages of a sequential stream after which the rest bypasses the cache; 0 for no bypass.
    pub cutoff_pages: u64,
    /// True if syncs of the backing store fail at times, and drop the writes that they were to make durable.
    pub syncs_fail: bool,
    /// True if the store was made by a program before version 3.
    pub of_before: bool,
    /// Most pages of one write.
    pub span_max: u64,
    /// Most seconds for which a page may be dirty; none without such a bound.
    pub dirty_age: Option<u64>,
}

/// True if a table is held in part, or is leaving.
fn has_tables_in_part(cache: &BlockCache) -> bool {
    let gauges = cache.policy_gauges().expect("no thread panicked");
    let gauge = |name| gauges.iter().find(|gauge| gauge.0 == name).map_or(0.0, |gauge| gauge.1);
    gauge("leaving_objects") > 0.0 || (gauge("held_pages") > 0.0 && gauge("held_pages") < gauge("placed_pages"))
}

/// A policy and the capacities of its tiers. The lower tier's is at most `space`, the device's.
fn random_policy(random: &mut Random, space: u64) -> (&'static str, Vec<usize>) {
    let policies = [
        "lru",
        "arc",
        "h-arc",
        "face",
        "face-gsc",
        "lc",
        "tac",
        "expcache",
        "io-cache",
        "fifo",
        "hibachi",
        "multi-tier",
        PLACING,
    ];
    let policy = policies[random.below(policies.len() as u64) as usize];
    let info = catalogue::info(policy).expect("a policy");
    let space = if policy == PLACING { space.min(PLACING_PAGES_MAX) } else { space };
    let cache = (1 + random.below(space)) as usize;
    let mut tiers = vec![cache.max(*info.min_pages.last().expect("a tier"))];
    if info.tiers.len() == 2 {
        // Without a pool a policy writes on entry; with one the newest version is in memory.
        let pool = if random.chance(0.3) { 0 } else { random.below(10) as usize };
        tiers.insert(0, pool.max(info.min_pages[0]));
    } else if policy != PLACING {
        put_below_pool(&mut tiers, &mut random.clone());
    }
    (policy, tiers)
}

/// Puts one of four policies of one tier below a pool.
fn put_below_pool(tiers: &mut Vec<usize>, random: &mut Random) {
    if random.chance(0.25) {
        tiers.insert(0, 1 + random.below(9) as usize);
    }
}

impl Setup {
    /// A small cache of some kind.
    pub fn random(seed: u64, layout: Layout) -> Self {
        let mut random = Random::new(seed);
        let page_bytes = [512, 1024][random.below(2) as usize];
        let segment_pages = [4, 8, 16][random.below(3) as usize];
        let of = |segments| Geometry { page_bytes, segment_pages, segments, layout };
        // The journal takes a good part of a small store.
        let least = if layout.has_slots() { 16 } else { 9 };
        let mut large_enough = (least..).map(of).filter(|geometry| geometry.capacity_pages() >= CAPACITY_MIN);
        let geometry = large_enough.nth(random.below(6) as usize).expect("some number");
        let (mut policy, mut tiers) = random_policy(&mut random, geometry.capacity_pages());
        if layout.has_slots() && Random::mix(seed).is_multiple_of(4) {
            // The default over these layouts. Of a policy with ranks the log of segments drops pages.
            (policy, tiers) = ("reuse", vec![geometry.capacity_pages() as usize]);
            put_below_pool(&mut tiers, &mut random.clone());
        }
        let mode = [Mode::WriteBack, Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround][random.below(4) as usize];
        let backing_pages = 8 + random.below(60);
        let maintenance = [Maintenance::Requests, Maintenance::Hand][random.below(2) as usize];
        let dirty_limits = [(1.0, 1.0), (0.2, 0.0), (0.5, 0.3)][random.below(3) as usize];
        // With so few pages, most follow a page of some stream.
        let cutoff_pages = [0, 0, 0, 2][random.below(4) as usize];
        let (syncs_fail, of_before) = (false, random.chance(0.1) && layout != Layout::Segments);
        // Two runs in three have no bound on ages, and histories as without that option.
        let dirty_age = [None, None, Some(2 + seed % 40)][(Random::mix(seed) % 3) as usize];
        Setup {
            policy,
            tiers,
            mode,
            geometry,
            backing_pages,
            maintenance,
            dirty_limits,
            cutoff_pages,
            syncs_fail,
            of_before,
            span_max: 1,
            dirty_age,
        }
    }

    /// A cache whose tables come and go with queries from the beginning.
    pub fn placing(seed: u64, layout: Layout) -> Self {
        let setup = Setup::random(seed, layout);
        let tier = 1 + Random::new(!seed).below(setup.geometry.capacity_pages().min(PLACING_PAGES_MAX)) as usize;
        Setup { policy: PLACING, tiers: vec![tier], ..setup }
    }

    /// A cache with a pool of pages in memory, between which and the store pages move, and with writes of several pages.
    pub fn pooled(seed: u64, layout: Layout) -> Self {
        let setup = Setup::random(seed, layout);
        let mut random = Random::new(seed ^ 0x9001);
        let mut with_pool = || loop {
            let (policy, tiers) = random_policy(&mut random, setup.geometry.capacity_pages());
            if tiers.len() == 2 && tiers[0] > 1 {
                return (policy, tiers);
            }
        };
        let (policy, tiers) = with_pool();
        Setup { policy, tiers, span_max: 8, ..setup }
    }

    /// A cache whose backing store drops unsynced writes at times.
    pub fn failing(seed: u64, layout: Layout) -> Self {
        Setup { syncs_fail: true, ..Setup::random(seed, layout) }
    }

    /// True if every write reaches the store before the backing store, so that no page is ever torn.
    fn is_atomic(&self) -> bool {
        let one_tier = self.tiers.len() == 1;
        let stays = self.mode != Mode::WriteAround && self.cutoff_pages == 0;
        one_tier && stays && !["expcache", "io-cache", "reuse", PLACING].contains(&self.policy)
    }

    fn config(&self) -> CacheConfig {
        let info = catalogue::info(self.policy).expect("a policy");
        let dirty_age = self.dirty_age.map(Duration::from_secs);
        // Under the second bound nothing may be written for long: writes of held pages go past.
        let wear = match self.backing_pages % 4 {
            0 if self.geometry.layout == Layout::Segments => Wear::Amplification { written: 1.2, read: 0.1 },
            2 if self.geometry.layout == Layout::Segments => Wear::Amplification { written: 0.2, read: 0.0 },
            _ => Wear::Unbounded,
        };
        let Setup { mode, maintenance, .. } = *self;
        CacheConfig { mode, maintenance, dirty_age, wear, ..CacheConfig::new(info, &self.tiers) }
    }
}

/// Counts of the events of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// All crashes.
    pub crashes: u64,
    /// Crashes while a cache was being opened.
    pub crashes_in_recovery: u64,
    pub operations: u64,
    /// Segments reclaimed, or slots freed.
    pub reclaimed: u64,
    /// Entries of a journal that were repeated.
    pub renewed: u64,
    pub evicted_dirty: u64,
    /// Pages that were cleaned ahead.
    pub cleaned_ahead: u64,
    pub cleaned_beside: u64,
    /// Pages that were written below because of their age.
    pub aged: u64,
    /// Changes of the policy or the tiers in use.
    pub changes: u64,
    /// Growths of the cache device in use.
    pub growths: u64,
    /// Requests of long streams that bypassed the cache.
    pub passed: u64,
    /// Pages of tables that were placed for queries.
    pub placed: u64,
    /// Crashes while a table was held in part.
    pub tables_in_part: u64,
    /// Crashes during the I/O of placing or unplacing pages.
    pub placing_interrupted: u64,
    /// Syncs of the backing store that failed.
    pub syncs_failed: u64,
    /// Plans that were held open while other requests went on.
    pub plans_held: u64,
    /// Those of them with several steps.
    pub plans_long: u64,
    /// Pages that were loaded after a decision.
    pub loaded: u64,
    /// Kills of the process in the middle of a request, or between two.
    pub kills: u64,
    /// Kills while a cache was being opened.
    pub kills_in_recovery: u64,
    /// Kills that lost memory of the process alone.
    pub kills_incomplete: u64,
    /// Kills after a sync below had failed and before a flush has succeeded since.
    pub kills_unreported: u64,
    /// Changes that the next process repeated.
    pub repeated: u64,
}

impl runs::Tally for Tally {
    fn add(&mut self, other: &Self) {
        self.crashes += other.crashes;
        self.crashes_in_recovery += other.crashes_in_recovery;
        self.operations += other.operations;
        self.reclaimed += other.reclaimed;
        self.renewed += other.renewed;
        self.evicted_dirty += other.evicted_dirty;
        self.cleaned_ahead += other.cleaned_ahead;
        self.cleaned_beside += other.cleaned_beside;
        self.aged += other.aged;
        self.changes += other.changes;
        self.growths += other.growths;
        self.passed += other.passed;
        self.placed += other.placed;
        self.tables_in_part += other.tables_in_part;
        self.placing_interrupted += other.placing_interrupted;
        self.syncs_failed += other.syncs_failed;
        self.plans_held += other.plans_held;
        self.plans_long += other.plans_long;
        self.loaded += other.loaded;
        self.kills += other.kills;
        self.kills_in_recovery += other.kills_in_recovery;
        self.kills_incomplete += other.kills_incomplete;
        self.kills_unreported += other.kills_unreported;
        self.repeated += other.repeated;
    }
}

/// Effect of a flipped bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    /// No byte in use was hit.
    None,
    /// A clean copy was bad; the backing store has it.
    CleanCopy,
    /// Reading a dirty page is an error until the page is written again.
    PageLost,
    /// The cache cannot be opened.
    Refused,
}

pub(super) struct History {
    setup: Setup,
    power: Power,
    cache: SimDisk,
    backing: SimDisk,
    random: Random,
    oracle: Oracle,
    /// Pages changed below without notice beforehand, forgotten, and not flushed since. After a crash each may read
    /// as the old or the new version, in turns, until it is written again.
    loose: BTreeSet<u64>,
    /// Syncs of the cache device up to the last flush.
    syncs: u64,
    uuid: u8,
    tables: Tables,
    /// Seconds that have passed, and the random numbers that decide how many pass.
    time: Arc<AtomicU64>,
    passing: Random,
    /// Memory that outlives the process, in runs whose processes are killed.
    arena: Option<Arc<Arena>>,
    /// Pages that were discarded, and neither written nor flushed since.
    discarded: BTreeSet<u64>,
    /// In one run of two, plans are held open while other requests go on.
    holding: Option<open_plans::Holding>,
    pub tally: Tally,
}

/// Reason why an operation did not succeed.
enum Stop {
    PowerOff,
    Wrong(String),
}

/// Reason why an operation stopped while the power was on.
fn wrong(stop: Stop) -> String {
    match stop {
        Stop::Wrong(why) => why,
        Stop::PowerOff => unreachable!("the power is on"),
    }
}

type Outcome<T> = Result<T, Stop>;

impl History {
    pub fn new(setup: Setup, seed: u64) -> Self {
        let power = Power::steady();
        let page_bytes = setup.geometry.page_bytes as usize;
        let cache = SimDisk::new(setup.geometry.size_bytes(), &power);
        cache.garble();
        let backing = SimDisk::new(setup.backing_pages * page_bytes as u64, &power);
        let oracle = Oracle::new(setup.backing_pages, page_bytes, setup.is_atomic());
        let mut history = History {
            power,
            cache,
            backing,
            random: Random::new(seed),
            oracle,
            loose: BTreeSet::new(),
            syncs: 0,
            uuid: 0,
            tables: Tables::new(setup.backing_pages),
            time: Arc::default(),
            passing: Random::new(seed ^ 0xA9E),
            arena: None,
            discarded: BTreeSet::new(),
            holding: (Random::mix(seed ^ 0x9E1D) & 1 == 0).then(|| open_plans::begin(seed)),
            tally: Tally::default(),
            setup,
        };
        history.format();
        history
    }

    fn format(&mut self) {
        self.uuid += 1;
        let (geometry, backing_pages) = (self.setup.geometry, self.setup.backing_pages);
        let identity = Identity { uuid: [self.uuid; 16], backing: BACKING, backing_pages, backing_bytes: 0 };
        if self.setup.of_before {
            format_before(&self.cache, geometry, identity).expect("room for the cache");
        } else {
            BlockCache::format(&self.cache, geometry, &self.backing, identity.uuid, BACKING)
                .expect("room for the cache");
        }
    }

    fn open(&self) -> Outcome<BlockCache> {
        self.open_on(&self.cache, &self.backing)
    }

    fn open_on(&self, cache: &SimDisk, backing: &SimDisk) -> Outcome<BlockCache> {
        let opened = BlockCache::open_objects(
            cache.clone(),
            backing.clone(),
            BACKING,
            &CacheConfig { clock: self.clock(), arena: self.arena.clone(), ..self.setup.config() },
            self.tables.objects(),
        );
        let (high, low) = self.setup.dirty_limits;
        let cutoff_bytes = self.setup.cutoff_pages * u64::from(self.setup.geometry.page_bytes);
        let adjusted = |cache: &BlockCache| {
            cache.set_dirty_limits(high, low).expect("limits that can be");
            cache.set_sequential_cutoff(cutoff_bytes).expect("a cache that runs");
        };
        opened.inspect(adjusted).map_err(|error| self.why(format!("opening: {error}")))
    }

    fn clock(&self) -> Clock {
        let time = Arc::clone(&self.time);
        Clock::of(move || Duration::from_secs(time.load(Ordering::Relaxed)))
    }

    fn why(&self, error: String) -> Stop {
        if self.power.is_off() { Stop::PowerOff } else { Stop::Wrong(error) }
    }

    fn try_io(&self, what: &str, result: std::io::Result<()>) -> Outcome<()> {
        result.map_err(|error| self.why(format!("{what}: {error}")))
    }

    fn read(&self, cache: &BlockCache, page: u64) -> Outcome<Vec<u8>> {
        let mut bytes = vec![0; self.setup.geometry.page_bytes as usize];
        let result = cache.read(page * bytes.len() as u64, &mut bytes);
        self.try_io("reading", result)?;
        Ok(bytes)
    }

    fn some_page(&mut self) -> u64 {
        let pages = self.oracle.pages();
        if self.random.chance(0.5) { self.random.below(pages.div_ceil(4)) } else { self.random.below(pages) }
    }

    /// One random request.
    fn step(&mut self, cache: &BlockCache) -> Outcome<()> {
        self.tally.operations += 1;
        self.time.fetch_add(self.passing.below(3), Ordering::Relaxed);
        if self.setup.maintenance == Maintenance::Hand && self.random.chance(0.3) {
            self.try_io("maintenance", cache.step())?;
        }
        if self.setup.policy == PLACING && self.random.chance(0.4) {
            let done = self.tables.step(cache, &mut self.random);
            self.tally.placing_interrupted += u64::from(done.is_err() && self.power.is_off());
            return self.try_io("placing", done);
        }
        if self.setup.syncs_fail && self.random.chance(0.05) {
            return self.fail_a_sync(cache);
        }
        match self.random.below(20) {
            0..=6 => {
                let page = self.some_page();
                let bytes = self.read(cache, page)?;
                self.oracle.check_latest(page, &bytes).map_err(Stop::Wrong)
            }
            7..=17 => self.write(cache),
            18 => {
                self.try_io("flushing", cache.flush())?;
                self.flushed();
                Ok(())
            }
            _ => self.rare(cache),
        }
    }

    fn write(&mut self, cache: &BlockCache) -> Outcome<()> {
        let page_bytes = u64::from(self.setup.geometry.page_bytes);
        let page = self.some_page();
        let sectors = page_bytes as usize / SECTOR;
        let from = if self.random.chance(0.7) { 0 } else { self.random.below(sectors as u64) as usize };
        let mut bytes = self.oracle.write(page, from..sectors);
        let more = if self.setup.span_max > 1 { self.random.below(self.setup.span_max) } else { 0 };
        let pages = page..(page + 1 + more).min(self.oracle.pages());
        for page in pages.start + 1..pages.end {
            bytes.extend_from_slice(&self.oracle.write(page, 0..sectors));
        }
        let fua = self.random.chance(0.1);
        let result = cache.write(page * page_bytes + (from * SECTOR) as u64, &bytes, fua);
        self.try_io("writing", result)?;
        for page in pages.filter(|&page| !open_plans::is_held(page)) {
            self.discarded.remove(&page);
        }
        if fua {
            self.flushed();
        }
        Ok(())
    }

    /// Makes a sync of the backing store fail outside a writer's flush. The writes that it was to make durable are
    /// gone.
    fn fail_a_sync(&mut self, cache: &BlockCache) -> Outcome<()> {
        // A change below by somebody else would be gone for good.
        self.try_io("flushing", cache.flush())?;
        self.flushed();
        for _ in 0..self.random.below(12) {
            self.write(cache)?;
        }
        self.backing.inject(Fault::SyncError);
        let by_hand = self.setup.maintenance == Maintenance::Hand && self.random.chance(0.5);
        let failed = (by_hand && cache.step().is_err()) || cache.drain().is_err();
        self.tally.syncs_failed += u64::from(failed);
        // If no sync was needed yet, the fault strikes here, and nothing is lost.
        let told = failed || self.backing.sync().is_err();
        match (told, self.power.is_off()) {
            (_, true) => Err(Stop::PowerOff),
            (true, false) => Ok(()),
            (false, false) => Err(Stop::Wrong("a sync failed and nobody was told".to_owned())),
        }
    }

    fn some_range(&mut self) -> Range<u64> {
        let first = self.some_page();
        first..(first + 1 + self.random.below(12)).min(self.oracle.pages())
    }

    /// Zeroes pages by a request, or below with notice.
    fn zero(&mut self, cache: &BlockCache) -> Outcome<()> {
        let page_bytes = u64::from(self.setup.geometry.page_bytes);
        let pages = self.some_range();
        let (at, bytes) = (pages.start * page_bytes, (pages.end - pages.start) * page_bytes);
        // Discards may be torn below.
        self.oracle.may_tear();
        let how = self.random.below(4);
        if how == 3 {
            self.try_io("draining", cache.drain())?;
            self.flushed();
            self.try_io("forgetting", cache.forget(at, bytes))?;
            self.try_io("flushing", cache.flush())?;
        }
        pages.clone().for_each(|page| self.oracle.zeroed(page));
        match how {
            0 => self.try_io("writing zeroes", cache.write_zeroes(at, bytes)),
            1 => {
                self.discarded.extend(pages);
                self.try_io("discarding", cache.discard(at, bytes))
            }
            _ => {
                if how == 2 {
                    self.loose.extend(pages);
                }
                self.try_io("changing what is below", self.backing.write_at(at, &vec![0; bytes as usize]))?;
                self.try_io("forgetting", cache.forget(at, bytes))
            }
        }
    }

    /// Notes that a flush returned.
    fn flushed(&mut self) {
        let syncs = self.cache.counts()[2];
        // Without commit records the next batch states the durable end, and needs a sync of its own.
        self.oracle.flushed(syncs > self.syncs + u64::from(self.setup.of_before));
        self.syncs = syncs;
        self.loose.clear();
        self.discarded.clear();
    }

    /// Performs one of the rare operations.
    fn rare(&mut self, cache: &BlockCache) -> Outcome<()> {
        match self.random.below(10) {
            8 => self.change(cache),
            9 => self.grow(cache),
            0 => {
                self.try_io("draining", cache.drain())?;
                self.flushed();
                Ok(())
            }
            1 | 2 => self.zero(cache),
            3 => {
                let modes = [Mode::WriteBack, Mode::WriteThrough];
                let mode = modes[self.random.below(2) as usize];
                if self.setup.mode == Mode::WriteAround { Ok(()) } else { self.try_io("mode", cache.set_mode(mode)) }
            }
            _ => {
                self.try_io("flushing", cache.flush())?;
                self.flushed();
                Ok(())
            }
        }
    }

    /// Makes the cache device larger.
    fn grow(&mut self, cache: &BlockCache) -> Outcome<()> {
        let mut geometry = self.setup.geometry;
        geometry.segments += 1 + self.random.below(4) as u32;
        if geometry.segments > SEGMENTS_MAX || geometry.layout.has_slots() {
            return Ok(());
        }
        // A part of a segment adds nothing.
        let bytes = geometry.size_bytes() + self.random.below(geometry.segment_bytes());
        let space = cache.grow(bytes).map_err(|error| self.why(format!("growing to {bytes} bytes: {error}")))?;
        assert_eq!((space, cache.room_pages()), (geometry.capacity_pages(), space));
        self.setup.geometry = geometry;
        self.tally.growths += 1;
        Ok(())
    }

    /// Sets another policy, or other tiers of the same one.
    fn change(&mut self, cache: &BlockCache) -> Outcome<()> {
        let (policy, tiers) = random_policy(&mut self.random, self.setup.geometry.capacity_pages());
        let info = catalogue::info(policy).expect("a policy");
        let to = Setup { policy, tiers, ..self.setup.clone() };
        if !to.is_atomic() {
            self.oracle.may_tear();
        }
        let changed = cache.set_policy(info, &Options::defaults(info), &to.tiers);
        changed.map_err(|error| self.why(format!("changing to {policy}: {error}")))?;
        self.setup = to;
        self.tally.changes += 1;
        Ok(())
    }

    /// Runs until the power goes after so many writes and syncs, or for so many requests. Then recovers and checks.
    pub fn round(&mut self, requests: u64, power_for: Option<u64>) -> Result<(), String> {
        if let Some(operations) = power_for {
            self.power.fail_after(operations);
        }
        let lived = self.live(requests);
        match lived {
            Err(Stop::Wrong(error)) => return Err(error),
            Err(Stop::PowerOff) | Ok(()) => {}
        }
        self.crash();
        self.recover()
    }

    fn live(&mut self, requests: u64) -> Outcome<()> {
        let cache = self.open()?;
        let mut result = Ok(());
        for _ in 0..requests {
            result = self.step(&cache);
            if result.is_err() {
                break;
            }
        }
        // Policies of these families keep older versions of pages, in memory or below it, until their turn comes.
        let keeps_older = ["extension", "migration"].contains(&cache.config().policy.family);
        if result.is_ok() && !keeps_older {
            let unknown = cache.unknown_residents().expect("no thread panicked");
            if !unknown.is_empty() {
                let what =
                    format!("pages {unknown:?} count as cached, and {} does not hold them", cache.config().policy.name);
                return Err(Stop::Wrong(what));
            }
        }
        let stats = cache.stats().expect("no thread panicked");
        self.tally.reclaimed += stats.write_back.segments_reclaimed + stats.write_back.slots_freed;
        self.tally.renewed += stats.store.renewed;
        self.tally.evicted_dirty += stats.write_back.evicted_dirty;
        self.tally.cleaned_ahead += stats.write_back.cleaned_ahead;
        self.tally.cleaned_beside += stats.write_back.cleaned_beside;
        self.tally.aged += stats.dirty_age.map_or(0, |dirty_age| dirty_age.written);
        self.tally.passed += stats.counts.passed;
        self.count_plans();
        self.tally.placed += stats.counts.placed;
        self.tally.tables_in_part += u64::from(matches!(result, Err(Stop::PowerOff)) && has_tables_in_part(&cache));
        // Without a fault the cache must not give up its device.
        match stats.failed {
            Some(why) if result.is_ok() && !self.power.is_off() => {
                Err(Stop::Wrong(format!("the cache has given its device up: {why}")))
            }
            _ => result,
        }
    }

    fn count_plans(&mut self) {
        let (held, long) = self.holding.as_ref().map_or((0, 0), |holding| holding.take_held());
        self.tally.plans_held += held;
        self.tally.plans_long += long;
        self.tally.loaded += crate::loading::take_loaded();
    }

    fn crash(&mut self) {
        self.tally.crashes += 1;
        self.discarded.clear();
        self.arena = None;
        self.tables.forget();
        let seed = self.random.next_u64();
        self.cache.crash(seed);
        self.backing.crash(Random::mix(seed));
        self.power.restore();
    }

    /// Loses power between two processes, and checks what is durable.
    pub fn lose_power(&mut self) -> Result<(), String> {
        self.crash();
        self.recover()
    }

    /// Recovers, at times with another crash in the middle, and checks every page.
    fn recover(&mut self) -> Result<(), String> {
        for _ in 0..3 {
            if self.random.chance(0.2) {
                self.power.fail_after(self.random.below(8));
                let opened = self.open();
                if let Err(Stop::Wrong(error)) = opened {
                    return Err(error);
                }
                self.tally.crashes_in_recovery += 1;
                self.crash();
            }
        }
        if self.random.chance(0.3) {
            self.cache.misread_after(self.random.below(80));
        }
        if self.random.chance(0.05) {
            self.is_refused_to_others()?;
        }
        let cache = self.open().map_err(wrong)?;
        // A growth that the crash interrupted may have taken effect.
        self.setup.geometry = entresol_store::geometry(&self.cache).map_err(|error| error.to_string())?;
        let held = cache.held_pages().expect("no thread panicked");
        let clean: BTreeSet<u64> = held.into_iter().filter(|(_, dirty)| !dirty).map(|(page, _)| page).collect();
        let mut below = vec![0; self.setup.geometry.page_bytes as usize];
        for page in 0..self.oracle.pages() {
            let bytes = self.read(&cache, page).map_err(wrong)?;
            self.oracle.check_after_crash(page, &bytes)?;
            if !clean.contains(&page) || self.loose.contains(&page) {
                continue;
            }
            // A clean copy equals the page below: it may be dropped at any time.
            self.backing.read_at(page * below.len() as u64, &mut below).expect("the backing store works");
            if bytes != below {
                return Err(format!("after a crash page {page} is held as clean and is not what is below"));
            }
        }
        self.tighten(&cache)?;
        if self.random.chance(0.1) { self.move_out(&cache) } else { Ok(()) }
    }

    /// Checks that the cache refuses another backing store, and its own if that has become smaller.
    fn is_refused_to_others(&self) -> Result<(), String> {
        let page_bytes = u64::from(self.setup.geometry.page_bytes);
        let others = [(self.backing.size_bytes(), [8; 16]), (self.backing.size_bytes() - page_bytes, BACKING)];
        for (size, identity) in others {
            let other = SimDisk::new(size, &self.power);
            if BlockCache::open(self.cache.clone(), other, identity, &self.setup.config()).is_ok() {
                return Err(format!("it is opened for a store of {size} bytes with identity {identity:?}"));
            }
        }
        Ok(())
    }

    /// Writes the loose pages again.
    fn tighten(&mut self, cache: &BlockCache) -> Result<(), String> {
        for page in std::mem::take(&mut self.loose) {
            let bytes = self.oracle.write(page, 0..self.setup.geometry.page_bytes as usize / SECTOR);
            let written = cache.write(page * bytes.len() as u64, &bytes, true);
            written.map_err(|error| format!("writing again: {error}"))?;
            self.flushed();
        }
        Ok(())
    }

    /// Drains the cache, checks that the backing store alone is complete, and at times formats the device again.
    fn move_out(&mut self, cache: &BlockCache) -> Result<(), String> {
        cache.drain().and_then(|()| cache.close()).map_err(|error| format!("draining: {error}"))?;
        let mut bytes = vec![0; self.setup.geometry.page_bytes as usize];
        for page in 0..self.oracle.pages() {
            self.backing.read_at(page * bytes.len() as u64, &mut bytes).expect("the backing store works");
            self.oracle.check_latest(page, &bytes).map_err(|error| format!("below, after a drain: {error}"))?;
        }
        let dirty = self.open().map_err(wrong)?.recovered().dirty_pages;
        if dirty > 0 {
            return Err(format!("{dirty} pages are dirty on the device after a drain and a close"));
        }
        if self.random.chance(0.5) {
            self.format();
        }
        Ok(())
    }

    /// Flips a bit of the cache device after a run without faults, and reads every page. The contents are right or
    /// reading is an error. A page written again is right in any case.
    pub fn damage(&mut self, requests: u64) -> Result<Damage, String> {
        self.live(requests).map_err(wrong)?;
        let cache = self.open().map_err(wrong)?;
        // The process before was killed; the devices lost nothing.
        for page in 0..self.oracle.pages() {
            let bytes = self.read(&cache, page).map_err(wrong)?;
            self.oracle.check_after_crash(page, &bytes)?;
        }
        self.tighten(&cache)?;
        cache.flush().and_then(|()| cache.close()).map_err(|error| format!("closing: {error}"))?;
        drop(cache);
        let byte = self.place_to_damage().map_err(|error| format!("looking for tables: {error}"))?;
        self.cache.flip(byte, self.random.below(8) as u8);
        let repaired = self.random.chance(0.5).then(|| repair(self.cache.clone(), BACKING, self.setup.backing_pages));
        let forgotten = match repaired {
            Some(Ok(repaired)) => !repaired.gone.is_empty(),
            None => false,
            // An open and a repair refuse the same caches.
            Some(Err(refused)) => match self.open() {
                Ok(_) => return Err(format!("a cache that is opened cannot be repaired: {refused}")),
                Err(_) => return Ok(Damage::Refused),
            },
        };
        let Ok(cache) = self.open() else { return Ok(Damage::Refused) };
        let mut damage = Damage::None;
        for page in 0..self.oracle.pages() {
            match self.read(&cache, page) {
                Ok(bytes) => self.oracle.check_latest(page, &bytes)?,
                Err(_) => damage = Damage::PageLost,
            }
        }
        let lost = cache.lost_pages().expect("no thread panicked");
        if (damage == Damage::PageLost) != (lost.len() == 1) {
            return Err(format!("{damage:?}, but {lost:?} are listed"));
        }
        for page in lost {
            let bytes = self.oracle.write(page, 0..self.setup.geometry.page_bytes as usize / SECTOR);
            cache.write(page * bytes.len() as u64, &bytes, false).map_err(|error| format!("writing again: {error}"))?;
            let bytes = self.read(&cache, page).map_err(wrong)?;
            self.oracle.check_latest(page, &bytes)?;
        }
        let clean_bad = cache.stats().expect("no thread panicked").write_back.clean_copies_bad > 0;
        Ok(if clean_bad || forgotten { Damage::CleanCopy } else { damage })
    }

    /// A random byte of the cache device. Every other time it is in one of the first entries of a table, since tables
    /// are a small part of the device.
    fn place_to_damage(&mut self) -> std::io::Result<u64> {
        let page_bytes = u64::from(self.setup.geometry.page_bytes);
        let mut block = vec![0; page_bytes as usize];
        let mut tables = Vec::new();
        for offset in (0..self.cache.size_bytes()).step_by(page_bytes as usize) {
            self.cache.read_at(offset, &mut block)?;
            if block.starts_with(b"\x89ETBATCH") || block.starts_with(b"\x89ETJOURN") {
                tables.push(offset);
            }
        }
        if tables.is_empty() || self.random.chance(0.5) {
            return Ok(self.random.below(self.cache.size_bytes()));
        }
        let table = tables[self.random.below(tables.len() as u64) as usize];
        Ok(table + self.random.below(FIRST_ENTRIES_END))
    }

    /// Writes and syncs so far.
    pub fn io_operations(&self) -> u64 {
        self.power.operations()
    }
}
