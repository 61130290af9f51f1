//! A grid of numbers coloured by their distance from neutral: differences of hit ratios to a baseline (000 figure 4.3),
//! ratios of write counts (000 figure 4.4).

use super::frame::TEXT;
use super::{Better, Drawing, fit_text, text_width};
use crate::colour::{Shade, diverging};
use crate::markup::{Markup, Px};
use crate::number::{MISSING, shortest};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    /// Neutral is 0, and colour grows with the difference.
    Difference,
    /// Neutral is 1, and colour grows with the logarithm of the ratio.
    Ratio,
}

/// A heat map. Blue cells are better than neutral, orange ones worse; the number stands in the cell.
#[derive(Clone, Debug)]
pub struct HeatMap {
    pub(super) title: String,
    measure: Measure,
    better: Better,
    digits: usize,
    columns_label: String,
    columns: Vec<String>,
    rows: Vec<(String, Vec<f64>)>,
}

const ROW: f64 = 24.0;
const HEAD: f64 = 74.0;

impl HeatMap {
    /// Differences to a baseline; neutral is 0. Cells show a sign and three decimals. A value that is not finite is an
    /// empty cell.
    pub fn differences(title: impl Into<String>, better: Better) -> HeatMap {
        HeatMap::new(title.into(), Measure::Difference, better, 3)
    }

    /// Ratios to a baseline; neutral is 1, and 0.5 is as far from it as 2. Cells show two decimals. A value that is not
    /// finite, or not above zero, is an empty cell.
    pub fn ratios(title: impl Into<String>, better: Better) -> HeatMap {
        HeatMap::new(title.into(), Measure::Ratio, better, 2)
    }

    fn new(title: String, measure: Measure, better: Better, digits: usize) -> HeatMap {
        let (columns_label, columns, rows) = (String::new(), Vec::new(), Vec::new());
        HeatMap { title, measure, better, digits, columns_label, columns, rows }
    }

