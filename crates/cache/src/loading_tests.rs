//! Pages that a policy fetches besides the requested one: loaded behind the lock, right or not at all.

use crate::holds_tests::Watched;
use crate::plan::open_plans;
use crate::{Block, BlockCache, CacheConfig, Maintenance, loading};
use entresol_core::{Outcome, Page, Random, Request, Tier, Verb};
use entresol_crashtest::{Fault, Power, SimDisk, runs};
use entresol_disk::Disk;
use entresol_policy::{BuildError, Config, Driver, Info, Options, PageState, Policy, TierSet, catalogue};
use entresol_store::mutant::{self, Mutant};
use entresol_store::{Geometry, Layout};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

const PAGE: u64 = 512;
const PAGES: u64 = 40;
const ID: [u8; 16] = [6; 16];
const POOL: Tier = Tier::TOP;
const FLASH: Tier = Tier(1);
const TIERS: [usize; 2] = [5, 10];
/// First seed of the runs, the same for all.
const FIRST: u64 = 8_000_000;

/// A policy that fetches the page after each one that missed, if it knows it: even ones to the pool, the others to the
/// store. Every other page that leaves the pool moves down.
#[derive(Clone, Debug)]
pub(crate) struct ReadsAhead {
    queues: [VecDeque<Page>; 2],
    dirty: Vec<bool>,
    seen: Vec<bool>,
}

impl ReadsAhead {
    fn tier(&self, page: Page) -> Option<Tier> {
        [POOL, FLASH].into_iter().find(|tier| self.queues[tier.index()].contains(&page))
    }

    fn make_room<D: Driver>(&mut self, tier: Tier, driver: &mut D) {
        if self.queues[tier.index()].len() < TIERS[tier.index()] {
            return;
        }
        let victim = self.queues[tier.index()].pop_front().expect("it is full");
        if tier == POOL && victim.index() % 2 == 1 {
            self.make_room(FLASH, driver);
            driver.start(victim, Verb::Copy { from: POOL, to: FLASH });
            driver.start(victim, Verb::Drop { from: POOL });
            self.queues[FLASH.index()].push_back(victim);
        } else {
            driver.evict(victim, tier, std::mem::take(&mut self.dirty[victim.index()]));
        }
    }
}

impl Policy for ReadsAhead {
    const INFO: Info = Info { name: "reads-ahead", tiers: &["pool", "flash"], min_pages: &[1, 3], ..Info::PLAIN };

    fn new(config: &Config, _options: &Options) -> Result<Self, BuildError> {
        Ok(ReadsAhead { queues: Default::default(), dirty: vec![false; config.pages], seen: vec![false; config.pages] })
    }

    fn access<D: Driver>(&mut self, request: Request, driver: &mut D) -> Outcome {
        let page = request.page;
        self.seen[page.index()] = true;
        self.dirty[page.index()] |= request.op.is_write();
        if let Some(tier) = self.tier(page) {
            driver.overwrite(request, tier);
            return Outcome::Hit(tier);
        }
        let to = if page.index().is_multiple_of(3) { POOL } else { FLASH };
        self.make_room(to, driver);
        driver.admit(request, to);
        self.queues[to.index()].push_back(page);
        let next = driver.successor(page).filter(|&next| self.seen[next.index()] && self.tier(next).is_none());
        if let Some(next) = next {
            let to = if next.index() % 2 == 0 { POOL } else { FLASH };
            self.make_room(to, driver);
            driver.start(next, Verb::Fetch { to });
            self.queues[to.index()].push_back(next);
        }
        Outcome::ADMITTED
    }

    fn state(&self, page: Page) -> PageState {
        let tiers = self.tier(page).map_or(TierSet::EMPTY, |tier| TierSet::only(tier, true));
        PageState { tiers, dirty: self.dirty[page.index()], known: self.seen[page.index()] }
    }

    fn occupancy(&self, tier: Tier) -> usize {
        self.queues[tier.index()].len()
    }

    fn memory_bytes(&self) -> usize {
        self.dirty.len() + self.seen.len()
    }
}

fn policy() -> ReadsAhead {
    let pages = PAGES as usize + 8;
    ReadsAhead { queues: Default::default(), dirty: vec![false; pages], seen: vec![false; pages] }
}

fn geometry(layout: Layout) -> Geometry {
    Geometry { page_bytes: PAGE as u32, segment_pages: 8, segments: 40, layout }
}

