//! From values to coordinates: the range of an axis, its round ticks and its mapping.

use super::Axis;
use crate::number::NumberFormat;

/// Mapping of values to distances along an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// Equal differences are equal distances.
    #[default]
    Linear,
    /// Equal ratios are equal distances, ticks at powers of two. Only values above zero can be drawn.
    Log2,
    /// Equal ratios are equal distances, ticks at powers of ten. Only values above zero can be drawn.
    Log10,
}

/// Values beyond this are treated as infinite: differences of larger ones overflow.
const LARGEST: f64 = 1e100;

/// True if `value` has a place on an axis of this spread.
pub(crate) fn drawable(spread: Spread, value: f64) -> bool {
    let finite = value.is_finite() && value.abs() <= LARGEST;
    finite && (spread == Spread::Linear || value >= 1.0 / LARGEST)
}

/// An axis fitted to its data and laid along a line of the drawing.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    spread: Spread,
    format: NumberFormat,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// Fits `axis` to the drawable ones of `values` and lays it from coordinate `from` to `to`. With `round`, the ends
    /// move out to ticks, or a little if the axis is logarithmic. `None` if there is nothing to draw.
    pub(crate) fn fit(
        axis: &Axis,
        values: impl Iterator<Item = f64>,
        round: bool,
        (from, to): (f64, f64),
    ) -> Option<Scale> {
        let usable = values.filter(|&v| drawable(axis.spread, v));
        let data = usable.fold(None, |range: Option<(f64, f64)>, v| match range {
            Some((low, high)) => Some((low.min(v), high.max(v))),
            None => Some((v, v)),
        })?;
        let (mut low, mut high) = data;
        if let Some((a, b)) = axis.at_least {
            for end in [a, b].into_iter().filter(|&v| drawable(axis.spread, v)) {
                (low, high) = (low.min(end), high.max(end));
            }
        }
        let mut scale = Scale { spread: axis.spread, format: axis.format, low, high, from, to };
        scale.widen_if_flat();
        if round && scale.spread == Spread::Linear {
            let step = step(scale.high - scale.low, 6, scale.format.is_binary());
            scale.low = (scale.low / step + 1e-9).floor() * step;
            scale.high = (scale.high / step - 1e-9).ceil() * step;
        }
        if round && scale.spread != Spread::Linear {
            // Powers are too far apart to move out to; a little room keeps lines off the frame.
            let space = (scale.high / scale.low).powf(0.04);
            (scale.low, scale.high) = (scale.low / space, scale.high * space);
        }
        Some(scale)
    }

    /// Widens an axis over one value, or over values that differ only in their last bits, so that it has two ends.
    fn widen_if_flat(&mut self) {
        let flat = self.high - self.low <= 1e-9 * self.high.abs().max(self.low.abs());
        if !flat {
            return;
        }
        match self.spread {
            Spread::Linear if self.high == 0.0 => (self.low, self.high) = (0.0, 1.0),
            Spread::Linear => {
                let half = self.high.abs() / 2.0;
                (self.low, self.high) = (self.low - half, self.high + half);
            }
            Spread::Log2 | Spread::Log10 => (self.low, self.high) = (self.low / 2.0, self.high * 2.0),
        }
    }

    /// The coordinate of a drawable value.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let share = match self.spread {
            Spread::Linear => (value - self.low) / (self.high - self.low),
            Spread::Log2 | Spread::Log10 => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + share * (self.to - self.from)
    }

    /// The lesser of the two end coordinates: the top of a vertical axis.
    pub(crate) fn top(&self) -> f64 {
        self.from.min(self.to)
    }

    /// Round values within the range, ascending: about `target` of them.
    pub(crate) fn ticks(&self, target: usize) -> Vec<f64> {
        match self.spread {
            Spread::Linear => linear_ticks(self.low, self.high, target, self.format.is_binary()),
            Spread::Log2 => log_ticks(self.low, self.high, 2.0, target),
            Spread::Log10 => log_ticks(self.low, self.high, 10.0, target),
        }
    }

    /// The ticks with their labels.
    pub(crate) fn labelled_ticks(&self, target: usize) -> Vec<(f64, String)> {
        let ticks = self.ticks(target);
        let labels = self.format.tick_labels(&ticks, self.spread == Spread::Linear);
        ticks.into_iter().zip(labels).collect()
    }

    /// The end of the range nearest to zero: where a bar stands.
    pub(crate) fn base(&self) -> f64 {
        0.0_f64.clamp(self.low, self.high)
    }
}

