//! A change of the policy, or of its tiers, while the cache is in use.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, CacheError, Maintenance, Mode};
use entresol_core::Random;
use entresol_crashtest::{Fault, Power, SimDisk};
use entresol_disk::Disk;
use entresol_policy::{Options, catalogue};
use entresol_store::Geometry;

const GEOMETRY: Geometry = Geometry { page_bytes: 1024, segment_pages: 16, segments: 19, layout: super::LAYOUT };
const ID: [u8; 16] = [3; 16];
const PAGE: u64 = 1024;
const PAGES: u64 = 300;

fn disks() -> (SimDisk, SimDisk) {
    let power = Power::steady();
    let (cache, backing) = (SimDisk::new(GEOMETRY.size_bytes(), &power), SimDisk::new(PAGES * PAGE, &power));
    BlockCache::format(&cache, GEOMETRY, &backing, [1; 16], ID).expect("room");
    (cache, backing)
}

fn open(disks: &(SimDisk, SimDisk), policy: &str, tiers: &[usize], mode: Mode) -> BlockCache {
    open_with(disks, policy, tiers, mode, Maintenance::Threads)
}

fn open_with(
    disks: &(SimDisk, SimDisk),
    policy: &str,
    tiers: &[usize],
    mode: Mode,
    maintenance: Maintenance,
) -> BlockCache {
    let config =
        CacheConfig { mode, maintenance, ..CacheConfig::new(catalogue::info(policy).expect("a policy"), tiers) };
    BlockCache::open(disks.0.clone(), disks.1.clone(), ID, &config).expect("a cache in order")
}

fn change(cache: &BlockCache, policy: &str, tiers: &[usize]) -> Result<(), CacheError> {
    let info = catalogue::info(policy).expect("a policy");
    cache.set_policy(info, &Options::defaults(info), tiers)
}

fn hits_of(cache: &BlockCache, pages: impl Iterator<Item = u64>) -> u64 {
    let before = cache.stats().expect("counts").counts.read_hits;
    pages.for_each(|page| cache.read(page * PAGE, &mut [0; PAGE as usize]).expect("a read"));
    cache.stats().expect("counts").counts.read_hits - before
}

/// First byte of a page of the backing store.
fn below(disks: &(SimDisk, SimDisk), page: u64) -> u8 {
    let mut byte = [0];
    disks.1.read_at(page * PAGE, &mut byte).expect("a read");
    byte[0]
}

#[test]
fn what_is_cached_stays_cached_and_dirty_under_another_policy() {
    for (from, to) in [("lru", "arc"), ("arc", "sieve"), ("clock", "s3-fifo"), ("lru", "lru")] {
        println!("{from} to {to}");
        let disks = disks();
        let cache = open(&disks, from, &[60], Mode::WriteBack);
        for page in 0..40 {
            cache.write(page * PAGE, &[page as u8 + 1; PAGE as usize], false).expect("a write");
        }
        let before = cache.stats().expect("counts");
        change(&cache, to, &[60]).expect("a change");
        assert_eq!(cache.config().policy.name, to);
        let after = cache.stats().expect("counts");
        assert_eq!((after.counts, after.dirty_pages), (before.counts, 40), "counts go on; nothing was evicted");
        assert_eq!(hits_of(&cache, 0..40), 40);
        assert_eq!(below(&disks, 0), 0, "it is dirty still");
        cache.drain().expect("a drain");
        assert_eq!(below(&disks, 39), 40);
    }
}

#[test]
fn clean_pages_that_only_memory_held_are_not_lost_to_a_policy_without_memory() {
    let disks = disks();
    let cache = open(&disks, "hibachi", &[20, 40], Mode::WriteBack);
    assert_eq!(hits_of(&cache, 0..15), 0);
    assert_eq!(cache.stats().expect("counts").store.pages, 0, "they are in memory");
    change(&cache, "lru", &[60]).expect("a change");
    assert_eq!(hits_of(&cache, 0..15), 15);
}

/// Pages without neighbours, since neighbours are written below together.
fn apart(page: u64) -> u64 {
    2 * page
}

