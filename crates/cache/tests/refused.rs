//! Pages that the backing store refuses: reported at the end of a cache, each by itself, and never lost.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, Maintenance, Mode};
use entresol_core::Random;
use entresol_crashtest::{Power, SimDisk};
use entresol_disk::Disk;
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

const PAGE: usize = 1024;
const PAGES: u64 = 100;
const ID: [u8; 16] = [3; 16];

/// A disk that refuses writes of some pages, and may fail its syncs.
#[derive(Clone)]
struct Refusing {
    disk: SimDisk,
    pages: Arc<Mutex<BTreeSet<u64>>>,
    syncs: Arc<AtomicBool>,
}

impl Disk for Refusing {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.disk.read_at(at, bytes)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let pages = at / PAGE as u64..(at + bytes.len() as u64).div_ceil(PAGE as u64);
        if self.pages.lock().expect("no panic").range(pages).next().is_some() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.disk.write_at(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        if self.syncs.load(SeqCst) { Err(io::Error::other("a sync that fails")) } else { self.disk.sync() }
    }

    fn discard(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.disk.discard(at, bytes)
    }
}

struct Lab {
    cache: SimDisk,
    below: Refusing,
    config: CacheConfig,
    /// Values that each page may hold: more than one after a failed write.
    truth: Vec<Vec<u8>>,
}

impl Lab {
    fn new(layout: Layout, policy: &str) -> Self {
        let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 16, segments: 16, layout };
        let power = Power::steady();
        let cache = SimDisk::new(geometry.size_bytes(), &power);
        let disk = SimDisk::new(PAGES * PAGE as u64, &power);
        BlockCache::format(&cache, geometry, &disk, [1; 16], ID).expect("room");
        let info = catalogue::info(policy).expect("a policy");
        let tiers: &[usize] = if info.tiers.len() == 1 { &[60] } else { &[10, 60] };
        let config =
            CacheConfig { mode: Mode::WriteBack, maintenance: Maintenance::Requests, ..CacheConfig::new(info, tiers) };
        let below = Refusing { disk, pages: Arc::default(), syncs: Arc::default() };
        Lab { cache, below, config, truth: vec![vec![0]; PAGES as usize] }
    }

    fn open(&self) -> BlockCache {
        BlockCache::open(self.cache.clone(), self.below.clone(), ID, &self.config).expect("a cache in order")
    }

    fn refuse(&self, pages: BTreeSet<u64>) {
        *self.below.pages.lock().expect("no panic") = pages;
    }

    fn write(&mut self, cache: &BlockCache, page: u64, value: u8) {
        let written = cache.write(page * PAGE as u64, &[value; PAGE], false);
        let truth = &mut self.truth[page as usize];
        match written {
            Ok(()) => *truth = vec![value],
            Err(_) => truth.push(value),
        }
    }

    fn check(&self, read: impl Fn(u64, &mut [u8]) -> io::Result<()>, when: &str) {
        for page in 0..PAGES {
            let mut bytes = [0; PAGE];
            read(page * PAGE as u64, &mut bytes).unwrap_or_else(|error| panic!("{when}: page {page}: {error}"));
            let possible = self.truth[page as usize].iter().any(|&value| bytes == [value; PAGE]);
            assert!(possible, "{when}: page {page} is {}, not {:?}", bytes[0], self.truth[page as usize]);
        }
    }
}

fn dirty(cache: &BlockCache) -> BTreeSet<u64> {
    let held = cache.held_pages().expect("a list");
    held.into_iter().filter_map(|(page, dirty)| dirty.then_some(page)).collect()
}

