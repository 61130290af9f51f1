//! Lines over a common x: miss-ratio curves of many policies, distributions, frequency curves.

use super::frame::{Frame, MARGIN, TEXT, tick_room};
use super::scale::{Scale, Spread, drawable};
use super::{Axis, Better, Drawing, Key, Series, empty_drawing, fit_text, text_width};
use crate::colour::{Looks, Names, classes};
use crate::markup::{Markup, Px};
use std::collections::BTreeSet;

/// Line that joins two neighbouring points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Curve {
    /// By a straight line.
    #[default]
    Straight,
    /// By a step at the later point: a cumulative distribution.
    Step,
}

/// Largest number of series that are all in the foreground, unless the caller chooses.
const ALL_IN_FRONT: usize = 6;
/// Points of one series that answer to the pointer; a denser series is sampled evenly.
const POINTS_MAX: usize = 200;
/// Largest number of points in a chart that have a visible dot and a tooltip without the script.
const SPARSE_MAX: usize = 1500;

/// Largest width of a name at the end of its line in user units, unless names would be cut to the same text.
const NAME_MAX: f64 = 140.0;

/// Positions at which series are compared to find the best.
const RANKED_MAX: usize = 500;

/// A line chart of any number of series. If there are many, the best few and the emphasised ones stand in front with
/// labels at their ends, and the rest stay faint until pointed at.
#[derive(Clone, Debug)]
pub struct LineChart {
    pub(super) title: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    curve: Curve,
    best: Option<(usize, Better)>,
    crop: f64,
}