#[test]
fn a_tier_made_smaller_evicts_and_made_larger_keeps_more() {
    let disks = disks();
    let cache = open_with(&disks, "lru", &[80], Mode::WriteBack, Maintenance::Requests);
    for page in 0..80 {
        cache.write(apart(page) * PAGE, &[page as u8 + 1; PAGE as usize], false).expect("a write");
    }
    cache.set_tiers(&[20]).expect("smaller");
    cache.flush().expect("a flush");
    // A flush leaves pages that are durable in the store in the queue, a segment at most.
    let written = (0..60).filter(|&page| below(&disks, apart(page)) == page as u8 + 1).count();
    assert!(written > 60 - GEOMETRY.segment_pages as usize, "{written} of 60 that were evicted are below");
    assert!((60..80).all(|page| below(&disks, apart(page)) == 0), "what stayed is dirty still");
    assert_eq!(hits_of(&cache, (60..80).map(apart)), 20, "the newest have stayed");
    cache.set_tiers(&[100]).expect("larger");
    assert_eq!(hits_of(&cache, (0..80).map(apart)), 80, "what was evicted lies in the log still, and counts again");
    let space = cache.room_pages();
    let too_large = cache.set_tiers(&[space as usize + 1]).expect_err("more than there is room for");
    assert!(matches!(too_large, CacheError::TierTooLarge { .. }), "{too_large}");
    assert_eq!(cache.config().tiers, [100]);
}

