//! The hierarchy of DRAM, NVM, SSD and disk to buy for a workload and a budget: 003, section 5, with endurance and
//! energy added.
//!
//! 1. A [`Catalogue`] lists the devices on sale; [`candidates`] are the combinations within the budget (003, section
//!    5.2).
//! 2. Each candidate has a bound from the miss-ratio curve of optimal replacement ([`bound`]): no policy of its tiers
//!    is faster.
//! 3. [`search`] simulates them with device time, the cheapest first. A candidate is left out if one simulated before
//!    costs no more and is at least as fast as its bound. No candidate that is left out can be the answer.
//! 4. [`choose`] takes the best by an [`Objective`] within [`Limits`], or names the nearest.
//! 5. [`warnings`] names caches that are worse than none, or too small for their prediction.
//! 6. [`what_if`] repeats the search with other prices, another NVM and halves of the trace.

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

use crate::money::Money;

/// Why there is no advice.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AdviceError {
    /// The catalogue cannot be used.
    #[error("catalogue '{catalogue}': {what}")]
    Catalogue {
        /// Name of the catalogue, or its file.
        catalogue: String,
        /// The fault, and an accepted value.
        what: String,
    },
    /// Nothing in the catalogue can hold the data, or work on it.
    #[error("{0}")]
    NoHierarchy(String),
    /// The budget is too small.
    #[error(
        "nothing fits a budget of ${budget}: the cheapest hierarchy that holds the data is {cheapest} for ${dollars}"
    )]
    Budget {
        /// The budget.
        budget: Money,
        /// The cheapest hierarchy.
        cheapest: String,
        /// Price of that hierarchy.
        dollars: Money,
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
        /// Name of the hierarchy.
        hierarchy: String,
        /// Reason of the failure.
        what: String,
    },
}
