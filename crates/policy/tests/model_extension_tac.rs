//! A plain model of TAC, from Canim et al. 2010, compared event by event. Temperatures are halved one by one.

use entresol_core::{Address, Movement, Op, Outcome, Page, Request, Tier, Verb};
use entresol_policy::check::{self, Layout};
use entresol_policy::extension::Tac;
use entresol_policy::{Config, Options, Policy};

const LAYOUT: Layout = Layout { pages: 60, object_pages: 20 };
const DRAM: Tier = Tier::TOP;
const FLASH: Tier = Tier::SECOND;

struct Model {
    dram_max: usize,
    flash_max: usize,
    extent_pages: u64,
    saved: [f64; 2],
    age: usize,
    reset: bool,
    extents_max: usize,
    /// Extents in the order in which they were met, each with its temperature.
    extents: Vec<((u32, u64), f64)>,
    hand: usize,
    accesses: usize,
    /// Least recently used first; whether it is newer than disk.
    dram: Vec<(Page, bool)>,
    /// Pages in flash in the order of arrival.
    flash: Vec<Page>,
    out: Vec<Movement>,
}

impl Model {
    fn emit(&mut self, page: Page, verb: Verb) {
        self.out.push(Movement { page, verb, joined: false });
    }

    fn key(&self, page: Page) -> (u32, u64) {
        let Address { object, block } = LAYOUT.address(page);
        (object.0, block / self.extent_pages)
    }

    fn slot(&self, page: Page) -> Option<usize> {
        self.extents.iter().position(|(key, _)| *key == self.key(page))
    }

    fn meet(&mut self, page: Page) -> usize {
        if let Some(slot) = self.slot(page) {
            return slot;
        }
        let fresh = (self.key(page), 0.0);
        if self.extents.len() < self.extents_max {
            self.extents.push(fresh);
            return self.extents.len() - 1;
        }
        loop {
            let at = self.hand;
            self.hand = (self.hand + 1) % self.extents_max;
            if !self.flash.iter().any(|&held| self.key(held) == self.extents[at].0) {
                self.extents[at] = fresh;
                return at;
            }
        }
    }

    fn warm(&mut self, Request { page, op, sequential }: Request) {
        let slot = self.meet(page);
        if op == Op::Write {
            return;
        }
        self.extents[slot].1 += self.saved[usize::from(sequential)];
        self.accesses += 1;
        if self.age > 0 && self.accesses.is_multiple_of(self.age) {
            let factor = if self.reset { 0.0 } else { 0.5 };
            self.extents.iter_mut().for_each(|(_, heat)| *heat *= factor);
        }
    }

    fn admits(&mut self, page: Page) -> bool {
        if self.flash.len() < self.flash_max {
            return true;
        }
        let rank = |page: Page| (self.extents[self.slot(page).unwrap()].1, self.slot(page).unwrap());
        // `min_by` keeps the first of equals: the page that came first.
        let coldest =
            (0..self.flash.len()).min_by(|&a, &b| rank(self.flash[a]).partial_cmp(&rank(self.flash[b])).unwrap());
        let coldest = coldest.unwrap();
        let hotter = self.extents[self.slot(page).unwrap()].1 > rank(self.flash[coldest]).0;
        if hotter {
            let victim = self.flash.remove(coldest);
            self.emit(victim, Verb::Drop { from: FLASH });
        }
        hotter
    }

    fn leave_dram(&mut self) {
        let (page, dirty) = self.dram.remove(0);
        if dirty {
            self.emit(page, Verb::WriteBack { from: DRAM });
            let held = self.flash.contains(&page);
            if !held {
                self.meet(page);
            }
            if held || self.admits(page) {
                self.emit(page, Verb::Copy { from: DRAM, to: FLASH });
                if !held {
                    self.flash.push(page);
                }
            }
        }
        self.emit(page, Verb::Drop { from: DRAM });
    }

    fn access(&mut self, request: Request) -> (Outcome, Vec<Movement>) {
        let outcome = if self.dram_max == 0 { self.flash_only(request) } else { self.two_tiers(request) };
        (outcome, std::mem::take(&mut self.out))
    }

    fn two_tiers(&mut self, request: Request) -> Outcome {
        let Request { page, op, .. } = request;
        let in_dram = self.dram.iter().position(|(held, _)| *held == page);
        let mut dirty = in_dram.is_some_and(|at| self.dram.remove(at).1);
        let mut outcome = Outcome::Hit(DRAM);
        let mut admit = false;
        if in_dram.is_none() {
            if self.dram.len() == self.dram_max {
                self.leave_dram();
            }
            self.warm(request);
            outcome = Outcome::ADMITTED;
            if self.flash.contains(&page) {
                outcome = Outcome::Hit(FLASH);
                if op != Op::Write {
                    self.emit(page, Verb::Copy { from: FLASH, to: DRAM });
                }
            } else if op == Op::Read {
                self.emit(page, Verb::Fetch { to: DRAM });
                admit = true;
            }
        }
        if op != Op::Read {
            self.emit(page, Verb::Install { to: DRAM });
            dirty = true;
        }
        self.dram.push((page, dirty));
        if admit && self.admits(page) {
            self.emit(page, Verb::Copy { from: DRAM, to: FLASH });
            self.flash.push(page);
        }
        outcome
    }

