//! A plain model of the multi-tier buffer manager, straight from sections 3.1 to 3.4 of 003, compared event by event.

use entresol_core::{Movement, Op, Outcome, Page, Random, Request, Tier, Verb};
use entresol_policy::check::{self, Layout};
use entresol_policy::migration::MultiTier;
use entresol_policy::{Config, Driver, Options, Policy};

const LAYOUT: Layout = Layout::one_object(60);
const DRAM: Tier = Tier::TOP;
const NVM: Tier = Tier::SECOND;

/// A copy of a page, with its version.
#[derive(Clone, Copy)]
struct Copy {
    page: Page,
    version: u32,
    referenced: bool,
}

/// Both buffers as vectors, the page to go next first, with version numbers in place of dirty bits.
struct Model {
    capacity: [usize; 2],
    clock: bool,
    d: [f64; 2],
    n: [f64; 2],
    hymem: Option<usize>,
    queue: Vec<Page>,
    buffers: [Vec<Copy>; 2],
    latest: Vec<u32>,
    ssd: Vec<u32>,
    random: Random,
    out: Vec<Movement>,
}

impl Model {
    fn new(config: &Config, probabilities: [f64; 4], clock: bool, hymem: Option<usize>) -> Self {
        let [dr, dw, nr, nw] = probabilities;
        Model {
            capacity: [config.tiers[0], config.tiers[1]],
            clock,
            d: [dr, dw],
            n: [nr, nw],
            hymem,
            queue: Vec::new(),
            buffers: [Vec::new(), Vec::new()],
            latest: vec![0; config.pages],
            ssd: vec![0; config.pages],
            random: Random::new(config.seed),
            out: Vec::new(),
        }
    }

    fn emit(&mut self, page: Page, verb: Verb) {
        self.out.push(Movement { page, verb, joined: false });
    }

    fn find(&self, tier: Tier, page: Page) -> Option<usize> {
        self.buffers[tier.index()].iter().position(|copy| copy.page == page)
    }

    fn touch(&mut self, tier: Tier, page: Page) {
        let at = self.find(tier, page).unwrap();
        let buffer = &mut self.buffers[tier.index()];
        if self.clock {
            buffer[at].referenced = true;
        } else {
            let copy = buffer.remove(at);
            buffer.push(copy);
        }
    }

    fn put(&mut self, tier: Tier, page: Page, version: u32) {
        match self.find(tier, page) {
            Some(at) => self.buffers[tier.index()][at].version = version,
            None => self.buffers[tier.index()].push(Copy { page, version, referenced: false }),
        }
    }

    fn victim(&mut self, tier: Tier, keep: Page) -> Option<Copy> {
        let buffer = &mut self.buffers[tier.index()];
        if buffer.iter().all(|copy| copy.page == keep) {
            return None;
        }
        loop {
            let first = buffer.remove(0);
            if first.page != keep && !(self.clock && first.referenced) {
                return Some(first);
            }
            if !self.clock {
                // LRU passes over the page being asked for, which keeps its place.
                let second = buffer.remove(0);
                buffer.insert(0, first);
                return Some(second);
            }
            buffer.push(Copy { referenced: false, ..first });
        }
    }

