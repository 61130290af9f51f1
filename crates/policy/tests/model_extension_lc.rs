//! A plain model of lazy cleaning, from Do et al. 2011, compared event by event. Versions stand in for dirty bits and
//! whole histories of uses for LRU-2's keys.

use entresol_core::{Movement, Op, Outcome, Page, Request, Tier, Verb};
use entresol_policy::check::{self, Layout};
use entresol_policy::extension::Lc;
use entresol_policy::{Config, Options, Policy};

const LAYOUT: Layout = Layout { pages: 60, object_pages: 20 };
const DRAM: Tier = Tier::TOP;
const FLASH: Tier = Tier::SECOND;

struct Model {
    dram_max: usize,
    flash_max: usize,
    dirty_max: usize,
    filled: usize,
    group: usize,
    clean_first: bool,
    /// LRU-2, else LRU.
    lru_2: bool,
    /// Least recently used first; whether the page came by read-ahead.
    dram: Vec<(Page, bool)>,
    /// Each page with the times of its uses in flash.
    flash: Vec<(Page, Vec<u64>)>,
    /// Pages whose version in the hierarchy is newer than disk.
    newer: Vec<bool>,
    now: u64,
    out: Vec<Movement>,
}

impl Model {
    fn emit(&mut self, page: Page, verb: Verb) {
        self.out.push(Movement { page, verb, joined: false });
    }

    fn at(&self, page: Page) -> Option<usize> {
        self.flash.iter().position(|(held, _)| *held == page)
    }

    fn dirty_in_flash(&self, page: Page) -> bool {
        self.at(page).is_some() && self.newer[page.index()]
    }

    fn use_in_flash(&mut self, page: Page) {
        self.now += 1;
        match self.at(page) {
            Some(at) => self.flash[at].1.push(self.now),
            None => self.flash.push((page, vec![self.now])),
        }
    }

    /// LRU-2: by the last use but one, those without before all others and among themselves by the only use. LRU: by
    /// the last use.
    fn coldest(&self, among: impl Fn(Page) -> bool) -> Option<Page> {
        let pages = self.flash.iter().filter(|(page, _)| among(*page));
        let rank = |uses: &[u64]| match uses {
            [.., last] if !self.lru_2 => (0, *last),
            [.., before, _] => (1, *before),
            [only] => (0, *only),
            [] => unreachable!("it was used when it entered"),
        };
        pages.min_by_key(|(_, uses)| rank(uses)).map(|(page, _)| *page)
    }

    fn space(&mut self, sequential: bool) -> bool {
        if sequential && self.flash.len() >= self.filled {
            return false;
        }
        if self.flash.len() < self.flash_max {
            return true;
        }
        let clean = self.coldest(|page| !self.newer[page.index()]);
        let victim = clean.filter(|_| self.clean_first).or(self.coldest(|_| true)).unwrap();
        if self.newer[victim.index()] {
            self.emit(victim, Verb::WriteBack { from: FLASH });
            self.newer[victim.index()] = false;
        }
        self.flash.retain(|(page, _)| *page != victim);
        self.emit(victim, Verb::Drop { from: FLASH });
        true
    }

    fn clean(&mut self) {
        while self.flash.iter().filter(|(page, _)| self.newer[page.index()]).count() > self.dirty_max {
            let coldest = self.coldest(|page| self.newer[page.index()]).unwrap();
            let mut run = vec![coldest];
            let extend = |run: &mut Vec<Page>, from: Page, step: i64| {
                let next = LAYOUT.neighbour(from, step).filter(|&page| self.dirty_in_flash(page));
                if let Some(next) = next.filter(|_| run.len() < self.group) {
                    run.push(next);
                    return Some(next);
                }
                None
            };
            for step in [1, -1] {
                let mut end = coldest;
                while let Some(next) = extend(&mut run, end, step) {
                    end = next;
                }
            }
            run.sort();
            for (i, page) in run.into_iter().enumerate() {
                self.out.push(Movement { page, verb: Verb::WriteBack { from: FLASH }, joined: i > 0 });
                self.newer[page.index()] = false;
            }
        }
    }

    fn leave_dram(&mut self) {
        let (page, scanned) = self.dram.remove(0);
        if self.at(page).is_none() {
            if self.space(scanned) {
                self.emit(page, Verb::Copy { from: DRAM, to: FLASH });
                self.use_in_flash(page);
            } else if self.newer[page.index()] {
                self.emit(page, Verb::WriteBack { from: DRAM });
                self.newer[page.index()] = false;
            }
        }
        self.emit(page, Verb::Drop { from: DRAM });
        self.clean();
    }

    fn access(&mut self, request: Request) -> (Outcome, Vec<Movement>) {
        let outcome = if self.dram_max == 0 { self.flash_only(request) } else { self.two_tiers(request) };
        (outcome, std::mem::take(&mut self.out))
    }

