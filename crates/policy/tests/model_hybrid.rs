//! Hibachi, Hybrid-LRU and Hybrid-ARC beside plain models of their text (004, sections 4.4 and 4.5.1), event by event.

use crate::slow_runs::SlowRuns;
use entresol_core::{Movement, Outcome, Page, Request, Tier, Verb};
use entresol_policy::check::{self, Layout};
use entresol_policy::{Config, Options, Policy, hybrid};

const LAYOUT: Layout = Layout { pages: 60, object_pages: 20 };
const DRAM: Tier = Tier::TOP;
const NVRAM: Tier = Tier::SECOND;

fn single(page: u32, verb: Verb) -> Movement {
    Movement { page: Page(page), verb, joined: false }
}

fn forget(list: &mut Vec<u32>, page: u32) {
    list.retain(|&p| p != page);
}

/// Both caches as vectors, the most recent page last.
#[derive(Default)]
struct HybridLru {
    limits: [usize; 2],
    lists: [Vec<u32>; 2],
}

impl HybridLru {
    fn access(&mut self, request: Request) -> (Outcome, Vec<Movement>) {
        let (page, writes) = (request.page.0, request.op.is_write());
        let mut out = vec![];
        let was = (0..2).find(|&t| self.lists[t].contains(&page));
        let to = if writes || was == Some(1) { 1 } else { 0 };
        let tier = Tier(to as u8);
        if was == Some(to) {
            forget(&mut self.lists[to], page);
        } else if self.lists[to].len() == self.limits[to] {
            let victim = self.lists[to].remove(0);
            if to == 1 {
                out.push(single(victim, Verb::WriteBack { from: tier }));
            }
            out.push(single(victim, Verb::Drop { from: tier }));
        }
        if writes {
            out.push(single(page, Verb::Install { to: tier }));
        } else if was.is_none() {
            out.push(single(page, Verb::Fetch { to: tier }));
        }
        if was == Some(0) && to == 1 {
            out.push(single(page, Verb::Drop { from: DRAM }));
            forget(&mut self.lists[0], page);
        }
        self.lists[to].push(page);
        (was.map_or(Outcome::ADMITTED, |t| Outcome::Hit(Tier(t as u8))), out)
    }
}

/// Settings of what Hibachi adds to a divided cache: long runs and aging. `None` for Hybrid-ARC.
struct Reaction {
    threshold: usize,
    aging: f64,
}

/// Hibachi, or without its reaction and transformation Hybrid-ARC.
struct Divided {
    dram: usize,
    nvram: usize,
    hibachi: Option<Reaction>,
    /// Clean pages with their frequency in the order of eviction.
    clean: Vec<(u32, u32)>,
    /// Clean pages by memory: those in DRAM, then the borrowers in NVRAM, the most recently used last.
    in_dram: Vec<u32>,
    borrowers: Vec<u32>,
    /// Dirty pages with their frequency, the most recent last.
    dirty: Vec<(u32, u32)>,
    clean_ghost: Vec<u32>,
    dirty_ghost: Vec<u32>,
    desired: f64,
    runs: SlowRuns,
    out: Vec<Movement>,
    /// Counts: group writes, dirty pages that stayed for their reads, halvings, moves of borrowers.
    events: [u64; 4],
}

impl Divided {
    fn new(dram: usize, nvram: usize, hibachi: Option<Reaction>) -> Self {
        Divided {
            dram,
            nvram,
            hibachi,
            clean: vec![],
            in_dram: vec![],
            borrowers: vec![],
            dirty: vec![],
            clean_ghost: vec![],
            dirty_ghost: vec![],
            desired: dram as f64,
            runs: SlowRuns::default(),
            out: vec![],
            events: [0; 4],
        }
    }

    fn emit(&mut self, page: u32, verb: Verb) {
        self.out.push(single(page, verb));
    }

    fn find_runs(&mut self) {
        self.runs.update(self.dirty.iter().map(|d| d.0), LAYOUT.object_pages);
    }

    fn nvram_used(&self) -> usize {
        self.borrowers.len() + self.dirty.len()
    }

    /// Inserts a page behind all of this frequency or a lower one; LRU order where frequency does not count.
    fn clean_insert(&mut self, page: u32, frequency: u32) {
        let frequency = if self.hibachi.is_some() { frequency } else { 0 };
        let at = self.clean.iter().position(|c| c.1 > frequency).unwrap_or(self.clean.len());
        self.clean.insert(at, (page, frequency));
    }

