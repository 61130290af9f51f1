//! A model of LeCaR: sorted sets of (key, page), straight from the text.

use crate::common;
use crate::numpy::Twister;
use crate::{assert_bounded_memory, compare, misses, movements};
use entresol_core::{Movement, Outcome, Random, Request};
use entresol_policy::learned::Lecar;
use std::collections::{BTreeMap, HashMap, VecDeque};

#[derive(Clone, Copy)]
enum Ties {
    Oldest,
    MostRecent,
    /// The reference program compares block numbers.
    LowestNumber,
}

#[derive(Clone, Copy)]
struct Entry {
    frequency: u64,
    time: i64,
    dirty: bool,
}

struct Model<R> {
    capacity: usize,
    draw: R,
    ties: Ties,
    learning_rate: f64,
    discount: f64,
    /// Rounds the result of an operation on weights, to the reference's single precision or not at all.
    round: fn(f64) -> f64,
    time: i64,
    cache: HashMap<u32, Entry>,
    by_time: BTreeMap<i64, u32>,
    by_frequency: BTreeMap<(u64, i64), u32>,
    /// LRU's and LFU's, oldest victim first, with frequency and time of eviction.
    histories: [VecDeque<(u32, u64, i64)>; 2],
    weights: [f64; 2],
}

impl<R: FnMut() -> f64> Model<R> {
    fn new(capacity: usize, draw: R, ties: Ties) -> Self {
        Model {
            capacity,
            draw,
            ties,
            learning_rate: 0.45,
            discount: 0.005f64.powf(1.0 / capacity as f64),
            round: |x| x,
            time: 0,
            cache: HashMap::new(),
            by_time: BTreeMap::new(),
            by_frequency: BTreeMap::new(),
            histories: Default::default(),
            weights: [0.5, 0.5],
        }
    }

    fn rank(&self, page: u32, entry: Entry) -> (u64, i64) {
        let tie = match self.ties {
            Ties::Oldest => entry.time,
            Ties::MostRecent => -entry.time,
            Ties::LowestNumber => i64::from(page),
        };
        (entry.frequency, tie)
    }

    fn put(&mut self, page: u32, entry: Entry) {
        self.cache.insert(page, entry);
        self.by_time.insert(entry.time, page);
        self.by_frequency.insert(self.rank(page, entry), page);
    }

    fn take(&mut self, page: u32) -> Option<Entry> {
        let entry = self.cache.remove(&page)?;
        self.by_time.remove(&entry.time);
        self.by_frequency.remove(&self.rank(page, entry));
        Some(entry)
    }

    fn update_weights(&mut self, expert: usize, evicted: i64) {
        let round = self.round;
        let reward = round(-self.discount.powf((self.time - evicted) as f64));
        let factor = round(round(self.learning_rate * reward).exp());
        self.weights[expert] = round(self.weights[expert] * factor);
        let sum = round(self.weights[0] + self.weights[1]);
        self.weights = self.weights.map(|weight| round(weight / sum));
        for (one, other) in [(0, 1), (1, 0)] {
            if self.weights[one] >= 0.99 {
                self.weights[one] = 0.99;
                self.weights[other] = 0.01;
            }
        }
    }

    fn evict(&mut self) -> (u32, bool) {
        let lru = *self.by_time.first_key_value().unwrap().1;
        let lfu = *self.by_frequency.first_key_value().unwrap().1;
        let expert = usize::from((self.draw)() >= self.weights[0]);
        let victim = [lru, lfu][expert];
        let entry = self.take(victim).unwrap();
        if lru != lfu {
            let history = &mut self.histories[expert];
            history.push_back((victim, entry.frequency, self.time));
            if history.len() > self.capacity / 2 {
                history.pop_front();
            }
        }
        (victim, entry.dirty)
    }

    fn access(&mut self, request: Request) -> (Outcome, Vec<Movement>) {
        self.time += 1;
        let (page, dirty) = (request.page.0, request.op.is_write());
        if let Some(entry) = self.take(page) {
            let dirty = entry.dirty || dirty;
            self.put(page, Entry { frequency: entry.frequency + 1, time: self.time, dirty });
            return movements(request, true, None);
        }
        let mut frequency = 1;
        for expert in 0..2 {
            if let Some(at) = self.histories[expert].iter().position(|ghost| ghost.0 == page) {
                let (_, seen, evicted) = self.histories[expert].remove(at).unwrap();
                frequency = seen + 1;
                self.update_weights(expert, evicted);
            }
        }
        let full = self.cache.len() == self.capacity;
        let victim = full.then(|| self.evict());
        self.put(page, Entry { frequency, time: self.time, dirty });
        movements(request, false, victim)
    }
}

