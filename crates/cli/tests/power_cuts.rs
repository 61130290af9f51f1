//! Power cuts under load: the cache and its backing store each on an ext4 of its own, on loop devices over files that
//! lose unflushed writes. Nothing may be lost that ext4 alone would have kept. Only root may make loop devices.
//!
//! `ENTRESOL_CUTS` is the number of cuts of each kind (`make test-power-cuts`: 300), and `ENTRESOL_CUTS_FIRST` the
//! seed of the first. `ENTRESOL_MUTANTS_BINARY` names a program that was built with the feature `mutants`: the cuts
//! must detect its fault.

#[path = "power/load.rs"]
mod load;
#[path = "power/postgres.rs"]
mod postgres;
#[path = "../../names/tests/support/mod.rs"]
mod servers;
#[path = "power/sqlite.rs"]
mod sqlite;
#[path = "power/testbed.rs"]
mod testbed;
#[path = "power/withholding.rs"]
mod withholding;

use entresol_core::Random;
use load::{Load, Pace};
use postgres::Cluster;
use rustix::process::Signal;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use testbed::{How, Program, Running, Testbed};

const CUTS: u64 = 3;
/// Cuts within which a mutant must be detected.
const MUTANT_CUTS: u64 = 24;
/// The same for PostgreSQL, whose cuts take longer.
const MUTANT_CUTS_OF_POSTGRES: u64 = 4;

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |number| number.parse().expect("a number"))
}

/// Seeds of the cuts: at least this many.
fn seeds(at_least: u64) -> Range<u64> {
    let first = number("ENTRESOL_CUTS_FIRST", 0);
    first..first + number("ENTRESOL_CUTS", CUTS).max(at_least)
}

fn can_run(test: &str) -> bool {
    let need = if !rustix::process::geteuid().is_root() {
        "root"
    } else if !Path::new("/dev/fuse").exists() {
        "/dev/fuse"
    } else if !Path::new("/dev/loop-control").exists() {
        "/dev/loop-control"
    } else if Command::new("mkfs.ext4").arg("-V").output().is_err() {
        "mkfs.ext4"
    } else {
        return true;
    };
    entresol_skip::skipped!(need, "{test}: there is no {need}");
    false
}

/// Outcome of a cut.
#[derive(Debug, Default)]
struct Round {
    calls: u64,
    renames: u64,
    unlinks: u64,
    /// Sectors not synced at the cut, and how many of them were kept.
    at_cut: (u64, u64),
    /// True if an unsynced write was lost.
    lost_unsynced: bool,
}

/// A cut of a load of files.
struct Trial<'a> {
    program: &'a Program,
    cached: Option<How>,
    pace: Pace,
    /// The disk whose syncs do nothing.
    lies: Option<&'a str>,
}

impl Trial<'_> {
    /// Runs the load, cuts the power in the middle, and checks the remaining state.
    fn round(&self, seed: u64) -> Result<Round, String> {
        let testbed = Testbed::new(self.program);
        let mut random = Random::new(seed);
        let running = Running::begin(&testbed, self.cached);
        if let (Some(name), Some((_, layer))) = (self.lies, &running.withheld) {
            layer.lie(fs::metadata(testbed.image(name)).expect("an image").ino());
        }
        let mut load = Load::new(&running.directory, random.next_u64(), self.pace);
        let at_cut = running.until_the_cut(&testbed, &mut random, &AtomicBool::new(true), |is_over| load.run(is_over));
        let running = Running::again(&testbed, self.cached)?;
        let lost_unsynced = load.verify(&running.directory)?;
        let Load { done: calls, renames, unlinks, .. } = load;
        Ok(Round { calls, renames, unlinks, at_cut, lost_unsynced })
    }
}

/// The same for SQLite: rows that were committed, and rows found.
fn round_of_sqlite(seed: u64, how: How, journal: &str) -> Result<(u64, u64), String> {
    let testbed = Testbed::new(&Program::ours());
    let mut random = Random::new(seed);
    let running = Running::begin(&testbed, Some(how));
    let database = running.directory.join("database");
    sqlite::make(&database, journal);
    let mut committed = 0;
    running.until_the_cut(&testbed, &mut random, &AtomicBool::new(true), |is_over| {
        committed = sqlite::run(&database, journal, is_over);
    });
    let running = Running::again(&testbed, Some(how))?;
    let found = sqlite::verify(&running.directory.join("database"), committed)?;
    Ok((committed, found))
}