    fn clean_remove(&mut self, page: u32) -> u32 {
        let at = self.clean.iter().position(|c| c.0 == page).unwrap();
        self.clean.remove(at).1
    }

    fn access(&mut self, request: Request) -> (Outcome, Vec<Movement>) {
        self.out.clear();
        let outcome = self.decide(request);
        if let Some(Reaction { aging, .. }) = self.hibachi {
            let sum: u32 = self.clean.iter().map(|c| c.1).sum();
            if f64::from(sum) > aging * self.clean.len() as f64 {
                self.clean.iter_mut().for_each(|c| c.1 /= 2);
                self.dirty.iter_mut().for_each(|d| d.1 /= 2);
                self.events[2] += 1;
            }
        }
        let real = self.clean.len() + self.dirty.len();
        assert!(real + self.clean_ghost.len() + self.dirty_ghost.len() <= 2 * (self.dram + self.nvram));
        (outcome, self.out.clone())
    }

    fn decide(&mut self, request: Request) -> Outcome {
        let (page, writes) = (request.page.0, request.op.is_write());
        if let Some(at) = self.dirty.iter().position(|d| d.0 == page) {
            let (_, frequency) = self.dirty[at];
            if writes || self.hibachi.is_none() {
                self.dirty.remove(at);
                self.dirty.push((page, frequency));
            } else {
                self.dirty[at].1 += 1;
            }
            if writes {
                self.emit(page, Verb::Install { to: NVRAM });
            }
            return Outcome::Hit(NVRAM);
        }
        let (in_dram, borrows) = (self.in_dram.contains(&page), self.borrowers.contains(&page));
        if in_dram || borrows {
            let tier = if in_dram { DRAM } else { NVRAM };
            let frequency = self.clean_remove(page);
            if !writes {
                self.clean_insert(page, frequency + 1);
                if borrows {
                    forget(&mut self.borrowers, page);
                    self.borrowers.push(page);
                }
                return Outcome::Hit(tier);
            }
            if in_dram {
                self.room_in_nvram(false);
                self.emit(page, Verb::Install { to: NVRAM });
                self.emit(page, Verb::Drop { from: DRAM });
                forget(&mut self.in_dram, page);
            } else {
                self.emit(page, Verb::Install { to: NVRAM });
                forget(&mut self.borrowers, page);
            }
            self.dirty.push((page, frequency));
            self.find_runs();
            return Outcome::Hit(tier);
        }
        let (in_co, in_do) = (self.clean_ghost.contains(&page), self.dirty_ghost.contains(&page));
        self.adjust(in_co, in_do);
        if !in_co && !in_do {
            self.equalise();
        }
        if writes {
            self.room_in_nvram(in_do);
        } else if self.in_dram.len() == self.dram && self.nvram_used() == self.nvram {
            self.evict(in_do);
        }
        forget(&mut self.clean_ghost, page);
        forget(&mut self.dirty_ghost, page);
        if writes {
            self.emit(page, Verb::Install { to: NVRAM });
            self.dirty.push((page, 0));
            self.find_runs();
        } else {
            let to_dram = self.in_dram.len() < self.dram;
            self.emit(page, Verb::Fetch { to: if to_dram { DRAM } else { NVRAM } });
            (if to_dram { &mut self.in_dram } else { &mut self.borrowers }).push(page);
            self.clean_insert(page, 1);
        }
        Outcome::ADMITTED
    }

    fn adjust(&mut self, in_co: bool, in_do: bool) {
        let (co, d_o) = (self.clean_ghost.len(), self.dirty_ghost.len());
        let (least, most) = (self.dram as f64, (self.dram + self.nvram) as f64);
        let (up, down) = match self.hibachi {
            Some(_) => (1.0, if co < d_o { 2.0 } else { (2 * co / d_o.max(1)) as f64 }),
            None => (f64::max(1.0, d_o as f64 / co as f64), f64::max(1.0, co as f64 / d_o as f64)),
        };
        if in_co {
            self.desired = f64::min(self.desired + up, most);
        }
        if in_do {
            self.desired = f64::max(self.desired - down, least);
        }
    }

    fn equalise(&mut self) {
        let total = self.dram + self.nvram;
        let c = self.clean.len() + self.clean_ghost.len();
        let d = self.dirty.len() + self.dirty_ghost.len();
        if c > total {
            self.clean_ghost.remove(0);
        } else if c + d == 2 * total {
            (if self.dirty_ghost.is_empty() { &mut self.clean_ghost } else { &mut self.dirty_ghost }).remove(0);
        }
    }

