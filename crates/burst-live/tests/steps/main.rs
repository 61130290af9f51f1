//! Faults of real processes at named steps. Writers, nodes and the coordinator are processes of this test's own program; every
//! message between them passes a relay of the test, and every call to the PFS is announced to it. As a message of a chosen
//! kind is about to pass, or a call is about to be made, the test kills a process, cuts a link, moves the nodes to a second
//! coordinator, or has the PFS fill, fail or hang. The promises are those of `kills.rs`, and besides:
//!
//! - A node admits no write under a lease that has ended, or of another coordinator than the one that it has joined.
//! - Bytes on the PFS are synced before they get their name, and the name before the next file.
//! - A failure of the PFS is reported by the node that met it.

#[path = "../common/mod.rs"]
mod common;
mod director;
mod relay;
mod testbed;

use common::processes::{Checked, play};
use director::{Fault, Step};
use entresol_core::Random;
use relay::{DIRECT, DRAIN};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use testbed::{Outcome, Testbed};

/// Messages of writers and their answers.
const WRITES: [Step; 12] = [
    "open",
    "granted",
    "fill",
    "filled",
    "write",
    "written",
    "copy",
    "copied",
    "store",
    "stored",
    "commit",
    "committed",
];
/// Messages of a node that starts.
const JOINS: [Step; 4] = ["hello", "welcome", "report", "reported"];
/// Messages of a node about its pieces.
const NEWS: [Step; 2] = ["events", "orders"];
/// Messages of a reader.
const READS: [Step; 6] = ["nodes", "known", "list", "listed", "read", "chunk"];
/// Rounds that run at the same time: most of a round is waiting.
const TOGETHER: usize = 3;
/// Rounds of `make test`: one of so many.
const ONE_OF: usize = 13;

/// Held by the test that runs: times of writers are checked, and the rounds of several tests would take the processors from each other.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Body of the processes that the tests start.
#[test]
#[ignore = "a process that other tests of this file start; it ends at once without their arguments"]
fn process() {
    play();
}

/// Every fault with every step at which it can be made. A reader's steps have no writer.
fn pairs() -> Vec<(Fault, Step)> {
    use Fault::*;
    let of_daemons = [NodeKilled, CoordinatorKilled, NodeCut, CoordinatorCut];
    let of_all = [WriterKilled, NodeKilled, CoordinatorKilled, WriterCut, NodeCut, CoordinatorCut, TwoCoordinators];
    let of_pfs = [PfsFull, PfsError, PfsStalled];
    let calls = [DRAIN, DIRECT].concat();
    let steps = [&WRITES[..], &JOINS, &NEWS, &calls].concat();
    let tables = [(&of_all[..], &steps[..]), (&of_daemons, &READS), (&of_pfs, &calls)];
    let of_table = |(faults, steps): (&[Fault], &[Step])| {
        steps.iter().flat_map(|&step| faults.iter().map(|&fault| (fault, step)).collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    tables.into_iter().flat_map(of_table).collect()
}

/// Strikes of rounds that hold.
#[derive(Debug, Default)]
struct Counts {
    strikes: BTreeMap<(Fault, Step), u64>,
    /// Rounds whose step was not reached.
    missed: Vec<(Fault, Step)>,
    refused: BTreeMap<&'static str, u64>,
    /// Pieces that writers have filled by themselves, and chunks that they have sent.
    filled: u64,
    sent: u64,
    longest: Duration,
    /// Writers that were killed before their acknowledgement.
    again: u64,
    /// Rounds that do not hold.
    broken: Vec<String>,
}

impl Counts {
    fn add(&mut self, pair: (Fault, Step), outcome: Checked<Outcome>) {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(why) => {
                println!("{why}");
                return self.broken.push(why);
            }
        };
        match outcome.is_struck {
            true => *self.strikes.entry(pair).or_default() += 1,
            false => self.missed.push(pair),
        }
        outcome.refused.into_iter().for_each(|(reason, count)| *self.refused.entry(reason).or_default() += count);
        self.filled += outcome.filled;
        self.sent += outcome.sent;
        self.longest = self.longest.max(outcome.longest);
        self.again += u64::from(outcome.is_put_again);
    }

    fn print(&self) {
        let by = |of: fn(&(Fault, Step)) -> String| {
            let mut counts: BTreeMap<String, u64> = BTreeMap::new();
            self.strikes.iter().for_each(|(pair, count)| *counts.entry(of(pair)).or_default() += count);
            counts
        };
        println!("strikes: {}", self.strikes.values().sum::<u64>());
        println!("by fault: {:?}", by(|(fault, _)| format!("{fault:?}")));
        println!("by step: {:?}", by(|(_, step)| (*step).to_owned()));
        println!("not reached, and not counted: {:?}", self.missed);
        println!("refused: {:?}; pieces filled {}, chunks sent {}", self.refused, self.filled, self.sent);
        println!("longest put {:?}; ranks put again by a new writer: {}", self.longest, self.again);
    }
}

/// Runs a round: a pair of its number, in a testbed of its own.
fn run(seed: u64, pair: (Fault, Step), passes: u64, mutant: Option<&str>) -> Checked<Outcome> {
    let (fault, step) = pair;
    let outcome = Testbed::new(seed, fault, step, mutant).and_then(|mut testbed| testbed.run(passes));
    outcome.map_err(|why| format!("seed {seed}: {fault:?} at {step}: {why}"))
}

/// Strikes once for each pair. A step that is not reached a random number of times is tried at its first.
fn run_all(seed: u64, pairs: &[(Fault, Step)]) -> Counts {
    let (next, counts) = (AtomicUsize::new(0), Mutex::new(Counts::default()));
    let begin = Instant::now();
    let work = || {
        while let Some(&pair) = pairs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let seed = Random::mix(seed ^ u64::from(fingerprint(pair)));
            for passes in [Random::new(seed).below(most_passes(pair.1)), 0, 0] {
                let outcome = run(seed, pair, passes, None);
                let is_missed = matches!(outcome, Ok(Outcome { is_struck: false, .. }));
                counts.lock().expect("no round panics").add(pair, outcome);
                if !is_missed {
                    break;
                }
            }
        }
    };
    std::thread::scope(|scope| (0..TOGETHER).for_each(|_| drop(scope.spawn(work))));
    let counts = counts.into_inner().expect("no round panics");
    println!("seed {seed}, {:.0} s", begin.elapsed().as_secs_f64());
    counts.print();
    assert!(counts.broken.is_empty(), "{:#?}", counts.broken);
    let missed: Vec<_> = pairs.iter().filter(|pair| !counts.strikes.contains_key(pair)).collect();
    assert!(missed.is_empty(), "never struck: {missed:?}");
    counts
}

