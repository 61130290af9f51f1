//! Plain models of the modern policies, straight from their papers, compared event by event.

use crate::single::{cases, compare};
use entresol_core::Page;
use entresol_policy::modern::{S3Fifo, Sieve, WTinyLfu};

/// SIEVE, algorithm 1, over a vector with the head at its end; the hand is the page it points at.
#[test]
fn sieve_leaves_visited_pages_in_place() {
    for (capacity, seed) in cases() {
        let mut queue: Vec<(Page, bool)> = Vec::new();
        let mut hand: Option<Page> = None;
        compare::<Sieve>(&[], capacity, seed, |request, _, _| {
            if let Some(entry) = queue.iter_mut().find(|entry| entry.0 == request.page) {
                entry.1 = true;
                return None;
            }
            let mut victims = Vec::new();
            if queue.len() == capacity {
                let mut at = hand.map_or(0, |page| queue.iter().position(|entry| entry.0 == page).unwrap());
                while queue[at].1 {
                    queue[at].1 = false;
                    at = if at + 1 == queue.len() { 0 } else { at + 1 };
                }
                hand = queue.get(at + 1).map(|entry| entry.0);
                victims.push(queue.remove(at).0);
            }
            queue.push((request.page, false));
            Some(victims)
        });
    }
}

/// S3-FIFO, algorithm 1, literally; queues are vectors with the tail first.
struct S3Model {
    capacity: usize,
    small_share: usize,
    ghost_share: usize,
    promote: u32,
    warm_up_main: bool,
    small: Vec<(Page, u32)>,
    main: Vec<(Page, u32)>,
    ghost: Vec<Page>,
    victims: Vec<Page>,
}

impl S3Model {
    fn read(&mut self, page: Page) -> Option<Vec<Page>> {
        if let Some(entry) = self.small.iter_mut().chain(&mut self.main).find(|entry| entry.0 == page) {
            entry.1 = 3.min(entry.1 + 1);
            return None;
        }
        while self.small.len() + self.main.len() == self.capacity {
            self.warm_up_main = false;
            if self.small.len() >= self.small_share { self.evict_small() } else { self.evict_main() }
        }
        if self.ghost.contains(&page) {
            self.ghost.retain(|&ghost| ghost != page);
            self.main.push((page, 0));
        } else if self.warm_up_main && self.small.len() >= self.small_share {
            self.main.push((page, 0));
        } else {
            self.small.push((page, 0));
        }
        Some(std::mem::take(&mut self.victims))
    }

    fn evict_small(&mut self) {
        let mut evicted = false;
        while !evicted && !self.small.is_empty() {
            let (tail, count) = self.small.remove(0);
            if count >= self.promote {
                self.main.push((tail, 0));
                if self.main.len() >= self.capacity - self.small_share {
                    self.evict_main();
                }
            } else {
                self.ghost.push(tail);
                let excess = self.ghost.len().saturating_sub(self.ghost_share);
                self.ghost.drain(..excess);
                self.victims.push(tail);
                evicted = true;
            }
        }
    }

    fn evict_main(&mut self) {
        let mut evicted = false;
        while !evicted && !self.main.is_empty() {
            let (tail, count) = self.main.remove(0);
            if count > 0 {
                self.main.push((tail, count - 1));
            } else {
                self.victims.push(tail);
                evicted = true;
            }
        }
    }
}

/// Shares of the small and the ghost queue in per cent.
fn s3_fifo(options: &[&str], small: usize, ghost: usize, promote: u32, warm_up_main: bool) {
    for (capacity, seed) in cases() {
        let mut model = S3Model {
            capacity,
            small_share: (capacity * small / 100).max(1),
            ghost_share: capacity * ghost / 100,
            promote,
            warm_up_main,
            small: Vec::new(),
            main: Vec::new(),
            ghost: Vec::new(),
            victims: Vec::new(),
        };
        compare::<S3Fifo>(options, capacity, seed, |request, _, _| model.read(request.page));
    }
}

#[test]
fn s3_fifo_is_algorithm_1() {
    s3_fifo(&[], 10, 90, 2, false);
}

#[test]
fn s3_fifo_has_shares() {
    s3_fifo(&["small=30%", "ghost=20%"], 30, 20, 2, false);
    s3_fifo(&["ghost=0%"], 10, 0, 2, false);
}

#[test]
fn s3_fifo_can_promote_sooner_or_later() {
    s3_fifo(&["promote=1"], 10, 90, 1, false);
    s3_fifo(&["promote=3"], 10, 90, 3, false);
}

#[test]
fn s3_fifo_can_fill_the_main_queue_first() {
    s3_fifo(&["warm-up=main"], 10, 90, 2, true);
}

/// The TinyLFU histogram with a byte for each counter and a bool for each bit of the doorkeeper.
struct Histogram {
    counters: Vec<u8>,
    doorkeeper: Vec<bool>,
    has_doorkeeper: bool,
    sample: usize,
    uses: usize,
}

