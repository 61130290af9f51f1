//! Both tables against a plain map, and lookups during changes by other threads.

use super::*;
use entresol_core::Random;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const FRAMES: usize = 24;

/// Pages by frame, as descriptors would hold them.
struct Pages(Vec<AtomicU64>);

impl Pages {
    fn new(frames: usize) -> Self {
        Pages((0..frames).map(|_| AtomicU64::new(u64::MAX)).collect())
    }

    fn get(&self, table: &impl PageTable, key: u64) -> Option<u32> {
        table.get(TableKey(Key(key)), |frame| self.0[frame as usize].load(Ordering::Relaxed) == key)
    }
}

/// Toggles pages in a table of one shard and compares every lookup with the map's.
fn against_a_map(table: &impl PageTable, steps: &[u64], universe: u64) {
    let pages = Pages::new(FRAMES);
    let mut map: HashMap<u64, u32> = HashMap::new();
    let mut free: Vec<u32> = (0..FRAMES as u32).collect();
    for &key in steps {
        if let Some(frame) = map.remove(&key) {
            table.remove(TableKey(Key(key)), frame);
            free.push(frame);
        } else if let Some(frame) = free.pop() {
            pages.0[frame as usize].store(key, Ordering::Relaxed);
            table.insert(TableKey(Key(key)), frame);
            map.insert(key, frame);
        }
        for key in 0..universe {
            assert_eq!(pages.get(table, key), map.get(&key).copied(), "page {key}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_table_is_a_map(steps in prop::collection::vec(0u64..60, 1..300)) {
        against_a_map(&ArrayTable::new(60, Sharding::pages(1)).expect("a table"), &steps, 60);
        against_a_map(&HashTable::new(FRAMES, Sharding::pages(1)).expect("a table"), &steps, 60);
    }
}

#[test]
fn pages_that_share_a_tag_are_told_apart_by_their_frames() {
    // Search for two keys with one tag: by the birthday rule there is a pair among a few hundred thousand.
    let mut seen = HashMap::new();
    // Consecutive keys are spread evenly and would not share a tag for long.
    let (a, b) = (0u64..)
        .map(Random::mix)
        .find_map(|key| seen.insert((scatter(key) >> 32) as u32, key).map(|earlier| (earlier, key)))
        .expect("a collision");
    println!("keys {a} and {b}");
    let table = HashTable::new(4, Sharding::pages(1)).expect("a table");
    let pages = Pages::new(4);
    for (frame, key) in [(1, a), (2, b)] {
        pages.0[frame].store(key, Ordering::Relaxed);
        table.insert(TableKey(Key(key)), frame as u32);
    }
    assert_eq!((pages.get(&table, a), pages.get(&table, b)), (Some(1), Some(2)));
    table.remove(TableKey(Key(b)), 2);
    assert_eq!((pages.get(&table, a), pages.get(&table, b)), (Some(1), None));
}

#[test]
fn a_full_table_takes_every_frame_and_states_its_size() {
    let (frames, shards) = (1000, 4);
    let table = HashTable::new(frames, Sharding::runs(shards)).expect("a table");
    let pages = Pages::new(frames * shards);
    let mut left = vec![frames; shards];
    let mut frame = 0;
    for key in 0.. {
        let shard = table.shard(TableKey(Key(key)));
        if left.iter().all(|&n| n == 0) {
            break;
        }
        if left[shard] > 0 {
            left[shard] -= 1;
            pages.0[frame].store(key, Ordering::Relaxed);
            table.insert(TableKey(Key(key)), frame as u32);
            assert_eq!(pages.get(&table, key), Some(frame as u32));
            frame += 1;
        }
    }
    assert_eq!(frame, frames * shards);
    let per_frame = table.memory_bytes() as f64 / (frames * shards) as f64;
    assert!((16.0..16.1).contains(&per_frame), "{per_frame} B per frame");
    assert_eq!(ArrayTable::new(5000, Sharding::pages(shards)).expect("a table").memory_bytes(), 5000 * 4);
}

#[test]
fn an_array_covers_its_pages_of_object_0_and_no_others() {
    use entresol_core::{Address, ObjectId};
    let table = ArrayTable::new(100, Sharding::pages(1)).expect("a table");
    let covers = |object, block| {
        table.covers(TableKey(Key::pack(Address { object: ObjectId(object), block }).expect("an address")))
    };
    assert!(covers(0, 99) && !covers(0, 100) && !covers(1, 5));
}

#[test]
fn shards_get_equal_shares_and_runs_stay_together_where_they_should() {
    let shares = |sharding: Sharding, step: u64| {
        let mut shares = [0; 8];
        (0..8000u64).for_each(|i| shares[sharding.of(TableKey(Key(i * step)))] += 1);
        shares
    };
    for (sharding, step) in [(Sharding::pages(8), 1), (Sharding::pages(8), 64), (Sharding::runs(8), 64)] {
        let shares = shares(sharding, step);
        assert!(shares.iter().all(|&n| (800..1200).contains(&n)), "{sharding:?} step {step}: {shares:?}");
    }
    let runs = Sharding::runs(8);
    assert!((0..8000).all(|page| runs.of(TableKey(Key(page))) == runs.of(TableKey(Key(page / 64 * 64)))));
}

/// A page that stays is found at every moment, however its neighbours are shifted. A page that is out is not found in a
/// frame that holds another page.
#[test]
fn readers_never_miss_a_page_that_stays() {
    let seed = 11;
    println!("seed {seed}");
    let table = HashTable::new(64, Sharding::pages(1)).expect("a table");
    let pages = Pages::new(64);
    for key in 0..32u64 {
        pages.0[key as usize].store(key, Ordering::Relaxed);
        table.insert(TableKey(Key(key)), key as u32);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut rounds = 0;
                while !stop.load(Ordering::Relaxed) || rounds == 0 {
                    (0..32).for_each(|key| assert_eq!(pages.get(&table, key), Some(key as u32), "page {key}"));
                    rounds += 1;
                }
            });
        }
        let mut random = Random::new(seed);
        let mut held: Vec<(u64, u32)> = Vec::new();
        let mut free: Vec<u32> = (32..64).collect();
        for _ in 0..200_000 {
            if held.len() < 32 && (held.is_empty() || random.chance(0.5)) {
                let (key, frame) = (100 + random.next_u64() % (1 << 30), free.pop().expect("a free frame"));
                if held.iter().any(|&(other, _)| other == key) {
                    free.push(frame);
                    continue;
                }
                pages.0[frame as usize].store(key, Ordering::Relaxed);
                table.insert(TableKey(Key(key)), frame);
                held.push((key, frame));
            } else {
                let (key, frame) = held.swap_remove(random.below(held.len() as u64) as usize);
                table.remove(TableKey(Key(key)), frame);
                assert_eq!(pages.get(&table, key), None);
                free.push(frame);
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
