//! Amounts of money in a fixed unit, so that sums are exact and an amount is compared as it is printed.

use serde::{Serialize, Serializer};
use std::fmt;
use std::iter::Sum;

/// Units of a dollar.
const UNITS: u64 = 1_000_000;
/// Decimals of a unit in dollars.
const DIGITS: usize = 6;

/// Amount in dollars: a whole number of millionths. It is printed in full, with two decimals or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Money {
    units: u64,
}

impl Money {
    /// Largest amount of [`Money::of`].
    pub const MAX: Money = Money { units: 1_000_000_000 * UNITS };

    /// Amount nearest to this many dollars; `None` if that is less than 0 or more than [`Money::MAX`].
    pub fn of(dollars: f64) -> Option<Money> {
        let units = (dollars * UNITS as f64).round();
        (0.0..=Money::MAX.units as f64).contains(&units).then_some(Money { units: units as u64 })
    }

    /// The amount in dollars.
    pub fn dollars(self) -> f64 {
        self.units as f64 / UNITS as f64
    }

    /// Decimals with which the amount is printed: two, or as many as it has.
    pub fn decimals(self) -> usize {
        (2..DIGITS).find(|&digits| self.units.is_multiple_of(10u64.pow((DIGITS - digits) as u32))).unwrap_or(DIGITS)
    }

    /// Difference between two amounts, whichever is larger.
    #[must_use]
    pub fn difference(self, other: Money) -> Money {
        Money { units: self.units.abs_diff(other.units) }
    }

    /// The amount times a factor, rounded to a unit.
    #[must_use]
    pub fn times(self, factor: f64) -> Money {
        Money { units: (self.units as f64 * factor).round() as u64 }
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.*}", self.decimals(), self.dollars())
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Money>>(amounts: I) -> Money {
        Money { units: amounts.map(|amount| amount.units).sum() }
    }
}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.dollars())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    fn of(dollars: f64) -> Money {
        Money::of(dollars).expect("an amount")
    }

    #[test]
    fn sums_are_exact_and_read_back_as_printed() {
        const SEED: u64 = 31;
        println!("seed {SEED}");
        let mut random = Random::new(SEED);
        for _ in 0..10_000 {
            let parts: Vec<u64> = (0..4).map(|_| random.below(100_000_000)).collect();
            let sum: Money = parts.iter().map(|&cents| of(cents as f64 / 100.0)).sum();
            let cents: u64 = parts.iter().sum();
            assert_eq!(sum.to_string(), format!("{}.{:02}", cents / 100, cents % 100), "{parts:?}");
            assert_eq!(of(sum.to_string().parse().expect("a number")), sum, "{parts:?}");
            let any = Money { units: random.below(4_000 * UNITS) };
            assert_eq!(of(any.to_string().parse().expect("a number")), any);
        }
        // In doubles this sum is 60.480000000000004.
        assert_eq!([of(4.0 * 10.0), of(1024.0 * 0.02)].into_iter().sum::<Money>(), of(60.48));
    }

    #[test]
    fn amounts_are_printed_in_full() {
        for (dollars, text) in
            [(0.0, "0.00"), (700.0, "700.00"), (0.002, "0.002"), (1.234_567_8, "1.234568"), (1e9, "1000000000.00")]
        {
            assert_eq!(of(dollars).to_string(), text);
        }
        assert_eq!(of(2.5).times(0.5).to_string(), "1.25");
        assert_eq!((of(1.1).difference(of(2.2)), of(2.2).difference(of(1.1))), (of(1.1), of(1.1)));
    }

    #[test]
    fn amounts_that_nothing_costs_are_refused() {
        for dollars in [-0.01, 1e9 + 1.0, f64::INFINITY, f64::NAN] {
            assert_eq!(Money::of(dollars), None, "{dollars}");
        }
    }
}
