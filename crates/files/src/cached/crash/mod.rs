//! Crash tests of the files' layer: random runs of directories behind caches of every kind. The simulated file system
//! and cache device lose power during any call. The results are checked against a plain model of the promises of POSIX.
//! Mutants of the layer must be found by these tests.

mod conflict;
mod history;
mod killed;
mod known;
mod names;
mod setup;

use crate::mutant::{self, Mutant};
use entresol_core::Random;
use entresol_crashtest::runs::{self, number};
use entresol_store::Layout;
use history::{History, Tally};
use setup::Setup;
use std::ops::Range;
use std::panic::catch_unwind;

/// Layouts of the cache.
const LAYOUTS: [Layout; 3] = [Layout::Log, Layout::Slots, Layout::Segments];
/// Crashes in a run.
const CRASHES: u64 = 20;
/// Runs of a test, unless an environment variable sets another number.
const SEEDS: u64 = 400;
/// Runs of a test with kills in each layout, unless an environment variable sets another number.
const KILL_SEEDS: u64 = 200;
/// Runs within which each mutant other than those of conflicts must be found, unless an environment variable sets
/// another number.
const MUTANT_SEEDS: u64 = 400;

/// One random run with several crashes.
fn run(seed: u64, layout: Layout) -> Result<Tally, String> {
    let setup = Setup::random(seed, layout);
    let mut history = History::new(setup.clone(), seed);
    let mut random = Random::new(!seed);
    for round in 0..CRASHES {
        let steps = 1 + random.below(50);
        let power_for = random.chance(0.8).then(|| 1 + random.below(1 + 3 * steps));
        history.round(steps, power_for).map_err(|why| format!("round {round}, {setup:?}: {why}"))?;
    }
    Ok(history.tally)
}

/// Runs of many seeds; the first violation ends them.
fn random_lives(seeds: Range<u64>, layout: Layout) -> Result<Tally, String> {
    runs::sum(seeds, |seed| run(seed, layout))
}

/// Runs in one layout, with the events that must have occurred in them.
fn check_lives(layout: Layout) {
    let (first, seeds) = (number("ENTRESOL_FILE_CRASH_FIRST", 0), number("ENTRESOL_FILE_CRASH_SEEDS", SEEDS));
    let tally = random_lives(first..first + seeds, layout).unwrap_or_else(|violation| panic!("{violation}"));
    println!("{layout:?}: seeds from {first}: {seeds}, {tally:?}");
    let happened =
        [tally.syncs, tally.renames_over, tally.unlinks, tally.unlinks_while_open, tally.truncates, tally.voids];
    assert!(happened.iter().all(|&times| times > seeds), "{tally:?}");
    assert!(tally.restarts > 0 && tally.faults > 0 && tally.clean_checked > seeds, "{tally:?}");
    assert_eq!(tally.crashes, seeds * CRASHES + tally.crashes_in_recovery, "{tally:?}");
}

#[test]
fn no_crash_of_files_behind_a_log_loses_what_was_synced() {
    check_lives(Layout::Log);
}

#[test]
fn no_crash_of_files_behind_slots_loses_what_was_synced() {
    check_lives(Layout::Slots);
}

#[test]
fn no_crash_of_files_behind_segments_loses_what_was_synced() {
    check_lives(Layout::Segments);
}

/// Kills in a run.
const KILLS: u64 = 20;
/// First seed of runs whose processes are killed.
const KILLED: u64 = 6_000_000;

/// Runs over a log that found faults of a start after a kill, beyond those of a test.
const FOUND_BY_KILLS: [u64; 4] = [877, 938, 2017, 107_942];

/// One random run whose processes are killed again and again; at times the power goes after that.
fn run_with_kills(seed: u64, layout: Layout) -> Result<Tally, String> {
    let setup = Setup::random(KILLED + seed, layout);
    let mut history = History::with_kills(setup.clone(), seed);
    let mut random = Random::new(!seed);
    for round in 0..KILLS {
        let killed = history.kill(1 + random.below(40));
        let killed =
            killed.and_then(|()| if random.chance(0.25) { history.round(random.below(20), None) } else { Ok(()) });
        killed.map_err(|why| format!("kill {round}, {setup:?}: {why}"))?;
    }
    Ok(history.tally)
}

/// Runs of many seeds whose processes are killed; the first violation ends them.
fn lives_with_kills(seeds: Range<u64>, layout: Layout) -> Result<Tally, String> {
    runs::sum(seeds, |seed| run_with_kills(seed, layout))
}

#[test]
fn what_was_answered_is_read_after_a_kill_synced_or_not() {
    for layout in LAYOUTS {
        let (first, seeds) = (number("ENTRESOL_FILE_KILL_FIRST", 0), number("ENTRESOL_FILE_KILL_SEEDS", KILL_SEEDS));
        let tally = lives_with_kills(first..first + seeds, layout).unwrap_or_else(|violation| panic!("{violation}"));
        println!("{layout:?}: seeds from {first}: {seeds}, {tally:?}");
        let recoveries = tally.crashes_in_recovery;
        let happened = [tally.sent_again, tally.nameless_checked, tally.repeated, recoveries, tally.renames_over];
        assert!(seeds < 100 || happened.iter().all(|&times| times > seeds), "{tally:?}");
    }
}

#[test]
fn what_kills_have_found_is_not_so_any_more() {
    for seed in FOUND_BY_KILLS {
        run_with_kills(seed, Layout::Log).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    }
}

#[test]
fn every_mutant_of_the_files_layer_is_found_out() {
    let (seeds, mut missed) = (number("ENTRESOL_FILE_MUTANT_SEEDS", MUTANT_SEEDS), Vec::new());
    let others = |mutant: &Mutant| !Mutant::CONFLICTS.contains(mutant) && !Mutant::KILLS.contains(mutant);
    for mutant in Mutant::ALL.into_iter().filter(others) {
        mutant::activate(Some(mutant));
        let known = known::SCENARIOS.iter().any(|scenario| catch_unwind(scenario).is_err());
        let found = LAYOUTS.into_iter().try_for_each(|layout| random_lives(0..seeds, layout).map(drop));
        mutant::activate(None);
        match (found, known) {
            (Err(violation), _) => println!("{mutant:?}: {violation}"),
            (Ok(()), true) => println!("{mutant:?}: by a known sequence"),
            (Ok(()), false) => missed.push(mutant),
        }
    }
    assert_eq!(missed, [], "missed within {seeds} lives over each layout");
}

#[test]
fn every_mutant_of_a_start_after_a_kill_is_found_out() {
    let (seeds, mut missed) = (number("ENTRESOL_FILE_KILL_MUTANT_SEEDS", MUTANT_SEEDS), Vec::new());
    for mutant in Mutant::KILLS {
        mutant::activate(Some(mutant));
        let known = killed::SEQUENCES.iter().any(|sequence| catch_unwind(sequence).is_err());
        let found = match known {
            true => Err("a known sequence".to_owned()),
            false => LAYOUTS.into_iter().try_for_each(|layout| lives_with_kills(0..seeds, layout).map(drop)),
        };
        mutant::activate(None);
        match found {
            Err(violation) => println!("{mutant:?}: {violation}"),
            Ok(()) => missed.push(mutant),
        }
    }
    assert_eq!(missed, [], "missed within {seeds} lives over each layout");
}
