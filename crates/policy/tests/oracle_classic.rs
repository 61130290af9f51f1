//! Misses of the classic policies on the oracle traces, as independent simulators count them.
//!
//! `data/oracles/policies/libcachesim_small_200k.csv`, and for LFU with most-recent ties `cacheus_reference_200k.csv`.

use crate::common;
use crate::count::{count, reads};

/// Policy, then misses on zipf200k at 200 and 2000 pages and on mixed200k at 200 and 2000 pages.
const EXPECTED: &[(&str, [u64; 4])] = &[
    ("fifo", [122_951, 68_870, 173_033, 147_390]),
    ("clock", [111_269, 58_887, 168_477, 143_848]),
    ("lru", [113_760, 60_704, 169_564, 144_524]),
    ("mru", [194_282, 169_691, 198_021, 188_099]),
    ("lfu", [92_821, 51_306, 160_208, 144_556]),
    ("lfu:ties=most-recent", [102_961, 60_125, 166_030, 148_075]),
];

#[test]
fn misses_are_those_of_independent_simulators() {
    let mut wrong = Vec::new();
    for (t, trace) in ["zipf200k", "mixed200k"].into_iter().enumerate() {
        let Some(pages) = common::load(trace) else { return };
        let requests = reads(&pages);
        for &(policy, expected) in EXPECTED {
            for (s, capacity) in [200, 2000].into_iter().enumerate() {
                let (misses, expected) = (count(policy, capacity, &requests).misses, expected[t * 2 + s]);
                if misses != expected {
                    wrong.push(format!("{trace} {policy} {capacity}: {misses}, expected {expected}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn random_misses_as_often_as_fifo_when_references_are_independent() {
    let Some(pages) = common::load("zipf200k") else { return };
    for capacity in [200, 2000] {
        let [random, fifo] = ["random", "fifo"].map(|policy| count(policy, capacity, &reads(&pages)).misses as f64);
        println!("{capacity} pages: random {random}, fifo {fifo}");
        assert!((random / fifo - 1.0).abs() < 0.01, "{capacity} pages: random {random}, fifo {fifo}");
    }
}