    fn space(&mut self, tier: Tier, asked_for: Page) -> bool {
        if self.buffers[tier.index()].len() < self.capacity[tier.index()] {
            return true;
        }
        if tier == NVM {
            let Some(victim) = self.victim(NVM, asked_for) else { return false };
            let stale = victim.version < self.latest[victim.page.index()];
            if !stale && victim.version > self.ssd[victim.page.index()] {
                self.emit(victim.page, Verb::WriteBack { from: NVM });
                self.ssd[victim.page.index()] = victim.version;
            }
            self.emit(victim.page, Verb::Drop { from: NVM });
            return true;
        }
        let Some(Copy { page, version, .. }) = self.victim(DRAM, asked_for) else { return false };
        let in_nvm = self.find(NVM, page);
        let elsewhere = in_nvm.map_or(self.ssd[page.index()], |at| self.buffers[1][at].version);
        let modified = version > elsewhere;
        let to_nvm = match self.hymem {
            None => modified && self.random.chance(self.n[1]),
            Some(_) if in_nvm.is_some() => modified,
            Some(longest) => {
                let denied = self.queue.contains(&page);
                self.queue.retain(|&other| other != page);
                if !denied {
                    self.queue.push(page);
                }
                let excess = self.queue.len().saturating_sub(longest);
                self.queue.drain(..excess);
                denied
            }
        };
        if to_nvm && (in_nvm.is_some() || self.space(NVM, asked_for)) {
            self.emit(page, Verb::Copy { from: DRAM, to: NVM });
            self.put(NVM, page, version);
            if in_nvm.is_some() {
                self.touch(NVM, page);
            }
        } else if modified {
            self.emit(page, Verb::WriteBack { from: DRAM });
            self.ssd[page.index()] = version;
            if let Some(at) = in_nvm {
                self.buffers[1].remove(at);
                self.emit(page, Verb::Drop { from: NVM });
            }
        }
        self.emit(page, Verb::Drop { from: DRAM });
        true
    }

    fn promote(&mut self, page: Page) {
        if self.random.chance(self.d[0]) && self.space(DRAM, page) {
            self.emit(page, Verb::Copy { from: NVM, to: DRAM });
            self.put(DRAM, page, self.latest[page.index()]);
        }
    }

    fn install(&mut self, tier: Tier, page: Page) {
        self.emit(page, Verb::Install { to: tier });
        self.latest[page.index()] += 1;
        self.put(tier, page, self.latest[page.index()]);
    }

    fn read_miss(&mut self, page: Page) -> Outcome {
        let nvm_first = self.random.chance(self.n[0]) || self.capacity[0] == 0;
        let order = if nvm_first { [NVM, DRAM] } else { [DRAM, NVM] };
        for tier in order {
            if self.space(tier, page) {
                self.emit(page, Verb::Fetch { to: tier });
                self.put(tier, page, self.latest[page.index()]);
                if tier == NVM && nvm_first {
                    self.promote(page);
                }
                return Outcome::ADMITTED;
            }
        }
        unreachable!("NVM has at least one frame");
    }

    fn write(&mut self, op: Op, page: Page) -> Outcome {
        let held = self.find(NVM, page).is_some();
        if held {
            self.touch(NVM, page);
        }
        if self.random.chance(self.d[1]) && self.space(DRAM, page) {
            if held && op == Op::Update {
                self.emit(page, Verb::Copy { from: NVM, to: DRAM });
            }
            self.install(DRAM, page);
        } else {
            assert!(held || self.space(NVM, page));
            self.install(NVM, page);
        }
        if held { Outcome::Hit(NVM) } else { Outcome::ADMITTED }
    }

    fn access(&mut self, request: Request) -> (Outcome, Vec<Movement>) {
        let Request { page, op, .. } = request;
        let outcome = if self.find(DRAM, page).is_some() {
            self.touch(DRAM, page);
            if op != Op::Read {
                self.install(DRAM, page);
            }
            Outcome::Hit(DRAM)
        } else if op != Op::Read {
            self.write(op, page)
        } else if self.find(NVM, page).is_some() {
            self.touch(NVM, page);
            self.promote(page);
            Outcome::Hit(NVM)
        } else {
            self.read_miss(page)
        };
        (outcome, std::mem::take(&mut self.out))
    }
}

fn build(config: &Config, options: &[&str]) -> MultiTier {
    let options = Options::parse(&MultiTier::INFO, options.iter().copied()).unwrap();
    MultiTier::new(config, &options).unwrap()
}

