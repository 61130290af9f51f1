//! Which hierarchy of DRAM, NVM, SSD and disk to buy for a workload and a budget: 003, section 5, with endurance and energy, which it
//! leaves out.
//!
//! 1. A [`Catalogue`] says what can be bought; [`candidates`] are the combinations within the budget (003, section 5.2).
//! 2. Each has a bound from the miss-ratio curve of the best possible replacement ([`bound`]): no policy of its tiers is faster.
//! 3. [`search`] simulates them with device time, the cheapest first, and leaves out what a cheaper one, already simulated, beats
//!    even at its bound. Nothing that is left out can be the answer.
//! 4. [`choose`] takes the best by an [`Objective`] within [`Limits`], or says which comes nearest.
//! 5. [`warnings`] says which caches are worse than none, or too small for their prediction.
//! 6. [`what_if`] asks again with other prices, another NVM and halves of the trace.

pub mod bound;
mod candidate;
mod catalogue;
mod choose;
mod measure;
mod search;
mod warn;
mod whatif;

pub use candidate::{Candidate, Candidates, Part, Policies, Scale, candidates};
pub use catalogue::{Catalogue, Class, Endurance, Item, Piece};
pub use choose::{Choice, Limits, Objective, choose, front};
pub use measure::{Known, Measured, PartUse, Workload};
pub use search::{FINALISTS, Fate, SearchOptions, Tried, search, usual_sample};
pub use warn::{Cramped, Warning, Worse, warnings};
pub use whatif::{Answer, BreakEven, More, Question, WhatIf, theta, what_if};

/// Why there is no advice.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AdviceError {
    /// The catalogue cannot be used.
    #[error("catalogue '{catalogue}': {what}")]
    Catalogue {
        /// Its name or file.
        catalogue: String,
        /// The fault, and what would do instead.
        what: String,
    },
    /// Nothing in the catalogue can hold the data, or work on it.
    #[error("{0}")]
    NoHierarchy(String),
    /// The budget is too small.
    #[error(
        "nothing fits a budget of ${budget:.2}: the cheapest hierarchy that holds the data is {cheapest} for ${dollars:.2}"
    )]
    Budget {
        /// Money that was allowed, in dollars.
        budget: f64,
        /// The cheapest hierarchy.
        cheapest: String,
        /// Its price.
        dollars: f64,
    },
    /// The trace does not tell hierarchies apart.
    #[error("{0}")]
    Trace(String),
    /// No hierarchy is within all limits.
    #[error("{0}")]
    Limits(String),
    /// The simulation failed.
    #[error("{hierarchy}: {what}")]
    Simulation {
        /// Of which hierarchy.
        hierarchy: String,
        /// Why.
        what: String,
    },
}
