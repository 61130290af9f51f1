//! I/O-Cache and Longest beside a plain model of their text (004, section 3.3), event by event.

use crate::slow_runs::SlowRuns;
use entresol_core::{Movement, Op, Outcome, Page, Request, Tier, Verb};
use entresol_policy::check::{self, Layout};
use entresol_policy::{Config, Options, Policy, run};

/// Three objects, so that pages with consecutive handles are not always neighbours.
const LAYOUT: Layout = Layout { pages: 60, object_pages: 20 };

struct Model {
    limit: usize,
    /// `None`: Longest.
    threshold: Option<usize>,
    literal: bool,
    max_dirty_us: Option<u64>,
    /// Most recent last. With each dirty page the time at which it became dirty.
    clean: Vec<u32>,
    dirty: Vec<(u32, u64)>,
    clean_ghost: Vec<u32>,
    dirty_ghost: Vec<u32>,
    p: i64,
    runs: SlowRuns,
    group_writes: u64,
    out: Vec<Movement>,
}

impl Model {
    fn new(limit: usize, threshold: Option<usize>, literal: bool, max_dirty_seconds: u64) -> Self {
        Model {
            limit,
            threshold,
            literal,
            max_dirty_us: (max_dirty_seconds > 0).then_some(max_dirty_seconds * 1_000_000),
            clean: vec![],
            dirty: vec![],
            clean_ghost: vec![],
            dirty_ghost: vec![],
            p: 0,
            runs: SlowRuns::default(),
            group_writes: 0,
            out: vec![],
        }
    }

    fn emit(&mut self, page: u32, verb: Verb, joined: bool) {
        self.out.push(Movement { page: Page(page), verb, joined });
    }

    fn find_runs(&mut self) {
        self.runs.update(self.dirty.iter().map(|d| d.0), LAYOUT.object_pages);
    }

    fn access(&mut self, request: Request, now_us: u64) -> (Outcome, Vec<Movement>) {
        let (page, writes) = (request.page.0, request.op.is_write());
        self.out.clear();
        self.timer(now_us);
        let dirty_since = self.dirty.iter().find(|d| d.0 == page).map(|d| d.1);
        if dirty_since.is_some() || self.clean.contains(&page) {
            self.dirty.retain(|d| d.0 != page);
            self.clean.retain(|&p| p != page);
            if writes || dirty_since.is_some() {
                self.dirty.push((page, dirty_since.unwrap_or(now_us)));
            } else {
                self.clean.push(page);
            }
            self.find_runs();
            if writes {
                self.emit(page, Verb::Install { to: Tier::TOP }, false);
            }
            return (Outcome::Hit(Tier::TOP), self.out.clone());
        }
        let (in_co, in_do) = (self.clean_ghost.contains(&page), self.dirty_ghost.contains(&page));
        let (co, d_o) = (self.clean_ghost.len() as i64, self.dirty_ghost.len() as i64);
        let limit = self.limit as i64;
        if in_co {
            self.p = (self.p + 1).min(limit);
        } else if in_do {
            self.p = if co < d_o { self.p - 2 } else { self.p - 2 * co / d_o }.max(0);
        }
        if self.clean.len() + self.dirty.len() == self.limit {
            if !in_co && !in_do {
                self.equalise();
            }
            self.evict(in_do);
        }
        self.clean_ghost.retain(|&p| p != page);
        self.dirty_ghost.retain(|&p| p != page);
        if writes {
            self.emit(page, Verb::Install { to: Tier::TOP }, false);
            self.dirty.push((page, now_us));
        } else {
            self.emit(page, Verb::Fetch { to: Tier::TOP }, false);
            self.clean.push(page);
        }
        self.find_runs();
        let entries = self.clean.len() + self.dirty.len() + self.clean_ghost.len() + self.dirty_ghost.len();
        assert!(entries <= 2 * self.limit, "{entries} entries");
        (Outcome::ADMITTED, self.out.clone())
    }

    fn timer(&mut self, now_us: u64) {
        let Some(limit) = self.max_dirty_us else { return };
        while let Some(&(page, _)) = self.dirty.iter().filter(|d| now_us - d.1 >= limit).min_by_key(|d| d.1) {
            self.emit(page, Verb::WriteBack { from: Tier::TOP }, false);
            self.dirty.retain(|d| d.0 != page);
            self.clean.insert(0, page);
            self.find_runs();
        }
    }

    /// "Both real and ghost cache misses": a ghost leaves first.
    fn equalise(&mut self) {
        let c = self.clean.len() + self.clean_ghost.len();
        let d = self.dirty.len() + self.dirty_ghost.len();
        let used_up = c + d == 2 * self.limit;
        if c > self.limit {
            self.clean_ghost.remove(0);
        } else if (used_up || self.literal) && !self.dirty_ghost.is_empty() {
            self.dirty_ghost.remove(0);
        } else if used_up {
            self.clean_ghost.remove(0);
        }
    }

    fn evict(&mut self, in_do: bool) {
        let c = self.clean.len() as i64;
        let wanted_clean = if self.literal { in_do && c >= self.p } else { c > self.p || (in_do && c == self.p) };
        if (wanted_clean && c > 0) || self.dirty.is_empty() {
            let victim = self.clean.remove(0);
            self.emit(victim, Verb::Drop { from: Tier::TOP }, false);
            self.clean_ghost.push(victim);
            return;
        }
        let run = self.runs.longest();
        let victim = if self.threshold.is_none_or(|threshold| run.len() > threshold) {
            self.group_writes += u64::from(run.len() > 1);
            for (i, &page) in run.iter().enumerate() {
                self.emit(page, Verb::WriteBack { from: Tier::TOP }, i > 0);
                self.dirty.retain(|d| d.0 != page);
            }
            for &page in &run[1..] {
                self.clean.insert(0, page);
            }
            run[0]
        } else {
            let (victim, _) = self.dirty.remove(0);
            self.emit(victim, Verb::WriteBack { from: Tier::TOP }, false);
            victim
        };
        self.emit(victim, Verb::Drop { from: Tier::TOP }, false);
        self.dirty_ghost.push(victim);
        self.find_runs();
    }
}

