//! The decision to change the active candidate: the arithmetic, without any policy.
//!
//! The chooser receives each sampled request with its cost to every candidate. Sums over requests fade after every
//! window: in a short memory to a half, in a long one to 15/16. So a large difference is seen soon, and a small one
//! with certainty. In a memory, `C_i` is the decayed cost of candidate `i` and `N` the decayed number of sampled
//! requests. `c_i = C_i / N` is the predicted cost of a request under candidate `i`. `g = c_active - c_i` is the gain
//! per request of a change to `i`. The change is worth making if, at the end of a window,
//!
//! 1. `g >= gain * c_active`: a small gain is not worth the trouble,
//! 2. `g >= payback`: the cost of the change divided by the requests within which it must have paid for itself,
//! 3. `g > errors * s`: the gain is not by chance. `s` is the standard error of `g` by random groups (Wolter,
//!    "Introduction to Variance Estimation", 2007, chapter 2):
//!    `s = sqrt(P / (P - 1) * sum (d_p - g n_p)^2) / N`. The sampled pages are in [`PARTS`] parts by their hash, `d_p`
//!    is the gain of the pages of a part and `n_p` the number of requests for them. Requests for one page are
//!    correlated, pages of different parts are not; so pages are counted, not requests.
//!
//! and the active candidate has stayed `stay` windows, the first one `first`. Of several candidates the one with the
//! least cost is taken. The short memory is asked first. The long one counts only for candidates that gain in the
//! short one too, because the past that it remembers may be over. So there is at most one change in `stay` windows,
//! whatever the requests.

pub use entresol_core::PARTS;

/// Share of the past that each memory keeps at the end of a window: the short one, then the long one.
pub const KEPT: [f64; 2] = [0.5, 0.9375];

/// Conditions of a change.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Sampled requests between two decisions.
    pub window: u64,
    /// Windows before the first change. An empty cache, and shadows that have learned nothing yet, show little of how
    /// the candidates will do.
    pub first: u64,
    /// Fewest windows that a candidate stays active after a change.
    pub stay: u64,
    /// Smallest gain, as a share of the cost of a request.
    pub gain: f64,
    /// Smallest gain per request, in the unit of cost.
    pub payback: f64,
    /// Smallest gain, in standard errors of it.
    pub errors: f64,
}

/// Outcome of a sampled request for one candidate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Met {
    /// Cost of the request to the candidate.
    pub cost: f64,
    /// True if the page was found.
    pub hit: bool,
}

/// A change that is worth making.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Index of the candidate that was active.
    pub from: usize,
    /// Index of the candidate to be active.
    pub to: usize,
    /// Predicted cost of a request under `from`.
    pub cost_from: f64,
    /// Predicted cost of a request under `to`.
    pub cost_to: f64,
    /// Standard error of the difference of the costs.
    pub error: f64,
    /// Sampled requests behind the decision, older ones counting less.
    pub sampled: u64,
}

#[derive(Clone, Debug)]
struct Sums {
    costs: [f64; PARTS],
    hits: f64,
}

/// Costs, hits and numbers of requests of all candidates, by part; all fade after every window.
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

    /// Returns the gain per request of a change, and its standard error.
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

/// Compares candidates by their costs of the same requests.
#[derive(Clone, Debug)]
pub struct Chooser {
    limits: Limits,
    active: usize,
    memories: [Memory; 2],
    /// Requests in this window so far.
    window: u64,
    /// Fewest windows that the active candidate still stays.
    staying: u64,
}

impl Chooser {
    /// A chooser for `candidates` candidates, of which the first is active.
    pub fn new(candidates: usize, limits: Limits) -> Self {
        let sums = vec![Sums { costs: [0.0; PARTS], hits: 0.0 }; candidates];
        let memories = KEPT.map(|kept| Memory { sums: sums.clone(), requests: [0.0; PARTS], kept });
        Chooser { limits, active: 0, memories, window: 0, staying: limits.first }
    }

    /// The candidate that is active.
    pub fn active(&self) -> usize {
        self.active
    }

    /// Sampled requests in the short memory, older ones counting less.
    pub fn sampled(&self) -> f64 {
        self.memories[0].sampled()
    }

    /// Recent cost of a request to a candidate; NaN before the first request.
    pub fn cost(&self, candidate: usize) -> f64 {
        self.memories[0].cost(candidate)
    }

    /// Recent hit ratio of a candidate; NaN before the first request.
    pub fn hit_ratio(&self, candidate: usize) -> f64 {
        self.memories[0].sums[candidate].hits / self.sampled()
    }

    /// Records a sampled request for a page of `part`: its outcome for each candidate. Returns a change at the end of a
    /// window if one is worth making and `free` allows it.
    ///
    /// # Panics
    /// When `met` does not have every candidate.
    pub fn told(&mut self, part: usize, met: &[Met], free: bool) -> Option<Change> {
        assert_eq!(met.len(), self.memories[0].sums.len(), "every candidate meets every sampled request");
        self.memories.iter_mut().for_each(|memory| memory.add(part, met));
        self.window += 1;
        if self.window < self.limits.window {
            return None;
        }
        self.window = 0;
        self.staying = self.staying.saturating_sub(1);
        let change = if free && self.staying == 0 { self.best_change() } else { None };
        if let Some(change) = change {
            self.active = change.to;
            self.staying = self.limits.stay;
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
