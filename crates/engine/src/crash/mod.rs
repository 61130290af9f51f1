//! Crash tests: random lives of caches of every kind, losing power in the middle of any write or sync, checked against a
//! plain map of durable versions; and mutants of the engine that these tests must find out.

mod history;
mod oracle;

use crate::mutant::{self, Mutant};
use entresol_core::Random;
use history::{History, Setup, Tally};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One random life with several crashes.
fn random_life(seed: u64, crashes: u64) -> Result<Tally, String> {
    let setup = Setup::random(seed);
    let mut history = History::new(setup.clone(), seed);
    let mut random = Random::new(!seed);
    for round in 0..crashes {
        let requests = 1 + random.below(60);
        let power_for = random.chance(0.8).then(|| 1 + random.below(1 + requests / 2));
        history.round(requests, power_for).map_err(|why| format!("seed {seed}, round {round}, {setup:?}: {why}"))?;
    }
    Ok(history.tally)
}

/// Lives of many seeds; the first violation ends it.
fn random_lives(seeds: std::ops::Range<u64>, crashes: u64) -> Result<Tally, String> {
    let mut sum = Tally::default();
    for seed in seeds {
        let tally = catch_unwind(AssertUnwindSafe(|| random_life(seed, crashes)))
            .unwrap_or_else(|panic| Err(format!("seed {seed}: a panic: {:?}", panic.downcast_ref::<String>())))?;
        sum.crashes += tally.crashes;
        sum.crashes_in_recovery += tally.crashes_in_recovery;
        sum.operations += tally.operations;
        sum.reclaimed += tally.reclaimed;
        sum.rescued += tally.rescued;
        sum.cleaned_ahead += tally.cleaned_ahead;
        sum.changes += tally.changes;
        sum.growths += tally.growths;
    }
    Ok(sum)
}

#[test]
fn no_crash_of_a_random_history_loses_what_was_durable() {
    let seeds: u64 = std::env::var("ENTRESOL_CRASH_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(3200);
    let tally = random_lives(0..seeds, 20).unwrap_or_else(|violation| panic!("{violation}"));
    println!("{tally:?}");
    assert!(seeds < 3200 || tally.crashes >= 100_000, "{tally:?}");
    assert!(seeds < 3200 || (tally.changes > 1000 && tally.growths > 1000), "{tally:?}");
    assert!(tally.crashes_in_recovery > 0 && tally.reclaimed > 0 && tally.rescued > 0, "{tally:?}");
    assert!(tally.cleaned_ahead > 0, "{tally:?}");
}

#[test]
fn a_crash_after_every_single_io_of_a_short_history_loses_nothing() {
    let mut crashes = 0;
    for seed in 0..40 {
        let setup = Setup::random(1_000_000 + seed);
        let mut whole = History::new(setup.clone(), seed);
        let before = whole.io_operations();
        whole.round(40, None).unwrap_or_else(|why| panic!("seed {seed}, {setup:?}: {why}"));
        let operations = whole.io_operations() - before;
        for at in 1..=operations {
            let mut history = History::new(setup.clone(), seed);
            history.round(40, Some(at)).unwrap_or_else(|why| panic!("seed {seed}, I/O {at}, {setup:?}: {why}"));
            history.round(10, None).unwrap_or_else(|why| panic!("seed {seed}, after I/O {at}, {setup:?}: {why}"));
            crashes += 2;
        }
    }
    println!("{crashes} crashes");
    assert!(crashes > 1000, "{crashes} crashes only");
}

/// Lives that end with a flipped bit: how often each outcome came about.
fn damaged_lives(seeds: std::ops::Range<u64>) -> Result<[u64; 4], String> {
    let mut outcomes = [0; 4];
    for seed in seeds {
        let setup = Setup::random(2_000_000 + seed);
        let life = AssertUnwindSafe(|| History::new(setup.clone(), seed).damage(60));
        let outcome = catch_unwind(life)
            .unwrap_or_else(|panic| Err(format!("a panic: {:?}", panic.downcast_ref::<String>())))
            .map_err(|why| format!("seed {seed}, {setup:?}: {why}"))?;
        outcomes[outcome as usize] += 1;
    }
    Ok(outcomes)
}

#[test]
fn a_flipped_bit_is_an_error_or_nothing_and_never_a_wrong_byte() {
    let outcomes = damaged_lives(0..4000).unwrap_or_else(|violation| panic!("{violation}"));
    println!("nothing, clean copy, page lost, refused: {outcomes:?}");
    assert!(outcomes.iter().all(|&n| n > 20), "{outcomes:?}");
}

#[test]
fn every_mutant_that_breaks_a_rule_is_found_out() {
    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        mutant::activate(Some(mutant));
        let found =
            random_lives(0..300, 20).and_then(|_| damaged_lives(0..4000)).and_then(|_| random_lives(300..3000, 20));
        mutant::activate(None);
        match found {
            Err(violation) => println!("{mutant:?}: {violation}"),
            Ok(_) => missed.push(mutant),
        }
    }
    assert!(missed.is_empty(), "missed: {missed:?}");
}
