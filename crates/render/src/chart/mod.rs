//! Charts as SVG inside an HTML figure.
//!
//! Everything is drawn here; the script of the page only adds interaction (tooltips, toggling a series). A value that
//! cannot be drawn (not finite, or not above zero on a logarithmic axis) leaves a gap, and the chart shows the number
//! of such values.

mod bars;
mod frame;
mod heat;
mod histogram;
mod line;
mod panels;
mod scale;

pub use bars::{BarChart, BarLayout};
pub use heat::HeatMap;
pub use histogram::{Histogram, log2_bucket};
pub use line::{Curve, LineChart};
pub use panels::{Panel, TimeSeries};
pub use scale::Spread;

use crate::colour::{self, Looks, Names};
use crate::markup::{Markup, Px};
use crate::number::NumberFormat;

/// Width in user units of a chart that has the page's width to itself.
const FULL_WIDTH: f64 = 900.0;
/// Width in user units of a chart with a legend at its side.
const SIDE_WIDTH: f64 = 760.0;
/// Width in user units of a chart in a grid.
const GRID_WIDTH: f64 = 560.0;

/// An axis: its quantity, and the way it is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    pub(crate) label: String,
    pub(crate) format: NumberFormat,
    pub(crate) spread: Spread,
    pub(crate) at_least: Option<(f64, f64)>,
}

impl Axis {
    /// A linear axis that fits its data.
    pub fn new(label: impl Into<String>, format: NumberFormat) -> Axis {
        Axis { label: label.into(), format, spread: Spread::Linear, at_least: None }
    }

    /// Sets how values spread along the axis.
    pub fn spread(mut self, spread: Spread) -> Axis {
        self.spread = spread;
        self
    }

    /// Makes the axis reach at least from `low` to `high`; data beyond still widen it.
    ///
    /// # Panics
    /// If an end is not finite or `low` is above `high`.
    pub fn at_least(mut self, low: f64, high: f64) -> Axis {
        assert!(low.is_finite() && high.is_finite() && low <= high, "an axis from {low} to {high}");
        self.at_least = Some((low, high));
        self
    }
}

/// A named line: points ordered by x. A y that is not finite is a gap.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) emphasised: bool,
}

impl Series {
    /// A series of `(x, y)` points, in any order.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
        let mut points: Vec<(f64, f64)> = points.into_iter().collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series { name: name.into(), points, emphasised: false }
    }

    /// Draws this series in the foreground whatever its values are: for a baseline or a bound.
    pub fn emphasised(mut self) -> Series {
        self.emphasised = true;
        self
    }
}

/// The good end of a measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More is better: hit ratio, throughput.
    Higher,
    /// Less is better: miss ratio, write-backs, latency.
    Lower,
}

/// Any chart.
#[derive(Clone, Debug)]
pub enum Chart {
    /// Lines over a common x: curves, distributions.
    Line(LineChart),
    /// Panels stacked over a common time.
    TimeSeries(TimeSeries),
    /// Numbers in a grid, coloured by their distance from neutral.
    Heat(HeatMap),
    /// Bars per category.
    Bars(BarChart),
    /// Counts per power of two.
    Histogram(Histogram),
}

macro_rules! chart_from {
    ($($variant:ident($kind:ty)),*) => {$(
        impl From<$kind> for Chart {
            fn from(chart: $kind) -> Chart {
                Chart::$variant(chart)
            }
        }
    )*};
}
chart_from!(Line(LineChart), TimeSeries(TimeSeries), Heat(HeatMap), Bars(BarChart), Histogram(Histogram));

impl Chart {
    /// The chart alone as an SVG document with its own styles, for a README or a paper. It has no legend: labels at the
    /// ends of the lines name the series.
    pub fn to_svg(&self) -> String {
        let drawing = self.draw(&Looks::of(&[self.names()]), FULL_WIDTH);
        let mut m = Markup::default();
        drawing.write_svg(&mut m, self.title(), true);
        m.finish("")
    }

    fn title(&self) -> &str {
        match self {
            Chart::Line(c) => &c.title,
            Chart::TimeSeries(c) => &c.title,
            Chart::Heat(c) => &c.title,
            Chart::Bars(c) => &c.title,
            Chart::Histogram(c) => &c.title,
        }
    }

    /// The names that this chart distinguishes by colour.
    pub(crate) fn names(&self) -> Names<'_> {
        match self {
            Chart::Line(c) => c.names(),
            Chart::TimeSeries(c) => (c.names(), Vec::new()),
            Chart::Heat(_) => Names::default(),
            Chart::Bars(c) => (c.names(), Vec::new()),
            Chart::Histogram(c) => (c.names(), Vec::new()),
        }
    }

    fn why_left_out(&self) -> &'static str {
        match self {
            Chart::Line(c) if c.is_logarithmic() => "not a finite number, or not above zero on a logarithmic axis",
            Chart::Heat(c) if c.needs_positive() => "no ratio, or one that is not above zero",
            _ => "not a finite number",
        }
    }

    fn draw(&self, looks: &Looks, width: f64) -> Drawing {
        match self {
            Chart::Line(c) => c.draw(looks, width),
            Chart::TimeSeries(c) => c.draw(looks, width),
            Chart::Heat(c) => c.draw(width),
            Chart::Bars(c) => c.draw(looks, width),
            Chart::Histogram(c) => c.draw(looks, width),
        }
    }

    /// Writes the figure: title, drawing, legend, and the number of values left out.
    pub(crate) fn write_figure(&self, m: &mut Markup, looks: &Looks, in_grid: bool) {
        let (front, rest) = self.names();
        let side = front.len() + rest.len() > 8 && !in_grid;
        let width = match (in_grid, side) {
            (true, _) => GRID_WIDTH,
            (false, true) => SIDE_WIDTH,
            (false, false) => FULL_WIDTH,
        };
        let drawing = self.draw(looks, width);
        let class = if drawing.is_solid() { "chart solid" } else { "chart" };
        m.open("figure", &[("class", &class), ("data-pick", &drawing.pick)]);
        m.leaf("figcaption", &[], self.title());
        let body = if side { "body wide" } else { "body" };
        m.open("div", &[("class", &body)]);
        m.open("div", &[("class", &"plot")]);
        drawing.write_svg(m, self.title(), false);
        m.close("div");
        write_legend(m, &drawing.legend);
        m.close("div");
        if drawing.left_out > 0 {
            let what = if drawing.left_out == 1 { "value is" } else { "values are" };
            let text = format!("{} {what} not drawn: {}.", drawing.left_out, self.why_left_out());
            m.leaf("p", &[("class", &"left-out")], text);
        }
        if !drawing.cut.is_empty() {
            let text = format!("Beyond the top of the chart, at least in part: {}.", drawing.cut.join(", "));
            m.leaf("p", &[("class", &"left-out")], text);
        }
        m.close("figure");
    }
}