/// The same for PostgreSQL, whose server is shut down at once at the cut.
fn round_of_postgres(program: Program, seed: u64, how: How, cluster: &Cluster) -> Result<(u64, u64), String> {
    let testbed = Testbed::before(&program.run_by_nobody(), &cluster.disk());
    let mut random = Random::new(seed);
    let running = Running::begin(&testbed, Some(how));
    let server = cluster.start(&running.directory)?;
    let mut committed = Default::default();
    let load = random.next_u64();
    let begun = AtomicBool::new(false);
    running.until_the_cut(&testbed, &mut random, &begun, |is_over| {
        committed = server.run(load, &begun, is_over);
        server.stop(Signal::QUIT);
    });
    let running = Running::again(&testbed, Some(how))?;
    let server = cluster.start(&running.directory)?;
    let found = server.verify(committed)?;
    server.stop(Signal::INT);
    cluster.check_pages(&running.directory)?;
    Ok((committed.iter().sum(), found))
}

const HOW: [How; 8] = [
    How { layout: "log", mode: "write-back", policy: "lru" },
    How { layout: "slots", mode: "write-back", policy: "lru" },
    How { layout: "log", mode: "write-back", policy: "face-gsc" },
    How { layout: "slots", mode: "write-back", policy: "h-arc" },
    How { layout: "log", mode: "write-through", policy: "lru" },
    How { layout: "slots", mode: "write-around", policy: "lru" },
    How { layout: "segments", mode: "write-back", policy: "reuse" },
    How { layout: "segments", mode: "write-through", policy: "lru" },
];

/// The cache of a round. The first three rounds have each layout, and any eight have each cache.
fn how(round: u64) -> How {
    HOW[3 * round as usize % HOW.len()]
}

#[test]
fn nothing_that_was_synced_is_lost_when_the_power_goes() {
    if !can_run("nothing_that_was_synced_is_lost_when_the_power_goes") {
        return;
    }
    let (program, seeds) = (Program::ours(), seeds(CUTS));
    let (mut total, mut lost) = (Round::default(), 0);
    // A cut may find that everything has been flushed: up to ten more are made until one does not.
    for seed in seeds.start..seeds.end + 10 {
        if seed >= seeds.end && total.at_cut.0 + lost > 0 {
            break;
        }
        let how = how(seed);
        // Each pair of a pace and a cache comes once in sixteen.
        let pace = [Pace::Busy, Pace::Calm][(seed + seed / 8) as usize % 2];
        let trial = Trial { program: &program, cached: Some(how), pace, lies: None };
        let round = trial.round(seed).unwrap_or_else(|why| panic!("seed {seed}, {how:?}, {pace:?}: {why}"));
        println!("seed {seed}, {how:?}, {pace:?}: {round:?}");
        total.calls += round.calls;
        total.renames += round.renames;
        total.unlinks += round.unlinks;
        total.at_cut = (total.at_cut.0 + round.at_cut.0, total.at_cut.1 + round.at_cut.1);
        lost += u64::from(round.lost_unsynced);
    }
    println!("seeds {seeds:?}: {total:?}; in {lost} something was lost that had not been synced");
    assert!(total.calls > 0 && total.at_cut.0 + lost > 0, "there was a load, and something to lose: {total:?}");
}

#[test]
fn what_sqlite_committed_is_there_after_the_power_went() {
    let test = "what_sqlite_committed_is_there_after_the_power_went";
    if !can_run(test) {
        return;
    }
    if Command::new("sqlite3").arg("-version").output().is_err() {
        return entresol_skip::skipped!("sqlite3", "{test}: sqlite3 is not installed");
    }
    let (mut total, seeds) = (0, seeds(4));
    for seed in seeds.clone() {
        let journal = ["delete", "truncate", "persist", "wal"][seed as usize % 4];
        // Every pair of a journal and a cache comes once in thirty-two rounds.
        let how = how(seed + seed / 8);
        let rows = round_of_sqlite(seed, how, journal);
        let (committed, found) = rows.unwrap_or_else(|why| panic!("seed {seed}, {how:?}, {journal}: {why}"));
        println!("seed {seed}, {how:?}, {journal}: {committed} rows known to be committed, {found} found");
        total += committed;
    }
    println!("SQLite, seeds {seeds:?}: {total} rows known to be committed");
    assert!(total > 0, "there was a load");
}