impl LineChart {
    /// A chart without series yet.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> LineChart {
        LineChart {
            title: title.into(),
            x,
            y,
            series: Vec::new(),
            curve: Curve::Straight,
            best: None,
            crop: f64::INFINITY,
        }
    }

    /// Adds a series.
    pub fn series(mut self, series: Series) -> LineChart {
        self.series.push(series);
        self
    }

    /// Puts the `count` best series in the foreground: those with the best mean rank over all x. Emphasised series are
    /// always there and do not count.
    pub fn best(mut self, count: usize, better: Better) -> LineChart {
        self.best = Some((count, better));
        self
    }

    /// Ends the y axis at `highest`, so that a few series far above it do not compress the others. Such lines leave the
    /// chart there, and a line of text below names them.
    pub fn crop(mut self, highest: f64) -> LineChart {
        self.crop = highest;
        self
    }

    /// Sets how points are joined.
    pub fn curve(mut self, curve: Curve) -> LineChart {
        self.curve = curve;
        self
    }

    /// Indices of the series in the foreground, the best first.
    fn foreground(&self) -> Vec<usize> {
        let emphasised = |i: &usize| self.series[*i].emphasised;
        let mut front: Vec<usize> = match self.best {
            Some((count, better)) => {
                ranking(&self.series, better).into_iter().filter(|i| !emphasised(i)).take(count).collect()
            }
            None if self.series.len() <= ALL_IN_FRONT => (0..self.series.len()).collect(),
            None => Vec::new(),
        };
        let rest: Vec<usize> = (0..self.series.len()).filter(emphasised).filter(|i| !front.contains(i)).collect();
        front.extend(rest);
        front
    }

    pub(super) fn is_logarithmic(&self) -> bool {
        self.x.spread != Spread::Linear || self.y.spread != Spread::Linear
    }

    pub(super) fn names(&self) -> Names<'_> {
        let front = self.foreground();
        let name = |&i: &usize| self.series[i].name.as_str();
        let rest = (0..self.series.len()).filter(|i| !front.contains(i)).collect::<Vec<_>>();
        (front.iter().map(name).collect(), rest.iter().map(name).collect())
    }

    pub(super) fn draw(&self, looks: &Looks, width: f64) -> Drawing {
        let front = self.foreground();
        let left_out = self.series.iter().map(|s| left_out(s, &self.x, &self.y)).sum();
        let names = self.names_width(&front);
        let right = if front.is_empty() { MARGIN } else { names + 16.0 };
        // Many curves need height to be distinguished, and the legend beside them needs it too.
        let height = (width * if self.series.len() > 8 { 0.6 } else { 0.5 }).round();
        let points = || self.series.iter().flat_map(|s| visible(s, &self.x, &self.y));
        let y_ends = (height - 50.0, 34.0);
        // A limit that would leave no point is ignored.
        let limit = if points().any(|p| p.1 <= self.crop) { self.crop } else { f64::INFINITY };
        let Some(y) = Scale::fit(&self.y, points().map(|p| p.1).filter(|&y| y <= limit), true, y_ends) else {
            return empty_drawing(width, left_out);
        };
        let left = tick_room(&y, 6);
        let frame = Frame { left, top: y_ends.1, width: width - left - right, height: y_ends.0 - y_ends.1 };
        // Points do not sit on the frame's corners, where ticks and lines would hide them.
        let x_ends = (frame.left + 8.0, frame.right() - 8.0);
        let x = Scale::fit(&self.x, points().map(|p| p.0), false, x_ends).expect("a visible point has an x");
        let mut inside = Markup::default();
        frame.draw_y(&mut inside, &self.y, &y, 6);
        frame.draw_x(&mut inside, &self.x, &x, true);
        let sparse = points().count() <= SPARSE_MAX;
        let pen = Pen { x: &x, y: &y, x_axis: &self.x, y_axis: &self.y, curve: self.curve, titles: sparse };
        let faint = (0..self.series.len()).filter(|i| !front.contains(i));
        let leaves = |s: &&Series| visible(s, &self.x, &self.y).any(|p| y.at(p.1) < frame.top - 1e-6);
        let cut: Vec<String> = self.series.iter().filter(leaves).map(|s| s.name.clone()).collect();
        if !cut.is_empty() {
            frame.open_window(&mut inside);
        }
        // The foreground is drawn last, the best on top.
        for i in faint.chain(front.iter().rev().copied()) {
            let quiet = !front.is_empty() && !front.contains(&i);
            pen.draw(&mut inside, &self.series[i], i, looks.get(&self.series[i].name), quiet);
        }
        if !cut.is_empty() {
            inside.close("svg");
        }
        self.draw_end_labels(&mut inside, looks, (&front, names), &pen, &frame);
        let legend = self.legend(looks, &front);
        Drawing { inside, width, height, legend, left_out, cut, pick: "point" }
    }

    /// The width for the names of the foreground series, which are bold.
    fn names_width(&self, front: &[usize]) -> f64 {
        let names = || front.iter().map(|&i| self.series[i].name.as_str());
        let widest = names().map(|name| text_width(name, TEXT * 1.1)).fold(20.0, f64::max);
        let cut: BTreeSet<String> = names().map(|name| fit_text(name, TEXT * 1.1, NAME_MAX)).collect();
        let whole: BTreeSet<&str> = names().collect();
        // The spare unit keeps the widest name whole whatever the rounding.
        if cut.len() < whole.len() { (widest + 1.0).min(2.0 * NAME_MAX) } else { widest.min(NAME_MAX) }
    }

    /// The names of the foreground series right of the frame, at the height of their last points, moved apart.
    fn draw_end_labels(
        &self,
        m: &mut Markup,
        looks: &Looks,
        (front, names_width): (&[usize], f64),
        pen: &Pen<'_>,
        frame: &Frame,
    ) {
        let mut ends: Vec<(usize, f64, f64)> = front
            .iter()
            .filter_map(|&i| {
                visible(&self.series[i], &self.x, &self.y).last().map(|p| (i, pen.x.at(p.0), pen.y.at(p.1)))
            })
            .collect();
        ends.sort_by(|a, b| a.2.total_cmp(&b.2));
        let wanted: Vec<f64> = ends.iter().map(|e| e.2).collect();
        let heights = spread_apart(&wanted, 14.0, frame.top, frame.bottom());
        for ((i, x, y), label_y) in ends.into_iter().zip(heights) {
            let class = format!("end {}", classes(looks.get(&self.series[i].name)));
            m.open("g", &[("class", &class), ("data-s", &i)]);
            let line = format!("M{} {}L{} {}", Px(x + 4.0), Px(y), Px(frame.right() + 4.0), Px(label_y));
            m.void("path", &[("class", &"leader"), ("d", &line)]);
            let text = fit_text(&self.series[i].name, TEXT * 1.1, names_width.max(NAME_MAX));
            m.leaf("text", &[("x", &Px(frame.right() + 8.0)), ("y", &Px(label_y)), ("dy", &".35em")], text);
            m.close("g");
        }
    }

    fn legend(&self, looks: &Looks, front: &[usize]) -> Vec<Key> {
        let rest = (0..self.series.len()).filter(|i| !front.contains(i));
        let strong = front.len() < self.series.len();
        let key = |i: usize, strong| {
            let name = self.series[i].name.clone();
            Key { look: looks.get(&name), name, series: i, line: true, strong }
        };
        let mut keys: Vec<Key> = front.iter().map(|&i| key(i, strong)).collect();
        keys.extend(rest.map(|i| key(i, false)));
        keys
    }
}