    fn flash_only(&mut self, request: Request) -> Outcome {
        let Request { page, op, .. } = request;
        self.warm(request);
        let held = self.flash.contains(&page);
        if !held && !self.admits(page) {
            self.emit(page, Verb::Bypass);
            return Outcome::BYPASSED;
        }
        if op != Op::Read {
            self.emit(page, Verb::Install { to: FLASH });
            self.emit(page, Verb::WriteBack { from: FLASH });
        } else if !held {
            self.emit(page, Verb::Fetch { to: FLASH });
        }
        if held {
            return Outcome::Hit(FLASH);
        }
        self.flash.push(page);
        Outcome::ADMITTED
    }
}

/// Options as text, and what the model makes of them.
struct Case {
    options: &'static [&'static str],
    extent: u64,
    saved: [f64; 2],
    age: usize,
    reset: bool,
    extents: usize,
}

#[test]
fn tac_does_what_its_model_does() {
    let plain = Case { options: &["extent=4"], extent: 4, saved: [9975.0, 37.0], age: 0, reset: false, extents: 0 };
    let cases = [
        Case { options: &["extent=4", "age=0p"], ..plain },
        Case { options: &["age=0p"], extent: 32, ..plain },
        Case { options: &["extent=4", "age=1p"], age: 1, ..plain },
        Case { options: &["extent=1", "age=50p", "aging=halve"], extent: 1, age: 50, ..plain },
        Case { options: &["extent=3", "age=50p", "aging=reset"], extent: 3, age: 50, reset: true, ..plain },
        Case { options: &["extent=2", "age=30p", "extents=5"], extent: 2, age: 30, extents: 5, ..plain },
        Case {
            options: &[
                "extent=4",
                "age=7p",
                "disk-random=30",
                "flash-random=20",
                "disk-sequential=2",
                "flash-sequential=9",
            ],
            saved: [10.0, 0.0],
            age: 7,
            ..plain
        },
    ];
    for case in &cases {
        for (dram, flash) in [(0, 1), (0, 7), (0, 30), (1, 1), (2, 3), (5, 4), (4, 20), (12, 37), (25, 6)] {
            for seed in 0..6 {
                println!("{:?}, dram {dram}, flash {flash}, seed {seed}", case.options);
                let config = Config { objects: 3, ..Config::two_tiers(60, dram, flash) };
                let options = Options::parse(&Tac::INFO, case.options.iter().copied()).unwrap();
                let mut policy = Tac::new(&config, &options).unwrap();
                let extents_max = if case.extents == 0 { 60 } else { case.extents.max(flash + 1) };
                let mut model = Model {
                    dram_max: dram,
                    flash_max: flash,
                    extent_pages: case.extent,
                    saved: case.saved,
                    age: case.age,
                    reset: case.reset,
                    extents_max,
                    extents: Vec::new(),
                    hand: 0,
                    accesses: 0,
                    dram: Vec::new(),
                    flash: Vec::new(),
                    out: Vec::new(),
                };
                let requests = check::workload(seed, LAYOUT, 1_500);
                check::run_beside(&mut policy, LAYOUT, &config, &requests, |request, _, _| model.access(request));
            }
        }
    }
}

/// The default is the documented one: ten accesses per page of flash.
#[test]
fn the_default_age_is_ten_accesses_a_page() {
    let config = Config { objects: 3, ..Config::two_tiers(60, 4, 9) };
    let build =
        |options: &[&str]| Tac::new(&config, &Options::parse(&Tac::INFO, options.iter().copied()).unwrap()).unwrap();
    let requests = check::workload(3, LAYOUT, 3_000);
    let log = |mut policy: Tac| {
        let mut checker = check::Checker::new(LAYOUT, &config.tiers, check::Refusals::NONE);
        let mut log = Vec::new();
        for &request in &requests {
            checker.request(&mut policy, request, 0);
            log.extend(checker.movements.iter().copied());
        }
        log
    };
    assert_eq!(log(build(&["extent=4"])), log(build(&["extent=4", "age=90p"])));
    assert_ne!(log(build(&["extent=4"])), log(build(&["extent=4", "age=0p"])));
}
