//! Objects are placed and unplaced while requests go on.

use entresol_cache::Block;
use entresol_cache::{BlockCache, CacheConfig, CacheError, Filled, Filling, Objects};
use entresol_core::{ObjectId, Random};
use entresol_crashtest::{Power, SimDisk};
use entresol_disk::Disk;
use entresol_policy::catalogue;
use entresol_store::{Geometry, Layout};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const PAGE: u64 = 1024;
/// Pages of each object, and of the tier: the two smaller objects fit, or the larger one alone.
const SIZES: [u64; 3] = [60, 70, 120];
const TIER: usize = 140;

/// Page of an object's block. Each object lies in two pieces, the second one before the first.
fn place_of(object: usize, block: u64) -> u64 {
    let half = SIZES[object] / 2;
    let start = 200 * object as u64;
    if block < half { start + 100 + block } else { start + block - half }
}

struct Testbed {
    cache: BlockCache,
    backing: SimDisk,
    numbers: Vec<ObjectId>,
}

fn testbed(policy: &str) -> Result<Testbed, CacheError> {
    let power = Power::steady();
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 16, segments: 40, layout: Layout::Log };
    let (cache, backing) = (SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(600 * PAGE, &power));
    for page in 0..600 {
        backing.write_at(page * PAGE, &[page as u8; PAGE as usize]).expect("a write");
    }
    BlockCache::format(&cache, geometry, &backing, [1; 16], [2; 16]).expect("room");
    let mut objects = Objects::new(8);
    let mut numbers = Vec::new();
    for (object, &size) in SIZES.iter().enumerate() {
        let number = objects.add();
        objects.join(number, place_of(object, 0), size / 2, 0);
        objects.join(number, place_of(object, size / 2), size - size / 2, size / 2);
        objects.resize(number, size);
        numbers.push(number);
    }
    let config = CacheConfig::new(catalogue::info(policy).expect("a policy"), &[TIER]);
    let cache = BlockCache::open_objects(cache, backing.clone(), [2; 16], &config, objects)?;
    Ok(Testbed { cache, backing, numbers })
}

impl Testbed {
    fn fill(&self) -> u64 {
        let (mut filling, mut brought) = (Filling::default(), 0);
        while let Filled::Some(pages) = self.cache.fill_some(&mut filling).expect("the cache runs") {
            assert!(pages <= 32, "a step is short");
            brought += pages;
        }
        brought
    }

    fn gauge(&self, name: &str) -> f64 {
        let gauges = self.cache.policy_gauges().expect("gauges");
        gauges.into_iter().find(|gauge| gauge.0 == name).expect("it tells").1
    }

    /// Reads all of an object. Returns the number of hits.
    fn hits(&self, object: usize) -> u64 {
        let before = self.cache.stats().expect("counts").counts.read_hits;
        for block in 0..SIZES[object] {
            let (page, mut bytes) = (place_of(object, block), [0; PAGE as usize]);
            self.cache.read(page * PAGE, &mut bytes).expect("a read");
            assert_eq!(bytes[0], page as u8);
        }
        self.cache.stats().expect("counts").counts.read_hits - before
    }
}

#[test]
fn what_a_person_places_is_brought_whole_and_leaves_whole() {
    let testbed = testbed("table-placement").expect("a cache");
    let (a, b, c) = (testbed.numbers[0], testbed.numbers[1], testbed.numbers[2]);
    assert_eq!(testbed.hits(0), 0, "without a word nothing is cached");
    assert!(testbed.cache.place(a).expect("the cache runs"));
    let before = testbed.cache.stats().expect("counts").counts;
    assert_eq!(testbed.fill(), 60);
    let after = testbed.cache.stats().expect("counts").counts;
    assert_eq!((after.placed, after.reads, after.fetches), (60, before.reads, before.fetches), "it is no request");
    assert_eq!((testbed.hits(0), testbed.hits(1)), (60, 0));
    assert_eq!(testbed.fill(), 0, "once is enough");
    assert!(testbed.cache.place(b).expect("the cache runs"));
    assert!(!testbed.cache.place(c).expect("the cache runs"), "there is no room beside what is pinned");
    assert_eq!((testbed.fill(), testbed.gauge("held_pages")), (70, 130.0));

    testbed.cache.write(place_of(0, 7) * PAGE, &[place_of(0, 7) as u8; PAGE as usize], false).expect("a write");
    assert_eq!(testbed.cache.stats().expect("counts").dirty_pages, 1);
    testbed.cache.unplace(a).expect("the cache runs");
    testbed.cache.unplace(b).expect("the cache runs");
    assert_eq!((testbed.fill(), testbed.gauge("held_pages")), (0, 0.0));
    assert_eq!(testbed.cache.stats().expect("counts").counts.write_backs, 1, "what was dirty goes below");
    assert_eq!(testbed.hits(0), 0);
    assert!(testbed.cache.place(c).expect("the cache runs"));
    assert_eq!((testbed.fill(), testbed.hits(2)), (120, 120));
}

