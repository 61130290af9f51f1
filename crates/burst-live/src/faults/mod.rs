//! Faults at every step of the live half, in seeded schedules.

mod cluster;
mod files;
mod oracle;
mod schedule;
mod strikes;

use cluster::Mutants;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use std::ops::Range;
use strikes::{Counts, run};

/// Keeps this thread, and those that it starts, on one processor: one runs at a time, and to wake a thread on another
/// processor costs ten times as much.
fn stay_on_one_processor() {
    let mut one = CpuSet::new();
    one.set(sched_getcpu());
    // A system that refuses is slower.
    let _ = sched_setaffinity(None, &one);
}

/// The first seed of a schedule that breaks a promise, and the promise.
fn broken(seeds: Range<u64>, mutants: Mutants) -> Option<(u64, String)> {
    seeds.into_iter().find_map(|seed| run(seed, mutants).err().map(|why| (seed, why)))
}

#[test]
fn seeded_faults() {
    stay_on_one_processor();
    let from = std::env::var("ENTRESOL_BURST_SEEDS").unwrap_or_else(|_| "0..300".to_owned());
    let (from, to) = from.split_once("..").expect("FROM..TO");
    let mut counts = Counts::default();
    let mut failed = 0;
    let begin = std::time::Instant::now();
    for seed in from.parse::<u64>().expect("a seed")..to.parse().expect("a seed") {
        match run(seed, Mutants::default()) {
            Ok(of) => counts.add(&of),
            Err(why) => {
                failed += 1;
                println!("seed {seed}: {why}");
            }
        }
    }
    println!("{counts:?} {failed} {:?}", begin.elapsed());
    assert_eq!(failed, 0);
}

#[test]
fn mutants() {
    stay_on_one_processor();
    for mutant in crate::mutant::Mutant::ALL {
        let begin = std::time::Instant::now();
        let found = broken(0..3000, Mutants { live: Some(mutant), protocol: None });
        println!("{mutant:?}: {found:?} {:?}", begin.elapsed());
    }
    for mutant in entresol_burst::Mutant::ALL {
        let begin = std::time::Instant::now();
        let found = broken(0..1000, Mutants { live: None, protocol: Some(mutant) });
        println!("{mutant:?}: {found:?} {:?}", begin.elapsed());
    }
}