impl Histogram {
    fn new(capacity: usize, sample: usize, has_doorkeeper: bool) -> Self {
        let (lines, words) = (capacity.div_ceil(4), capacity.div_ceil(2));
        Histogram {
            counters: vec![0; lines * 128],
            doorkeeper: vec![false; words * 64],
            has_doorkeeper,
            sample,
            uses: 0,
        }
    }

    /// Two lines of 128 counters, and a counter in each half of both.
    fn counters_of(&self, hash: u64) -> [usize; 4] {
        let lines = self.counters.len() as u64 / 128;
        let second = entresol_core::Random::mix(hash);
        [(hash, 0), (hash, 1), (second, 0), (second, 1)].map(|(hash, half)| {
            let line = ((hash >> 32) * lines) >> 32;
            (line * 128 + half * 64 + (hash >> (6 * half)) % 64) as usize
        })
    }

    fn doorkeeper_of(&self, hash: u64) -> [usize; 3] {
        let hash = hash.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let word = ((hash >> 32) * (self.doorkeeper.len() as u64 / 64)) >> 32;
        [0, 6, 12].map(|shift| (word * 64 + (hash >> shift) % 64) as usize)
    }

    fn record(&mut self, hash: u64) {
        self.uses += 1;
        if self.uses == self.sample {
            self.uses /= 2;
            self.counters.iter_mut().for_each(|counter| *counter /= 2);
            self.doorkeeper.fill(false);
        }
        let doorkeeper = self.doorkeeper_of(hash);
        if self.has_doorkeeper && !doorkeeper.iter().all(|&bit| self.doorkeeper[bit]) {
            doorkeeper.iter().for_each(|&bit| self.doorkeeper[bit] = true);
            return;
        }
        let counters = self.counters_of(hash);
        let least = counters.iter().map(|&at| self.counters[at]).min().unwrap();
        let lowest = counters.into_iter().filter(|&at| self.counters[at] == least && least < 15).collect::<Vec<_>>();
        lowest.into_iter().for_each(|at| self.counters[at] = least + 1);
    }

    fn estimate(&self, hash: u64) -> u8 {
        let seen = self.has_doorkeeper && self.doorkeeper_of(hash).iter().all(|&bit| self.doorkeeper[bit]);
        self.counters_of(hash).into_iter().map(|at| self.counters[at]).min().unwrap() + u8::from(seen)
    }
}

/// The layout has one object, so the address of page `p` is block `p` of object 0.
fn address_hash(page: Page) -> u64 {
    entresol_core::Random::mix(u64::from(page.0) ^ 0x9E37_79B9_7F4A_7C15)
}

fn handle_hash(page: Page) -> u64 {
    entresol_core::Random::mix(u64::from(page.0) + 1)
}

/// W-TinyLFU over vectors, the most recent page last.
fn w_tinylfu(options: &[&str], [window, protected, sample]: [usize; 3], has_doorkeeper: bool, hash: fn(Page) -> u64) {
    for (capacity, seed) in cases() {
        let window_size = (capacity * window / 100).max(1);
        let main_size = capacity - window_size;
        let protected_size = main_size * protected / 100;
        let mut histogram = Histogram::new(capacity, sample * capacity, has_doorkeeper);
        let (mut window, mut probation, mut protected) = (Vec::<Page>::new(), Vec::<Page>::new(), Vec::<Page>::new());
        compare::<WTinyLfu>(options, capacity, seed, |request, _, _| {
            let page = request.page;
            histogram.record(hash(page));
            if window.contains(&page) {
                window.retain(|&held| held != page);
                window.push(page);
                return None;
            }
            if probation.contains(&page) || protected.contains(&page) {
                probation.retain(|&held| held != page);
                protected.retain(|&held| held != page);
                protected.push(page);
                if protected.len() > protected_size {
                    probation.push(protected.remove(0));
                }
                return None;
            }
            let mut victims = Vec::new();
            if window.len() == window_size {
                let newcomer = window.remove(0);
                if probation.len() + protected.len() < main_size {
                    probation.push(newcomer);
                } else if main_size == 0 {
                    victims.push(newcomer);
                } else {
                    let segment = if probation.is_empty() { &mut protected } else { &mut probation };
                    if histogram.estimate(hash(newcomer)) > histogram.estimate(hash(segment[0])) {
                        victims.push(segment.remove(0));
                        probation.push(newcomer);
                    } else {
                        victims.push(newcomer);
                    }
                }
            }
            window.push(page);
            Some(victims)
        });
    }
}

#[test]
fn w_tinylfu_admits_what_is_asked_for_more_often() {
    w_tinylfu(&[], [1, 80, 10], true, address_hash);
}

#[test]
fn w_tinylfu_has_shares() {
    w_tinylfu(&["window=40%", "protected=50%"], [40, 50, 10], true, address_hash);
    w_tinylfu(&["protected=100%"], [1, 100, 10], true, address_hash);
}

#[test]
fn w_tinylfu_has_a_sample_a_doorkeeper_and_a_key() {
    w_tinylfu(&["sample=2"], [1, 80, 2], true, address_hash);
    w_tinylfu(&["doorkeeper=no"], [1, 80, 10], false, address_hash);
    w_tinylfu(&["key=handle"], [1, 80, 10], true, handle_hash);
}