#[test]
fn queries_place_their_tables_and_the_least_recently_required_makes_room() {
    let testbed = testbed("table-placement").expect("a cache");
    let (a, b, c) = (testbed.numbers[0], testbed.numbers[1], testbed.numbers[2]);
    // Placing fetches pages that are read at random.
    for object in 0..3 {
        for block in [9, 2, 30, 4] {
            let tag = testbed.cache.tag(false);
            testbed.cache.read_tagged(place_of(object, block) * PAGE, &mut [0; PAGE as usize], tag).expect("a read");
        }
    }
    testbed.cache.query_begins(1, &[a, b]).expect("the cache runs");
    assert_eq!(testbed.fill(), 130);
    assert_eq!(testbed.cache.verdicts(&[a, b, c]).expect("verdicts"), [Some("placed"), Some("placed"), None]);
    testbed.cache.query_ends(1).expect("the cache runs");
    testbed.cache.query_begins(2, &[c]).expect("the cache runs");
    assert_eq!((testbed.fill(), testbed.hits(2), testbed.gauge("held_pages")), (120, 120, 120.0));
}

#[test]
fn a_policy_that_places_nothing_and_a_store_without_objects_say_so() {
    let plain = testbed("lru").expect("a cache");
    assert!(!plain.cache.places_objects());
    assert!(!plain.cache.place(plain.numbers[0]).expect("the cache runs"));
    assert_eq!((plain.fill(), plain.hits(0)), (0, 0));
    let power = Power::steady();
    let geometry = Geometry { page_bytes: PAGE as u32, segment_pages: 16, segments: 40, layout: Layout::Log };
    let (cache, backing) = (SimDisk::new(geometry.size_bytes(), &power), SimDisk::new(600 * PAGE, &power));
    BlockCache::format(&cache, geometry, &backing, [1; 16], [2; 16]).expect("room");
    let config = CacheConfig::new(catalogue::info("table-placement").expect("a policy"), &[TIER]);
    let refused = BlockCache::open(cache, backing, [2; 16], &config).err().expect("a refusal");
    assert!(refused.to_string().contains("queries"), "{refused}");
}

/// Four threads make requests, each to pages of its own, while a fifth places and unplaces. Every read finds the
/// last write, and at the end the backing store has all writes.
#[test]
fn nothing_is_lost_or_old_while_tables_come_and_go() {
    let seed = 11;
    println!("seed {seed}");
    let testbed = testbed("table-placement").expect("a cache");
    let (testbed, over) = (&testbed, &AtomicBool::new(false));
    let truths: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let filler = scope.spawn(move || {
            let (mut random, mut filling) = (Random::new(seed), Filling::default());
            let mut placed = 0;
            while !over.load(Relaxed) {
                let object = testbed.numbers[random.below(3) as usize];
                if random.chance(0.5) {
                    placed += u64::from(testbed.cache.place(object).expect("the cache runs"));
                } else {
                    testbed.cache.unplace(object).expect("the cache runs");
                }
                for _ in 0..random.below(12) {
                    testbed.cache.fill_some(&mut filling).expect("the cache runs");
                }
                assert!(testbed.gauge("held_pages") <= TIER as f64);
            }
            placed
        });
        let writer = |own: u64| {
            scope.spawn(move || {
                let mut random = Random::new(seed + own);
                let mut truth: Vec<u8> = (0..600).map(|page| page as u8).collect();
                for step in 0..3000 {
                    let page = random.below(150) * 4 + own - 1;
                    let mut bytes = [0; PAGE as usize];
                    if random.chance(0.4) {
                        truth[page as usize] = random.below(256) as u8;
                        testbed
                            .cache
                            .write(page * PAGE, &[truth[page as usize]; PAGE as usize], false)
                            .expect("a write");
                    } else {
                        testbed.cache.read(page * PAGE, &mut bytes).expect("a read");
                        assert!(bytes.iter().all(|&byte| byte == truth[page as usize]), "step {step}, page {page}");
                    }
                }
                truth
            })
        };
        let writers: Vec<_> = (1..=4).map(writer).collect();
        let truths = writers.into_iter().map(|writer| writer.join().expect("no panic")).collect();
        over.store(true, Relaxed);
        assert!(filler.join().expect("no panic") > 0, "something was placed");
        truths
    });
    let counts = testbed.cache.stats().expect("counts").counts;
    println!("{counts:?}");
    assert!(counts.placed > 0 && counts.read_hits > 0 && counts.bypasses > 0);
    testbed.cache.drain().expect("a drain");
    for page in 0..600 {
        let mut bytes = [0; PAGE as usize];
        testbed.backing.read_at(page * PAGE, &mut bytes).expect("a read");
        let truth = truths[page as usize % 4][page as usize];
        assert!(bytes.iter().all(|&byte| byte == truth), "page {page}");
    }
}
