//! Plain models of LRU-2 and MQ: reference times and counts in maps, searched in full at every step.

use crate::plain::{Frames, Model, compare, take};
use entresol_core::{Outcome, Request};
use entresol_policy::{Config, Options, Policy, adaptive, check};
use std::collections::BTreeMap;

/// LRU-2's history of a page: HIST(p,1), HIST(p,2) or 0, LAST(p).
#[derive(Clone, Copy)]
struct Hist {
    one: u64,
    two: u64,
    last: u64,
}

struct Lru2 {
    capacity: usize,
    correlated: u64,
    history: usize,
    t: u64,
    buffer: BTreeMap<u32, Hist>,
    /// Evicted pages, the first one evicted first.
    retained: Vec<(u32, Hist)>,
    frames: Frames,
}

impl Lru2 {
    fn with(capacity: usize, correlated: u64, history: usize) -> Self {
        let (buffer, retained) = (BTreeMap::new(), vec![]);
        Lru2 { capacity, correlated, history, t: 0, buffer, retained, frames: Frames::default() }
    }

    fn victim(&self, protected: u64) -> Option<u32> {
        let eligible = self.buffer.iter().filter(|(_, hist)| self.t - hist.last > protected);
        eligible.min_by_key(|(_, hist)| (hist.two, hist.last)).map(|(&page, _)| page)
    }
}

impl Model for Lru2 {
    fn access(&mut self, request: Request) -> Outcome {
        let p = request.page.0;
        self.t += 1;
        if let Some(hist) = self.buffer.get_mut(&p) {
            if self.t - hist.last > self.correlated {
                let period = hist.last - hist.one;
                hist.two = hist.one + period;
                hist.one = self.t;
            }
            hist.last = self.t;
            return self.frames.hit(request);
        }
        let known = self.retained.iter().position(|entry| entry.0 == p).map(|at| self.retained.remove(at).1);
        if self.buffer.len() == self.capacity {
            let victim = self.victim(self.correlated).or_else(|| self.victim(0)).unwrap();
            self.frames.evict(victim);
            let hist = self.buffer.remove(&victim).unwrap();
            self.retained.push((victim, hist));
            if self.retained.len() > self.history {
                self.retained.remove(0);
            }
        }
        let two = known.map_or(0, |hist| hist.one);
        self.buffer.insert(p, Hist { one: self.t, two, last: self.t });
        self.frames.load(request)
    }

    fn frames(&mut self) -> &mut Frames {
        &mut self.frames
    }
}

/// A page of MQ.
#[derive(Clone, Copy)]
struct Block {
    references: u32,
    expire: u64,
}

struct Mq {
    capacity: usize,
    life: u64,
    history: usize,
    time: u64,
    /// The head (oldest) of each queue first.
    q: Vec<Vec<u32>>,
    out: Vec<u32>,
    blocks: BTreeMap<u32, Block>,
    frames: Frames,
}

impl Mq {
    fn with(capacity: usize, queues: usize, life: u64, history: usize) -> Self {
        let (q, blocks) = (vec![vec![]; queues], BTreeMap::new());
        Mq { capacity, life, history, time: 0, q, out: vec![], blocks, frames: Frames::default() }
    }

    fn evict(&mut self) {
        let queue = self.q.iter_mut().find(|queue| !queue.is_empty()).unwrap();
        let victim = queue.remove(0);
        self.frames.evict(victim);
        self.out.push(victim);
        if self.out.len() > self.history {
            let forgotten = self.out.remove(0);
            self.blocks.remove(&forgotten);
        }
    }
}

impl Model for Mq {
    fn access(&mut self, request: Request) -> Outcome {
        let b = request.page.0;
        let held = self.q.iter_mut().any(|queue| take(queue, b));
        let outcome = if held {
            self.frames.hit(request)
        } else {
            if !take(&mut self.out, b) {
                self.blocks.insert(b, Block { references: 0, expire: 0 });
            }
            if self.q.iter().map(Vec::len).sum::<usize>() == self.capacity {
                self.evict();
            }
            self.frames.load(request)
        };
        let block = self.blocks.get_mut(&b).unwrap();
        block.references += 1;
        block.expire = self.time + self.life;
        let queue = (f64::from(block.references).log2().floor() as usize).min(self.q.len() - 1);
        self.q[queue].push(b);
        self.time += 1;
        for k in 1..self.q.len() {
            let Some(&c) = self.q[k].first() else { continue };
            let block = self.blocks.get_mut(&c).unwrap();
            if block.expire < self.time {
                block.expire = self.time + self.life;
                self.q[k].remove(0);
                self.q[k - 1].push(c);
            }
        }
        outcome
    }

    fn frames(&mut self) -> &mut Frames {
        &mut self.frames
    }
}

#[test]
fn lru_2_does_what_its_model_does() {
    compare::<adaptive::Lru2, _>(&[], |c| Lru2::with(c, 0, c));
    compare::<adaptive::Lru2, _>(&["history=300%"], |c| Lru2::with(c, 0, 3 * c));
    compare::<adaptive::Lru2, _>(&["history=0p"], |c| Lru2::with(c, 0, 0));
    compare::<adaptive::Lru2, _>(&["correlated=3"], |c| Lru2::with(c, 3, c));
    compare::<adaptive::Lru2, _>(&["correlated=40"], |c| Lru2::with(c, 40, c));
}

#[test]
fn mq_does_what_its_model_does() {
    compare::<adaptive::Mq, _>(&[], |c| Mq::with(c, 8, 4 * c as u64, 4 * c));
    compare::<adaptive::Mq, _>(&["lifetime=7"], |c| Mq::with(c, 8, 7, 4 * c));
    compare::<adaptive::Mq, _>(&["lifetime=100", "queues=3", "history=50%"], |c| Mq::with(c, 3, 100, c / 2));
    compare::<adaptive::Mq, _>(&["lifetime=0", "history=0p"], |c| Mq::with(c, 8, 0, 0));
}

#[test]
fn mq_lives_as_long_as_the_peak_temporal_distance_says() {
    let layout = check::Layout::one_object(60);
    let config = Config { peak_temporal_distance: Some(17), ..Config::single(60, 10) };
    let mut policy = adaptive::Mq::new(&config, &Options::defaults(&adaptive::Mq::INFO)).unwrap();
    let mut model = Mq::with(10, 8, 17, 40);
    check::run_beside(&mut policy, layout, &config, &check::workload(5, layout, 3_000), |request, _, _| {
        let outcome = model.access(request);
        (outcome, std::mem::take(&mut model.frames().moves))
    });
}