#[test]
fn refused_pages_are_told_one_by_one_and_are_dirty_after_a_close_in_good_order() {
    const SEED: u64 = 2502;
    println!("seed {SEED}");
    let mut random = Random::new(SEED);
    let (mut told, mut past) = (0, 0);
    for layout in [Layout::Log, Layout::Slots] {
        for policy in ["lru", "arc", "face-gsc"] {
            for round in 0..12 {
                let mut lab = Lab::new(layout, policy);
                let cache = lab.open();
                let refused: BTreeSet<u64> = (0..random.below(5)).map(|_| random.below(PAGES)).collect();
                lab.refuse(refused.clone());
                for _ in 0..random.below(250) {
                    let (page, value) = (random.below(PAGES), random.next_u64() as u8);
                    lab.write(&cache, page, value);
                    if random.chance(0.02) {
                        // The flush may report that the queue cannot be written.
                        let _ = cache.flush();
                    }
                }
                let drained = cache.drain();
                let past_refused = drained.is_err() && round % 2 == 1;
                let found = if past_refused { cache.drain_past_refused() } else { cache.retry_refused() };
                let found = found.expect("the cache's device works");
                let pages: BTreeSet<u64> = found.pages.iter().copied().collect();
                let what = format!("{layout:?}, {policy}, round {round}: {refused:?}, told {pages:?}");
                if past_refused {
                    assert!(dirty(&cache).is_subset(&pages), "all else is below: {what}, dirty {:?}", dirty(&cache));
                }
                assert!(pages.is_subset(&refused), "{what}");
                assert_eq!(drained.is_err(), !pages.is_empty(), "a drain fails for what is refused: {what}");
                assert_eq!(found.error.is_some(), !pages.is_empty(), "{what}");
                told += pages.len();
                if !pages.is_subset(&dirty(&cache)) {
                    // The policy had the page written below, bypassing the store. No flush promised it, and the cache
                    // is not in order.
                    assert!(cache.close().is_err(), "{what}");
                    past += 1;
                    continue;
                }
                cache.close().unwrap_or_else(|error| panic!("{what}: {error}"));
                drop(cache);
                lab.cache.crash(random.next_u64());
                lab.below.disk.crash(random.next_u64());
                let cache = lab.open();
                assert!(cache.recovered().clean_shutdown, "{what}");
                assert!(pages.is_subset(&dirty(&cache)), "{what}");
                lab.check(|at, bytes| cache.read(at, bytes), &what);
                lab.refuse(BTreeSet::new());
                cache.drain().expect("all can be written");
                assert!(cache.retry_refused().expect("it works").pages.is_empty(), "{what}");
                lab.check(|at, bytes| lab.below.disk.read_at(at, bytes), &what);
            }
        }
    }
    assert!(told > 50 && past < 10, "{told} pages were refused in all, {past} times one that the log lacks");
}

#[test]
fn pages_whose_sync_fails_are_told_and_written_again() {
    for layout in [Layout::Log, Layout::Slots] {
        let mut lab = Lab::new(layout, "lru");
        let cache = lab.open();
        for page in 0..20 {
            lab.write(&cache, page, page as u8 + 1);
        }
        lab.below.syncs.store(true, SeqCst);
        cache.drain().expect_err("a failed sync");
        let found = cache.retry_refused().expect("the cache's device works");
        assert_eq!(found.pages, (0..20).collect::<Vec<_>>(), "{layout:?}: none of them is known to be durable");
        assert!(found.error.is_some_and(|error| error.to_string().contains("a sync that fails")));
        cache.close().expect("good order");
        lab.below.syncs.store(false, SeqCst);
        drop(cache);
        lab.cache.crash(1);
        lab.below.disk.crash(2);
        let cache = lab.open();
        cache.drain().expect("all can be written");
        lab.check(|at, bytes| lab.below.disk.read_at(at, bytes), "after a drain");
    }
}

/// A device that refuses a stretch of a thousand pages does not get a thousand tries. Pages in another stretch
/// are written.
#[test]
fn a_drain_past_refused_pages_is_patient_a_while_and_goes_on_elsewhere() {
    let stretch = (1 << 30) / PAGE as u64;
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 64, segments: 64, layout: Layout::Log };
    let power = Power::steady();
    let (cache, disk) = (SimDisk::new(geometry.size_bytes(), &power), Counting::new(stretch));
    BlockCache::format(&cache, geometry, &disk, [1; 16], ID).expect("room");
    let info = catalogue::info("lru").expect("a policy");
    let config =
        CacheConfig { mode: Mode::WriteBack, maintenance: Maintenance::Requests, ..CacheConfig::new(info, &[2000]) };
    let cache = BlockCache::open(cache, disk.clone(), ID, &config).expect("a cache in order");
    for page in (0..1000).chain(stretch..stretch + 100) {
        cache.write(page * PAGE as u64, &[7; PAGE], false).expect("a write");
    }
    cache.flush().expect("a flush");
    cache.drain().expect_err("refused");
    disk.tries.store(0, SeqCst);
    let found = cache.drain_past_refused().expect("the cache's device works");
    assert_eq!(found.pages, (0..1000).collect::<Vec<_>>(), "all of the stretch, and nothing of the next one");
    let tries = disk.tries.load(SeqCst);
    assert!(tries < 40, "{tries} tries");
    assert_eq!(cache.stats().expect("counts").dirty_pages, 1000);
    println!("{tries} tries");
}

/// Two stretches of zeroes; the first takes no writes.
#[derive(Clone)]
struct Counting {
    stretch: u64,
    tries: Arc<AtomicUsize>,
}

impl Counting {
    fn new(stretch: u64) -> Self {
        Counting { stretch, tries: Arc::default() }
    }
}

impl Disk for Counting {
    fn size_bytes(&self) -> u64 {
        2 * self.stretch * PAGE as u64
    }

    fn read_at(&self, _: u64, bytes: &mut [u8]) -> io::Result<()> {
        bytes.fill(0);
        Ok(())
    }

    fn write_at(&self, at: u64, _: &[u8]) -> io::Result<()> {
        if at / PAGE as u64 >= self.stretch {
            return Ok(());
        }
        self.tries.fetch_add(1, SeqCst);
        Err(io::Error::other("no room"))
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }
}
