//! Misses of the offline policies on the oracle traces: MIN as an independent simulator counts it
//! (`data/oracles/policies/libcachesim_small_200k.csv`, `belady`), and what must hold whatever the trace.

use crate::common;
use crate::count::{count, reads};
use entresol_core::{Op, Page, Random, Request};
use entresol_policy::catalogue;

#[test]
fn misses_of_min_are_those_of_an_independent_simulator() {
    for (trace, expected) in [("zipf200k", [77_636, 35_747]), ("mixed200k", [145_938, 108_961])] {
        let Some(pages) = common::load(trace) else { return };
        let misses = [200, 2000].map(|capacity| count("min", capacity, &reads(&pages)).misses);
        assert_eq!(misses, expected, "{trace}");
    }
}

/// Families of one tier that bring in every requested page and no other: the optimum is defined for them.
const ADMIT_ALL: &[&str] = &["classic", "offline", "modern", "adaptive", "learned", "dirty"];

/// A trace of skewed reads and writes with a loop and phases, from a seed.
fn mixture(seed: u64, requests: usize) -> Vec<Request> {
    println!("seed {seed}");
    let mut random = Random::new(seed);
    (0..requests)
        .map(|i| {
            let phase = (i * 5 / requests) as u64;
            let page = match random.below(3) {
                0 => i as u64 % 300,
                1 => 300 + random.below(1 + random.clone().below(700)),
                _ => (phase * 100 + random.below(150)) % 1000,
            };
            let op = if random.chance(0.3) { Op::Write } else { Op::Read };
            Request { page: Page(page as u32), op, sequential: false }
        })
        .collect()
}

#[test]
fn no_policy_that_admits_every_page_misses_less_than_min() {
    for seed in 0..3 {
        let requests = mixture(seed, 20_000);
        for capacity in [20, 200] {
            let min = count("min", capacity, &requests).misses;
            for info in catalogue::ALL.iter().filter(|info| ADMIT_ALL.contains(&info.family)) {
                let misses = count(info.name, capacity, &requests).misses;
                println!("{} {capacity}: {misses}, min {min}", info.name);
                assert!(misses >= min, "{} beats the optimum at {capacity} pages: {misses} < {min}", info.name);
            }
        }
    }
}

#[test]
fn min_clean_trades_misses_for_writes() {
    for seed in 0..3 {
        let requests = mixture(seed, 20_000);
        let min = count("min", 200, &requests);
        let windows = ["1p", "10%", "50%"].map(|window| count(&format!("min-clean:window={window}"), 200, &requests));
        println!("min {min:?}, windows {windows:?}");
        assert_eq!(windows[0].misses, min.misses, "a window of one page is not MIN");
        assert!(windows[1].writes < min.writes && windows[2].writes < windows[1].writes, "{min:?} {windows:?}");
        assert!(windows[1].misses > min.misses && windows[2].misses > windows[1].misses, "{min:?} {windows:?}");
    }
}
