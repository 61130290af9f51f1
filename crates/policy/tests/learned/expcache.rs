//! A model of ExpCache: vectors searched from end to end, line by line from algorithms 2, 3 and 4.

use crate::{assert_bounded_memory, common, compare, misses, movements};
use entresol_core::{Movement, Outcome, Random, Request};
use entresol_policy::learned::ExpCache;

#[derive(Clone, Copy, PartialEq)]
struct Element {
    page: u32,
    frequency: u32,
    timestamp: u64,
}

/// R and W are `cache[0]` and `cache[1]`; G_LRU and G_LFU are `ghost[0]` and `ghost[1]`, as are the weights.
struct Model {
    capacity: usize,
    tolerance: f64,
    literal: bool,
    random: Random,
    cache: [Vec<Element>; 2],
    ghost: [Vec<Element>; 2],
    ghost_hits: [u64; 2],
    weight: [f64; 2],
    access_count: u64,
    eta_pre: f64,
}

fn lru(elements: &[Element]) -> Element {
    *elements.iter().min_by_key(|e| e.timestamp).unwrap()
}

fn lfu(elements: &[Element]) -> Element {
    *elements.iter().min_by_key(|e| (e.frequency, e.timestamp)).unwrap()
}

fn delete(elements: &mut Vec<Element>, page: u32) -> Option<Element> {
    let at = elements.iter().position(|e| e.page == page)?;
    Some(elements.remove(at))
}

impl Model {
    fn new(capacity: usize, tolerance: f64, literal: bool, seed: u64) -> Self {
        Model {
            capacity,
            tolerance,
            literal,
            random: Random::new(seed),
            cache: Default::default(),
            ghost: Default::default(),
            ghost_hits: [0; 2],
            weight: [0.5; 2],
            access_count: 0,
            eta_pre: 0.0,
        }
    }

    fn update_expert(&mut self) {
        let n = self.access_count as f64;
        let loss = self.ghost_hits.map(|hits| 1.0 - hits as f64 / n);
        let alpha = 1.0 / n;
        let eta;
        if self.access_count <= 3 {
            eta = ((2.0 * 3.0_f64).ln() / n).sqrt();
            self.eta_pre = eta;
        } else {
            eta = ((2.0 * n).ln() / n).sqrt();
        }
        let term = |i: usize| self.weight[i].powf(eta / self.eta_pre) * (-eta * loss[i]).exp();
        let sum = term(0) + term(1);
        let v = [term(0) / sum, term(1) / sum];
        let w = v.map(|v| alpha / 2.0 + (1.0 - alpha) * v);
        self.eta_pre = eta;
        let lru = w[0] / (w[0] + w[1]);
        self.weight = [lru, 1.0 - lru];
    }

    fn evict_victim(&self, lru_policy: bool) -> (Element, usize) {
        let [r, w] = &self.cache;
        let choose = if lru_policy { lru } else { lfu };
        if r.is_empty() || w.is_empty() {
            return if r.is_empty() { (choose(w), 1) } else { (choose(r), 0) };
        }
        let (a, b) = (choose(r), choose(w));
        if !lru_policy && a.frequency != b.frequency {
            let from_w = if self.literal { lru(w) } else { b };
            return if a.frequency < b.frequency { (a, 0) } else { (from_w, 1) };
        }
        let gap = a.timestamp as f64 - b.timestamp as f64;
        if gap < 0.0 || gap <= self.capacity as f64 * self.tolerance { (a, 0) } else { (b, 1) }
    }

    fn replace(&mut self) -> (u32, bool) {
        let lru_policy = self.random.next_f64() < self.weight[0];
        let (victim, side) = self.evict_victim(lru_policy);
        delete(&mut self.cache[side], victim.page);
        if self.capacity / 2 > 0 {
            for (ghost, order) in self.ghost.iter_mut().zip([lru, lfu]) {
                if ghost.len() >= self.capacity / 2 {
                    let forgotten = order(ghost).page;
                    delete(ghost, forgotten);
                }
                ghost.push(victim);
            }
        }
        (victim.page, side == 1)
    }

    fn access(&mut self, request: Request) -> (Outcome, Vec<Movement>) {
        self.access_count += 1;
        let (page, write) = (request.page.0, request.op.is_write());
        let timestamp = self.access_count;
        for side in 0..2 {
            if let Some(found) = delete(&mut self.cache[side], page) {
                let side = if write { 1 } else { side };
                self.cache[side].push(Element { page, frequency: found.frequency + 1, timestamp });
                return movements(request, true, None);
            }
        }
        let mut frequency = 1;
        for i in 0..2 {
            if let Some(found) = delete(&mut self.ghost[i], page) {
                self.ghost_hits[i] += 1;
                frequency = if i == 1 { found.frequency } else { frequency };
            }
        }
        self.update_expert();
        let full = self.cache[0].len() + self.cache[1].len() == self.capacity;
        let victim = full.then(|| self.replace());
        self.cache[usize::from(write)].push(Element { page, frequency, timestamp });
        movements(request, false, victim)
    }
}

const CAPACITIES: [usize; 7] = [1, 2, 3, 5, 10, 25, 50];

fn check_options(options: &[&str], tolerance: f64, literal: bool) {
    compare::<ExpCache, _>(options, &CAPACITIES, |config| {
        let mut model = Model::new(config.tiers[0], tolerance, literal, config.seed);
        move |request| model.access(request)
    });
}

#[test]
fn expcache_does_what_its_model_does() {
    check_options(&[], 0.1, false);
}

#[test]
fn expcache_has_the_tolerance_of_its_option() {
    check_options(&["tolerance=0%"], 0.0, false);
    check_options(&["tolerance=60%"], 0.6, false);
}

#[test]
fn expcache_evicts_as_printed_when_told_to() {
    check_options(&["unequal=lru"], 0.1, true);
}

#[test]
fn expcache_forgets_what_leaves_its_ghosts() {
    assert_bounded_memory::<ExpCache>(&[], 10, 20);
    assert_bounded_memory::<ExpCache>(&[], 1, 1);
}

/// No implementation of the thesis's author is at hand; the model at full scale is the second opinion.
#[test]
fn expcache_counts_what_its_model_counts_on_long_traces() {
    for (trace, capacity) in [("zipf200k", 200), ("mixed200k", 200)] {
        let Some(pages) = common::load(trace) else { return };
        let mut model = Model::new(capacity, 0.1, false, 42);
        let expected = pages.iter().filter(|&&page| !model.access(Request::read(page)).0.is_hit()).count();
        println!("{trace} {capacity}: {expected} misses");
        assert_eq!(misses::<ExpCache>(&pages, capacity, &[], 42), expected);
    }
}