#[test]
fn multi_tier_does_what_its_model_does() {
    let cases: &[(&[&str], [f64; 4])] = &[
        (&[], [0.01, 0.01, 0.2, 1.0]),
        (&["preset=a"], [1.0, 1.0, 0.01, 0.5]),
        (&["preset=c"], [0.01, 0.01, 0.2, 0.5]),
        (&["preset=d", "dr=0.5", "dw=0.7"], [0.5, 0.7, 0.2, 0.3]),
        (&["preset=eager"], [1.0; 4]),
        (&["dr=0", "dw=0", "nr=0", "nw=0"], [0.0; 4]),
        (&["dr=0.5", "dw=0.5", "nr=0.5", "nw=0.5"], [0.5; 4]),
    ];
    for (options, probabilities) in cases {
        for (clock, hymem) in [(false, None), (true, None), (false, Some(50)), (true, Some(20)), (false, Some(0))] {
            let queue = format!("queue={}%", hymem.unwrap_or(50));
            let mut options = options.to_vec();
            options.push(if clock { "replacement=clock" } else { "replacement=lru" });
            options.push(if hymem.is_some() { "nvm-admission=hymem" } else { "nvm-admission=probability" });
            options.push(&queue);
            for (dram, nvm) in [(0, 1), (0, 9), (1, 1), (2, 1), (1, 2), (3, 12), (12, 5), (10, 40)] {
                for seed in 0..4 {
                    println!("{options:?}, dram {dram}, nvm {nvm}, seed {seed}");
                    let config = Config { seed, ..Config::two_tiers(60, dram, nvm) };
                    let mut policy = build(&config, &options);
                    let longest = hymem.map(|percent| nvm * percent / 100);
                    let mut model = Model::new(&config, *probabilities, clock, longest);
                    let requests = check::workload(seed, LAYOUT, 1_000);
                    check::run_beside(&mut policy, LAYOUT, &config, &requests, |request, _, _| model.access(request));
                }
            }
        }
    }
}

/// Counts hits in DRAM and copies between the buffers.
#[derive(Default)]
struct Counter {
    down: u64,
    past_nvm: u64,
}

impl Driver for Counter {
    fn may_evict(&mut self, _page: Page, _tier: Tier) -> bool {
        true
    }
    fn emit(&mut self, movement: Movement) {
        self.down += u64::from(movement.verb == Verb::Copy { from: DRAM, to: NVM });
        self.past_nvm += u64::from(movement.verb == Verb::WriteBack { from: DRAM });
    }
    fn now_us(&self) -> u64 {
        0
    }
    fn next_use(&self) -> u32 {
        0
    }
    fn address(&self, page: Page) -> entresol_core::Address {
        LAYOUT.address(page)
    }
    fn successor(&self, page: Page) -> Option<Page> {
        LAYOUT.neighbour(page, 1)
    }
    fn predecessor(&self, page: Page) -> Option<Page> {
        LAYOUT.neighbour(page, -1)
    }
    fn object_pages(&self, _object: entresol_core::ObjectId) -> u64 {
        u64::from(LAYOUT.object_pages)
    }
}

/// The coins are tossed for every operation. In one run the shares match the probabilities, and follow a change at run
/// time.
#[test]
fn probabilities_hold_per_operation_and_can_be_changed() {
    let config = Config::two_tiers(60, 4, 40);
    let mut policy = build(&config, &["preset=a", "nw=0.25"]);
    let share = |policy: &mut MultiTier| {
        let mut counter = Counter::default();
        for i in 0..20_000u32 {
            policy.access(Request::write(i * 7 % 60), &mut counter);
        }
        counter.down as f64 / (counter.down + counter.past_nvm) as f64
    };
    let first = share(&mut policy);
    assert!((first - 0.25).abs() < 0.02, "N_w = 0.25 sent {first} to NVM");
    policy.probabilities.nvm_on_write = 0.75;
    let second = share(&mut policy);
    assert!((second - 0.75).abs() < 0.02, "N_w = 0.75 sent {second} to NVM");
}

#[test]
fn a_probability_outside_zero_to_one_is_refused() {
    let config = Config::two_tiers(60, 4, 40);
    let options = Options::parse(&MultiTier::INFO, ["dr=1.5"]).unwrap();
    assert!(MultiTier::new(&config, &options).is_err());
}
