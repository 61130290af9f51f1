//! Faults at every step of the live half, in seeded schedules.

mod cluster;
mod files;
mod oracle;
mod schedule;
mod strikes;

use cluster::Mutants;
use strikes::{Counts, run};

#[test]
fn seeded_faults() {
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