#[test]
fn what_postgresql_committed_is_there_after_the_power_went() {
    let test = "what_postgresql_committed_is_there_after_the_power_went";
    if !can_run(test) {
        return;
    }
    let Some(cluster) = Cluster::new(test) else { return };
    let (mut total, seeds) = (0, seeds(CUTS));
    for seed in seeds.clone() {
        let how = how(seed);
        let rows = round_of_postgres(Program::ours(), seed, how, &cluster);
        let (committed, found) = rows.unwrap_or_else(|why| panic!("seed {seed}, {how:?}: {why}"));
        println!("seed {seed}, {how:?}: {committed} rows known to be committed, {found} found");
        total += committed;
    }
    println!("PostgreSQL, seeds {seeds:?}: {total} rows known to be committed");
    assert!(total > 0, "there was a load");
}

/// Checks that a cut has an effect. Without a cache, in one round of ten at least, a cut loses unsynced writes. No cut
/// loses synced ones.
#[test]
fn without_a_cache_only_what_was_not_synced_is_lost() {
    if !can_run("without_a_cache_only_what_was_not_synced_is_lost") {
        return;
    }
    let (program, seeds) = (Program::ours(), seeds(10));
    let trial = Trial { program: &program, cached: None, pace: Pace::Busy, lies: None };
    let lost = seeds
        .clone()
        .filter(|&seed| trial.round(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}")).lost_unsynced)
        .count();
    println!("without a cache, seeds {seeds:?}: in {lost} rounds something was lost that had not been synced");
    assert!(lost * 10 >= seeds.count(), "the cuts are none");
}

/// Asserts that some of `cuts` cuts find a fault; prints how many, and the first one's message.
fn found(of: &str, cuts: u64, mut round: impl FnMut(u64, How) -> Result<(), String>) {
    let found: Vec<(u64, String)> =
        (0..cuts).filter_map(|seed| Some((seed, round(seed, HOW[seed as usize % 4]).err()?))).collect();
    let (seed, why) = found.first().unwrap_or_else(|| panic!("{of}: nobody has noticed in {cuts} cuts"));
    let why: String = why.chars().take(300).collect();
    println!("{of}: found in {} of {cuts} cuts, first with seed {seed}: {why}", found.len());
}

/// A cache device whose syncs do nothing loses synced writes, and a round detects that.
#[test]
fn a_cache_device_that_lies_about_its_syncs_is_found() {
    if !can_run("a_cache_device_that_lies_about_its_syncs_is_found") {
        return;
    }
    let program = Program::ours();
    found("syncs of the cache device do nothing", MUTANT_CUTS, |seed, how| {
        Trial { program: &program, cached: Some(how), pace: Pace::Busy, lies: Some("fast") }.round(seed).map(drop)
    });
}

/// A program that leaves out a step; none, with a message, where there is none.
fn mutant(test: &str, step: &'static str) -> Option<Program> {
    if !can_run(test) {
        return None;
    }
    let Some(path) = std::env::var_os("ENTRESOL_MUTANTS_BINARY") else {
        let why = "ENTRESOL_MUTANTS_BINARY names no program with the feature `mutants` (make test-power-cuts)";
        entresol_skip::skipped!("mutants", "{test}: {why}");
        return None;
    };
    let path = Path::new(&path);
    let asked = Command::new(path).arg("--version").env("ENTRESOL_MUTANT", step).output().expect("a program");
    let said = String::from_utf8_lossy(&asked.stderr);
    assert!(said.contains(step), "{} cannot leave out a step: {said}", path.display());
    Some(Program::mutant(path, step))
}

#[test]
fn a_directory_that_is_not_synced_before_a_file_is_forgotten_is_found() {
    let (test, step) =
        ("a_directory_that_is_not_synced_before_a_file_is_forgotten_is_found", "files:DirectoryUnsynced");
    let Some(program) = mutant(test, step) else { return };
    found(step, MUTANT_CUTS, |seed, how| {
        Trial { program: &program, cached: Some(how), pace: Pace::Calm, lies: None }.round(seed).map(drop)
    });
}

#[test]
fn a_cache_that_is_not_synced_at_a_flush_is_found() {
    let (test, step) = ("a_cache_that_is_not_synced_at_a_flush_is_found", "engine:NoLogSync");
    let Some(program) = mutant(test, step) else { return };
    found(step, MUTANT_CUTS, |seed, how| {
        Trial { program: &program, cached: Some(how), pace: Pace::Calm, lies: None }.round(seed).map(drop)
    });
    let Some(cluster) = Cluster::new(test) else { return };
    found(&format!("{step}, PostgreSQL"), MUTANT_CUTS_OF_POSTGRES, |seed, how| {
        round_of_postgres(program.clone(), seed, how, &cluster).map(drop)
    });
}
