//! Medians, lines and the bootstrap (Efron 1979).

use entresol_core::Random;

/// Number of resamples that the bootstrap draws.
const RESAMPLES: usize = 200;

/// An estimate with a confidence interval of 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Estimate {
    /// An estimate without spread: a count, a yes or no, or a mean of so many that its error does not show.
    pub const fn exact(value: f64) -> Self {
        Estimate { value, low: value, high: value }
    }

    /// The estimate of `f` of the estimated quantity; `f` must be monotone.
    #[must_use]
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        let (a, b) = (f(self.low), f(self.high));
        Estimate { value: f(self.value), low: a.min(b), high: a.max(b) }
    }

    /// An estimate from a value and its resamples.
    fn of_resamples(value: f64, mut resampled: Vec<f64>) -> Self {
        if resampled.is_empty() {
            return Estimate::exact(value);
        }
        resampled.sort_by(f64::total_cmp);
        // The interval contains the estimate also where the statistic is biased under resampling.
        let low = percentile_of_sorted(&resampled, 0.025).min(value);
        let high = percentile_of_sorted(&resampled, 0.975).max(value);
        Estimate { value, low, high }
    }
}

/// The arithmetic mean; NaN of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The median; NaN of nothing.
pub fn median(values: &[f64]) -> f64 {
    percentile(values, 0.5)
}

/// The value below which a share of the values lies, interpolated; NaN of nothing.
pub fn percentile(values: &[f64], share: f64) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    let mut values = values.to_vec();
    let at = share * (values.len() - 1) as f64;
    let (_, &mut below, above) = values.select_nth_unstable_by(at as usize, f64::total_cmp);
    let next = above.iter().copied().fold(f64::INFINITY, f64::min);
    if next.is_finite() { below + (next - below) * at.fract() } else { below }
}

fn percentile_of_sorted(sorted: &[f64], share: f64) -> f64 {
    sorted[((share * (sorted.len() - 1) as f64).round() as usize).min(sorted.len() - 1)]
}

/// The line `a + b x` through points by least squares, as (a, b). NaN for fewer than two different x.
pub fn line_through(points: &[(f64, f64)]) -> (f64, f64) {
    let n = points.len() as f64;
    let (mean_x, mean_y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / n, y + point.1 / n));
    let (mut xx, mut xy) = (0.0, 0.0);
    for (x, y) in points {
        xx += (x - mean_x) * (x - mean_x);
        xy += (x - mean_x) * (y - mean_y);
    }
    let slope = xy / xx;
    (mean_y - slope * mean_x, slope)
}

/// The y at x on the line from point to point, level beyond the ends. The points ascend in x.
pub fn interpolate(points: &[(f64, f64)], x: f64) -> f64 {
    let after = points.partition_point(|point| point.0 < x);
    match (after.checked_sub(1).map(|i| points[i]), points.get(after)) {
        (Some((x0, y0)), Some(&(x1, y1))) => y0 + (y1 - y0) * (x - x0) / (x1 - x0),
        (Some((_, y)), None) | (None, Some(&(_, y))) => y,
        (None, None) => f64::NAN,
    }
}

/// A statistic of values with the interval that resampling them gives.
pub fn bootstrap(values: &[f64], seed: u64, statistic: impl Fn(&[f64]) -> f64) -> Estimate {
    bootstrap_groups(&[values.to_vec()], seed, |groups| statistic(&groups[0]))
}

/// A statistic of several groups of values with the interval that resampling each group gives.
pub fn bootstrap_groups(groups: &[Vec<f64>], seed: u64, statistic: impl Fn(&[Vec<f64>]) -> f64) -> Estimate {
    let mut random = Random::new(seed);
    let mut drawn = groups.to_vec();
    let mut resampled = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for (draw, group) in drawn.iter_mut().zip(groups) {
            draw.iter_mut().for_each(|value| *value = group[random.below(group.len() as u64) as usize]);
        }
        resampled.push(statistic(&drawn));
    }
    resampled.retain(|value| value.is_finite());
    Estimate::of_resamples(statistic(groups), resampled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_again_and_interpolation_meets_its_points() {
        let points: Vec<(f64, f64)> = (0..10).map(|x| (f64::from(x), 3.0 - 0.5 * f64::from(x))).collect();
        let (a, b) = line_through(&points);
        assert!((a - 3.0).abs() < 1e-12 && (b + 0.5).abs() < 1e-12, "{a} + {b} x");
        assert!((interpolate(&points, 4.5) - 0.75).abs() < 1e-12);
        assert_eq!((interpolate(&points, -1.0), interpolate(&points, 20.0)), (3.0, -1.5));
    }

    #[test]
    fn the_interval_holds_the_truth_about_nineteen_times_in_twenty() {
        let mut random = Random::new(5);
        let mut held = 0;
        for trial in 0..400 {
            let values: Vec<f64> = (0..60).map(|_| random.next_f64()).collect();
            let found = bootstrap(&values, trial, mean);
            held += i32::from(found.low <= 0.5 && 0.5 <= found.high);
        }
        assert!((365..=395).contains(&held), "seed 5: {held} of 400");
    }

    #[test]
    fn a_percentile_is_a_value_or_between_two() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(percentile(&[1.0, 2.0], 1.0), 2.0);
        assert!(median(&[]).is_nan());
    }
}
