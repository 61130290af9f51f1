//! Searches for the best point of a space, regardless of the cost of looking.

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
    /// Score of the point over that of the start's settings.
    pub value: f64,
    /// True if the point is better than the held one, beyond doubt, and is held now.
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
    /// No search: points to adopt are found elsewhere.
    External,
}

impl Search {
    /// The point to try next, the same until [`Search::told`]; `None` when the search is over.
    pub fn propose(&mut self, space: &Space) -> Option<Point> {
        match self {
            Search::Annealing(search) => search.propose(space),
            Search::Climb(search) => search.propose(space),
            Search::Halving(search) => search.propose(),
            Search::External => None,
        }
    }

    /// Reports the result of the proposed point.
    pub fn told(&mut self, space: &Space, verdict: Verdict) {
        match self {
            Search::Annealing(search) => search.told(verdict),
            Search::Climb(search) => search.told(space, verdict),
            Search::Halving(search) => search.told(space, verdict),
            Search::External => {}
        }
    }

    /// Begins anew from a point whose score is `value` times that of the start's settings.
    pub fn restart(&mut self, space: &Space, from: &[usize], value: f64) {
        match self {
            Search::Annealing(search) => search.restart(from, value),
            Search::Climb(search) => search.restart(from),
            Search::Halving(search) => search.restart(space, from),
            Search::External => {}
        }
    }

    /// All points that the search keeps.
    pub(crate) fn points(&self) -> Vec<&Point> {
        match self {
            Search::Annealing(search) => search.points().collect(),
            Search::Climb(search) => search.points().collect(),
            Search::Halving(search) => search.points().collect(),
            Search::External => Vec::new(),
        }
    }

    /// True if the search is over.
    pub fn is_over(&self) -> bool {
        match self {
            Search::Annealing(search) => search.is_over(),
            Search::Climb(search) => search.is_over(),
            Search::Halving(search) => search.is_over(),
            Search::External => true,
        }
    }
}

/// A stream of random numbers for the `n`-th use of a seed. The state of a search that draws is then two numbers.
pub(crate) fn stream(seed: u64, n: u64) -> Random {
    Random::new(Random::mix(seed ^ Random::mix(n)))
}
