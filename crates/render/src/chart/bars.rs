//! Horizontal bars per category: names stay readable however many there are.

use super::frame::{MARGIN, TEXT};
use super::scale::{Scale, drawable};
use super::{Axis, Drawing, Key, empty_drawing, fit_text, text_width};
use crate::colour::{Looks, classes};
use crate::markup::{Markup, Px};

/// Arrangement of the bars of several series in a category.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BarLayout {
    /// Side by side, each with its value.
    #[default]
    Grouped,
    /// End to end: parts of a whole. Meant for values of one sign.
    Stacked,
}

/// A bar chart. Bars stand on zero.
#[derive(Clone, Debug)]
pub struct BarChart {
    pub(super) title: String,
    value: Axis,
    layout: BarLayout,
    categories: Vec<String>,
    series: Vec<(String, Vec<f64>)>,
}

const TOP: f64 = 12.0;

impl BarChart {
    /// A chart of `categories` from top to bottom, without values yet. The axis of values is linear and starts at zero.
    pub fn new<T: Into<String>>(
        title: impl Into<String>,
        value: Axis,
        layout: BarLayout,
        categories: impl IntoIterator<Item = T>,
    ) -> BarChart {
        let (low, high) = value.at_least.unwrap_or((0.0, 0.0));
        let value = Axis { spread: super::Spread::Linear, at_least: Some((low.min(0.0), high.max(0.0))), ..value };
        let categories = categories.into_iter().map(Into::into).collect();
        BarChart { title: title.into(), value, layout, categories, series: Vec::new() }
    }

