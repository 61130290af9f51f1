//! When to take another candidate: the arithmetic, without any policy.
//!
//! The chooser is told of the same sampled requests as each candidate met them, with the cost of each to the candidate.
//! Sums over requests fade after every window: those of a short memory to a half, those of a long one to 15/16. So a
//! large difference is seen soon, and a small one with certainty. In a memory, `C_i` is the decayed cost of candidate
//! `i` and `N` the decayed number of sampled requests. `c_i = C_i / N` is the predicted cost of a request under it, and
//! `g = c_active - c_i` is the gain of a request by a change to `i`. The change is worth it when at the end of a window
//!
//! 1. `g >= gain * c_active`: little is not worth the trouble,
//! 2. `g >= payback`: what the change itself costs, divided by the requests within which it must have paid for itself,
//! 3. `g > errors * s`: it may not be by chance. `s` is the standard error of `g` by random groups (Wolter, "Introduction to
//!    Variance Estimation", 2007, chapter 2): the sampled pages are in [`PARTS`] parts by their hash, `d_p` is what the pages
//!    of a part gain and `n_p` the number of requests for them, `s = sqrt(P / (P - 1) * sum (d_p - g n_p)^2) / N`. Requests for
//!    one page hang together, pages of different parts do not; so it is the pages that are counted, not the requests.
//!
//! and the active candidate has stayed its windows. Of several the one with the least cost is taken; the short memory is asked
//! first, the long one only for candidates that gain in the short one too, for what it remembers may be over. So there is at
//! most one change in `stay` windows, whatever the requests.

pub use entresol_core::PARTS;

/// Share of the past that each memory keeps at the end of a window: the short one, then the long one.
pub const KEPT: [f64; 2] = [0.5, 0.9375];

/// When a change is worth it.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Sampled requests after which there is a decision.
    pub window: u64,
    /// Windows that a candidate stays active, at least.
    pub stay: u64,
    /// Share of the cost of a request that must be gained.
    pub gain: f64,
    /// Gain a request that a change must bring at least, in the unit of cost.
    pub payback: f64,
    /// Standard errors by which the gain must exceed nothing.
    pub errors: f64,
}

/// Outcome of a sampled request for one candidate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met {
    /// Cost of the request to the candidate.
    pub cost: f64,
    /// The page was found.
    pub hit: bool,
}

/// A change that is worth it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The candidate that was active.
    pub from: usize,
    /// The one that is to be.
    pub to: usize,
    /// Predicted cost of a request under the former.
    pub cost_from: f64,
    /// The same under the latter.
    pub cost_to: f64,
    /// Standard error of their difference.
    pub error: f64,
    /// Sampled requests that this follows from, older ones counting less.
    pub sampled: u64,
}

#[derive(Clone, Debug)]
struct Sums {
    costs: [f64; PARTS],
    hits: f64,
}

/// Costs, hits and numbers of requests of all candidates, by part, that fade after every window.
#[derive(Clone, Debug)]
struct Memory {
    sums: Vec<Sums>,
    requests: [f64; PARTS],
    kept: f64,
}

impl Memory {
    fn sampled(&self) -> f64 {
        self.requests.iter().sum()
    }

    fn cost(&self, candidate: usize) -> f64 {
        self.sums[candidate].costs.iter().sum::<f64>() / self.sampled()
    }

    /// Returns the gain of a request by a change, and its standard error.
    fn gain(&self, from: usize, to: usize) -> (f64, f64) {
        let all = self.sampled();
        let (from, to) = (&self.sums[from].costs, &self.sums[to].costs);
        let gain = from.iter().zip(to).map(|(a, b)| a - b).sum::<f64>() / all;
        let parts = from.iter().zip(to).zip(&self.requests);
        let squares: f64 = parts.map(|((a, b), n)| (a - b - gain * n).powi(2)).sum();
        (gain, (squares * PARTS as f64 / (PARTS - 1) as f64).sqrt() / all)
    }

    fn add(&mut self, part: usize, met: &[Met]) {
        self.requests[part] += 1.0;
        for (sums, met) in self.sums.iter_mut().zip(met) {
            sums.costs[part] += met.cost;
            sums.hits += f64::from(u8::from(met.hit));
        }
    }

    fn change(&self, from: usize, to: usize, limits: &Limits) -> Option<Change> {
        let cost_from = self.cost(from);
        let (gain, error) = self.gain(from, to);
        let worth = gain >= limits.gain * cost_from && gain >= limits.payback && gain > limits.errors * error;
        let sampled = self.sampled() as u64;
        worth.then(|| Change { from, to, cost_from, cost_to: self.cost(to), error, sampled })
    }

    fn fade(&mut self) {
        let costs = self.sums.iter_mut().flat_map(|sums| sums.costs.iter_mut().chain([&mut sums.hits]));
        costs.chain(&mut self.requests).for_each(|sum| *sum *= self.kept);
    }
}

/// Compares candidates by what the same requests cost them.
#[derive(Clone, Debug)]
pub struct Chooser {
    limits: Limits,
    active: usize,
    memories: [Memory; 2],
    /// Requests in this window so far.
    window: u64,
    /// Windows that ended since the active candidate became that. The first one has not been chosen, and need not stay.
    stayed: u64,
}

impl Chooser {
    /// For so many candidates, of which the first is active.
    pub fn new(candidates: usize, limits: Limits) -> Self {
        let sums = vec![Sums { costs: [0.0; PARTS], hits: 0.0 }; candidates];
        let memories = KEPT.map(|kept| Memory { sums: sums.clone(), requests: [0.0; PARTS], kept });
        Chooser { limits, active: 0, memories, window: 0, stayed: limits.stay }
    }

    /// The candidate that is active.
    pub fn active(&self) -> usize {
        self.active
    }

    /// Sampled requests that the short memory has, older ones counting less.
    pub fn sampled(&self) -> f64 {
        self.memories[0].sampled()
    }

    /// Recent cost of a request to a candidate; not a number before the first request.
    pub fn cost(&self, candidate: usize) -> f64 {
        self.memories[0].cost(candidate)
    }

    /// Share of the requests that a candidate found lately; not a number before the first.
    pub fn hit_ratio(&self, candidate: usize) -> f64 {
        self.memories[0].sums[candidate].hits / self.sampled()
    }

    /// Takes notice of a sampled request for a page of a part: what each candidate met. At the end of a window the change
    /// that is worth it, if there is one and `free` says that it can be made.
    ///
    /// # Panics
    /// When it is not told of every candidate.
    pub fn told(&mut self, part: usize, met: &[Met], free: bool) -> Option<Change> {
        assert_eq!(met.len(), self.memories[0].sums.len(), "every candidate meets every sampled request");
        self.memories.iter_mut().for_each(|memory| memory.add(part, met));
        self.window += 1;
        if self.window < self.limits.window {
            return None;
        }
        self.window = 0;
        self.stayed += 1;
        let change = if free && self.stayed >= self.limits.stay { self.best_change() } else { None };
        if let Some(change) = change {
            self.active = change.to;
            self.stayed = 0;
        }
        self.memories.iter_mut().for_each(Memory::fade);
        change
    }

    fn best_change(&self) -> Option<Change> {
        let [short, _] = &self.memories;
        let best = |memory: &Memory| {
            let others = (0..memory.sums.len()).filter(|&to| to != self.active);
            let gaining = others.filter(|&to| short.gain(self.active, to).0 > 0.0);
            let changes = gaining.filter_map(|to| memory.change(self.active, to, &self.limits));
            changes.min_by(|a, b| a.cost_to.total_cmp(&b.cost_to))
        };
        self.memories.iter().find_map(best)
    }
}