/// Result of a chart's renderer.
struct Drawing {
    /// Contents of the `svg` element.
    inside: Markup,
    width: f64,
    height: f64,
    legend: Vec<Key>,
    /// Number of values that have no place on their axis.
    left_out: usize,
    /// Series that leave the chart at its top.
    cut: Vec<String>,
    /// Rule by which the pointer finds a value: `mark` the one under it, `point` the nearest, `column` all at the
    /// nearest x.
    pick: &'static str,
}

/// One entry of a legend.
struct Key {
    name: String,
    /// The number that the marks of this series carry in `data-s`.
    series: usize,
    look: usize,
    /// True for a line, false for a filled box.
    line: bool,
    strong: bool,
}

const XMLNS: crate::markup::Attr<'static> = ("xmlns", &"http://www.w3.org/2000/svg");

impl Drawing {
    fn is_solid(&self) -> bool {
        colour::hues_differ(self.legend.iter().map(|key| key.look))
    }

    fn write_svg(&self, m: &mut Markup, title: &str, standalone: bool) {
        let view = format!("0 0 {} {}", Px(self.width), Px(self.height));
        let (width, height) = (Px(self.width), Px(self.height));
        let mut attrs: Vec<crate::markup::Attr<'_>> =
            vec![("viewBox", &view), ("width", &width), ("height", &height), ("role", &"img"), ("aria-label", &title)];
        // Text neither shrinks below a legible size (the drawing scrolls instead) nor grows to headlines.
        let limits = format!("min-width:{}px;max-width:{}px", Px(self.width * 0.72), Px(self.width * 1.15));
        match standalone {
            false => attrs.push(("style", &limits)),
            true if self.is_solid() => attrs.extend([XMLNS, ("class", &"solid" as &dyn std::fmt::Display)]),
            true => attrs.push(XMLNS),
        }
        m.open("svg", &attrs);
        if standalone {
            m.asset("style", &format!("{}\n{}", colour::style_sheet(), include_str!("../../assets/chart.css")));
        }
        m.append(&self.inside);
        m.close("svg");
    }
}

fn write_legend(m: &mut Markup, legend: &[Key]) {
    if legend.len() < 2 {
        return;
    }
    m.open("div", &[("class", &"legend")]);
    for key in legend {
        let class = format!("key {}{}", colour::classes(key.look), if key.strong { " strong" } else { "" });
        let help = format!("{}: click to hide or show, shift-click to show it alone", key.name);
        m.open(
            "button",
            &[
                ("type", &"button"),
                ("class", &class),
                ("data-s", &key.series),
                ("aria-pressed", &"true"),
                ("title", &help),
            ],
        );
        let width = if key.line { 26 } else { 10 };
        m.open("svg", &[("width", &width), ("height", &10), ("aria-hidden", &"true")]);
        if key.line {
            m.void("path", &[("class", &"line"), ("d", &"M1 5H25")]);
        } else {
            m.void("rect", &[("class", &"fill"), ("width", &10), ("height", &10), ("rx", &2)]);
        }
        m.close("svg");
        m.leaf("span", &[], &key.name);
        m.close("button");
    }
    m.close("div");
}

/// Width of an average character, in ems, of the widest of the usual sans-serif faces.
const EM: f64 = 0.61;

/// An estimate of the width of `text` in user units at `size` units per em, in a sans-serif face.
fn text_width(text: &str, size: f64) -> f64 {
    console::measure_text_width(text) as f64 * size * EM
}

/// `text`, cut with an ellipsis to at most `width` user units.
fn fit_text(text: &str, size: f64, width: f64) -> String {
    let columns = (width / (size * EM)).floor().max(2.0) as usize;
    console::truncate_str(text, columns, "…").into_owned()
}

/// A drawing that states that there is no data.
fn empty_drawing(width: f64, left_out: usize) -> Drawing {
    let mut inside = Markup::default();
    inside.void("rect", &[("class", &"frame"), ("x", &1), ("y", &1), ("width", &Px(width - 2.0)), ("height", &118)]);
    inside.leaf("text", &[("class", &"nothing"), ("x", &Px(width / 2.0)), ("y", &64)], "no data");
    Drawing { inside, width, height: 120.0, legend: Vec::new(), left_out, cut: Vec::new(), pick: "mark" }
}
