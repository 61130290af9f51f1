//! H-ARC beside a plain model of its text (004, section 2.4.1), event by event.

use entresol_core::{Movement, Op, Outcome, Page, Request, Tier, Verb};
use entresol_policy::check::{self, Layout};
use entresol_policy::{Config, Options, Policy, dirty::HArc};

const LAYOUT: Layout = Layout::one_object(60);

fn single(page: Page, verb: Verb) -> Movement {
    Movement { page, verb, joined: false }
}

/// One side, dirty or clean; vectors with the most recent page last, index 0 for pages seen once, 1 for the others.
#[derive(Default)]
struct Side {
    real: [Vec<Page>; 2],
    ghost: [Vec<Page>; 2],
    share: f64,
}

impl Side {
    fn real_len(&self) -> usize {
        self.real[0].len() + self.real[1].len()
    }
    fn ghost_len(&self) -> usize {
        self.ghost[0].len() + self.ghost[1].len()
    }
    fn len(&self) -> usize {
        self.real_len() + self.ghost_len()
    }
    fn take_real(&mut self, page: Page) -> bool {
        let before = self.real_len();
        self.real.iter_mut().for_each(|list| list.retain(|&p| p != page));
        self.real_len() < before
    }
    fn ghost_of(&self, page: Page) -> Option<usize> {
        (0..2).find(|&i| self.ghost[i].contains(&page))
    }
    fn forget_oldest(&mut self, i: usize) {
        self.ghost[i].remove(0);
    }
}

struct Model {
    variant: &'static str,
    limit: usize,
    clean: Side,
    dirty: Side,
    p: f64,
    out: Vec<Movement>,
}

impl Model {
    fn new(variant: &'static str, limit: usize) -> Self {
        Model { variant, limit, clean: Side::default(), dirty: Side::default(), p: 0.0, out: vec![] }
    }

    fn access(&mut self, request: Request) -> (Outcome, Vec<Movement>) {
        let (page, writes) = (request.page, request.op.is_write());
        self.out.clear();
        if self.clean.take_real(page) {
            (if writes { &mut self.dirty } else { &mut self.clean }).real[1].push(page);
            if writes {
                self.out.push(single(page, Verb::Install { to: Tier::TOP }));
            }
            return (Outcome::Hit(Tier::TOP), self.out.clone());
        }
        if self.dirty.take_real(page) {
            self.dirty.real[1].push(page);
            if writes {
                self.out.push(single(page, Verb::Install { to: Tier::TOP }));
            }
            return (Outcome::Hit(Tier::TOP), self.out.clone());
        }
        let (c, d) = (self.clean.ghost_of(page), self.dirty.ghost_of(page));
        let full = self.clean.real_len() + self.dirty.real_len() == self.limit;
        if c.is_some() || d.is_some() {
            self.adjust(c, d);
            if full {
                self.eviction_and_balance(c, d);
            }
            for side in [&mut self.clean, &mut self.dirty] {
                side.ghost.iter_mut().for_each(|list| list.retain(|&p| p != page));
            }
        } else if full {
            self.reclaim();
        }
        let verb = if writes { Verb::Install { to: Tier::TOP } } else { Verb::Fetch { to: Tier::TOP } };
        self.out.push(single(page, verb));
        let seen = usize::from(c.is_some() || d.is_some());
        (if writes { &mut self.dirty } else { &mut self.clean }).real[seen].push(page);
        if self.variant == "author" && seen == 1 && self.clean.len() > self.limit {
            self.clean.forget_oldest(usize::from(self.clean.ghost[0].is_empty()));
        }
        assert!(self.clean.real_len() + self.dirty.real_len() <= self.limit);
        assert!(self.clean.len() + self.dirty.len() <= 2 * self.limit, "ghosts and residents exceed 2 L");
        (Outcome::ADMITTED, self.out.clone())
    }

