//! Every policy of the catalogue keeps the rules of the interface, whatever the sizes and refusals.

use entresol_policy::catalogue::{self, Visitor};
use entresol_policy::check::{self, Layout, Refusals};
use entresol_policy::extension::{Pooled, divided};
use entresol_policy::{Config, Info, Options, Policy};

const LAYOUT: Layout = Layout { pages: 400, object_pages: 100 };

fn configs(info: &Info) -> Vec<Config> {
    let sizes: &[usize] = &[1, 2, 7, 40, 150];
    let config = |tiers| Config { objects: 4, tiers, ..Config::single(LAYOUT.pages as usize, 0) };
    let at_least = |size: usize, tier: usize| size.max(info.min_pages[tier]);
    match info.tiers.len() {
        1 => sizes.iter().map(|&size| config(vec![at_least(size, 0)])).collect(),
        _ => sizes
            .iter()
            .flat_map(|&top| [0, 1, 3].map(|i| (top, sizes[i + 1])))
            .chain([(0, 40), (150, 7)])
            .map(|(top, second)| config(vec![at_least(top, 0), at_least(second, 1)]))
            .collect(),
    }
}

/// Sizes of a pool above a policy of one tier, and of that tier.
fn pooled_configs(info: &Info) -> Vec<Config> {
    let sizes = [(1, 1), (1, 40), (2, 7), (7, 7), (40, 7), (40, 150), (150, 40)];
    let config = |tiers| Config { objects: 4, tiers, ..Config::single(LAYOUT.pages as usize, 0) };
    sizes.into_iter().map(|(pool, below)| config(vec![pool, below.max(info.min_pages[0])])).collect()
}

struct Conformance<'a> {
    config: &'a Config,
    refuse_percent: u64,
    seed: u64,
}

impl Visitor for Conformance<'_> {
    type Output = u64;

    fn visit<P: Policy>(self, policy: P) -> u64 {
        match divided(&P::INFO, self.config) {
            (_, None) => self.check(policy),
            (_, pool) => {
                let pooled = Pooled::over(policy, pool, self.config.pages);
                self.check(pooled)
            }
        }
    }
}

impl Conformance<'_> {
    fn check<P: Policy>(self, mut policy: P) -> u64 {
        let requests = check::workload(self.seed, LAYOUT, 4_000);
        let refusals = Refusals { percent: self.refuse_percent, seed: self.seed };
        let half = requests.len() / 2;
        let hits = check::run(&mut policy.clone(), LAYOUT, self.config, &requests, refusals);

        // A snapshot driven on repeats the original.
        let mut checker = check::Checker::new(LAYOUT, &self.config.tiers, Refusals::NONE);
        let next = check::next_uses(&requests);
        for i in 0..half {
            checker.request(&mut policy, requests[i], next[i]);
        }
        let mut snapshot = policy.clone();
        let mut twins = [Vec::new(), Vec::new()];
        for (policy, log) in [&mut policy, &mut snapshot].into_iter().zip(&mut twins) {
            let mut recorder = Recorder { next_use: 0, log };
            for i in half..half + 500 {
                recorder.next_use = next[i];
                policy.access(requests[i], &mut recorder);
            }
        }
        assert_eq!(twins[0], twins[1], "a snapshot and its original differ");
        hits
    }
}

/// A driver that only records movements.
struct Recorder<'a> {
    next_use: u32,
    log: &'a mut Vec<entresol_core::Movement>,
}

impl entresol_policy::Driver for Recorder<'_> {
    fn may_evict(&mut self, _page: entresol_core::Page, _tier: entresol_core::Tier) -> bool {
        true
    }
    fn emit(&mut self, movement: entresol_core::Movement) {
        self.log.push(movement);
    }
    fn now_us(&self) -> u64 {
        self.log.len() as u64 * 100_000
    }
    fn next_use(&self) -> u32 {
        self.next_use
    }
    fn address(&self, page: entresol_core::Page) -> entresol_core::Address {
        LAYOUT.address(page)
    }
    fn successor(&self, page: entresol_core::Page) -> Option<entresol_core::Page> {
        LAYOUT.neighbour(page, 1)
    }
    fn predecessor(&self, page: entresol_core::Page) -> Option<entresol_core::Page> {
        LAYOUT.neighbour(page, -1)
    }
    fn object_pages(&self, _object: entresol_core::ObjectId) -> u64 {
        u64::from(LAYOUT.object_pages)
    }
}

#[test]
fn every_policy_keeps_the_rules() {
    for info in catalogue::ALL {
        let pooled = if info.tiers.len() == 1 { pooled_configs(info) } else { Vec::new() };
        for config in configs(info).into_iter().chain(pooled) {
            for (refuse_percent, seed) in [(0, 1), (10, 2), (60, 3), (100, 4)] {
                let context = format!("{} tiers {:?} refusals {refuse_percent} % seed {seed}", info.name, config.tiers);
                let conformance = Conformance { config: &config, refuse_percent, seed };
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let (own, _) = divided(info, &config);
                    catalogue::build(info, &own, &Options::defaults(info), conformance).expect("a buildable policy")
                }));
                let Ok(hits) = outcome else { panic!("failed: {context}") };
                let largest = config.tiers.iter().sum::<usize>() >= 190;
                assert!(!(largest && refuse_percent == 0 && hits == 0), "no hit at all: {context}");
            }
        }
    }
}
