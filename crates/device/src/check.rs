//! Checks of a device's parameters. A parameter that fails one is named in a sentence with what is expected of it.

use crate::io::Nanos;

/// The longest duration that a profile may state: an hour. Sums of a few of them stay far below the clock's range.
const LONGEST_NS: Nanos = 3_600_000_000_000;

/// The parameters of a model, as a profile states them.
pub trait Parameters {
    /// Checks that every number is possible.
    ///
    /// Names the first impossible parameter: its key, its value and the value expected.
    fn check(&self) -> Result<(), String>;
}

fn refuse(key: &str, value: impl std::fmt::Display, expected: &str) -> Result<(), String> {
    Err(format!("key `{key}` is {value}, expected {expected}"))
}

/// A bandwidth in GB/s, which is the same number in bytes per nanosecond.
pub(crate) fn bandwidth(key: &str, value: f64) -> Result<(), String> {
    if (1e-6..=1e6).contains(&value) { Ok(()) } else { refuse(key, value, "GB/s between 1e-6 and 1e6") }
}

/// A duration, which may be 0.
pub(crate) fn nanos(key: &str, value: Nanos) -> Result<(), String> {
    if value <= LONGEST_NS { Ok(()) } else { refuse(key, value, "nanoseconds, at most an hour") }
}

/// A duration above 0: one that is a divisor, or that no real device does without.
pub(crate) fn nanos_above_zero(key: &str, value: Nanos) -> Result<(), String> {
    if value == 0 { refuse(key, value, "nanoseconds above 0") } else { nanos(key, value) }
}

/// A whole number within bounds.
pub(crate) fn within(key: &str, value: u64, low: u64, high: u64) -> Result<(), String> {
    if (low..=high).contains(&value) { Ok(()) } else { refuse(key, value, &format!("{low} to {high}")) }
}

/// A size that is a power of two.
pub(crate) fn power_of_two(key: &str, value: u32) -> Result<(), String> {
    if value.is_power_of_two() { Ok(()) } else { refuse(key, value, "a power of two in bytes") }
}

/// A number within bounds; NaN is not.
pub(crate) fn number(key: &str, value: f64, low: f64, high: f64) -> Result<(), String> {
    if (low..=high).contains(&value) { Ok(()) } else { refuse(key, value, &format!("a number from {low} to {high}")) }
}

/// Writes per cell until it fails.
pub(crate) fn endurance(key: &str, value: Option<f64>) -> Result<(), String> {
    value.map_or(Ok(()), |writes| number(key, writes, 1.0, 1e18))
}
