//! Learned state outlives the cache: kept, it saves the I/Os of learning anew, and any other bytes cost nothing more than that.

use entresol_cache::{Block, BlockCache, CacheConfig, LearnedState, Learning, Maintenance, Objects};
use entresol_core::Random;
use entresol_crashtest::{Power, SimDisk};
use entresol_policy::{Options, catalogue};
use entresol_store::{Geometry, Layout};
use std::collections::BTreeMap;

const PAGE: u64 = 512;
const CAPACITY: u64 = 600;
/// Pages that are requested again and again, and all pages.
const HOT: u64 = 800;
const PAGES: u64 = 60_000;
const ID: [u8; 16] = [3; 16];
const SEED: u64 = 21;

struct Disks(SimDisk, SimDisk);

impl Disks {
    fn formatted(layout: Layout) -> Self {
        Disks::of_cache(layout, [1; 16])
    }

    fn of_cache(layout: Layout, uuid: [u8; 16]) -> Self {
        let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 64, segments: 80, layout };
        let power = Power::steady();
        let disks = Disks(SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(PAGES * PAGE, &power));
        BlockCache::format(&disks.0, geometry, &disks.1, uuid, ID).expect("room");
        disks
    }

    fn open(&self, policy: &str, capacity: u64, learned: Option<&[u8]>) -> BlockCache {
        let policy = catalogue::info(policy).expect("a policy");
        let maintenance = Maintenance::Requests;
        let config = CacheConfig { maintenance, ..CacheConfig::new(policy, &[capacity as usize]) };
        let mut opening =
            BlockCache::find(self.0.clone(), self.1.clone(), ID, &config, Objects::new(1)).expect("a cache");
        if let Some(learned) = learned {
            opening.learn(learned);
        }
        opening.start(|| Ok::<_, entresol_cache::CacheError>(())).expect("a start").0
    }
}

/// Requests to a few pages, some of them far more often than others, among as many to pages that never return.
fn requests(cache: &BlockCache, random: &mut Random, once: &mut u64, requests: u64) {
    for _ in 0..requests {
        let page = if random.chance(0.5) {
            *once += 1;
            HOT + *once % (PAGES - HOT)
        } else {
            (random.next_f64().powi(2) * HOT as f64) as u64
        };
        if random.chance(0.2) {
            cache.write(page * PAGE, &[1; PAGE as usize], false).expect("a write");
        } else {
            cache.read(page * PAGE, &mut [0; PAGE as usize]).expect("a read");
        }
    }
}

/// Hits of the first requests after a cache was closed and opened again. `kept` gives the bytes that the open gets of those
/// that the end had.
fn hits_after(layout: Layout, kept: impl Fn(Vec<u8>) -> Option<Vec<u8>>) -> (u64, Learning) {
    let disks = Disks::formatted(layout);
    let (mut random, mut once) = (Random::new(SEED), 0);
    let cache = disks.open("reuse", CAPACITY, None);
    assert_eq!(cache.learning(), Learning::Anew);
    requests(&cache, &mut random, &mut once, 40_000);
    let learned = cache.learned().expect("a live cache").expect("it learns");
    cache.close().expect("an end");
    drop(cache);
    let cache = disks.open("reuse", CAPACITY, kept(learned).as_deref());
    requests(&cache, &mut random, &mut once, 3_000);
    let counts = cache.stats().expect("counts").counts;
    (counts.read_hits + counts.write_hits, cache.learning())
}

#[test]
fn a_cache_hits_more_after_a_restart_with_what_it_had_learned() {
    println!("seed {SEED}");
    for layout in [Layout::Slots, Layout::Log, Layout::Segments] {
        let (with, goes_on) = hits_after(layout, Some);
        let (without, anew) = hits_after(layout, |_| None);
        let (damaged, learning) = hits_after(layout, |mut learned| {
            let middle = learned.len() / 2;
            learned[middle] ^= 1;
            Some(learned)
        });
        println!("{layout:?}: {with} hits of 3000 requests with what was learned, {without} without");
        assert_eq!((goes_on, anew, learning), (Learning::GoesOn, Learning::Anew, Learning::Damaged));
        assert!(with > without + without / 50, "{layout:?}: {with} of {without}");
        assert_eq!(damaged, without, "{layout:?}: a refused state is no state");
    }
}

