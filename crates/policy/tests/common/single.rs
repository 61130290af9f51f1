//! Common part of the models of one-tier policies: the pages held, the dirty ones, and the movements that follow from
//! the choice of victims.

use entresol_core::{Movement, Op, Outcome, Page, Request, Tier, Verb};
use entresol_policy::check::{self, Layout};
use entresol_policy::{Config, Options, Policy};
use std::collections::BTreeMap;

/// Pages of the workloads that models are compared on.
pub const PAGES: u32 = 60;
const LAYOUT: Layout = Layout::one_object(PAGES);

/// Pages held, each with whether it is dirty.
pub type Frames = BTreeMap<Page, bool>;

fn single(page: Page, verb: Verb) -> Movement {
    Movement { page, verb, joined: false }
}

/// Runs a policy with these options and this capacity beside a model, event by event.
///
/// The model gets each request, with its next use and the frames before it. It answers `None` when it holds the page,
/// else the victims in order of eviction. The page comes in after them, unless it is a victim itself.
pub fn compare<P: Policy>(
    options: &[&str],
    capacity: usize,
    seed: u64,
    mut model: impl FnMut(Request, u32, &Frames) -> Option<Vec<Page>>,
) {
    println!("{} {options:?}, capacity {capacity}, seed {seed}", P::INFO.name);
    let info: &'static entresol_policy::Info = entresol_policy::catalogue::info(P::INFO.name).expect("a known policy");
    let config = Config { seed, ..Config::single(PAGES as usize, capacity) };
    let options = Options::parse(info, options.iter().copied()).expect("good options");
    let mut policy = P::new(&config, &options).expect("a buildable policy");
    let requests = check::workload(seed, LAYOUT, 1_000);
    let mut frames = Frames::new();
    check::run_beside(&mut policy, LAYOUT, &config, &requests, |request, next_use, _| {
        let page = request.page;
        let victims = model(request, next_use, &frames);
        assert_eq!(victims.is_none(), frames.contains_key(&page), "the model contradicts itself on {page:?}");
        let mut movements = Vec::new();
        for &victim in victims.iter().flatten() {
            if frames.remove(&victim).expect("a victim that is held") {
                movements.push(single(victim, Verb::WriteBack { from: Tier::TOP }));
            }
            movements.push(single(victim, Verb::Drop { from: Tier::TOP }));
        }
        match request.op {
            Op::Read if victims.is_some() => movements.push(single(page, Verb::Fetch { to: Tier::TOP })),
            Op::Read => {}
            _ => movements.push(single(page, Verb::Install { to: Tier::TOP })),
        }
        *frames.entry(page).or_insert(false) |= request.op.is_write();
        (if victims.is_none() { Outcome::Hit(Tier::TOP) } else { Outcome::ADMITTED }, movements)
    });
}

/// Capacities and seeds to compare at: one page, two, small, medium, all but one.
pub fn cases() -> impl Iterator<Item = (usize, u64)> {
    [1, 2, 5, 17, 40, 59].into_iter().flat_map(|capacity| (0..8).map(move |seed| (capacity, seed)))
}