/// The points of a series that can be drawn.
pub(super) fn visible<'a>(series: &'a Series, x: &'a Axis, y: &'a Axis) -> impl Iterator<Item = (f64, f64)> + 'a {
    series.points.iter().copied().filter(|p| drawable(x.spread, p.0) && drawable(y.spread, p.1))
}

/// The number of points that cannot be drawn.
pub(super) fn left_out(series: &Series, x: &Axis, y: &Axis) -> usize {
    series.points.len() - visible(series, x, y).count()
}

/// Draws series between two scales.
pub(super) struct Pen<'a> {
    pub(super) x: &'a Scale,
    pub(super) y: &'a Scale,
    pub(super) x_axis: &'a Axis,
    pub(super) y_axis: &'a Axis,
    pub(super) curve: Curve,
    /// True if points have dots and tooltips of their own.
    pub(super) titles: bool,
}

impl Pen<'_> {
    /// The line and the points of one series; `index` ties it to its legend entry.
    pub(super) fn draw(&self, m: &mut Markup, series: &Series, index: usize, look: usize, quiet: bool) {
        let class = format!("series {}{}", classes(look), if quiet { " quiet" } else { "" });
        m.open("g", &[("class", &class), ("data-s", &index), ("data-name", &series.name)]);
        m.void("path", &[("class", &"line"), ("d", &self.path(series))]);
        let shown: Vec<(f64, f64)> = visible(series, self.x_axis, self.y_axis).collect();
        let stride = shown.len().div_ceil(POINTS_MAX).max(1);
        let last = shown.len().saturating_sub(1);
        let chosen = shown.iter().enumerate().filter(|(i, _)| i.is_multiple_of(stride) || *i == last);
        // A point above a cropped axis is neither visible nor in reach of the pointer.
        for (_, &(x, y)) in chosen.filter(|(_, p)| self.y.at(p.1) >= self.y.top() - 1e-6) {
            let class = if self.titles && stride == 1 { "pt" } else { "pt dense" };
            let (cx, cy) = (Px(self.x.at(x)), Px(self.y.at(y)));
            let (x, y) = (self.x_axis.format.full(x), self.y_axis.format.full(y));
            m.open(
                "circle",
                &[("class", &class), ("cx", &cx), ("cy", &cy), ("r", &2.5), ("data-x", &x), ("data-y", &y)],
            );
            if self.titles {
                let (x_label, y_label) = (&self.x_axis.label, &self.y_axis.label);
                m.leaf("title", &[], format_args!("{}\n{x_label}: {x}\n{y_label}: {y}", series.name));
            }
            m.close("circle");
        }
        m.close("g");
    }

    /// The path, broken at gaps. A stretch of many points within one pixel column is drawn as its ends and extremes.
    fn path(&self, series: &Series) -> String {
        let mut path = String::new();
        for stretch in series.points.split(|p| !drawable(self.x_axis.spread, p.0) || !drawable(self.y_axis.spread, p.1))
        {
            let points: Vec<(f64, f64)> = stretch.iter().map(|p| (self.x.at(p.0), self.y.at(p.1))).collect();
            let points = thin(&points);
            for (i, &(x, y)) in points.iter().enumerate() {
                let (x, y) = (Px(x), Px(y));
                match (i, self.curve) {
                    (0, _) => path += &format!("M{x} {y}"),
                    (_, Curve::Straight) => path += &format!("L{x} {y}"),
                    (_, Curve::Step) => path += &format!("H{x}V{y}"),
                }
            }
            if points.len() == 1 {
                // A line of no length with round ends is a dot.
                path += "h0";
            }
        }
        path
    }
}

