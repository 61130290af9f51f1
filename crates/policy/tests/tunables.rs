//! Tests that every tunable can be changed while a policy runs, and that nothing the policy holds is lost.

use entresol_core::{Page, Tier};
use entresol_policy::catalogue::{self, Visitor};
use entresol_policy::check::{self, Checker, Layout, Refusals};
use entresol_policy::{Config, Info, Options, PageState, Policy};

const LAYOUT: Layout = Layout { pages: 400, object_pages: 100 };
const SEED: u64 = 11;

fn config(info: &Info) -> Config {
    let tiers = if info.tiers.len() == 1 { vec![150] } else { vec![20, 130] };
    Config { objects: 4, tiers, ..Config::single(LAYOUT.pages as usize, 0) }
}

#[test]
fn tunables_are_options_with_levels() {
    let tunable: Vec<&Info> = catalogue::ALL.iter().copied().filter(|info| !info.tunables.is_empty()).collect();
    assert!(tunable.iter().any(|info| info.name == "multi-tier"), "003 tunes it");
    for info in tunable {
        for tunable in info.tunables {
            let option = info.options.iter().find(|option| option.name == tunable.option);
            assert!(option.is_some(), "{}: {} is no option", info.name, tunable.option);
            let ascending = tunable.levels.windows(2).all(|pair| pair[0] < pair[1]);
            assert!(ascending && tunable.levels.len() >= 2, "{}: {:?}", info.name, tunable.levels);
        }
    }
}

/// The state of all pages and the occupancy of all tiers.
fn contents<P: Policy>(policy: &P) -> (Vec<PageState>, Vec<usize>) {
    let tiers = 0..P::INFO.tiers.len() as u8;
    let occupancy = tiers.map(|tier| policy.occupancy(Tier(tier))).collect();
    ((0..LAYOUT.pages).map(|page| policy.state(Page(page))).collect(), occupancy)
}

struct Turning<'a> {
    config: &'a Config,
}

impl Visitor for Turning<'_> {
    type Output = ();

    /// Runs a workload with every level of every tunable in turn, checking the rules of the interface throughout.
    fn visit<P: Policy>(self, mut policy: P) {
        let requests = check::workload(SEED, LAYOUT, 4_000);
        let next = check::next_uses(&requests);
        let mut checker = Checker::new(LAYOUT, &self.config.tiers, Refusals::NONE);
        let turns: Vec<(usize, f64)> = P::INFO
            .tunables
            .iter()
            .enumerate()
            .flat_map(|(at, tunable)| {
                tunable.levels.iter().chain(tunable.levels.first()).map(move |&level| (at, level))
            })
            .collect();
        let each = requests.len() / turns.len();
        for (i, request) in requests.iter().enumerate() {
            if let Some(&(at, level)) = turns.get(i / each).filter(|_| i % each == 0) {
                let before = contents(&policy);
                policy.tune(at, level);
                assert!(contents(&policy) == before, "{}: something is lost at {level}", P::INFO.name);
                assert_eq!(policy.tunable(at), level, "{}", P::INFO.name);
            }
            checker.request(&mut policy, *request, next[i]);
        }
    }
}

#[test]
fn a_change_loses_nothing_and_breaks_no_rule() {
    for info in catalogue::ALL.iter().filter(|info| !info.tunables.is_empty()) {
        let config = config(info);
        catalogue::build(info, &config, &Options::defaults(info), Turning { config: &config }).expect("a policy");
    }
}

struct Twins<'a> {
    config: &'a Config,
    options: &'a Options,
    at: usize,
    level: f64,
}

impl Visitor for Twins<'_> {
    type Output = ();

    /// Checks that a policy tuned before the first request equals one built with the option.
    fn visit<P: Policy>(self, mut tuned: P) {
        tuned.tune(self.at, self.level);
        let built = P::new(self.config, self.options).expect("a policy with the option");
        let requests = check::workload(SEED, LAYOUT, 4_000);
        let run = |mut policy: P| {
            check::run(&mut policy, LAYOUT, self.config, &requests, Refusals::NONE);
            contents(&policy)
        };
        assert!(run(tuned) == run(built), "{} with {}", P::INFO.name, self.options.summary());
    }
}

#[test]
fn tuned_is_as_if_built_so() {
    for info in catalogue::ALL {
        for (at, tunable) in info.tunables.iter().enumerate() {
            for &level in tunable.levels {
                let config = config(info);
                // Shares are given in per cent; a bare number would be pages.
                let share = info.options.iter().any(|o| o.name == tunable.option && o.default.ends_with('%'));
                let given = format!("{}={level}{}", tunable.option, if share { "%" } else { "" });
                let options = Options::parse(info, [given.as_str()]).expect("an option");
                let twins = Twins { config: &config, options: &options, at, level };
                catalogue::build(info, &config, &Options::defaults(info), twins).expect("a policy");
            }
        }
    }
}