    fn quotient(&self, a: usize, b: usize) -> f64 {
        let q = a as f64 / (if b == 0 { 1 } else { b }) as f64;
        if self.variant == "author" { q.floor() } else { q }
    }

    fn adjust(&mut self, c: Option<usize>, d: Option<usize>) {
        let limit = self.limit as f64;
        let (co, d_o) = (self.clean.ghost_len(), self.dirty.ghost_len());
        if c.is_some() {
            self.p = f64::min(self.p + 1.0, limit); // (2.7)
        } else if co < d_o {
            self.p = f64::max(self.p - 2.0, 0.0); // (2.8)
        } else {
            self.p = f64::max(self.p - f64::max(2.0, self.quotient(2 * co, d_o)), 0.0);
        }
        let (c1o, c2o) = (self.clean.ghost[0].len(), self.clean.ghost[1].len());
        let (d1o, d2o) = (self.dirty.ghost[0].len(), self.dirty.ghost[1].len());
        let nonzero = |x: f64| if x == 0.0 { 1.0 } else { x };
        let (p, rest) = (nonzero(self.p), nonzero(limit - self.p));
        if c == Some(0) {
            let step = match () {
                () if c2o < c1o => 1.0 / p,
                () if self.variant == "literal" => self.quotient(c1o, c2o) / p,
                () => self.quotient(c2o, c1o) / p,
            };
            self.clean.share = f64::min(self.clean.share + step, 1.0); // (2.9)
        } else if c == Some(1) {
            let step = if c1o < c2o { 1.0 / p } else { self.quotient(c1o, c2o) / p };
            self.clean.share = f64::max(self.clean.share - step, 0.0); // (2.10)
        } else if d == Some(0) {
            let step = if d2o < d1o { 1.0 / rest } else { self.quotient(d2o, d1o) / rest };
            self.dirty.share = f64::min(self.dirty.share + step, 1.0); // (2.11)
        } else {
            let step = if d1o < d2o { 1.0 / rest } else { self.quotient(d1o, d2o) / rest };
            self.dirty.share = f64::max(self.dirty.share - step, 0.0); // (2.12)
        }
    }

    /// Evicts the LRU page of one of the four resident lists.
    fn evict(&mut self, from_clean: bool, i: usize, leave_ghost: bool) {
        let side = if from_clean { &mut self.clean } else { &mut self.dirty };
        let victim = side.real[i].remove(0);
        if !from_clean {
            self.out.push(single(victim, Verb::WriteBack { from: Tier::TOP }));
        }
        self.out.push(single(victim, Verb::Drop { from: Tier::TOP }));
        if leave_ghost {
            side.ghost[i].push(victim);
        }
    }

    fn eviction_and_balance(&mut self, c: Option<usize>, d: Option<usize>) {
        let ci = self.clean.real_len() as f64;
        let mut from_clean = match self.variant {
            "literal" => ci >= self.p && d.is_some(),
            _ => ci > self.p || (ci == self.p && d.is_some()),
        };
        if (if from_clean { &self.clean } else { &self.dirty }).real_len() == 0 {
            from_clean = !from_clean;
        }
        let (side, in_ghost, desired) = match from_clean {
            true => (&self.clean, c, self.clean.share * self.p),
            false => (&self.dirty, d, self.dirty.share * (self.limit as f64 - self.p)),
        };
        let once = side.real[0].len() as f64;
        let from_once = match self.variant {
            "literal" => once > desired,
            "author" => once >= desired.floor(),
            _ => once > desired || (once == desired && in_ghost == Some(1)),
        };
        let mut i = usize::from(!from_once);
        if side.real[i].is_empty() {
            i = 1 - i;
        }
        self.evict(from_clean, i, true);
    }