fn config() -> CacheConfig {
    let face = catalogue::info("face").expect("a policy");
    let config = CacheConfig { maintenance: Maintenance::Requests, ..CacheConfig::new(face, &TIERS) };
    CacheConfig { handles: PAGES as usize + 8, ..config }
}

fn open(cache: impl Disk + 'static, backing: impl Disk + 'static) -> Result<BlockCache, String> {
    let cache = BlockCache::open(cache, backing, ID, &config()).map_err(|error| format!("opening: {error}"))?;
    cache.put_policy(policy(), &TIERS, PAGES as usize + 8).map_err(|error| format!("a policy: {error}"))?;
    Ok(cache)
}

/// A run with failing reads below, and with losses of power. Counts pages that were loaded.
pub(crate) fn random_life(seed: u64, layout: Layout) -> Result<u64, String> {
    let mut random = Random::new(seed);
    let power = Power::steady();
    let (disk, below) = (SimDisk::new(geometry(layout).size_bytes(), &power), SimDisk::new(PAGES * PAGE, &power));
    let calls = Arc::<AtomicU64>::default();
    BlockCache::format(&disk, geometry(layout), &below, [1; 16], ID).expect("room");
    // Newest version of each page, and the last one that a flush covered.
    let mut versions: BTreeMap<u64, (u8, u8)> = (0..PAGES).map(|page| (page, (0, 0))).collect();
    let mut loaded = 0;
    loading::take_loaded();
    for _life in 0..4 {
        let _holding = random.chance(0.5).then(|| open_plans::begin(random.next_u64()));
        let cache = open(Watched::of(disk.clone(), &calls), Watched::of(below.clone(), &calls))?;
        calls.store(0, Relaxed);
        for step in 0..60 + random.below(100) {
            let page = random.below(PAGES);
            let (newest, flushed) = versions.get_mut(&page).expect("a page");
            match random.below(10) {
                0..3 => {
                    *newest += 1;
                    let written = cache.write(page * PAGE, &[*newest; PAGE as usize], false);
                    written.map_err(|error| format!("writing page {page}: {error}"))?;
                }
                3 => {
                    cache.flush().map_err(|error| format!("a flush: {error}"))?;
                    versions.values_mut().for_each(|(newest, flushed)| *flushed = *newest);
                }
                4 => below.inject(Fault::ReadError),
                _ => {
                    let mut bytes = [0; PAGE as usize];
                    let may_fail = below.has_faults();
                    let read = cache.read(page * PAGE, &mut bytes);
                    if read.is_err() && may_fail {
                        continue;
                    }
                    read.map_err(|error| format!("reading page {page}: {error}"))?;
                    if bytes != [*newest; PAGE as usize] {
                        return Err(format!("step {step}: page {page} is {}, not {newest}", bytes[0]));
                    }
                    debug_assert!(*flushed <= *newest);
                }
            }
            let in_holds = calls.load(Relaxed);
            if in_holds > 0 {
                return Err(format!("step {step}: {in_holds} calls of devices in a hold"));
            }
        }
        loaded += loading::take_loaded();
        open_plans::give_up();
        drop(cache);
        below.heal();
        let crash = random.next_u64();
        disk.crash(crash);
        below.crash(!crash);
        let cache = open(disk.clone(), below.clone())?;
        for (&page, (newest, flushed)) in &mut versions {
            let mut bytes = [0; PAGE as usize];
            cache.read(page * PAGE, &mut bytes).map_err(|error| format!("reading page {page}: {error}"))?;
            let found = bytes[0];
            if !(*flushed..=*newest).contains(&found) && bytes.iter().all(|&byte| byte == found) {
                return Err(format!("page {page} is {found} after a crash, not {flushed} to {newest}"));
            }
            // Pages that bypass the store are torn at times.
            *newest = newest.wrapping_add(1);
            let written = cache.write(page * PAGE, &[*newest; PAGE as usize], false);
            written.map_err(|error| format!("writing page {page}: {error}"))?;
        }
        cache.flush().and_then(|()| cache.close()).map_err(|error| format!("closing: {error}"))?;
        versions.values_mut().for_each(|(newest, flushed)| *flushed = *newest);
    }
    Ok(loaded)
}

