//! Runs of random lives over many seeds: the first violation ends a run, and a panic is one.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Counts of what came about in a life, and sums of them.
pub trait Tally: Default {
    /// Adds what came about in another life.
    fn add(&mut self, other: &Self);
}

/// One life, in which a panic is a violation.
///
/// # Errors
/// The violation.
pub fn life<T>(live: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(live)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("a panic: {:?}", words.or(panic.downcast_ref::<&str>().copied())))
    })
}

/// Lives of many seeds: the sum of what came about.
///
/// # Errors
/// The first violation, with its seed.
pub fn sum<T: Tally>(seeds: Range<u64>, live: impl Fn(u64) -> Result<T, String>) -> Result<T, String> {
    let mut sum = T::default();
    for seed in seeds {
        sum.add(&life(|| live(seed)).map_err(|why| format!("seed {seed}: {why}"))?);
    }
    Ok(sum)
}

/// Lives of many seeds that end in one of `N` ways: how often each came about.
///
/// # Errors
/// The first violation, with its seed.
pub fn outcomes<const N: usize>(
    seeds: Range<u64>,
    live: impl Fn(u64) -> Result<usize, String>,
) -> Result<[u64; N], String> {
    let mut outcomes = [0; N];
    for seed in seeds {
        outcomes[life(|| live(seed)).map_err(|why| format!("seed {seed}: {why}"))?] += 1;
    }
    Ok(outcomes)
}

/// The number that an environment variable gives, by which a test is told of more lives or of others.
///
/// # Panics
/// If it is set and no number: a run of other lives than was asked for would say nothing.
pub fn number(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(number) => number.parse().unwrap_or_else(|_| panic!("{variable} is no number: {number}")),
        Err(_) => otherwise,
    }
}
