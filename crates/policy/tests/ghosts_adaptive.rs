//! Tests of the adaptive policies: the pages remembered after eviction stay within their bound, refusals or not, and no
//! option breaks the rules of the interface.

use entresol_policy::catalogue::{self, Visitor};
use entresol_policy::check::{self, Checker, Layout, Refusals};
use entresol_policy::{Config, Options, Policy};

const LAYOUT: Layout = Layout::one_object(300);

struct MostGhosts<'a> {
    config: &'a Config,
    refusals: Refusals,
}

impl Visitor for MostGhosts<'_> {
    type Output = usize;

    /// The largest number of pages known without a copy after any request.
    fn visit<P: Policy>(self, mut policy: P) -> usize {
        let mut checker = Checker::new(LAYOUT, &self.config.tiers, self.refusals);
        let requests = check::workload(self.refusals.seed, LAYOUT, 3_000);
        let ghosts = requests.into_iter().map(|request| {
            checker.request(&mut policy, request, entresol_core::NEVER);
            let states = (0..LAYOUT.pages).map(|page| policy.state(entresol_core::Page(page)));
            states.filter(|state| state.known && state.tiers.is_empty()).count()
        });
        ghosts.max().expect("some requests")
    }
}

#[test]
fn ghosts_stay_within_their_bounds() {
    let bounds = |c: usize| {
        [("lru-2", c), ("2q", c / 2), ("mq", 4 * c), ("arc", c), ("car", c), ("lirs", 2 * c), ("clock-pro", c)]
    };
    for capacity in [1, 2, 5, 20, 60] {
        for (name, bound) in bounds(capacity) {
            for (percent, seed) in [(0, 1), (20, 2), (70, 3)] {
                let info = catalogue::info(name).unwrap();
                let config = Config::single(LAYOUT.pages as usize, capacity);
                let visitor = MostGhosts { config: &config, refusals: Refusals { percent, seed } };
                let most = catalogue::build(info, &config, &Options::defaults(info), visitor).unwrap();
                let context = format!("{name}, {capacity} pages, refusals {percent} %, seed {seed}");
                assert!(most <= bound, "{context}: {most} ghosts, at most {bound} allowed");
                assert!(
                    capacity < 20 || percent > 0 || 2 * most >= bound.min(LAYOUT.pages as usize - capacity),
                    "{context}: {most} ghosts, bound {bound}: it remembers too little"
                );
            }
        }
    }
}

struct KeepsRules<'a> {
    config: &'a Config,
    refusals: Refusals,
}

impl Visitor for KeepsRules<'_> {
    type Output = u64;

    fn visit<P: Policy>(self, mut policy: P) -> u64 {
        let requests = check::workload(self.refusals.seed, LAYOUT, 2_000);
        check::run(&mut policy, LAYOUT, self.config, &requests, self.refusals)
    }
}

/// Every value of every option, with refusals: the conformance test of the catalogue takes the defaults only.
#[test]
fn options_keep_the_rules_under_refusals() {
    let variants = [
        "lru-2:correlated=5:history=0p",
        "lru-2:correlated=50:history=400%",
        "2q:kin=0p:kout=0p",
        "2q:kin=100%:kout=300%",
        "mq:lifetime=0:queues=1:history=0p",
        "mq:lifetime=30:queues=4:history=50%",
        "arc:step=whole",
        "lirs:hir=60%:stack=100%",
        "lirs:hir=100%:stack=500%",
        "clock-pro:cold=100%",
        "clock-pro:cold=2p:retest=no",
    ];
    for variant in variants {
        for capacity in [1, 2, 7, 60] {
            for (percent, seed) in [(10, 1), (60, 2), (100, 3)] {
                println!("{variant}, {capacity} pages, refusals {percent} %, seed {seed}");
                let mut parts = variant.split(':');
                let info = catalogue::info(parts.next().unwrap()).unwrap();
                let options = Options::parse(info, parts).unwrap();
                let config = Config::single(LAYOUT.pages as usize, capacity);
                let visitor = KeepsRules { config: &config, refusals: Refusals { percent, seed } };
                let hits = catalogue::build(info, &config, &options, visitor).unwrap();
                assert!(hits > 0 || capacity < 60, "{variant} never hits");
            }
        }
    }
}