#[test]
fn above_the_limit_the_coldest_dirty_pages_are_written_below_and_stay_cached() {
    let disks = disks();
    let cache = open(&disks, "lru", &[100], Mode::WriteBack);
    let dirty = |cache: &BlockCache| cache.stats().expect("counts").dirty_pages;
    for page in 0..90 {
        cache.write(apart(page) * PAGE, &[page as u8 + 1; PAGE as usize], false).expect("a write");
    }
    assert_eq!((dirty(&cache), cache.dirty_limits().expect("limits")), (90, (1.0, 1.0)), "there is no limit");
    cache.set_dirty_limits(0.6, 0.3).expect("limits");
    for _ in 0..2000 {
        if dirty(&cache) <= 30 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let stats = cache.stats().expect("counts");
    assert_eq!((stats.dirty_pages, stats.write_back.cleaned_ahead, stats.counts.write_backs), (30, 60, 0));
    assert!((0..60).all(|page| below(&disks, apart(page)) == page as u8 + 1), "the oldest are below");
    assert!((60..90).all(|page| below(&disks, apart(page)) == 0), "the others are not");
    for page in 0..40 {
        cache.write(apart(page) * PAGE, &[200; PAGE as usize], false).expect("a write");
    }
    assert_eq!(hits_of(&cache, (0..90).map(apart)), 90, "all have stayed");
    cache.close().expect("a close");
    assert!(dirty(&cache) <= 70, "forty more");
    drop(cache);
    let cache = open(&disks, "lru", &[100], Mode::WriteBack);
    assert!(dirty(&cache) <= 70, "what is clean is known to be so after an open");
    for (high, low) in [(0.2, 0.3), (1.1, 0.5), (0.5, -0.1), (f64::NAN, 0.1)] {
        cache.set_dirty_limits(high, low).expect_err("no such limits");
    }
    cache.drain().expect("a drain");
    assert_eq!((below(&disks, 0), below(&disks, apart(50)), below(&disks, apart(89))), (200, 51, 90));
}

/// A write below takes along neighbours that have been dirty about as long, in the same write. A neighbour
/// written again lately stays.
#[test]
fn what_lies_beside_a_page_that_is_written_below_goes_along_if_it_is_as_cold() {
    let disks = disks();
    let cache = open_with(&disks, "lru", &[60], Mode::WriteBack, Maintenance::Requests);
    let write = |page: u64, byte: u8| cache.write(page * PAGE, &[byte; PAGE as usize], false).expect("a write");
    let read = |page: u64| cache.read(page * PAGE, &mut [0; PAGE as usize]).expect("a read");
    // Twenty neighbours and as many others. Of the neighbours five are written again later, and eight are read again.
    (0..20).for_each(|page| write(page, 1));
    (0..20).for_each(|page| write(100 + apart(page), 1));
    (200..215).for_each(read);
    (5..10).for_each(|page| write(page, 2));
    (12..20).for_each(read);
    cache.flush().expect("a flush");
    // A segment's worth is evicted: the neighbours that were neither, and some of the others.
    (215..240).for_each(read);
    let stats = cache.stats().expect("counts");
    let is_below = |page: &u64| below(&disks, *page) != 0;
    println!("{:?}, below: {:?}", stats.write_back, (0..140).filter(is_below).collect::<Vec<_>>());
    assert!(
        stats.write_back.cleaned_beside > 0 && stats.write_back.below_ios < stats.write_back.below_pages,
        "{:?}",
        stats.write_back
    );
    assert!((12..20).all(|page| below(&disks, page) == 1), "they are read still, and as cold as what left");
    assert!((5..10).all(|page| below(&disks, page) == 0), "they were written lately");
    assert_eq!(hits_of(&cache, 5..20), 10 + 3, "all but two of them are held");
    let left = stats.counts.write_backs + stats.write_back.cleaned_beside;
    assert!(stats.write_back.below_pages <= left, "nothing else was written: {:?}", stats.write_back);
    cache.drain().expect("a drain");
    assert!((0..20).all(|page| below(&disks, page) == if (5..10).contains(&page) { 2 } else { 1 }));
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let disks = disks();
    let cache = open(&disks, "lru", &[60], Mode::WriteBack);
    cache.write(0, &[7; 4 * PAGE as usize], false).expect("a write");
    let min = change(&cache, "min", &[60]).expect_err("it needs the future");
    assert!(matches!(min, CacheError::NotLive { .. }));
    let wrong_tiers = change(&cache, "hibachi", &[60]).expect_err("it has two tiers");
    assert!(matches!(wrong_tiers, CacheError::Policy(_)), "{wrong_tiers}");
    let info = catalogue::info("lirs").expect("lirs");
    let options =
        Options::parse(info, [format!("{}=nonsense", info.options[0].name).as_str()]).expect("a known option");
    let wrong_option = cache.set_policy(info, &options, &[60]).expect_err("a wrong value");
    assert!(matches!(wrong_option, CacheError::Policy(_)), "{wrong_option}");
    assert!(matches!(change(&cache, "lru", &[]), Err(CacheError::Policy(_))), "no tier at all");
    assert_eq!((cache.config().policy.name, cache.config().tiers), ("lru", vec![60]));
    assert_eq!(hits_of(&cache, 0..4), 4, "it goes on as it was");
}

#[test]
fn a_change_needs_no_backing_store_and_a_cache_that_has_not_failed() {
    let disks = disks();
    let cache = open(&disks, "lru", &[60], Mode::WriteThrough);
    cache.write(0, &[7; 4 * PAGE as usize], false).expect("a write");
    disks.1.inject(Fault::WriteError);
    change(&cache, "arc", &[60]).expect("what waits to be written below goes on waiting");
    assert_eq!((cache.config().policy.name, cache.config().mode), ("arc", Mode::WriteThrough));
    assert_eq!(hits_of(&cache, 0..4), 4);
    cache.flush().expect_err("the backing store fails");
    cache.flush().expect("it works again");
    cache.write(0, &[7; 4 * PAGE as usize], false).expect("a write");
    disks.0.vanish();
    // The next request finds out that the device has failed.
    cache.flush().expect("below, all is durable");
    let failed = change(&cache, "lru", &[60]).expect_err("there is no cache any more");
    assert!(failed.to_string().contains("the cache device has failed"), "{failed}");
    let mut bytes = [0; 4 * PAGE as usize];
    cache.read(0, &mut bytes).expect("the backing store has it");
    assert_eq!(bytes, [7; 4 * PAGE as usize]);
}

#[test]
fn bytes_are_right_through_changes_of_policy_tiers_and_mode() {
    for seed in 0..8 {
        println!("seed {seed}");
        let (disks, mut random) = (disks(), Random::new(seed));
        let cache = open(&disks, "lru", &[60], Mode::WriteBack);
        let mut truth = vec![0; (PAGES * PAGE) as usize];
        for round in 0..60 {
            for _ in 0..60 {
                let offset = random.below(PAGES * PAGE - 3000);
                let range = offset as usize..(offset + 1 + random.below(3000)) as usize;
                if random.chance(0.5) {
                    truth[range.clone()].fill(random.next_u64() as u8);
                    cache.write(offset, &truth[range], random.chance(0.05)).expect("a write");
                } else {
                    let mut bytes = vec![0; range.len()];
                    cache.read(offset, &mut bytes).expect("a read");
                    assert!(bytes == truth[range], "round {round}, byte {offset}");
                }
            }
            let policies =
                ["lru", "arc", "face-gsc", "lc", "h-arc", "tac", "hibachi", "s3-fifo", "expcache", "multi-tier"];
            let info = catalogue::info(policies[random.below(10) as usize]).expect("a policy");
            let mut tiers = vec![(30 + random.below(90)) as usize];
            if info.tiers.len() == 2 {
                tiers.insert(0, 4 + random.below(20) as usize);
            }
            change(&cache, info.name, &tiers).expect("a change");
            let modes = [Mode::WriteBack, Mode::WriteThrough, Mode::WriteAround];
            cache.set_mode(modes[random.below(3) as usize]).expect("a mode");
        }
        cache.drain().expect("a drain");
        let mut below = vec![0; truth.len()];
        disks.1.read_at(0, &mut below).expect("the backing store");
        assert!(below == truth);
    }
}