fn compare<P: Policy>(text: &[&str], model: impl Fn(usize) -> Model) -> u64 {
    let mut group_writes = 0;
    for seed in 0..12 {
        for capacity in [1, 2, 3, 8, 20, 40, 59] {
            println!("{} {text:?}, seed {seed}, capacity {capacity}", P::INFO.name);
            let config = Config { objects: 3, ..Config::single(60, capacity) };
            let options = Options::parse(&P::INFO, text.iter().copied()).unwrap();
            let mut policy = P::new(&config, &options).unwrap();
            let mut model = model(capacity);
            let requests = check::workload(seed, LAYOUT, 2_000);
            check::run_beside(&mut policy, LAYOUT, &config, &requests, |request, _, now| model.access(request, now));
            let mut gauges = vec![];
            policy.gauges(&mut |_, value| gauges.push(value as usize));
            let lengths = [model.clean.len(), model.dirty.len(), model.clean_ghost.len(), model.dirty_ghost.len()];
            assert_eq!(gauges[0], model.p as usize);
            assert_eq!(gauges[1..5], lengths);
            assert_eq!(gauges[5], model.runs.longest().len());
            group_writes += model.group_writes;
        }
    }
    group_writes
}

#[test]
fn io_cache_does_what_its_model_does() {
    let (mut first, mut last) = (None, 0);
    for threshold in [0, 1, 2, 3, 10] {
        for variant in ["errata", "literal"] {
            let text = [format!("threshold={threshold}"), format!("variant={variant}")];
            let text: Vec<&str> = text.iter().map(String::as_str).collect();
            let model = |capacity| Model::new(capacity, Some(threshold), variant == "literal", 0);
            let group_writes = compare::<run::IoCache>(&text, model);
            println!("threshold {threshold}: {group_writes} group writes");
            if variant == "errata" {
                assert!(group_writes > 0, "threshold {threshold}: no group write at all");
                first.get_or_insert(group_writes);
                last = group_writes;
            }
        }
    }
    assert!(first > Some(last), "a threshold of 10 allows as many group writes as none");
}

#[test]
fn longest_does_what_its_model_does() {
    compare::<run::Longest>(&[], |capacity| Model::new(capacity, None, false, 0));
    compare::<run::Longest>(&["variant=literal"], |capacity| Model::new(capacity, None, true, 0));
}

#[test]
fn a_page_is_not_dirty_for_longer_than_allowed() {
    for seconds in [1, 4, 20] {
        let text = format!("max-dirty-seconds={seconds}");
        compare::<run::IoCache>(&[&text, "threshold=3"], |capacity| Model::new(capacity, Some(3), false, seconds));
        compare::<run::Longest>(&[&text], |capacity| Model::new(capacity, None, false, seconds));
    }
}

#[test]
fn a_run_of_eleven_is_written_in_one_io_and_one_of_ten_is_not() {
    for (length, expected) in [(10, 1), (11, 11)] {
        let config = Config::single(60, length + 5);
        let mut policy = run::IoCache::new(&config, &Options::defaults(&run::IoCache::INFO)).unwrap();
        let mut checker = check::Checker::new(LAYOUT, &config.tiers, check::Refusals::NONE);
        let mut request = |page: usize, op| {
            checker.request(&mut policy, Request { page: Page(page as u32), op, sequential: false }, 0);
            let written = checker.movements.iter().filter(|m| matches!(m.verb, Verb::WriteBack { .. }));
            (written.clone().count(), written.filter(|m| !m.joined).count())
        };
        // The run, then single dirty pages that fill the cache and one more.
        for page in (0..length).rev().chain((0..5).map(|i| 42 + 2 * i)) {
            request(page, Op::Write);
        }
        assert_eq!(request(54, Op::Write), (expected, 1), "a run of {length}");
    }
}

#[test]
fn group_writes_pass_over_pinned_pages() {
    for (seed, percent) in [(1, 10), (2, 50), (3, 90)] {
        for capacity in [2, 8, 20, 40] {
            println!("seed {seed}, {percent} % refused, capacity {capacity}");
            let config = Config { objects: 3, ..Config::single(60, capacity) };
            let options = Options::parse(&run::IoCache::INFO, ["threshold=1", "max-dirty-seconds=30"]).unwrap();
            let mut policy = run::IoCache::new(&config, &options).unwrap();
            let requests = check::workload(seed, LAYOUT, 4_000);
            let mut checker = check::Checker::new(LAYOUT, &config.tiers, check::Refusals { percent, seed });
            let mut lowest_stayed = 0;
            for request in requests {
                checker.request(&mut policy, request, 0);
                let written = checker.movements.iter().filter(|m| matches!(m.verb, Verb::WriteBack { .. }));
                let group = written.clone().any(|m| m.joined);
                let dropped = checker.movements.iter().find(|m| matches!(m.verb, Verb::Drop { .. }));
                let mut leaders = written.filter(|m| !m.joined);
                let led = leaders.any(|m| dropped.is_some_and(|d| d.page == m.page));
                lowest_stayed += u64::from(group && !led);
                checker.verify_all(&policy);
            }
            assert!(lowest_stayed > 0 || capacity < 20, "no run whose lowest page was pinned");
        }
    }
}
