//! A cache that takes up more of its device while it is in use.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, CacheError};
use entresol_core::Random;
use entresol_crashtest::{Fault, Power, SimDisk};
use entresol_disk::{Caching, Disk, FileDisk};
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout, StoreError};

const PAGE: u64 = 1024;
const GEOMETRY: Geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 16, segments: 12, layout: Layout::Log };
const PAGES: u64 = 1500;
const ID: [u8; 16] = [5; 16];

fn size_of(segments: u32) -> u64 {
    Geometry { segments, ..GEOMETRY }.size_bytes()
}

fn disks() -> (SimDisk, SimDisk) {
    let power = Power::steady();
    let disks = (SimDisk::new(size_of(12), &power), SimDisk::new(PAGES * PAGE, &power));
    BlockCache::format(&disks.0, GEOMETRY, &disks.1, [1; 16], ID).expect("room");
    disks
}

fn open(disks: &(SimDisk, SimDisk), policy: &str) -> BlockCache {
    let space = entresol_store::geometry(&disks.0).expect("a cache").capacity_pages() as usize;
    let config = CacheConfig::new(catalogue::info(policy).expect("a policy"), &[space]);
    BlockCache::open(disks.0.clone(), disks.1.clone(), ID, &config).expect("a cache in order")
}

fn write(cache: &BlockCache, page: u64, version: u8) {
    cache.write(page * PAGE, &[version; PAGE as usize], false).expect("a write");
}

fn read(cache: &BlockCache, page: u64) -> u8 {
    let mut bytes = [0; PAGE as usize];
    cache.read(page * PAGE, &mut bytes).expect("a read");
    assert_eq!(bytes, [bytes[0]; PAGE as usize], "page {page}");
    bytes[0]
}

#[test]
fn what_is_cached_stays_and_the_new_room_is_used() {
    let disks = disks();
    let cache = open(&disks, "lru");
    let before = cache.room_pages();
    (0..before).for_each(|page| write(&cache, page, 1));
    let space = cache.grow(size_of(40) + 5).expect("a growth");
    let expected = Geometry { segments: 40, ..GEOMETRY }.capacity_pages();
    assert_eq!((space, cache.room_pages(), disks.0.size_bytes()), (expected, expected, size_of(40)));
    cache.set_tiers(&[space as usize]).expect("more room");
    assert!((0..before).all(|page| read(&cache, page) == 1));
    (before..space).for_each(|page| write(&cache, page, 2));
    assert!((0..space).all(|page| read(&cache, page) == if page < before { 1 } else { 2 }));
    let stats = cache.stats().expect("stats");
    assert_eq!(
        (stats.counts.reads, stats.counts.read_hits, stats.write_back.below_pages),
        (before + space, before + space, 0)
    );
    // The larger cache is found again after a close and after a kill.
    for closed in [true, false] {
        cache.flush().expect("a flush");
        if closed {
            cache.close().expect("a close");
        }
        let again = open(&disks, "lru");
        assert_eq!((again.recovered().clean_shutdown, again.recovered().pages), (closed, space));
        assert!((0..space).all(|page| read(&again, page) == if page < before { 1 } else { 2 }));
        assert_eq!(again.stats().expect("stats").counts.read_hits, space);
        write(&again, 0, 1);
        drop(again);
    }
}

#[test]
fn it_grows_at_any_moment_and_any_number_of_times() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let disks = disks();
        let mut truth = vec![0; PAGES as usize];
        let mut cache = open(&disks, "h-arc");
        let mut segments = 12;
        for step in 0..2000 {
            let page = random.below(PAGES / 3) * random.below(3);
            match random.below(100) {
                0 => {
                    segments += 1 + random.below(3) as u32;
                    let space = cache.grow(size_of(segments)).expect("a growth");
                    cache.set_tiers(&[space as usize]).expect("more room");
                }
                1 => cache.flush().expect("a flush"),
                2 => {
                    cache.flush().expect("a flush");
                    if random.chance(0.5) {
                        cache.close().expect("a close");
                    }
                    drop(cache);
                    cache = open(&disks, "h-arc");
                }
                3..50 => {
                    truth[page as usize] = step as u8;
                    write(&cache, page, step as u8);
                }
                _ => assert_eq!(read(&cache, page), truth[page as usize], "seed {seed}, step {step}, page {page}"),
            }
        }
        assert!(segments > 20, "seed {seed}: {segments}");
        let stats = cache.stats().expect("stats");
        assert!((0..PAGES).all(|page| read(&cache, page) == truth[page as usize]), "seed {seed}: {stats:?}");
        cache.drain().expect("a drain");
        let mut below = [0; PAGE as usize];
        for page in 0..PAGES {
            disks.1.read_at(page * PAGE, &mut below).expect("the backing store");
            assert_eq!(below[0], truth[page as usize], "seed {seed}, page {page}");
        }
    }
}

#[test]
fn what_is_no_growth_is_refused_and_a_device_that_fails_is_given_up() {
    let disks = disks();
    let cache = open(&disks, "lru");
    write(&cache, 0, 1);
    for bytes in [0, size_of(12), size_of(13) - 1] {
        let error = cache.grow(bytes).expect_err("no more room than it has");
        assert!(matches!(error, CacheError::Store(StoreError::TooSmall { .. })), "{error}");
    }
    assert_eq!((cache.room_pages(), read(&cache, 0)), (GEOMETRY.capacity_pages(), 1));
    disks.0.inject(Fault::WriteError);
    cache.grow(size_of(20)).expect_err("the superblock cannot be written");
    assert!(cache.stats().expect("stats").failed.is_some());
    assert_eq!(read(&cache, 0), 1, "it went below");
    cache.grow(size_of(20)).expect_err("it is out of use");
}

#[test]
fn a_file_is_extended() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, bytes| FileDisk::create(&dir.path().join(name), bytes, Caching::Buffered).expect("a file");
    let (cache, backing) = (file("cache", size_of(12)), file("backing", PAGES * PAGE));
    BlockCache::format(&cache, GEOMETRY, &backing, [1; 16], ID).expect("room");
    let config = CacheConfig::new(catalogue::info("lru").expect("lru"), &[60]);
    let cache = BlockCache::open(cache, backing, ID, &config).expect("a cache in order");
    let space = cache.grow(size_of(50)).expect("a growth");
    cache.set_tiers(&[space as usize]).expect("more room");
    (0..space).for_each(|page| write(&cache, page, page as u8));
    cache.close().expect("a close");
    drop(cache);
    let length = |name: &str| std::fs::metadata(dir.path().join(name)).expect("a file").len();
    assert_eq!(length("cache"), size_of(50));
    let disk = |name: &str| FileDisk::open(&dir.path().join(name), Caching::Buffered).expect("a file");
    let cache = BlockCache::open(disk("cache"), disk("backing"), ID, &config).expect("a cache in order");
    assert!((0..space).all(|page| read(&cache, page) == page as u8));
}