/// The smallest round step that covers `range` in at most `target` steps: 1, 2, 2.5 or 5 times a power of ten, or,
/// where `binary` and the step is at least 1, a power of two.
fn step(range: f64, target: usize, binary: bool) -> f64 {
    let rough = range / target as f64;
    if binary && rough >= 1.0 {
        return 2f64.powf((rough.log2() - 1e-9).ceil());
    }
    let power = 10f64.powf(rough.log10().floor());
    let mantissa = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|m| m * power >= rough * (1.0 - 1e-9)).unwrap_or(10.0);
    mantissa * power
}

fn linear_ticks(low: f64, high: f64, target: usize, binary: bool) -> Vec<f64> {
    let step = step(high - low, target, binary);
    let first = (low / step - 1e-9).ceil();
    let last = (high / step + 1e-9).floor();
    let count = (last - first) as usize + 1;
    // Dividing by the inverse step gives 0.3 where multiplying by 0.1 gives 0.30000000000000004.
    let at = |k: f64| if step < 1.0 { k / (1.0 / step) } else { k * step };
    (0..count).map(|k| at(first + k as f64).clamp(low, high) + 0.0).collect()
}

fn log_ticks(low: f64, high: f64, base: f64, target: usize) -> Vec<f64> {
    let first = (low.ln() / base.ln() - 1e-9).ceil() as i32;
    let last = (high.ln() / base.ln() + 1e-9).floor() as i32;
    let powers = (last - first + 1).max(0) as usize;
    if base == 10.0 && (1..=3).contains(&powers) {
        let all = (first - 1..=last).flat_map(|e| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(e)));
        let within: Vec<f64> = all.filter(|t| (low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(t)).collect();
        if within.len() <= 2 * target {
            return within;
        }
    }
    if powers < 2 {
        return linear_ticks(low, high, target, false);
    }
    let stride = powers.div_ceil(target.max(1));
    (first..=last).step_by(stride).map(|e| base.powi(e)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn axis(spread: Spread, format: NumberFormat) -> Axis {
        Axis { spread, ..Axis::new("x", format) }
    }

    /// Ticks ascend, lie within the data's range, and no two read the same.
    fn check_ticks(scale: &Scale, target: usize) -> Result<(), TestCaseError> {
        let ticks = scale.labelled_ticks(target);
        prop_assert!(!ticks.is_empty(), "no tick between {} and {}", scale.low, scale.high);
        prop_assert!(ticks.len() <= 2 * target + 1, "{} ticks for {target}", ticks.len());
        let slack = 1e-6 * (scale.high - scale.low);
        for pair in ticks.windows(2) {
            prop_assert!(pair[0].0 < pair[1].0, "{ticks:?}");
            prop_assert!(pair[0].1 != pair[1].1, "{ticks:?}");
        }
        for (tick, _) in &ticks {
            prop_assert!((scale.low - slack..=scale.high + slack).contains(tick), "{tick} of {scale:?}");
            let at = scale.at(*tick);
            prop_assert!((-0.01..=100.01).contains(&at), "{tick} is drawn at {at}");
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn linear_ticks_are_round(low in -1e9..1e9_f64, size in 1e-6..1e9_f64, target in 2..12_usize) {
            for format in [NumberFormat::Decimal, NumberFormat::Count, NumberFormat::Percent, NumberFormat::Seconds] {
                let ends = [low, low + size];
                let scale = Scale::fit(&axis(Spread::Linear, format), ends.into_iter(), false, (0.0, 100.0)).unwrap();
                let ticks = scale.ticks(target);
                if ticks.len() > 1 {
                    let step = (ticks[ticks.len() - 1] - ticks[0]) / (ticks.len() - 1) as f64;
                    let mantissa = step / 10f64.powf((step.log10() + 1e-6).floor());
                    prop_assert!([1.0, 2.0, 2.5, 5.0, 10.0].iter().any(|m| (m - mantissa).abs() < 1e-2), "step {step}");
                }
                // Labels of a narrow range far from zero may need more digits than a label can hold.
                if size >= 1e-5 * low.abs() {
                    prop_assume!(ticks.len() > 1);
                    check_ticks(&scale, target)?;
                }
            }
        }

        #[test]
        fn log_ticks_are_powers(exponent in -20.0..40.0_f64, decades in 0.0..20.0_f64, target in 2..12_usize) {
            for spread in [Spread::Log2, Spread::Log10] {
                let ends = [2f64.powf(exponent), 2f64.powf(exponent) * 10f64.powf(decades)];
                let scale = Scale::fit(&axis(spread, NumberFormat::Bytes), ends.into_iter(), false, (0.0, 100.0)).unwrap();
                if decades > 1.5 {
                    check_ticks(&scale, target)?;
                    let ticks = scale.ticks(target);
                    let ratios: Vec<f64> = ticks.windows(2).map(|w| w[1] / w[0]).collect();
                    let base = if spread == Spread::Log2 { 2.0_f64 } else { 10.0 };
                    let is_power = |r: &f64| { let e = r.ln() / base.ln(); (e - e.round()).abs() < 1e-6 };
                    let is_125 = |r: &f64| (r - 2.0).abs() < 1e-6 || (r - 2.5).abs() < 1e-6;
                    prop_assert!(ratios.iter().all(is_power) || (base == 10.0 && ratios.iter().all(is_125)), "{ticks:?}");
                }
            }
        }

        #[test]
        fn rounding_out_keeps_the_data_inside(a in -1e6..1e6_f64, b in -1e6..1e6_f64) {
            let scale = Scale::fit(&axis(Spread::Linear, NumberFormat::Count), [a, b].into_iter(), true, (0.0, 1.0)).unwrap();
            for v in [a, b] {
                prop_assert!((-1e-6..=1.0 + 1e-6).contains(&scale.at(v)));
            }
        }
    }

    #[test]
    fn nothing_and_one_thing() {
        let plain = axis(Spread::Linear, NumberFormat::Decimal);
        assert!(Scale::fit(&plain, [].into_iter(), true, (0.0, 1.0)).is_none());
        assert!(Scale::fit(&plain, [f64::NAN, f64::INFINITY, 1e200].into_iter(), true, (0.0, 1.0)).is_none());
        assert!(
            Scale::fit(&axis(Spread::Log2, NumberFormat::Count), [0.0, -1.0].into_iter(), false, (0.0, 1.0)).is_none()
        );
        for (spread, value) in
            [(Spread::Linear, 0.0), (Spread::Linear, -7.5), (Spread::Log2, 64.0), (Spread::Log10, 1e-9)]
        {
            let scale = Scale::fit(&axis(spread, NumberFormat::Count), [value].into_iter(), true, (0.0, 1.0)).unwrap();
            assert!((0.0..=1.0).contains(&scale.at(value)), "{spread:?} {value}");
            assert!(!scale.ticks(5).is_empty(), "{spread:?} {value}");
        }
    }

    #[test]
    fn ticks_of_known_ranges() {
        assert_eq!(linear_ticks(0.0, 1.0, 5, false), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
        assert_eq!(linear_ticks(0.0, 0.3, 3, false), [0.0, 0.1, 0.2, 0.3]);
        assert_eq!(linear_ticks(0.0, 4096.0, 4, true), [0.0, 1024.0, 2048.0, 3072.0, 4096.0]);
        assert_eq!(log_ticks(1.0, 100.0, 10.0, 5), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(log_ticks(4096.0, 65536.0, 2.0, 8), [4096.0, 8192.0, 16384.0, 32768.0, 65536.0]);
    }
}