    /// Sets the columns, left to right, and the label of their quantity (`cache size`).
    pub fn columns<T: Into<String>>(
        mut self,
        label: impl Into<String>,
        columns: impl IntoIterator<Item = T>,
    ) -> HeatMap {
        self.columns_label = label.into();
        self.columns = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If the number of values is not the number of columns.
    pub fn row(mut self, name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> HeatMap {
        let (name, values): (String, Vec<f64>) = (name.into(), values.into_iter().collect());
        assert_eq!(values.len(), self.columns.len(), "row {name} does not fit the columns");
        self.rows.push((name, values));
        self
    }

    /// Sets the number of decimals in a cell.
    pub fn digits(mut self, digits: usize) -> HeatMap {
        self.digits = digits;
        self
    }

    pub(super) fn needs_positive(&self) -> bool {
        self.measure == Measure::Ratio
    }

    /// Distance from neutral, positive if better; `None` if the value has none.
    fn distance(&self, value: f64) -> Option<f64> {
        let upward = match self.measure {
            Measure::Difference => value,
            Measure::Ratio if value > 0.0 => value.ln(),
            Measure::Ratio => return None,
        };
        let sign = if self.better == Better::Higher { 1.0 } else { -1.0 };
        Some(sign * upward).filter(|d| d.is_finite())
    }

    /// The distance at which the colours end, and whether any value lies beyond it. A few outliers must not leave all
    /// others pale: the colours end at nine tenths of the distances.
    fn reach(&self) -> (f64, bool) {
        let distances = self.rows.iter().flat_map(|r| &r.1).filter_map(|&v| self.distance(v));
        let mut distances: Vec<f64> = distances.map(f64::abs).filter(|&d| d > 0.0).collect();
        distances.sort_by(f64::total_cmp);
        let Some(&largest) = distances.last() else { return (0.0, false) };
        let reach = distances[(distances.len() * 9 / 10).min(distances.len() - 1)];
        (reach, largest > reach)
    }

    fn number(&self, value: f64) -> String {
        let digits = self.digits;
        match self.measure {
            Measure::Difference => {
                let text = format!("{value:+.digits$}");
                let is_zero = text.trim_start_matches(['+', '-']).chars().all(|c| c == '0' || c == '.');
                if is_zero { text[1..].to_owned() } else { text }
            }
            Measure::Ratio if value >= 1e4 => format!("{value:.1e}"),
            Measure::Ratio if value >= 100.0 => format!("{value:.0}"),
            Measure::Ratio => format!("{value:.digits$}"),
        }
    }

    pub(super) fn draw(&self, width: f64) -> Drawing {
        let left_out = self.rows.iter().flat_map(|r| &r.1).filter(|&&v| self.distance(v).is_none()).count();
        if self.rows.is_empty() || self.columns.is_empty() {
            return super::empty_drawing(width, left_out);
        }
        let names = self.rows.iter().map(|r| text_width(&r.0, TEXT)).fold(40.0, f64::max).min(190.0) + 12.0;
        let numbers =
            self.rows.iter().flat_map(|r| &r.1).map(|&v| text_width(&self.number(v), TEXT)).fold(0.0, f64::max);
        let heads = self.columns.iter().map(|c| text_width(c, TEXT)).fold(0.0, f64::max).min(90.0);
        let least = numbers.max(heads) + 10.0;
        let cell = ((width - names) / self.columns.len() as f64).clamp(least, least.max(110.0));
        let right = names + cell * self.columns.len() as f64;
        let mut m = Markup::default();
        let (reach, beyond) = self.reach();
        let key_end = self.draw_key(&mut m, names, reach, beyond);
        self.draw_heads(&mut m, names, cell);
        for (row, (name, values)) in self.rows.iter().enumerate() {
            let y = HEAD + ROW * row as f64;
            let text = fit_text(name, TEXT, 190.0);
            let (x, middle) = (Px(names - 8.0), Px(y + ROW / 2.0));
            m.open("text", &[("class", &"tick y"), ("x", &x), ("y", &middle), ("dy", &".35em")]);
            m.text(&text);
            if text != *name {
                m.leaf("title", &[], name);
            }
            m.close("text");
            for (column, &value) in values.iter().enumerate() {
                let place = (names + cell * column as f64, y, cell);
                let title = format!("{name}\n{} {}: {}", self.columns_label, self.columns[column], exact(value));
                let shade = self.distance(value).map(|d| diverging(if reach > 0.0 { d / reach } else { 0.0 }));
                draw_cell(&mut m, place, &title, shade, &self.number(value));
            }
        }
        let height = HEAD + ROW * self.rows.len() as f64 + 6.0;
        Drawing {
            inside: m,
            width: width.max(right + 2.0).max(key_end + 2.0),
            height,
            legend: Vec::new(),
            left_out,
            cut: Vec::new(),
            pick: "mark",
        }
    }

    fn draw_heads(&self, m: &mut Markup, left: f64, cell: f64) {
        let middle = left + cell * self.columns.len() as f64 / 2.0;
        m.leaf(
            "text",
            &[("class", &"label"), ("x", &Px(middle)), ("y", &Px(HEAD - 30.0)), ("text-anchor", &"middle")],
            &self.columns_label,
        );
        for (column, name) in self.columns.iter().enumerate() {
            let x = Px(left + cell * (column as f64 + 0.5));
            m.leaf("text", &[("class", &"tick"), ("x", &x), ("y", &Px(HEAD - 9.0))], fit_text(name, TEXT, cell));
        }
    }

    /// Draws the bar of colours with its ends named, and returns its right end. `beyond`: values lie beyond the ends.
    fn draw_key(&self, m: &mut Markup, left: f64, reach: f64, beyond: bool) -> f64 {
        const STEPS: i32 = 10;
        const STEP: f64 = 8.0;
        let end = |distance: f64| {
            let upward = if self.better == Better::Higher { distance } else { -distance };
            let sign = match (beyond, upward > 0.0) {
                (false, _) => "",
                (true, true) => "≥ ",
                (true, false) => "≤ ",
            };
            format!("{sign}{}", self.number(if self.measure == Measure::Difference { upward } else { upward.exp() }))
        };
        let (worst, best) = (format!("worse {}", end(-reach)), format!("{} better", end(reach)));
        let start = left + text_width(&worst, TEXT) + 6.0;
        m.leaf("text", &[("class", &"label"), ("x", &Px(left)), ("y", &17)], &worst);
        for i in -STEPS..=STEPS {
            let shade = diverging(f64::from(i) / f64::from(STEPS));
            let x = Px(start + f64::from(i + STEPS) * STEP);
            let style = format!("--l:{};--k:{}", shade.light, shade.dark);
            m.void(
                "rect",
                &[("class", &"cell"), ("x", &x), ("y", &7), ("width", &STEP), ("height", &12), ("style", &style)],
            );
        }
        let after = start + f64::from(2 * STEPS + 1) * STEP + 6.0;
        m.leaf("text", &[("class", &"label"), ("x", &Px(after)), ("y", &17)], &best);
        after + text_width(&best, TEXT)
    }
}

/// Draws one cell at `(x, y, width)`: its colour and number, or a dash without a value.
fn draw_cell(m: &mut Markup, (x, y, width): (f64, f64, f64), title: &str, shade: Option<Shade>, number: &str) {
    m.open("g", &[("class", &"mark")]);
    let (class, style, ink, text) = match shade {
        Some(s) => ("cell", format!("--l:{};--k:{}", s.light, s.dark), s.ink, number),
        None => ("cell none", String::new(), "", MISSING),
    };
    let (w, h) = (Px(width - 1.5), Px(ROW - 1.5));
    m.void(
        "rect",
        &[("class", &class), ("x", &Px(x)), ("y", &Px(y)), ("width", &w), ("height", &h), ("style", &style)],
    );
    let (x, y) = (Px(x + width / 2.0), Px(y + ROW / 2.0));
    let ink = format!("number {ink}");
    m.leaf("text", &[("class", &ink.trim_end()), ("x", &x), ("y", &y), ("dy", &".32em")], text);
    m.leaf("title", &[], title);
    m.close("g");
}

fn exact(value: f64) -> String {
    if value.is_finite() { shortest(value) } else { "no value".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_follows_what_is_better() {
        let higher = HeatMap::differences("", Better::Higher);
        assert_eq!(higher.distance(0.2), Some(0.2));
        let fewer = HeatMap::ratios("", Better::Lower);
        assert!(fewer.distance(0.5).unwrap() > 0.0);
        assert_eq!(fewer.distance(0.5), fewer.distance(2.0).map(|d| -d));
        for none in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(fewer.distance(none), None);
        }
    }

    #[test]
    fn colours_end_where_most_values_do() {
        let map = |values: Vec<f64>| {
            let columns: Vec<String> = (0..values.len()).map(|i| i.to_string()).collect();
            HeatMap::differences("", Better::Higher).columns("x", columns).row("r", values)
        };
        assert_eq!(map(vec![0.0, f64::NAN]).reach(), (0.0, false));
        assert_eq!(map(vec![0.1, -0.2]).reach(), (0.2, false));
        let mut values: Vec<f64> = (1..=20).map(|i| f64::from(i) / 100.0).collect();
        values.push(-1.0);
        assert_eq!(map(values).reach(), (0.19, true));
    }

    #[test]
    fn numbers_in_cells() {
        let d = HeatMap::differences("", Better::Higher);
        assert_eq!(d.number(0.0213), "+0.021");
        assert_eq!(d.number(-0.0001), "0.000");
        let r = HeatMap::ratios("", Better::Lower).digits(1);
        assert_eq!(r.number(1.25), "1.2");
        assert_eq!(r.number(12345.0), "1.2e4");
    }

    #[test]
    #[should_panic(expected = "row b does not fit")]
    fn a_row_of_another_length_is_refused() {
        let _ = HeatMap::ratios("", Better::Lower).columns("size", ["1%", "5%"]).row("b", [1.0]);
    }
}
