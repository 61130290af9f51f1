//! LeCaR, CACHEUS and ExpCache beside plain models of them, and the models beside the miss counts of the LeCaR and
//! CACHEUS authors' own program.
//!
//! The chain of evidence: a model fed with the draws of that program (NumPy's generator, seed 123) must reproduce its
//! counts exactly; the same model fed with our generator must agree with the policy event by event.

mod cacheus;
#[path = "../common/mod.rs"]
mod common;
mod expcache;
mod lecar;
mod numpy;

use entresol_core::{Movement, NEVER, Op, Outcome, Page, Request, Tier, Verb};
use entresol_policy::check::{self, Layout, Refusals};
use entresol_policy::{Config, Driver, Options, Policy};

const LAYOUT: Layout = Layout::one_object(60);

fn single(page: Page, verb: Verb) -> Movement {
    Movement { page, verb, joined: false }
}

/// The movements of a request in a cache of one tier without bypass.
fn movements(request: Request, hit: bool, victim: Option<(u32, bool)>) -> (Outcome, Vec<Movement>) {
    let mut out = Vec::new();
    if let Some((page, dirty)) = victim {
        if dirty {
            out.push(single(Page(page), Verb::WriteBack { from: Tier::TOP }));
        }
        out.push(single(Page(page), Verb::Drop { from: Tier::TOP }));
    }
    if request.op != Op::Read {
        out.push(single(request.page, Verb::Install { to: Tier::TOP }));
    } else if !hit {
        out.push(single(request.page, Verb::Fetch { to: Tier::TOP }));
    }
    (if hit { Outcome::Hit(Tier::TOP) } else { Outcome::ADMITTED }, out)
}

/// Compares a policy with its model over seeds and capacities; `model` takes a configuration.
fn compare<P: Policy, M>(options: &[&str], capacities: &[usize], model: impl Fn(&Config) -> M)
where
    M: FnMut(Request) -> (Outcome, Vec<Movement>),
{
    for seed in 0..12 {
        for &capacity in capacities {
            println!("{} {options:?}, seed {seed}, capacity {capacity}", P::INFO.name);
            let config = Config { seed, ..Config::single(60, capacity) };
            let mut policy = P::new(&config, &Options::parse(&P::INFO, options.iter().copied()).unwrap()).unwrap();
            let requests = check::workload(seed, LAYOUT, 2_000);
            let mut model = model(&config);
            check::run_beside(&mut policy, LAYOUT, &config, &requests, |request, _, _| model(request));
        }
    }
}

/// A driver that allows every eviction and records nothing.
struct Deaf;

impl Driver for Deaf {
    fn may_evict(&mut self, _page: Page, _tier: Tier) -> bool {
        true
    }
    fn emit(&mut self, _movement: Movement) {}
    fn now_us(&self) -> u64 {
        0
    }
    fn next_use(&self) -> u32 {
        NEVER
    }
    fn address(&self, page: Page) -> entresol_core::Address {
        Layout::one_object(u32::MAX).address(page)
    }
    fn successor(&self, _page: Page) -> Option<Page> {
        None
    }
    fn predecessor(&self, _page: Page) -> Option<Page> {
        None
    }
    fn object_pages(&self, _object: entresol_core::ObjectId) -> u64 {
        0
    }
}

/// Misses of a policy over reads of these pages.
fn misses<P: Policy>(pages: &[u32], capacity: usize, options: &[&str], seed: u64) -> usize {
    let footprint = *pages.iter().max().expect("a trace") as usize + 1;
    let config = Config { seed, ..Config::single(footprint, capacity) };
    let mut policy = P::new(&config, &Options::parse(&P::INFO, options.iter().copied()).unwrap()).unwrap();
    pages.iter().filter(|&&page| !policy.access(Request::read(page), &mut Deaf).is_hit()).count()
}

/// After a run with refusals, every page must be in its initial state unless the policy knows it, and the number of
/// known pages is bounded.
fn assert_bounded_memory<P: Policy>(options: &[&str], capacity: usize, known_max: usize) {
    let config = Config::single(60, capacity);
    let mut policy = P::new(&config, &Options::parse(&P::INFO, options.iter().copied()).unwrap()).unwrap();
    let mut checker = check::Checker::new(LAYOUT, &config.tiers, Refusals { percent: 30, seed: 9 });
    for request in check::workload(9, LAYOUT, 3_000) {
        checker.request(&mut policy, request, NEVER);
        let known = (0..60).filter(|&page| policy.state(Page(page)).known).count();
        assert!(known <= known_max, "{known} pages known to {}, at most {known_max} should be", P::INFO.name);
    }
}