#[test]
fn what_was_learned_of_another_cache_policy_or_size_is_left() {
    let disks = Disks::formatted(Layout::Slots);
    let (mut random, mut once) = (Random::new(SEED), 0);
    let cache = disks.open("reuse", CAPACITY, None);
    requests(&cache, &mut random, &mut once, 5_000);
    let learned = cache.learned().expect("a live cache").expect("it learns");
    cache.close().expect("an end");
    drop(cache);
    let opened = |policy, capacity, learned: &[u8]| {
        let cache = disks.open(policy, capacity, Some(learned));
        let learning = cache.learning();
        cache.close().expect("an end");
        learning
    };
    assert_eq!(opened("reuse", CAPACITY, &learned), Learning::GoesOn);
    assert_eq!(opened("lru", CAPACITY, &learned), Learning::Anew);
    assert_eq!(opened("reuse", CAPACITY / 2, &learned), Learning::Anew);
    assert_eq!(opened("reuse", CAPACITY, &learned[..learned.len() - 1]), Learning::Damaged);
    assert_eq!(opened("reuse", CAPACITY, &[]), Learning::Damaged);
    let other = Disks::of_cache(Layout::Slots, [2; 16]);
    assert_eq!(other.open("reuse", CAPACITY, Some(&learned)).learning(), Learning::Anew);
}

fn histories(learned: &[u8]) -> BTreeMap<u64, u32> {
    LearnedState::decode(learned).expect("a state").histories().collect()
}

/// The policy has been shown none or a part of its pages when the cache ends again.
#[test]
fn an_end_before_all_pages_were_shown_loses_no_history() {
    let disks = Disks::formatted(Layout::Slots);
    let (mut random, mut once) = (Random::new(SEED), 0);
    let cache = disks.open("reuse", CAPACITY, None);
    requests(&cache, &mut random, &mut once, 20_000);
    let learned = cache.learned().expect("a live cache").expect("it learns");
    let before = histories(&learned);
    assert_eq!(before.len() as u64, CAPACITY);
    cache.close().expect("an end");
    drop(cache);
    // One request shows 64 pages, and as many more as it takes the policy is shown them all.
    for read in [0, 1, 20] {
        let cache = disks.open("reuse", CAPACITY, Some(&learned));
        let hot =
            before.iter().max_by_key(|(_, history)| **history >> 22 & 0x7f).map(|(&page, _)| page).expect("pages");
        (0..read).for_each(|_| cache.read(hot * PAGE, &mut [0; PAGE as usize]).expect("a read"));
        let after = histories(&cache.learned().expect("a live cache").expect("it learns"));
        assert!(before.keys().eq(after.keys()), "{read} reads");
        let changed = before.iter().filter(|&(page, history)| after[page] >> 12 != history >> 12).count();
        let aged = before.iter().filter(|&(page, history)| after[page] & 0xfff > (history & 0xfff) + 2).count();
        assert_eq!((changed <= 1, aged), (true, 0), "{read} reads: {changed} other histories");
        cache.close().expect("an end");
    }
}

#[test]
fn a_policy_that_learns_nothing_has_nothing_to_keep() {
    let disks = Disks::formatted(Layout::Slots);
    let cache = disks.open("lru", CAPACITY, None);
    assert_eq!(cache.learned().expect("a live cache"), None);
    let reuse = catalogue::info("reuse").expect("a policy");
    cache.set_policy(reuse, &Options::defaults(reuse), &[CAPACITY as usize]).expect("another policy");
    let learned = cache.learned().expect("a live cache").expect("it learns");
    assert_eq!(LearnedState::decode(&learned).expect("a state").policy(), "reuse");
}
