//! Random runs over many seeds. The first violation ends the series, and a panic is a violation.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Counts of the events of a run, and sums of them.
pub trait Tally: Default {
    /// Adds the events of another run.
    fn add(&mut self, other: &Self);
}

/// One run, in which a panic is a violation.
///
/// # Errors
/// The violation.
pub fn life<T>(live: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(live)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        Err(format!("a panic: {:?}", words.or(panic.downcast_ref::<&str>().copied())))
    })
}

/// Runs of many seeds: the sum of their events.
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

/// Runs of many seeds that end in one of `N` ways: how often each end occurred.
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

/// The number in an environment variable, by which a test gets more runs or others.
///
/// # Panics
/// If the variable is set and is no number: runs other than those asked for would prove nothing.
pub fn number(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(number) => number.parse().unwrap_or_else(|_| panic!("{variable} is no number: {number}")),
        Err(_) => otherwise,
    }
}
