//! Estimates from measurements, each with a confidence interval.

mod stats;

pub use stats::{Estimate, bootstrap, bootstrap_groups, interpolate, line_through, mean, median, percentile};
