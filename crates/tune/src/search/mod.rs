//! Ways to look for the best point of a space, without a thought for what looking costs.

mod annealing;
mod climb;
mod halving;

pub use annealing::{Annealing, Schedule};
pub use climb::Climb;
pub use halving::Halving;

use crate::space::{Point, Space};
use entresol_core::Random;
use serde::{Deserialize, Serialize};

/// Result of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Its score over that of the settings the tuner began with.
    pub value: f64,
    /// It is better than what was held, beyond doubt, and is held now.
    pub adopted: bool,
}

/// A search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Search {
    /// Simulated annealing, algorithm 1 of 003.
    Annealing(Annealing),
    /// Hill climbing, one knob after the other.
    Climb(Climb),
    /// Successive halving of samples.
    Halving(Halving),
    /// None: what is adopted is found elsewhere.
    External,
}

impl Search {
    /// The point to try next, the same until [`Search::told`]; none when the search is over.
    pub fn propose(&mut self, space: &Space) -> Option<Point> {
        match self {
            Search::Annealing(search) => search.propose(space),
            Search::Climb(search) => search.propose(space),
            Search::Halving(search) => search.propose(),
            Search::External => None,
        }
    }

    /// Takes notice of what the proposed point was worth.
    pub fn told(&mut self, space: &Space, verdict: Verdict) {
        match self {
            Search::Annealing(search) => search.told(verdict),
            Search::Climb(search) => search.told(space, verdict),
            Search::Halving(search) => search.told(space, verdict),
            Search::External => {}
        }
    }

    /// Begins anew from a point whose score is this many times that of the settings the tuner began with.
    pub fn restart(&mut self, space: &Space, from: &[usize], value: f64) {
        match self {
            Search::Annealing(search) => search.restart(from, value),
            Search::Climb(search) => search.restart(from),
            Search::Halving(search) => search.restart(space, from),
            Search::External => {}
        }
    }

    /// All points that it keeps.
    pub(crate) fn points(&self) -> Vec<&Point> {
        match self {
            Search::Annealing(search) => search.points().collect(),
            Search::Climb(search) => search.points().collect(),
            Search::Halving(search) => search.points().collect(),
            Search::External => Vec::new(),
        }
    }

    /// Is the search over?
    pub fn is_over(&self) -> bool {
        match self {
            Search::Annealing(search) => search.is_over(),
            Search::Climb(search) => search.is_over(),
            Search::Halving(search) => search.is_over(),
            Search::External => true,
        }
    }
}

/// A stream of random numbers for the `n`-th use of a seed. So the state of a search that draws is two numbers.
pub(crate) fn stream(seed: u64, n: u64) -> Random {
    Random::new(Random::mix(seed ^ Random::mix(n)))
}
