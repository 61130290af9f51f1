//! Estimates from measurements, each with a confidence interval.

mod profile;
mod stats;

pub use profile::to_profile;
pub use stats::{Estimate, bootstrap, bootstrap_groups, interpolate, line_through, mean, median, percentile};