const CAPACITIES: [usize; 6] = [1, 2, 3, 10, 25, 50];

#[test]
fn lecar_does_what_its_model_does() {
    for (option, ties) in [("ties=oldest", Ties::Oldest), ("ties=most-recent", Ties::MostRecent)] {
        compare::<Lecar, _>(&[option], &CAPACITIES, |config| {
            let mut random = Random::new(config.seed);
            let mut model = Model::new(config.tiers[0], move || random.next_f64(), ties);
            move |request| model.access(request)
        });
    }
}

#[test]
fn lecars_rates_are_those_of_the_options() {
    compare::<Lecar, _>(&["learning-rate=3", "discount=0.5"], &CAPACITIES, |config| {
        let mut random = Random::new(config.seed);
        let capacity = config.tiers[0];
        let model = Model::new(capacity, move || random.next_f64(), Ties::Oldest);
        let discount = 0.5f64.powf(1.0 / capacity as f64);
        let mut model = Model { learning_rate: 3.0, discount, ..model };
        move |request| model.access(request)
    });
}

#[test]
fn lecar_forgets_what_leaves_its_histories() {
    assert_bounded_memory::<Lecar>(&[], 10, 20);
    assert_bounded_memory::<Lecar>(&[], 1, 1);
}

/// Misses of the authors' program (`cacheus_reference_200k.csv`).
const REFERENCE: [(&str, usize, usize); 4] = [
    ("zipf200k", 200, 114_425),
    ("zipf200k", 2_000, 57_680),
    ("mixed200k", 200, 167_853),
    ("mixed200k", 2_000, 141_496),
];

#[test]
fn the_model_with_the_authors_draws_and_ties_has_the_authors_misses() {
    for (trace, capacity, expected) in REFERENCE {
        let Some(blocks) = common::load_raw(trace) else { return };
        let mut twister = Twister::new(123);
        let model = Model::new(capacity, move || twister.rand(), Ties::LowestNumber);
        let mut model = Model { round: |x| f64::from(x as f32), ..model };
        let hits = |block: u64| model.access(Request::read(u32::try_from(block).unwrap())).0.is_hit();
        let misses = blocks.len() - blocks.into_iter().map(hits).filter(|&hit| hit).count();
        println!("{trace} {capacity}: {misses}, the authors count {expected}");
        assert_eq!(misses, expected);
    }
}

/// Other draws alone: the spread by chance.
#[test]
fn other_draws_change_the_authors_misses_by_two_per_cent_at_most() {
    for (trace, capacity, expected) in REFERENCE {
        let Some(blocks) = common::load_raw(trace) else { return };
        for seed in 0..3 {
            let mut random = Random::new(seed);
            let mut model = Model::new(capacity, move || random.next_f64(), Ties::LowestNumber);
            let is_miss = |&&block: &&u64| !model.access(Request::read(block as u32)).0.is_hit();
            let misses = blocks.iter().filter(is_miss).count();
            println!("{trace} {capacity}, seed {seed}: {misses}, the authors count {expected}");
            assert!(misses.abs_diff(expected) * 50 <= expected);
        }
    }
}

/// The rest of the difference is the tie rule: theirs evicts the lowest block number of the least frequent, which on
/// zipf200k, where blocks are numbered by popularity, is the hottest. The bounds hold the figures of five seeds.
#[test]
fn the_tie_rule_explains_the_distance_to_the_authors_program() {
    let bounds = [
        ("ties=oldest", [0.82..0.85, 0.88..0.92, 0.96..0.98, 1.0..1.01]),
        ("ties=most-recent", [0.87..0.90, 0.87..0.91, 0.97..0.99, 0.94..0.99]),
    ];
    for (ties, bounds) in bounds {
        for ((trace, capacity, expected), bounds) in REFERENCE.into_iter().zip(bounds) {
            let Some(pages) = common::load(trace) else { return };
            for seed in 0..5 {
                let ratio = misses::<Lecar>(&pages, capacity, &[ties], seed) as f64 / expected as f64;
                println!("{trace} {capacity} {ties}, seed {seed}: {ratio:.3} of the authors' misses");
                assert!(bounds.contains(&ratio));
            }
        }
    }
}