    /// Adds a bar in every category. A value that is not finite has no bar.
    ///
    /// # Panics
    /// If the number of values is not the number of categories.
    pub fn series(mut self, name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> BarChart {
        let (name, values): (String, Vec<f64>) = (name.into(), values.into_iter().collect());
        assert_eq!(values.len(), self.categories.len(), "series {name} does not fit the categories");
        self.series.push((name, values));
        self
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.series.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Both ends of each bar of `category`, in values.
    fn spans(&self, category: usize) -> Vec<(f64, f64)> {
        let mut base = 0.0;
        let span = |(_, values): &(String, Vec<f64>)| {
            let value = values[category];
            if self.layout == BarLayout::Grouped || !drawable(self.value.spread, value) {
                return (0.0, value);
            }
            base += value;
            (base - value, base)
        };
        self.series.iter().map(span).collect()
    }

    pub(super) fn draw(&self, looks: &Looks, width: f64) -> Drawing {
        let all_values = self.series.iter().flat_map(|s| &s.1);
        let left_out = all_values.filter(|v| !drawable(self.value.spread, **v)).count();
        let names = self.categories.iter().map(|c| text_width(c, TEXT)).fold(30.0, f64::max).min(200.0) + 14.0;
        let per_category = if self.layout == BarLayout::Grouped { self.series.len() } else { 1 };
        let bar: f64 = if per_category == 1 { 16.0 } else { 12.0 };
        let pitch = bar * per_category as f64 + 8.0;
        let bottom = TOP + pitch * self.categories.len() as f64;
        let ends = (0..self.categories.len()).flat_map(|c| self.spans(c)).flat_map(|s| [s.0, s.1]);
        let space = if self.layout == BarLayout::Grouped { 70.0 } else { MARGIN };
        let Some(x) = Scale::fit(&self.value, ends, true, (names, width - space)).filter(|_| !self.series.is_empty())
        else {
            return empty_drawing(width, left_out);
        };
        let mut m = Markup::default();
        self.draw_axis(&mut m, &x, (names, width - space), bottom);
        for (category, name) in self.categories.iter().enumerate() {
            let top = TOP + pitch * category as f64 + 4.0;
            let (label_x, middle) = (Px(names - 7.0), Px(top + bar * per_category as f64 / 2.0));
            m.leaf(
                "text",
                &[("class", &"tick y"), ("x", &label_x), ("y", &middle), ("dy", &".35em")],
                fit_text(name, TEXT, 200.0),
            );
            for (i, span) in self.spans(category).into_iter().enumerate() {
                let row = if self.layout == BarLayout::Grouped { i as f64 } else { 0.0 };
                self.draw_bar(&mut m, looks, (category, i), span, &x, (top + bar * row, bar));
            }
        }
        let key = |(series, (name, _)): (usize, &(String, Vec<f64>))| Key {
            name: name.clone(),
            series,
            look: looks.get(name),
            line: false,
            strong: false,
        };
        let legend = self.series.iter().enumerate().map(key).collect();
        Drawing { inside: m, width, height: bottom + 46.0, legend, left_out, cut: Vec::new(), pick: "mark" }
    }

    fn draw_axis(&self, m: &mut Markup, x: &Scale, (left, right): (f64, f64), bottom: f64) {
        for (value, label) in x.labelled_ticks(6) {
            let at = Px(x.at(value));
            m.void("path", &[("class", &"grid"), ("d", &format_args!("M{at} {}V{}", Px(TOP), Px(bottom)))]);
            m.leaf("text", &[("class", &"tick"), ("x", &at), ("y", &Px(bottom + 16.0))], label);
        }
        let zero = Px(x.at(x.base()));
        m.void("path", &[("class", &"base"), ("d", &format_args!("M{zero} {}V{}", Px(TOP), Px(bottom)))]);
        let (middle, y) = (Px((left + right) / 2.0), Px(bottom + 36.0));
        m.leaf(
            "text",
            &[("class", &"label"), ("x", &middle), ("y", &y), ("text-anchor", &"middle")],
            &self.value.label,
        );
    }

    /// The bar of series `i` in `category`, with its value behind its end where bars are grouped.
    fn draw_bar(
        &self,
        m: &mut Markup,
        looks: &Looks,
        (category, i): (usize, usize),
        (from, to): (f64, f64),
        x: &Scale,
        (top, thickness): (f64, f64),
    ) {
        let (name, values) = &self.series[i];
        if !drawable(self.value.spread, values[category]) {
            return;
        }
        let class = format!("series mark {}", classes(looks.get(name)));
        m.open("g", &[("class", &class), ("data-s", &i), ("data-name", name)]);
        let (a, b) = (x.at(from), x.at(to));
        let (y, height) = (Px(top + 0.5), Px(thickness - 1.0));
        let (left, width) = (Px(a.min(b)), Px((a - b).abs()));
        m.void("rect", &[("class", &"fill"), ("x", &left), ("y", &y), ("width", &width), ("height", &height)]);
        if self.layout == BarLayout::Grouped {
            let (text_x, anchor) = if b >= a { (b + 5.0, "start") } else { (b - 5.0, "end") };
            let y = Px(top + thickness / 2.0);
            m.leaf(
                "text",
                &[("class", &"value"), ("x", &Px(text_x)), ("y", &y), ("dy", &".35em"), ("text-anchor", &anchor)],
                self.value.format.even(values[category]),
            );
        }
        let exact = self.value.format.full(values[category]);
        m.leaf("title", &[], format_args!("{}\n{name}: {exact}", self.categories[category]));
        m.close("g");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::NumberFormat;

    #[test]
    fn stacked_bars_stand_on_each_other() {
        let axis = Axis::new("pages", NumberFormat::Count);
        let chart = BarChart::new("", axis, BarLayout::Stacked, ["a", "b"])
            .series("clean", [1.0, f64::NAN])
            .series("dirty", [2.0, 5.0]);
        assert_eq!(chart.spans(0), [(0.0, 1.0), (1.0, 3.0)]);
        assert_eq!(chart.spans(1)[1], (0.0, 5.0), "a missing part takes no room");
    }

    #[test]
    #[should_panic(expected = "series s does not fit")]
    fn values_must_fit_the_categories() {
        let _ = BarChart::new("", Axis::new("", NumberFormat::Count), BarLayout::Grouped, ["a"]).series("s", []);
    }
}
