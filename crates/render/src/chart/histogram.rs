//! Counts per power of two: temporal distances, latencies, request sizes.

use super::frame::{Frame, MARGIN, tick_room};
use super::scale::Scale;
use super::{Axis, Drawing, Key, empty_drawing};
use crate::colour::{Looks, classes};
use crate::markup::{Markup, Px};
use crate::number::NumberFormat;

/// The bucket of `value`: 0 holds 0, bucket b holds 2^(b-1) up to but not including 2^b.
pub fn log2_bucket(value: u64) -> usize {
    (u64::BITS - value.leading_zeros()) as usize
}

/// A histogram of one or several series over the same buckets.
#[derive(Clone, Debug)]
pub struct Histogram {
    pub(super) title: String,
    label: String,
    format: NumberFormat,
    unit: f64,
    series: Vec<(String, Vec<u64>)>,
}

impl Histogram {
    /// A histogram of what `label` names, measured in `format`, without counts yet.
    pub fn new(title: impl Into<String>, label: impl Into<String>, format: NumberFormat) -> Histogram {
        Histogram { title: title.into(), label: label.into(), format, unit: 1.0, series: Vec::new() }
    }

    /// Sets the value of a counted 1 in the base unit of the format: 1e-9 for nanoseconds shown as
    /// [`NumberFormat::Seconds`].
    ///
    /// # Panics
    /// If `unit` is not a positive number.
    pub fn unit(mut self, unit: f64) -> Histogram {
        assert!(unit.is_finite() && unit > 0.0, "a unit of {unit}");
        self.unit = unit;
        self
    }

    /// Adds a series: `counts[b]` values in the bucket that [`log2_bucket`] numbers b.
    pub fn series(mut self, name: impl Into<String>, counts: impl IntoIterator<Item = u64>) -> Histogram {
        self.series.push((name.into(), counts.into_iter().collect()));
        self
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.series.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// First and last bucket that is not empty.
    fn filled(&self) -> Option<(usize, usize)> {
        let filled =
            || self.series.iter().flat_map(|(_, c)| c.iter().enumerate().filter(|(_, n)| **n > 0).map(|(b, _)| b));
        Some((filled().min()?, filled().max()?))
    }

    /// The lower end of a bucket, as a label.
    fn lower(&self, bucket: usize) -> String {
        let value = if bucket == 0 { 0.0 } else { 2f64.powi(bucket as i32 - 1) };
        self.format.short(value * self.unit)
    }

    pub(super) fn draw(&self, looks: &Looks, width: f64) -> Drawing {
        let Some((first, last)) = self.filled() else { return empty_drawing(width, 0) };
        let height = (width * 0.42).round();
        let (bottom, top) = (height - 50.0, 34.0);
        let axis = Axis::new("count", NumberFormat::Count).at_least(0.0, 0.0);
        let counts = self.series.iter().flat_map(|(_, c)| c).map(|&n| n as f64);
        let y = Scale::fit(&axis, counts, true, (bottom, top)).expect("a filled bucket has a count");
        let left = tick_room(&y, 6);
        let frame = Frame { left, top, width: width - left - MARGIN, height: bottom - top };
        let mut m = Markup::default();
        frame.draw_y(&mut m, &axis, &y, 6);
        let pitch = frame.width / (last - first + 1) as f64;
        self.draw_buckets_axis(&mut m, &frame, (first, last), pitch);
        // A gap separates buckets; within a bucket the series touch.
        let inner = (pitch - (pitch * 0.15).clamp(1.0, 6.0)).min(60.0 * self.series.len() as f64);
        let bar = inner / self.series.len() as f64;
        for (i, (name, counts)) in self.series.iter().enumerate() {
            let class = format!("series {}", classes(looks.get(name)));
            m.open("g", &[("class", &class), ("data-s", &i), ("data-name", name)]);
            let total: u64 = counts.iter().sum();
            for (bucket, &count) in counts.iter().enumerate().filter(|(_, n)| **n > 0) {
                let x = left + pitch * (bucket - first) as f64 + (pitch - inner) / 2.0 + bar * i as f64;
                let title = self.bucket_title(name, bucket, count, total);
                draw_bar(&mut m, (x, y.at(count as f64)), (bar, bottom), &title);
            }
            m.close("g");
        }
        let key = |(series, (name, _)): (usize, &(String, Vec<u64>))| Key {
            name: name.clone(),
            series,
            look: looks.get(name),
            line: false,
            strong: false,
        };
        let legend = self.series.iter().enumerate().map(key).collect();
        Drawing { inside: m, width, height, legend, left_out: 0, cut: Vec::new(), pick: "mark" }
    }

    fn bucket_title(&self, name: &str, bucket: usize, count: u64, total: u64) -> String {
        let share = crate::number::percent(count as f64 / total as f64, 2);
        let range = match bucket {
            0 => "0".to_owned(),
            b => format!("{} to below {}", self.lower(b), self.lower(b + 1)),
        };
        format!("{name}\n{}: {range}\ncount: {count} ({share})", self.label)
    }

    /// Base line, and the lower ends of buckets below their left edges, as many as fit.
    fn draw_buckets_axis(&self, m: &mut Markup, frame: &Frame, (first, last): (usize, usize), pitch: f64) {
        let bottom = Px(frame.bottom());
        m.void(
            "path",
            &[("class", &"base"), ("d", &format_args!("M{} {bottom}H{}", Px(frame.left), Px(frame.right())))],
        );
        let stride = (52.0 / pitch).ceil().max(1.0) as usize;
        for edge in (first..=last + 1).step_by(stride) {
            let x = Px(frame.left + pitch * (edge - first) as f64);
            m.void("path", &[("class", &"base"), ("d", &format_args!("M{x} {bottom}v4"))]);
            m.leaf("text", &[("class", &"tick"), ("x", &x), ("y", &Px(frame.bottom() + 18.0))], self.lower(edge));
        }
        let (x, y) = (Px(frame.left + frame.width / 2.0), Px(frame.bottom() + 38.0));
        m.leaf("text", &[("class", &"label"), ("x", &x), ("y", &y), ("text-anchor", &"middle")], &self.label);
    }
}

fn draw_bar(m: &mut Markup, (x, top): (f64, f64), (width, bottom): (f64, f64), title: &str) {
    // A count too small to see still shows that it is not zero.
    let top = top.min(bottom - 1.0);
    let (w, h) = (Px((width - 0.5).max(0.5)), Px(bottom - top));
    m.open("rect", &[("class", &"fill mark"), ("x", &Px(x)), ("y", &Px(top)), ("width", &w), ("height", &h)]);
    m.leaf("title", &[], title);
    m.close("rect");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn a_value_lies_in_its_bucket(value in any::<u64>()) {
            let bucket = log2_bucket(value);
            prop_assert!(bucket <= 64);
            let low = if bucket == 0 { 0 } else { 1u128 << (bucket - 1) };
            let high = 1u128 << bucket;
            prop_assert!((low..high).contains(&u128::from(value)) || value == 0);
        }
    }

    #[test]
    fn empty_ends_are_cut() {
        let h = Histogram::new("", "", NumberFormat::Count).series("a", [0, 0, 5, 0]).series("b", [0, 0, 0, 0, 1, 0]);
        assert_eq!(h.filled(), Some((2, 4)));
        assert_eq!((h.lower(0), h.lower(1), h.lower(11)), ("0".into(), "1".into(), "1.02k".into()));
        assert_eq!(Histogram::new("", "", NumberFormat::Seconds).unit(1e-9).lower(12), "2.05 µs");
    }
}