    fn wants_clean_victim(&self, in_do: bool) -> bool {
        let c = self.clean.len() as f64;
        !self.clean.is_empty() && (c > self.desired || (c == self.desired && in_do))
    }

    /// Both memories are full.
    fn evict(&mut self, in_do: bool) {
        if self.wants_clean_victim(in_do) || self.dirty.is_empty() {
            self.evict_clean();
        } else {
            self.evict_dirty();
        }
    }

    fn evict_clean(&mut self) -> Tier {
        let (victim, _) = self.clean.remove(0);
        let tier = if self.in_dram.contains(&victim) { DRAM } else { NVRAM };
        forget(&mut self.in_dram, victim);
        forget(&mut self.borrowers, victim);
        self.emit(victim, Verb::Drop { from: tier });
        self.clean_ghost.push(victim);
        tier
    }

    /// Writes a run; its pages become borrowers, the first of them behind all other borrowers and so on.
    fn group_write(&mut self, run: &[u32]) {
        self.events[0] += u64::from(run.len() > 1);
        for (i, &page) in run.iter().enumerate() {
            self.out.push(Movement { page: Page(page), verb: Verb::WriteBack { from: NVRAM }, joined: i > 0 });
            let at = self.dirty.iter().position(|d| d.0 == page).unwrap();
            let (_, frequency) = self.dirty.remove(at);
            let front = self.clean.iter().position(|c| c.1 >= frequency).unwrap_or(self.clean.len());
            self.clean.insert(front, (page, frequency));
            self.borrowers.insert(0, page);
        }
        self.find_runs();
    }

    fn long_run(&self) -> Option<Vec<u32>> {
        let run = self.runs.longest();
        self.hibachi.as_ref().is_some_and(|h| run.len() > h.threshold).then_some(run)
    }

    fn frequency_of_dirty(&self, page: u32) -> u32 {
        self.dirty.iter().find(|d| d.0 == page).unwrap().1
    }

    fn evict_dirty(&mut self) {
        if let Some(run) = self.long_run() {
            let victim = *run.iter().min_by_key(|&&page| (self.frequency_of_dirty(page), page)).unwrap();
            self.group_write(&run);
            self.clean_remove(victim);
            forget(&mut self.borrowers, victim);
            self.emit(victim, Verb::Drop { from: NVRAM });
            self.dirty_ghost.push(victim);
            return;
        }
        let (victim, frequency) = self.dirty.remove(0);
        self.find_runs();
        self.emit(victim, Verb::WriteBack { from: NVRAM });
        let stays = self.hibachi.is_some() && self.clean.first().is_some_and(|least| frequency > least.1);
        if stays {
            self.events[1] += 1;
            match self.evict_clean() {
                DRAM => self.move_to_dram(victim),
                _ => self.borrowers.push(victim),
            }
            self.clean_insert(victim, frequency);
        } else {
            self.emit(victim, Verb::Drop { from: NVRAM });
            self.dirty_ghost.push(victim);
        }
    }

    fn move_to_dram(&mut self, page: u32) {
        self.emit(page, Verb::Copy { from: NVRAM, to: DRAM });
        self.emit(page, Verb::Drop { from: NVRAM });
        self.in_dram.push(page);
    }

    fn room_in_nvram(&mut self, in_do: bool) {
        if self.nvram_used() == self.nvram && self.in_dram.len() == self.dram {
            if self.wants_clean_victim(in_do) && !self.borrowers.is_empty() || self.dirty.is_empty() {
                self.evict_clean();
            } else {
                self.evict_dirty();
            }
        }
        if self.nvram_used() < self.nvram {
            return;
        }
        if self.borrowers.is_empty() {
            if self.hibachi.is_none() {
                return self.evict_dirty();
            }
            if let Some(run) = self.long_run() {
                self.group_write(&run);
            } else {
                let (page, frequency) = self.dirty.remove(0);
                self.find_runs();
                self.emit(page, Verb::WriteBack { from: NVRAM });
                self.move_to_dram(page);
                self.clean_insert(page, frequency);
                return;
            }
        }
        self.events[3] += 1;
        let borrower = self.borrowers.pop().unwrap();
        self.move_to_dram(borrower);
    }
}

