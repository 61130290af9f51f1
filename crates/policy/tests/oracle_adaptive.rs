//! Misses of the adaptive policies against independent simulators (libCacheSim 0.3.5, the CACHEUS authors' code).

use crate::common;
use entresol_core::{Movement, Request};
use entresol_policy::catalogue::{self, Visitor};
use entresol_policy::{Config, Driver, Options, Policy};

/// A driver that allows every eviction and only counts.
struct Count;

impl Driver for Count {
    fn may_evict(&mut self, _page: entresol_core::Page, _tier: entresol_core::Tier) -> bool {
        true
    }
    fn emit(&mut self, _movement: Movement) {}
    fn now_us(&self) -> u64 {
        0
    }
    fn next_use(&self) -> u32 {
        entresol_core::NEVER
    }
    fn address(&self, page: entresol_core::Page) -> entresol_core::Address {
        entresol_core::Address { object: entresol_core::ObjectId(0), block: u64::from(page.0) }
    }
    fn successor(&self, _page: entresol_core::Page) -> Option<entresol_core::Page> {
        None
    }
    fn predecessor(&self, _page: entresol_core::Page) -> Option<entresol_core::Page> {
        None
    }
    fn object_pages(&self, _object: entresol_core::ObjectId) -> u64 {
        0
    }
}

struct Misses<'a>(&'a [u32]);

impl Visitor for Misses<'_> {
    type Output = usize;

    fn visit<P: Policy>(self, mut policy: P) -> usize {
        self.0.iter().filter(|&&page| !policy.access(Request::read(page), &mut Count).is_hit()).count()
    }
}

/// Misses of a policy written as on the command line, `2q:kin=30%`.
fn misses(policy: &str, capacity: usize, trace: &[u32]) -> usize {
    let mut parts = policy.split(':');
    let info = catalogue::info(parts.next().expect("a name")).expect("a policy");
    let options = Options::parse(info, parts).expect("known options");
    let pages = trace.iter().max().map_or(0, |&page| page as usize + 1);
    catalogue::build(info, &Config::single(pages, capacity), &options, Misses(trace)).expect("a buildable policy")
}

/// Runs a policy over each cell of an oracle: trace, capacity, expected misses; fails where they differ by more
/// than a share of the expected misses.
fn within(tolerance: f64, policy: &str, cells: &[(&str, usize, usize)]) {
    for &(name, capacity, expected) in cells {
        let Some(trace) = common::load(name) else { return };
        let got = misses(policy, capacity, &trace);
        let error = (got as f64 - expected as f64).abs() / expected as f64;
        assert!(error <= tolerance, "{policy} on {name}, {capacity} pages: {got} misses, expected {expected}");
    }
}

#[test]
fn arc_misses_exactly_what_libcachesim_does() {
    let cells =
        [("zipf200k", 200, 93447), ("zipf200k", 2000, 51687), ("mixed200k", 200, 160239), ("mixed200k", 2000, 142759)];
    within(0.0, "arc", &cells);
}

#[test]
fn arc_with_whole_steps_misses_exactly_what_the_authors_of_cacheus_do() {
    let cells =
        [("zipf200k", 200, 93450), ("zipf200k", 2000, 51685), ("mixed200k", 200, 160249), ("mixed200k", 2000, 142068)];
    within(0.0, "arc:step=whole", &cells);
}

#[test]
fn two_q_misses_what_libcachesim_does() {
    let cells =
        [("zipf200k", 200, 96162), ("zipf200k", 2000, 53740), ("mixed200k", 200, 161637), ("mixed200k", 2000, 145404)];
    within(0.0001, "2q", &cells);
}
/// libCacheSim forgets the references of an evicted page.
#[test]
fn lru_2_without_history_misses_exactly_what_libcachesim_does() {
    let cells =
        [("zipf200k", 200, 92124), ("zipf200k", 2000, 51306), ("mixed200k", 200, 160197), ("mixed200k", 2000, 144556)];
    within(0.0, "lru-2:history=0p", &cells);
}

/// libCacheSim's life time is 10,000 requests whatever the trace.
#[test]
fn mq_with_a_fixed_life_time_misses_exactly_what_libcachesim_does() {
    let cells =
        [("zipf200k", 200, 88792), ("zipf200k", 2000, 49523), ("mixed200k", 200, 159062), ("mixed200k", 2000, 146421)];
    within(0.0, "mq:lifetime=10000", &cells);
}

/// libCacheSim 0.3.5 bounds CAR's ghosts only when a ghost is asked for, where the paper does so only when none is; at
/// 200 pages of zipf200k it misses 6 % more than the paper's figure does. CAR stays near ARC, as its authors say.
#[test]
fn car_is_near_arc() {
    let arc =
        [("zipf200k", 200, 93447), ("zipf200k", 2000, 51687), ("mixed200k", 200, 160239), ("mixed200k", 2000, 142759)];
    within(0.015, "car", &arc);
}

#[test]
fn lirs_misses_what_libcachesim_and_the_authors_of_cacheus_do() {
    let libcachesim =
        [("zipf200k", 200, 93072), ("zipf200k", 2000, 51660), ("mixed200k", 200, 160154), ("mixed200k", 2000, 144105)];
    let cacheus =
        [("zipf200k", 200, 93075), ("zipf200k", 2000, 51638), ("mixed200k", 200, 160155), ("mixed200k", 2000, 144102)];
    within(0.0005, "lirs", &libcachesim);
    within(0.0001, "lirs", &cacheus);
}

/// libCacheSim's CLOCK-Pro misses as often as LRU (112474 and 113760 on zipf200k, 200 pages). The paper says that it
/// approximates LIRS.
#[test]
fn clock_pro_is_near_lirs_and_far_from_lru() {
    let lirs =
        [("zipf200k", 200, 93072), ("zipf200k", 2000, 51660), ("mixed200k", 200, 160154), ("mixed200k", 2000, 144105)];
    within(0.02, "clock-pro", &lirs);
    let Some(trace) = common::load("zipf200k") else { return };
    for capacity in [200, 2000] {
        let [lru, clock_pro] = ["lru", "clock-pro"].map(|policy| misses(policy, capacity, &trace));
        assert!(clock_pro * 10 < lru * 9, "{capacity} pages: clock-pro {clock_pro} misses, lru {lru}");
    }
}