    /// Case 3: neither in the caches nor in the ghosts.
    fn reclaim(&mut self) {
        let all = self.clean.len() + self.dirty.len();
        if self.variant == "author" {
            if self.clean.len() == self.limit {
                if self.clean.real_len() == self.limit {
                    return self.evict(true, usize::from(self.clean.real[0].is_empty()), false);
                }
                self.clean.forget_oldest(usize::from(self.clean.ghost[0].is_empty()));
            } else if all == 2 * self.limit {
                self.dirty.forget_oldest(usize::from(self.dirty.ghost[0].is_empty()));
            }
            return self.eviction_and_balance(None, None);
        }
        let from_clean = self.clean.len() > self.limit;
        if from_clean || all == 2 * self.limit {
            let side = if from_clean { &mut self.clean } else { &mut self.dirty };
            let half_exceeded = (side.real[0].len() + side.ghost[0].len()) as f64 > self.limit as f64 / 2.0;
            let i = usize::from(!half_exceeded);
            if side.ghost[i].is_empty() {
                return self.evict(from_clean, i, false);
            }
            side.forget_oldest(i);
        }
        self.eviction_and_balance(None, None);
    }
}

#[test]
fn h_arc_does_what_its_model_does() {
    for variant in ["errata", "literal", "author"] {
        for seed in 0..20 {
            for capacity in [1, 2, 3, 5, 10, 25, 59] {
                println!("variant {variant}, seed {seed}, capacity {capacity}");
                let config = Config::single(60, capacity);
                let text = format!("variant={variant}");
                let options = Options::parse(&HArc::INFO, [text.as_str()]).unwrap();
                let mut policy = HArc::new(&config, &options).unwrap();
                let mut model = Model::new(variant, capacity);
                let requests = check::workload(seed, LAYOUT, 2_000);
                check::run_beside(&mut policy, LAYOUT, &config, &requests, |request, _, _| model.access(request));
                let mut gauges = vec![];
                policy.gauges(&mut |_, value| gauges.push(value));
                assert_eq!(gauges[..3], [model.p, model.clean.share, model.dirty.share]);
            }
        }
    }
}

/// Clean pages may take the whole cache, and residents with their ghosts may not be more than that: none are left.
#[test]
fn reads_alone_leave_at_most_one_ghost() {
    for variant in ["errata", "literal", "author"] {
        let config = Config::single(60, 20);
        let text = format!("variant={variant}");
        let mut policy = HArc::new(&config, &Options::parse(&HArc::INFO, [text.as_str()]).unwrap()).unwrap();
        let mut checker = check::Checker::new(LAYOUT, &config.tiers, check::Refusals::NONE);
        for request in check::workload(7, LAYOUT, 5_000) {
            checker.request(&mut policy, Request { op: Op::Read, ..request }, 0);
            let mut ghosts = 0.0;
            policy.gauges(&mut |name, value| ghosts += if name.ends_with("ghosts") { value } else { 0.0 });
            assert!(ghosts <= 1.0, "{variant}: {ghosts}");
        }
    }
}

/// Misses and write-backs of a variant on one workload.
fn cost(variant: &str) -> (u64, u64) {
    let config = Config::single(60, 20);
    let text = format!("variant={variant}");
    let mut policy = HArc::new(&config, &Options::parse(&HArc::INFO, [text.as_str()]).unwrap()).unwrap();
    let mut checker = check::Checker::new(LAYOUT, &config.tiers, check::Refusals::NONE);
    let (mut misses, mut written) = (0, 0);
    for request in check::workload(7, LAYOUT, 5_000) {
        misses += u64::from(!checker.request(&mut policy, request, 0).is_hit());
        written += checker.movements.iter().filter(|m| matches!(m.verb, Verb::WriteBack { .. })).count() as u64;
    }
    (misses, written)
}

#[test]
fn the_literal_text_writes_more_and_the_author_differs() {
    let (errata, literal, author) = (cost("errata"), cost("literal"), cost("author"));
    println!("misses and write-backs: errata {errata:?}, literal {literal:?}, author {author:?}");
    assert!(literal.1 > errata.1, "evicting dirty pages on every plain miss must cost write-backs");
    assert_ne!(errata, author);
}