/// Runs a policy beside a model over several seeds and sizes.
fn compare<P: Policy, M>(
    text: &[&str],
    model: impl Fn(usize, usize) -> M,
    access: impl Fn(&mut M, Request) -> (Outcome, Vec<Movement>),
    mut check_end: impl FnMut(&P, &M),
) {
    for seed in 0..12 {
        for (dram, nvram) in [(1, 1), (1, 2), (2, 1), (3, 3), (5, 12), (12, 5), (10, 10), (20, 20), (1, 30), (30, 8)] {
            println!("{} {text:?}, seed {seed}, dram {dram}, nvram {nvram}", P::INFO.name);
            let config = Config { objects: 3, ..Config::two_tiers(60, dram, nvram) };
            let options = Options::parse(&P::INFO, text.iter().copied()).unwrap();
            let mut policy = P::new(&config, &options).unwrap();
            let mut model = model(dram, nvram);
            let requests = check::workload(seed, LAYOUT, 2_000);
            check::run_beside(&mut policy, LAYOUT, &config, &requests, |request, _, _| access(&mut model, request));
            check_end(&policy, &model);
        }
    }
}

fn same_sizes<P: Policy>(policy: &P, model: &Divided) {
    let mut gauges = vec![];
    policy.gauges(&mut |_, value| gauges.push(value));
    let lists = [model.in_dram.len(), model.borrowers.len(), model.dirty.len()];
    let ghosts = [model.clean_ghost.len(), model.dirty_ghost.len()];
    let lengths: Vec<f64> = lists.into_iter().chain(ghosts).map(|length| length as f64).collect();
    assert_eq!(gauges[0], model.desired);
    assert_eq!(gauges[1..6], lengths);
}

#[test]
fn hybrid_lru_does_what_its_model_does() {
    let model = |dram, nvram| HybridLru { limits: [dram, nvram], ..HybridLru::default() };
    compare::<hybrid::HybridLru, _>(&[], model, HybridLru::access, |_, _| {});
}

#[test]
fn hybrid_arc_does_what_its_model_does() {
    let mut moves = 0;
    let model = |dram, nvram| Divided::new(dram, nvram, None);
    compare::<hybrid::HybridArc, _>(&[], model, Divided::access, |policy, model| {
        same_sizes(policy, model);
        moves += model.events[3];
    });
    assert!(moves > 0, "no borrower ever moved");
}

#[test]
fn hibachi_does_what_its_model_does() {
    for (threshold, aging) in [(10, 5.5), (3, 5.5), (2, 1.5), (1, 3.0), (0, 5.5)] {
        let mut events = [0; 4];
        let text = [format!("threshold={threshold}"), format!("aging={aging}")];
        let text: Vec<&str> = text.iter().map(String::as_str).collect();
        let model = |dram, nvram| Divided::new(dram, nvram, Some(Reaction { threshold, aging }));
        compare::<hybrid::Hibachi, _>(&text, model, Divided::access, |policy, model| {
            same_sizes(policy, model);
            events.iter_mut().zip(model.events).for_each(|(sum, count)| *sum += count);
        });
        println!("threshold {threshold}: group writes, pages that stayed, halvings, moves: {events:?}");
        // With a threshold of 0 every dirty victim goes with its run, so none is left to stay for its reads.
        let expected = [true, threshold > 0, true, true];
        assert_eq!(events.map(|count| count > 0), expected, "threshold {threshold}: {events:?}");
    }
}

#[test]
fn pinned_pages_stay_and_no_write_is_lost() {
    for (seed, percent) in [(1, 10), (2, 50), (3, 90)] {
        for (dram, nvram) in [(1, 1), (3, 3), (5, 12), (12, 5), (20, 20)] {
            println!("seed {seed}, {percent} % refused, dram {dram}, nvram {nvram}");
            let config = Config { objects: 3, ..Config::two_tiers(60, dram, nvram) };
            let requests = check::workload(seed, LAYOUT, 4_000);
            let refusals = check::Refusals { percent, seed };
            let options = Options::parse(&hybrid::Hibachi::INFO, ["threshold=1", "aging=2"]).unwrap();
            let mut hibachi = hybrid::Hibachi::new(&config, &options).unwrap();
            let mut arc = hybrid::HybridArc::new(&config, &Options::defaults(&hybrid::HybridArc::INFO)).unwrap();
            let mut lru = hybrid::HybridLru::new(&config, &Options::defaults(&hybrid::HybridLru::INFO)).unwrap();
            let hits = [
                check::run(&mut hibachi, LAYOUT, &config, &requests, refusals),
                check::run(&mut arc, LAYOUT, &config, &requests, refusals),
                check::run(&mut lru, LAYOUT, &config, &requests, refusals),
            ];
            assert!(hits.iter().all(|&hits| hits > 0), "{hits:?}");
        }
    }
}