/// A number of a pair that stays when others come or go.
fn fingerprint(pair: (Fault, Step)) -> u32 {
    format!("{pair:?}").bytes().fold(0, |sum: u32, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
}

/// Times that a step is passed for certain, or nearly so: the strike is made at one of them.
fn most_passes(step: Step) -> u64 {
    match step {
        step if JOINS.contains(&step) => 1,
        step if NEWS.contains(&step) => 2,
        step if DRAIN.contains(&step) => 6,
        _ => 3,
    }
}

fn seed() -> u64 {
    std::env::var("ENTRESOL_BURST_SEED").map_or(1, |seed| seed.parse().expect("a seed"))
}

/// A fixed part of the pairs. `ENTRESOL_BURST_SEED` is the seed.
#[test]
fn faults_at_some_steps_lose_nothing_that_was_promised() {
    let _alone = alone();
    let some: Vec<_> = pairs().into_iter().step_by(ONE_OF).collect();
    let counts = run_all(seed(), &some);
    assert!(counts.filled > 0 && counts.sent > 0, "one of the two ways of a writer was not taken");
}

/// `cargo test -p entresol-burst-live --test steps -- --ignored faults_at_every --nocapture`. `ENTRESOL_BURST_SEED` is the seed.
#[test]
#[ignore = "two hundred strikes take minutes: `make test-long` runs it"]
fn faults_at_every_step_lose_nothing_that_was_promised() {
    let _alone = alone();
    let counts = run_all(seed(), &pairs());
    assert!(counts.strikes.values().sum::<u64>() >= 200);
    assert!(counts.refused.contains_key("epoch"), "no grant of an older coordinator was presented");
    assert!(counts.refused.contains_key("lease"), "no lease has ended before its write");
}

/// Steps that are left out, and the faults that show it.
const MUTANTS: [(&str, Fault, Step); 8] = [
    ("RenamedUnsynced", Fault::PfsStalled, DRAIN[4]),
    ("NamesUnsynced", Fault::PfsStalled, DRAIN[4]),
    ("AcknowledgedUncopied", Fault::NodeKilled, DRAIN[1]),
    ("FreedUndrained", Fault::PfsStalled, DRAIN[0]),
    ("DrainNotRepeated", Fault::PfsError, DRAIN[1]),
    ("PromoteIgnored", Fault::NodeKilled, DRAIN[0]),
    ("LeaseIgnored", Fault::WriterCut, "write"),
    ("EpochNotCompared", Fault::TwoCoordinators, "granted"),
];
/// Rounds in which a step that is left out is found.
const TRIES: u64 = 12;

#[test]
#[ignore = "eight mutants take minutes: `make test-long` runs it"]
fn every_step_that_is_left_out_is_found() {
    let _alone = alone();
    let mut missed = Vec::new();
    for (mutant, fault, step) in MUTANTS {
        let found = (0..TRIES).find_map(|seed| run(seed, (fault, step), 0, Some(mutant)).err());
        println!("{mutant}: {found:?}");
        if found.is_none() {
            missed.push(mutant);
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