/// At most four points per half unit of x: the first, the lowest, the highest and the last. Nothing seen changes.
fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut out = Vec::new();
    for column in points.chunk_by(|a, b| (a.0 * 2.0).floor() == (b.0 * 2.0).floor()) {
        if column.len() <= 4 {
            out.extend_from_slice(column);
            continue;
        }
        let by_y = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let (low, high) = (column.iter().min_by(by_y), column.iter().max_by(by_y));
        let ends = [column.first(), low, high, column.last()];
        out.extend(ends.into_iter().flatten());
    }
    out
}

/// Indices of `series` from best to worst by mean rank over up to [`RANKED_MAX`] of all x, evenly spaced. Between its
/// points a series is interpolated; where it has no value it ranks last.
fn ranking(series: &[Series], better: Better) -> Vec<usize> {
    let mut xs: Vec<f64> = series.iter().flat_map(|s| s.points.iter().map(|p| p.0)).filter(|x| x.is_finite()).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    let stride = xs.len().div_ceil(RANKED_MAX).max(1);
    let mut rank_sums = vec![0usize; series.len()];
    for &x in xs.iter().step_by(stride) {
        let cost = |s: &Series| match (value_at(s, x), better) {
            (Some(y), Better::Lower) => y,
            (Some(y), Better::Higher) => -y,
            (None, _) => f64::INFINITY,
        };
        let costs: Vec<f64> = series.iter().map(cost).collect();
        for (sum, own) in rank_sums.iter_mut().zip(&costs) {
            *sum += costs.iter().filter(|c| c.total_cmp(own).is_lt()).count();
        }
    }
    let mut order: Vec<usize> = (0..series.len()).collect();
    order.sort_by_key(|&i| rank_sums[i]);
    order
}

/// The value of a series at `x`, interpolated; `None` beyond its ends and in its gaps.
fn value_at(series: &Series, x: f64) -> Option<f64> {
    let after = series.points.partition_point(|p| p.0.total_cmp(&x).is_lt());
    let &(x1, y1) = series.points.get(after)?;
    if x1 == x {
        return Some(y1).filter(|y| y.is_finite());
    }
    let &(x0, y0) = series.points.get(after.checked_sub(1)?)?;
    Some(y0 + (y1 - y0) * (x - x0) / (x1 - x0)).filter(|y| y.is_finite())
}

