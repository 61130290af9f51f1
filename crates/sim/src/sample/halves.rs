//! Confidence by halves of a sample, each simulated by itself: balanced half-samples (McCarthy, "Pseudo-replication:
//! half samples", Review of the International Statistical Institute 37, 1969).
//!
//! Bins of the pages' hashes are divided into two halves in several ways, which are orthogonal. The difference of two
//! halves shows the error of the sample. Resampling the misses of one simulation (the bootstrap) does not: each page's
//! misses depend on the other pages in the sample, and a half has its own. The mean of two halves, caches half as large,
//! shows the error of scaling down.

use super::Interval95;

/// Bins of the hashes: a power of two, above the number of divisions.
const BINS: u64 = 64;
/// Most divisions into two halves.
const HALVINGS_MAX: usize = BINS as usize - 1;
/// Requests of a sample that is divided half as often, because each division costs much.
const LARGE: usize = 2_000_000;
/// Shifts from whole to half that an interval has room for. An error that halves when the cache doubles is one shift; one
/// that falls with the square root is 2.4.
const SHIFTS: f64 = 3.0;

/// Divisions of a sample into halves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Halves {
    halvings: usize,
}

impl Halves {
    /// So many divisions, at least 2, or as many as there can be.
    pub fn new(halvings: usize) -> Self {
        Halves { halvings: halvings.clamp(2, HALVINGS_MAX) }
    }

    /// Two divisions for each of `samples`, or one of a sample with many requests.
    pub fn of(samples: usize, requests: usize) -> Self {
        Halves::new(if requests > LARGE { samples } else { samples.saturating_mul(2) })
    }

    /// Number of halves: two for each division.
    pub fn len(self) -> usize {
        2 * self.halvings
    }

    /// True if a page with this hash is in a half. Halves `2 i` and `2 i + 1` are the two of a division.
    pub fn contains(self, half: usize, hash: u64) -> bool {
        // Rows of a Hadamard matrix (Sylvester): each pair of divisions agrees on half of the bins.
        let division = half as u64 / 2 + 1;
        u64::from(((hash % BINS) & division).count_ones()) % 2 == half as u64 % 2
    }

    /// The interval of an estimate from its values for the halves. `unsampled` is the share of the pages that are not
    /// in the sample, `least` the smallest half-width that can be known: a figure of 0 in `n` requests may be `3 / n`.
    pub fn interval(self, value: f64, halves: &[f64], unsampled: f64, least: f64) -> Interval95 {
        let divisions = self.halvings as f64;
        let variance = halves.chunks(2).map(|pair| ((pair[0] - pair[1]) / 2.0).powi(2)).sum::<f64>() / divisions;
        let shift = value - halves.iter().sum::<f64>() / halves.len() as f64;
        let width = ((t_975(divisions).powi(2) * variance + (SHIFTS * shift).powi(2)) * unsampled).sqrt();
        let error = ((variance + shift * shift) * unsampled).sqrt();
        // A half without pages says nothing.
        let width = if width.is_finite() { width.max(least * unsampled.min(1.0)) } else { f64::INFINITY };
        Interval95 { value, error, low: value - width, high: value + width }
    }
}

impl Interval95 {
    /// The interval without values that cannot be, below 0 or above `most`.
    pub(super) fn within(self, most: f64) -> Self {
        let clamp = |value: f64| value.clamp(0.0, most);
        Interval95 { value: clamp(self.value), low: clamp(self.low), high: clamp(self.high), ..self }
    }
}

/// The 97.5 % quantile of Student's t with `degrees` of freedom, by its expansion about the normal one (Abramowitz,
/// Stegun 1964, 26.7.5); within 4 % from 2 degrees on.
fn t_975(degrees: f64) -> f64 {
    let z: f64 = 1.959_964;
    let powers =
        |terms: [f64; 4]| z * (terms[0] + z.powi(2) * (terms[1] + z.powi(2) * (terms[2] + z.powi(2) * terms[3])));
    z + powers([1.0, 1.0, 0.0, 0.0]) / (4.0 * degrees)
        + powers([3.0, 16.0, 5.0, 0.0]) / (96.0 * degrees.powi(2))
        + powers([-15.0, 17.0, 19.0, 3.0]) / (384.0 * degrees.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    #[test]
    fn halves_are_halves_and_divisions_are_orthogonal() {
        let halves = Halves::new(HALVINGS_MAX);
        for a in 0..halves.len() {
            let held = |half, bin| halves.contains(half, bin);
            assert_eq!((0..BINS).filter(|&bin| held(a, bin)).count(), 32);
            assert!((0..BINS).all(|bin| held(a, bin) != held(a ^ 1, bin)));
            for b in (0..halves.len()).filter(|b| b / 2 != a / 2) {
                assert_eq!((0..BINS).filter(|&bin| held(a, bin) && held(b, bin)).count(), 16, "{a} and {b}");
            }
        }
    }

    #[test]
    fn the_quantiles_are_those_of_a_table() {
        for (degrees, quantile) in
            [(2.0, 4.303), (3.0, 3.182), (4.0, 2.776), (8.0, 2.306), (16.0, 2.120), (63.0, 1.998)]
        {
            let off: f64 = t_975(degrees) / quantile - 1.0;
            assert!(off.abs() < 0.04, "{degrees}: {} is not {quantile}", t_975(degrees));
        }
    }

    /// The mean of values in bins, without any simulation.
    #[test]
    fn the_interval_holds_the_truth_about_nineteen_times_in_twenty() {
        for halvings in [4, 8] {
            let halves = Halves::new(halvings);
            let held = (0..1000u64).filter(|&seed| {
                let mut random = Random::new(seed);
                let bins: Vec<f64> = (0..BINS).map(|_| random.next_f64()).collect();
                let mean = |half: &dyn Fn(u64) -> bool| {
                    let of: Vec<f64> = (0..BINS).filter(|&bin| half(bin)).map(|bin| bins[bin as usize]).collect();
                    of.iter().sum::<f64>() / of.len() as f64
                };
                let parts: Vec<f64> = (0..halves.len()).map(|half| mean(&|bin| halves.contains(half, bin))).collect();
                let interval = halves.interval(mean(&|_| true), &parts, 1.0, 0.0);
                (interval.low..=interval.high).contains(&0.5)
            });
            let held = held.count();
            println!("seeds 0 to 999, {halvings} divisions: {held} of 1000");
            assert!((930..=970).contains(&held));
        }
    }

    #[test]
    fn a_half_without_pages_leaves_everything_open() {
        let interval = Halves::new(2).interval(0.4, &[0.4, f64::NAN, 0.3, 0.5], 0.99, 0.0).within(1.0);
        assert_eq!((interval.value, interval.low, interval.high), (0.4, 0.0, 1.0));
    }
}