    fn two_tiers(&mut self, Request { page, op, sequential }: Request) -> Outcome {
        let held = self.dram.iter().position(|(held, _)| *held == page);
        let (outcome, scanned) = match held {
            Some(at) => (Outcome::Hit(DRAM), self.dram.remove(at).1),
            None => {
                if self.dram.len() == self.dram_max {
                    self.leave_dram();
                }
                match (self.at(page), op) {
                    (Some(_), Op::Write) => (Outcome::Hit(FLASH), false),
                    (Some(_), _) => {
                        self.emit(page, Verb::Copy { from: FLASH, to: DRAM });
                        self.use_in_flash(page);
                        (Outcome::Hit(FLASH), false)
                    }
                    (None, Op::Read) => {
                        self.emit(page, Verb::Fetch { to: DRAM });
                        (Outcome::ADMITTED, sequential)
                    }
                    (None, _) => (Outcome::ADMITTED, sequential),
                }
            }
        };
        self.dram.push((page, scanned));
        if op != Op::Read {
            if let Some(at) = self.at(page) {
                self.flash.remove(at);
                self.emit(page, Verb::Drop { from: FLASH });
            }
            self.emit(page, Verb::Install { to: DRAM });
            self.newer[page.index()] = true;
        }
        outcome
    }

    fn flash_only(&mut self, Request { page, op, sequential }: Request) -> Outcome {
        let held = self.at(page).is_some();
        if !held && !self.space(sequential) {
            self.emit(page, Verb::Bypass);
            return Outcome::BYPASSED;
        }
        if op != Op::Read {
            self.emit(page, Verb::Install { to: FLASH });
            self.newer[page.index()] = true;
        } else if !held {
            self.emit(page, Verb::Fetch { to: FLASH });
        }
        self.use_in_flash(page);
        self.clean();
        if held { Outcome::Hit(FLASH) } else { Outcome::ADMITTED }
    }
}

#[test]
fn lc_does_what_its_model_does_with_all_options() {
    for (dirty, fill, group, clean_first, lru_2) in [
        (50.0, 95.0, 32, true, true),
        (50.0, 95.0, 32, false, true),
        (0.0, 100.0, 3, true, true),
        (100.0, 0.0, 1, true, true),
        (100.0, 60.0, 4, false, true),
        (25.0, 95.0, 2, true, true),
        (12.5, 50.0, 5, false, true),
        (100.0, 95.0, 32, false, false),
        (25.0, 95.0, 2, true, false),
    ] {
        for (dram, flash) in [(0, 1), (0, 7), (0, 30), (1, 1), (2, 3), (5, 4), (4, 20), (12, 37), (25, 6)] {
            for seed in 0..6 {
                println!(
                    "dirty {dirty}, fill {fill}, group {group}, {clean_first}, {lru_2}, {dram} + {flash}, seed {seed}"
                );
                let config = Config { objects: 3, ..Config::two_tiers(60, dram, flash) };
                let given = [format!("dirty={dirty}"), format!("fill={fill}"), format!("group={group}")];
                let replace = if clean_first { "replace=clean-first" } else { "replace=coldest" };
                let order = if lru_2 { "order=lru-2" } else { "order=lru" };
                let given = given.iter().map(String::as_str).chain([replace, order]);
                let options = Options::parse(&Lc::INFO, given).unwrap();
                let mut policy = Lc::new(&config, &options).unwrap();
                let mut model = Model {
                    dram_max: dram,
                    flash_max: flash,
                    dirty_max: (flash as f64 * dirty / 100.0) as usize,
                    filled: (flash as f64 * fill / 100.0) as usize,
                    group,
                    clean_first,
                    lru_2,
                    dram: Vec::new(),
                    flash: Vec::new(),
                    newer: vec![false; 60],
                    now: 0,
                    out: Vec::new(),
                };
                let requests = check::workload(seed, LAYOUT, 1_500);
                check::run_beside(&mut policy, LAYOUT, &config, &requests, |request, _, _| model.access(request));
            }
        }
    }
}

/// Sequentially written pages of one object, cleaned in I/Os of 32 pages.
#[test]
fn neighbours_are_cleaned_in_one_io() {
    let layout = Layout::one_object(400);
    let config = Config::two_tiers(400, 0, 128);
    let mut policy = Lc::new(&config, &Options::defaults(&Lc::INFO)).unwrap();
    let mut checker = check::Checker::new(layout, &config.tiers, check::Refusals::NONE);
    let (mut ios, mut pages) = (0, 0);
    for page in 0..300 {
        checker.request(&mut policy, Request::write(page), 0);
        let written = checker.movements.iter().filter(|m| matches!(m.verb, Verb::WriteBack { .. }));
        ios += written.clone().filter(|m| !m.joined).count();
        pages += written.count();
    }
    assert!(ios > 3 && pages == 32 * ios, "{pages} pages in {ios} I/Os");
}
