//! Known faults of other caches, as tests of this one.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, Mode};
use entresol_core::Random;
use entresol_crashtest::{Power, SimDisk};
use entresol_policy::catalogue;
use entresol_store::Geometry;

const GEOMETRY: Geometry = Geometry { page_bytes: 1024, segment_pages: 16, segments: 16, layout: super::LAYOUT };
const ID: [u8; 16] = [2; 16];

fn disks() -> (SimDisk, SimDisk) {
    let power = Power::steady();
    (SimDisk::new(GEOMETRY.size_bytes(), &power), SimDisk::new(64 * 1024, &power))
}

fn format(disks: &(SimDisk, SimDisk), uuid: u8) {
    BlockCache::format(&disks.0, GEOMETRY, &disks.1, [uuid; 16], ID).expect("room");
}

fn open(disks: &(SimDisk, SimDisk), policy: &str, mode: Mode) -> BlockCache {
    let info = catalogue::info(policy).expect("a policy");
    let config = CacheConfig { mode, ..CacheConfig::new(info, &[20]) };
    BlockCache::open(disks.0.clone(), disks.1.clone(), ID, &config).expect("a cache")
}

fn page(cache: &BlockCache, page: u64) -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    cache.read(page * 1024, &mut bytes).expect("a read");
    bytes
}

/// foyer never syncs: after a crash an older version of an entry, whose checksum is right, can be all that is left.
#[test]
fn an_older_version_with_a_right_checksum_never_comes_back() {
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround] {
        for seed in 0..150 {
            let disks = disks();
            format(&disks, 1);
            let mut random = Random::new(seed);
            let cache = open(&disks, "lru", mode);
            cache.write(5 * 1024, &[1; 1024], true).expect("a write");
            assert_eq!(page(&cache, 5), [1; 1024]);
            cache.flush().expect("a flush");
            // At times the old copy has left the policy, but not the store, before the new one is written.
            (0..random.below(40)).for_each(|other| drop(page(&cache, 6 + other)));
            cache.write(5 * 1024, &[2; 1024], false).expect("a write");
            cache.flush().expect("a flush");
            // At times a third version is on its way.
            let third = random.chance(0.5);
            if third {
                cache.write(5 * 1024, &[3; 1024], false).expect("a write");
                (0..random.below(60)).for_each(|other| drop(page(&cache, 6 + other % 50)));
            }
            drop(cache);
            disks.0.crash(seed);
            disks.1.crash(!seed);
            let read = page(&open(&disks, "lru", Mode::WriteBack), 5);
            assert!(read == [2; 1024] || (third && read == [3; 1024]), "{mode:?}, seed {seed}: {:?}", read[0]);
        }
    }
}

/// A cache formatted again without wiping its device may serve a page's old frame, whose checksum is right.
#[test]
fn what_an_earlier_life_left_on_the_device_is_not_served_after_a_format() {
    for seed in 0..150 {
        let disks = disks();
        format(&disks, 1);
        let cache = open(&disks, "fifo", Mode::WriteBack);
        (0..20).for_each(|page| cache.write(page * 1024, &[7; 1024], false).expect("a write"));
        cache.flush().expect("a flush");
        if seed % 2 == 0 {
            cache.close().expect("a close");
        }
        drop(cache);
        format(&disks, 2);
        // The new cache writes at the same log addresses: shorter batches of other pages, between remains of the old
        // ones.
        let cache = open(&disks, "fifo", Mode::WriteBack);
        let mut random = Random::new(seed);
        let written = random.below(12);
        for page in 0..written {
            cache.write(page * 1024, &[9; 1024], random.chance(0.5)).expect("a write");
        }
        cache.flush().expect("a flush");
        drop(cache);
        disks.0.crash(seed);
        let cache = open(&disks, "fifo", Mode::WriteBack);
        assert_eq!(cache.recovered().pages, written, "seed {seed}");
        for at in 0..64 {
            let expected = if at < written { [9; 1024] } else { [0; 1024] };
            assert!(page(&cache, at) == expected, "seed {seed}, page {at}");
        }
    }
}

/// RocksDB's and CacheLib's caches are cold after a crash.
#[test]
fn a_cache_is_as_warm_after_a_crash_as_before() {
    let disks = disks();
    format(&disks, 1);
    let cache = open(&disks, "lru", Mode::WriteBack);
    (0..20).for_each(|at| drop(page(&cache, at)));
    cache.flush().expect("a flush");
    drop(cache);
    disks.0.crash(1);
    let cache = open(&disks, "lru", Mode::WriteBack);
    let below = disks.1.counts()[0];
    (0..20).for_each(|at| drop(page(&cache, at)));
    let counts = cache.stats().expect("counts").counts;
    assert_eq!((counts.read_hits, disks.1.counts()[0]), (20, below));
}