/// Moves ascending `wanted` positions apart by at least `gap`, within `low..=high` where they fit.
fn spread_apart(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut out = wanted.to_vec();
    let mut floor = low;
    for y in &mut out {
        *y = y.max(floor);
        floor = *y + gap;
    }
    let mut ceiling = high.max(low + gap * (wanted.len().max(1) - 1) as f64);
    for y in out.iter_mut().rev() {
        *y = y.min(ceiling);
        ceiling = *y - gap;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranks_follow_the_values() {
        let s = |name: &str, ys: [f64; 3]| Series::new(name, ys.into_iter().enumerate().map(|(i, y)| (i as f64, y)));
        let all = [s("bad", [0.9, 0.8, 0.7]), s("good", [0.5, 0.4, 0.3]), s("gap", [0.6, f64::NAN, 0.6])];
        assert_eq!(ranking(&all, Better::Lower), [1, 2, 0]);
        assert_eq!(ranking(&all, Better::Higher), [0, 2, 1]);
    }

    #[test]
    fn curves_of_other_points_are_compared_fairly() {
        let dense = Series::new("dense", (0..=1000).map(|i| (f64::from(i), 0.5)));
        let sparse = Series::new("sparse", [(0.0, 0.9), (1000.0, 0.0)]);
        assert_eq!(value_at(&sparse, 250.0), Some(0.675));
        assert_eq!((value_at(&sparse, -1.0), value_at(&sparse, 1001.0)), (None, None));
        // Above 0.5 on four ninths of the range, below it on five.
        assert_eq!(ranking(&[dense, sparse], Better::Lower), [1, 0]);
    }

    #[test]
    fn a_cropped_chart_says_what_leaves_it() {
        let axis = || Axis::new("", crate::NumberFormat::Decimal);
        let flat = |name: &str, y: f64| Series::new(name, [(0.0, y), (1.0, y)]);
        let chart = || LineChart::new("", axis(), axis()).series(flat("near", 1.0)).series(flat("far", 100.0));
        let looks = Looks::of(&[chart().names()]);
        assert!(chart().draw(&looks, 500.0).cut.is_empty());
        let cropped = chart().crop(2.0).draw(&looks, 500.0);
        assert_eq!(cropped.cut, ["far"]);
        assert_eq!(cropped.inside.finish("").matches("<circle").count(), 2, "points out of sight are not drawn");
        assert!(chart().crop(0.5).draw(&looks, 500.0).cut.is_empty(), "a limit that leaves nothing is none");
    }

    #[test]
    fn names_that_begin_alike_are_told_apart() {
        let axis = || Axis::new("", crate::NumberFormat::Decimal);
        let labels = |names: &[&str]| {
            let series = |name: &&str| Series::new(*name, [(0.0, 1.0), (1.0, 2.0)]);
            let chart = names.iter().map(series).fold(LineChart::new("", axis(), axis()), LineChart::series);
            let svg = crate::Chart::from(chart).to_svg();
            let texts = svg.split("<g class=\"end").skip(1).map(|end| end.split(['>', '<']).nth(5).map(str::to_owned));
            let mut texts: Vec<String> = texts.map(|text| text.expect("a label")).collect();
            texts.sort();
            texts
        };
        assert_eq!(
            labels(&["sequential read, overall", "sequential read, raw"]),
            ["sequential read, overall", "sequential read, raw"]
        );
        let cut = labels(&["a name that is far too long for its label", "b"]);
        assert!(cut[0].ends_with('…') && cut[1] == "b", "{cut:?}");
    }

    #[test]
    fn thinning_keeps_extremes() {
        let points: Vec<(f64, f64)> = (0..10_000).map(|i| (f64::from(i) / 100.0, f64::from(i * 7919 % 1000))).collect();
        let thinned = thin(&points);
        assert!(thinned.len() <= 201 * 4, "{}", thinned.len());
        for extreme in [0.0, 999.0] {
            assert!(thinned.iter().any(|p| p.1 == extreme));
        }
        assert_eq!((thinned[0], thinned[thinned.len() - 1]), (points[0], points[9_999]));
    }

    proptest! {
        #![proptest_config(crate::seeded())]

        #[test]
        fn labels_do_not_overlap(mut wanted in proptest::collection::vec(0.0..300.0_f64, 0..30)) {
            wanted.sort_by(f64::total_cmp);
            let placed = spread_apart(&wanted, 14.0, 0.0, 300.0);
            for pair in placed.windows(2) {
                prop_assert!(pair[1] - pair[0] >= 14.0 - 1e-6, "{placed:?}");
            }
            if wanted.len() <= 21 {
                prop_assert!(placed.iter().all(|y| (-1e-6..=300.0 + 1e-6).contains(y)), "{placed:?}");
            }
        }
    }
}
