//! The policies with the stack property: a larger cache holds every page that a smaller one holds.

use crate::count;
use entresol_core::Page;
use entresol_policy::catalogue::{self, Visitor};
use entresol_policy::check::{self, Checker, Layout, Refusals};
use entresol_policy::{Config, Info, Options, Policy};

const LAYOUT: Layout = Layout::one_object(200);

/// Pages held after each request.
struct Contents {
    capacity: usize,
    seed: u64,
}

impl Visitor for Contents {
    type Output = Vec<Vec<bool>>;

    fn visit<P: Policy>(self, mut policy: P) -> Vec<Vec<bool>> {
        let requests = check::workload(self.seed, LAYOUT, 3_000);
        let next = check::next_uses(&requests);
        let mut checker = Checker::new(LAYOUT, &[self.capacity], Refusals::NONE);
        let mut step = |i: usize| {
            checker.request(&mut policy, requests[i], next[i]);
            (0..LAYOUT.pages).map(|page| !policy.state(Page(page)).tiers.is_empty()).collect()
        };
        (0..requests.len()).map(&mut step).collect()
    }
}

fn contents(info: &'static Info, capacity: usize, seed: u64) -> Vec<Vec<bool>> {
    let config = Config::single(LAYOUT.pages as usize, capacity);
    catalogue::build(info, &config, &Options::defaults(info), Contents { capacity, seed }).expect("a buildable policy")
}

/// True if every page of the smaller cache is in the larger one, after every request.
fn includes(info: &'static Info, seed: u64) -> bool {
    [7, 8, 40, 41, 120].map(|capacity| contents(info, capacity, seed)).windows(2).all(|pair| {
        let steps = pair[0].iter().zip(&pair[1]);
        steps.into_iter().all(|(small, large)| small.iter().zip(large).all(|(small, large)| large | !small))
    })
}

#[test]
fn a_policy_says_truly_whether_larger_caches_include_smaller_ones() {
    for info in catalogue::ALL.iter().filter(|info| info.tiers.len() == 1 && info.stack) {
        for seed in 0..3 {
            assert!(includes(info, seed), "{} claims the stack property, seed {seed}", info.name);
        }
    }
    assert!(!includes(catalogue::info("fifo").unwrap(), 0), "the test finds no violation by FIFO");
}

#[test]
fn fifo_shows_the_anomaly_of_belady() {
    // The example of Belady, Nelson, Shedler, "An anomaly in space-time characteristics of certain programs", CACM 1969.
    let requests = count::reads(&[1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5]);
    let misses = [3, 4].map(|frames| count::count("fifo", frames, &requests).misses);
    assert_eq!(misses, [9, 10]);
}
