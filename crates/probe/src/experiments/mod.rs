//! What can be measured. One file per experiment; each says which section of which paper it follows.

mod fill;
mod lab;
mod latency;

use crate::experiment::Experiment;

/// All experiments, in an order in which each finds the state that it needs: [`Experiment::after`] holds.
pub fn experiments() -> &'static [Experiment] {
    &[fill::EXPERIMENT, latency::EXPERIMENT]
}
