//! A machine whose speed under any settings is known.
#![allow(dead_code, reason = "each test file uses a part of it")]

use entresol_core::{Demand, PARTS, Random};
use entresol_tune::search::{Annealing, Climb, Halving, Schedule, Search};
use entresol_tune::{Epoch, Knob, Objective, Proposal, Role, Shadowing, ShadowingOptions, Space, Tuner};

/// Requests of an epoch, and requests between two questions to the tuner whether the epoch may end.
pub const EPOCH: u64 = 3200;
pub const BEAT: u64 = 100;

/// The four probabilities of 003, in their eager setting.
pub fn probabilities() -> (Space, Vec<usize>) {
    let knob = |name: &str, levels: &[f64]| Knob { name: name.to_owned(), levels: levels.to_vec(), value: 1.0 };
    let (dram, nvm) = (&[0.0, 0.001, 0.01, 0.1, 0.3, 1.0], &[0.0, 0.01, 0.1, 0.2, 0.5, 1.0]);
    Space::new([knob("dr", dram), knob("dw", dram), knob("nr", nvm), knob("nw", nvm)]).expect("a space")
}

/// Every search, by name.
pub fn searches(space: &Space, start: &[usize], seed: u64) -> Vec<(&'static str, Search)> {
    vec![
        ("annealing", Search::Annealing(Annealing::new(Schedule::FAST, start, seed))),
        ("climb", Search::Climb(Climb::new(start))),
        ("halving", Search::Halving(Halving::new(space, start, 32, seed))),
    ]
}

/// An epoch that was run: its proposed settings and its counts.
#[derive(Clone, Debug)]
pub struct Run {
    pub proposal: Proposal,
    pub epoch: Epoch,
}

/// Runs an epoch of the tuner at `speed` requests per second for the values that it proposes.
pub fn run_epoch(tuner: &mut impl Tuner, speed: impl FnOnce(&[f64], Role) -> f64) -> Run {
    let proposal = tuner.propose();
    let per_second = speed(&proposal.values, proposal.role);
    let mut epoch = Epoch::default();
    while epoch.requests < EPOCH {
        epoch.requests += BEAT;
        epoch.seconds += BEAT as f64 / per_second;
        if tuner.enough(&epoch) {
            break;
        }
    }
    tuner.told(&epoch);
    Run { proposal, epoch }
}

/// Speed of a setting over the start's, in a phase of this seed. It lies between `slower` times slower and `faster`
/// times faster, evenly distributed on the scale of ratios.
pub fn worth(seed: u64, values: &[f64], slower: f64, faster: f64) -> f64 {
    if values == [1.0; 4] {
        return 1.0;
    }
    let key = values.iter().fold(seed, |key, value| Random::mix(key ^ value.to_bits()));
    let (low, high) = (-slower.ln(), faster.ln());
    (low + (high - low) * Random::new(key).next_f64()).exp()
}

/// A tuner with shadows.
pub fn shadowing(seed: u64) -> Shadowing {
    let (space, start) = probabilities();
    let options = ShadowingOptions { seed, ..ShadowingOptions::default() };
    Shadowing::new(space, start, Objective::Throughput, &options, EPOCH)
}

/// Runs an epoch as [`run_epoch`] does, and reports the shadows' demands to the tuner before it. The shadows run at
/// `foretold` requests per second, from which parts of the sample deviate in opposite directions by up to `noise`.
pub fn run_shadowed(
    tuner: &mut Shadowing,
    random: &mut Random,
    noise: f64,
    foretold: impl Fn(&[f64]) -> f64,
    speed: impl FnOnce(&[f64], Role) -> f64,
) -> Run {
    for shadow in tuner.shadowed() {
        let requests = 100.0;
        let waits = requests / foretold(&shadow.values);
        let part = |_| {
            let waits = waits * (1.0 + noise * (random.next_f64() - 0.5));
            Demand { requests, waits, ..Demand::default() }
        };
        let parts: [Demand; PARTS] = std::array::from_fn(part);
        tuner.foretold(shadow.id, &parts);
    }
    run_epoch(tuner, speed)
}
