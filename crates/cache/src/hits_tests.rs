//! Hits that are read without the core's lock: none waits for it, and the policy hears of them as if they had taken it.

use crate::hits::{HOLDS_MAX, PER_HOLD};
use crate::{Block, BlockCache, CacheConfig, Maintenance};
use entresol_core::Random;
use entresol_crashtest::{Fault, Power, SimDisk};
use entresol_policy::{Info, Options, catalogue};
use entresol_store::{Geometry, Layout};

const PAGE: usize = 512;
const PAGES: u64 = 300;
const ID: [u8; 16] = [4; 16];

/// A cache, and its device.
fn open_over(policy: &'static Info, layout: Layout, tiers: &[usize]) -> (BlockCache, SimDisk) {
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 64, segments: 40, layout };
    let power = Power::steady();
    let (disk, below) = (SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(PAGES * PAGE as u64, &power));
    BlockCache::format(&disk, geometry, &below, [1; 16], ID).expect("room");
    let config = CacheConfig { maintenance: Maintenance::Requests, ..CacheConfig::new(policy, tiers) };
    (BlockCache::open(disk.clone(), below, ID, &config).expect("a cache"), disk)
}

fn open(policy: &'static Info, layout: Layout, tiers: &[usize]) -> BlockCache {
    open_over(policy, layout, tiers).0
}

fn info(policy: &str) -> &'static Info {
    catalogue::info(policy).expect("a policy")
}

fn byte(page: u64) -> u64 {
    page * PAGE as u64
}

/// Reads pages twice, so that they may be read without the lock, while another hold of it goes on.
fn reads_while_the_lock_is_taken(cache: &BlockCache, pages: std::ops::Range<u64>, rounds: u64) {
    let read = |page: u64| {
        let mut bytes = [0; PAGE];
        cache.read(byte(page), &mut bytes).expect("a read");
        assert_eq!(bytes, [page as u8 + 1; PAGE], "page {page}");
    };
    (0..3).for_each(|_| pages.clone().for_each(read));
    let guard = cache.locks.guard().expect("the lock");
    for _ in 0..rounds {
        pages.clone().for_each(read);
        let (first, count) = (pages.start, (pages.end - pages.start) as usize);
        let mut bytes = vec![0; count * PAGE];
        cache.read(byte(first), &mut bytes).expect("a read");
        for (page, bytes) in pages.clone().zip(bytes.chunks(PAGE)) {
            assert_eq!(bytes, [page as u8 + 1; PAGE], "page {page} of several");
        }
    }
    drop(guard);
}

/// A cache whose pages are on the device, or in memory above it.
fn filled(layout: Layout, above: Option<usize>) -> BlockCache {
    let tiers: Vec<usize> = above.into_iter().chain([200]).collect();
    let cache = open(info("lru"), layout, &tiers);
    (0..100).for_each(|page| cache.write(byte(page), &[page as u8 + 1; PAGE], false).expect("a write"));
    cache.drain().expect("a drain");
    cache
}

#[test]
fn a_hit_does_not_wait_for_a_hold_of_the_lock_and_is_counted_after_it() {
    for layout in [Layout::Log, Layout::Slots, Layout::Segments] {
        for above in [None, Some(60)] {
            let cache = filled(layout, above);
            let before = cache.stats().expect("counts");
            reads_while_the_lock_is_taken(&cache, 10..14, 20);
            let after = cache.stats().expect("counts");
            let reads = |tiers: [u64; 2]| tiers.iter().sum::<u64>();
            let asked = 3 * 4 + 20 * 8;
            assert_eq!(after.counts.reads - before.counts.reads, asked, "{layout:?}, {above:?}");
            assert_eq!(reads(after.counts.tier_hits) - reads(before.counts.tier_hits), asked, "{layout:?}, {above:?}");
            assert_eq!(after.hits_dropped, 0);
            let from_device = if above.is_none() { asked } else { after.store.reads - before.store.reads };
            assert_eq!(after.store.reads - before.store.reads, from_device);
        }
    }
}

/// Hits for which no list has space are dropped and counted, and no reader waits.
#[test]
fn hits_beyond_the_lists_are_dropped_and_counted() {
    let cache = filled(Layout::Slots, None);
    let most = (HOLDS_MAX * PER_HOLD) as u64;
    let rounds = most / 8 + 100;
    reads_while_the_lock_is_taken(&cache, 10..14, rounds);
    let stats = cache.stats().expect("counts");
    assert_eq!(stats.counts.reads, 3 * 4 + rounds * 8);
    assert!(stats.hits_dropped > 0 && stats.hits_dropped < rounds * 8, "{}", stats.hits_dropped);
}