/// Runs of many seeds.
pub(crate) fn random_lives(seeds: std::ops::Range<u64>, layout: Layout) -> Result<u64, String> {
    let mut loaded = 0;
    for seed in seeds {
        loaded += random_life(FIRST + seed, layout).map_err(|why| format!("seed {seed}, {layout:?}: {why}"))?;
    }
    Ok(loaded)
}

/// Something that happens before a read of a byte of the disk, once.
type Event = Arc<Mutex<Option<(u64, Box<dyn FnOnce() + Send>)>>>;

/// A disk with an event.
struct Eventful(SimDisk, Event);

impl Disk for Eventful {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_at(at, bytes)?;
        let mut event = self.1.lock().expect("nobody panics");
        let now = event.take_if(|(byte, _)| *byte == at);
        drop(event);
        if let Some((_, happen)) = now {
            happen();
        }
        Ok(())
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.0.discard(at, bytes)
    }
}

fn read(cache: &BlockCache, page: u64) -> Result<u8, String> {
    let mut bytes = [0; PAGE as usize];
    cache.read(page * PAGE, &mut bytes).map_err(|error| format!("reading page {page}: {error}"))?;
    Ok(bytes[0])
}

/// A page that was fetched ahead needs no read when it is requested. A write during the load waits for it, and counts.
pub(crate) fn a_write_waits_for_the_load_of_its_page(layout: Layout) -> Result<(), String> {
    // One of them goes to the pool, the other to the store.
    for ahead in [21, 22] {
        let power = Power::steady();
        let (disk, below) = (SimDisk::new(geometry(layout).size_bytes(), &power), SimDisk::new(PAGES * PAGE, &power));
        BlockCache::format(&disk, geometry(layout), &below, [1; 16], ID).expect("room");
        let event = Event::default();
        let cache = Arc::new(open(disk, Eventful(below.clone(), Arc::clone(&event)))?);
        let again = |cache: &BlockCache| {
            read(cache, ahead)?;
            (0..18).chain(24..PAGES).try_for_each(|page| read(cache, page).map(drop))
        };
        again(&cache)?;
        read(&cache, ahead - 1)?;
        let before = below.counts()[0];
        read(&cache, ahead)?;
        if below.counts()[0] != before {
            return Err(format!("page {ahead} is read again though it was loaded"));
        }
        again(&cache)?;
        let writer = Arc::clone(&cache);
        let (tell, told) = mpsc::channel();
        let write = move || {
            std::thread::spawn(move || {
                let written = writer.write(ahead * PAGE, &[7; PAGE as usize], false);
                let _nobody_waits_any_more = tell.send(written.is_ok());
            });
            // A write that waits for the load goes on behind it.
            std::thread::sleep(Duration::from_millis(50));
        };
        *event.lock().expect("nobody panics") = Some((ahead * PAGE, Box::new(write)));
        read(&cache, ahead - 1)?;
        let written = told.recv_timeout(Duration::from_secs(20));
        if written != Ok(true) {
            return Err(format!("the write of page {ahead}: {written:?}"));
        }
        let found = read(&cache, ahead)?;
        if found != 7 {
            return Err(format!("page {ahead} is {found} after a write of 7"));
        }
    }
    Ok(())
}

#[test]
fn pages_fetched_ahead_are_right_or_not_there() {
    for layout in [Layout::Log, Layout::Slots] {
        let seeds = runs::number("ENTRESOL_CRASH_SEEDS", 400);
        let loaded = random_lives(0..seeds, layout).unwrap_or_else(|violation| panic!("{violation}"));
        println!("{layout:?}: {seeds} runs, {loaded} pages loaded");
        assert!(loaded > 10 * seeds, "{loaded} pages loaded");
    }
}

#[test]
fn a_write_during_a_load_is_not_overwritten() {
    for layout in [Layout::Log, Layout::Slots] {
        a_write_waits_for_the_load_of_its_page(layout).unwrap_or_else(|why| panic!("{layout:?}: {why}"));
    }
}

#[test]
fn every_mutant_of_loading_is_found_out() {
    for layout in [Layout::Log, Layout::Slots] {
        for mutant in Mutant::OF_LOADING {
            mutant::activate(Some(mutant));
            let found = random_lives(0..400, layout).and_then(|_| a_write_waits_for_the_load_of_its_page(layout));
            mutant::activate(None);
            println!("{layout:?}: {mutant:?}: {found:?}");
            assert!(found.is_err(), "{layout:?}: {mutant:?} is missed");
        }
    }
}