/// A policy hears of requests in the order of its one requester, whichever of them took the lock: the counts are those of
/// a cache all of whose requests take it.
#[test]
fn a_policy_hears_of_hits_as_if_they_had_taken_the_lock() {
    let mut unlocked = 0;
    for layout in [Layout::Log, Layout::Slots] {
        for policy in catalogue::ALL.iter().filter(|policy| !policy.future && policy.live.is_empty()) {
            for above in [None, Some(24)] {
                let tiers: &[usize] = match (policy.tiers.len(), above) {
                    (1, None) => &[100],
                    (2, None) => &[24, 100],
                    (_, _) => &[40, 80],
                };
                let [free, locked] = [(), ()].map(|()| open(policy, layout, tiers));
                locked.locks.guard().expect("the lock");
                locked.locks.hits.close();
                let mut random = Random::new(9);
                for step in 0..2500_u64 {
                    let among = if random.chance(0.7) { 60 } else { PAGES };
                    let page = random.below(among);
                    let tag = crate::Tag { sequential: random.chance(0.1), now_us: step * 50 };
                    let mut bytes = vec![step as u8; PAGE * (1 + random.below(3).min(PAGES - 1 - page)) as usize];
                    if random.chance(0.2) {
                        free.write_tagged(byte(page), &bytes, tag).expect("a write");
                        locked.write_tagged(byte(page), &bytes, tag).expect("a write");
                        if random.chance(0.1) {
                            free.flush().expect("a flush");
                            locked.flush().expect("a flush");
                        }
                        continue;
                    }
                    let mut others = bytes.clone();
                    free.read_tagged(byte(page), &mut bytes, tag).expect("a read");
                    locked.read_tagged(byte(page), &mut others, tag).expect("a read");
                    assert_eq!(bytes, others, "{layout:?}, {}: step {step}", policy.name);
                    unlocked += u64::from(free.locks.hits.are_noted());
                }
                let [free, locked] = [&free, &locked].map(|cache| cache.stats().expect("counts"));
                assert_eq!(free.counts, locked.counts, "{layout:?}, {}, {tiers:?}", policy.name);
                assert_eq!(free.hits_dropped, 0);
            }
        }
    }
    println!("{unlocked} hits without the lock");
    assert!(unlocked > 10_000, "{unlocked}");
}

/// Another policy begins with empty tables, and hears of hits again once it has been shown the pages.
#[test]
fn after_a_change_of_policy_hits_need_no_lock_again() {
    for above in [None, Some(60)] {
        let cache = filled(Layout::Slots, above);
        reads_while_the_lock_is_taken(&cache, 10..14, 2);
        for policy in ["arc", "lru", "reuse"] {
            let tiers = cache.config().tiers;
            let policy = info(policy);
            cache.set_policy(policy, &Options::defaults(policy), &tiers).expect("another policy");
            reads_while_the_lock_is_taken(&cache, 10..14, 2);
            assert_eq!(cache.stats().expect("counts").hits_dropped, 0);
        }
    }
}

/// Without its device the cache writes past memory: a hit must not bring back what memory had.
#[test]
fn no_hit_is_older_than_a_write_after_the_device_has_failed() {
    for layout in [Layout::Log, Layout::Slots] {
        for tiers in [&[200][..], &[60, 200]] {
            let (cache, disk) = open_over(info("lru"), layout, tiers);
            let read = |page: u64| {
                let mut bytes = [0; PAGE];
                cache.read(byte(page), &mut bytes).expect("a read");
                bytes[0]
            };
            (0..20).for_each(|page| cache.write(byte(page), &[1; PAGE], false).expect("a write"));
            cache.drain().expect("a drain");
            (0..3).for_each(|_| (0..20).for_each(|page| assert_eq!(read(page), 1)));
            disk.inject(Fault::SyncError);
            cache.write(byte(30), &[1; PAGE], false).expect("a write");
            // What is lost with the device is reported.
            let _reported = cache.flush();
            assert!(cache.stats().expect("counts").failed.is_some(), "{layout:?}: the device has failed");
            (0..20).for_each(|page| cache.write(byte(page), &[2; PAGE], false).expect("a write"));
            (0..3).for_each(|_| (0..20).for_each(|page| assert_eq!(read(page), 2, "{layout:?}, {tiers:?}: {page}")));
        }
    }
}
