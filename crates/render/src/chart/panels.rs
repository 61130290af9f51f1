//! Panels stacked over a common time: the hit ratio above, the experts' weights below (000 figure 4.5).

use super::frame::{Frame, MARGIN, tick_room};
use super::line::{Pen, left_out, visible};
use super::scale::Scale;
use super::{Axis, Curve, Drawing, Key, Series, empty_drawing};
use crate::colour::Looks;
use crate::markup::{Markup, Px};

/// One panel: its own y axis and series.
#[derive(Clone, Debug)]
pub struct Panel {
    y: Axis,
    series: Vec<Series>,
}

impl Panel {
    /// A panel without series yet.
    pub fn new(y: Axis) -> Panel {
        Panel { y, series: Vec::new() }
    }

    /// Adds a series.
    pub fn series(mut self, series: Series) -> Panel {
        self.series.push(series);
        self
    }
}

/// Panels over one x axis. The pointer reads all series at one x together. A name in several panels has one entry in
/// the legend.
#[derive(Clone, Debug)]
pub struct TimeSeries {
    pub(super) title: String,
    x: Axis,
    panels: Vec<Panel>,
}

const FIRST_HEIGHT: f64 = 210.0;
const NEXT_HEIGHT: f64 = 130.0;
const BETWEEN: f64 = 44.0;

impl TimeSeries {
    /// A chart without panels yet.
    pub fn new(title: impl Into<String>, x: Axis) -> TimeSeries {
        TimeSeries { title: title.into(), x, panels: Vec::new() }
    }

    /// Adds a panel below the others. The first is the tallest.
    pub fn panel(mut self, panel: Panel) -> TimeSeries {
        self.panels.push(panel);
        self
    }

    /// Names of the series in order of first occurrence.
    pub(super) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for series in self.panels.iter().flat_map(|p| &p.series) {
            if !names.contains(&series.name.as_str()) {
                names.push(&series.name);
            }
        }
        names
    }

    pub(super) fn draw(&self, looks: &Looks, width: f64) -> Drawing {
        let names = self.names();
        let all_left_out = self.panels.iter().flat_map(|p| p.series.iter().map(|s| left_out(s, &self.x, &p.y))).sum();
        // A panel without a visible value is not drawn; its missing values are counted.
        let mut top = 34.0;
        let mut rows: Vec<(&Panel, Scale, f64, f64)> = Vec::new();
        for panel in &self.panels {
            let height = if rows.is_empty() { FIRST_HEIGHT } else { NEXT_HEIGHT };
            let values = panel.series.iter().flat_map(|s| visible(s, &self.x, &panel.y)).map(|p| p.1);
            if let Some(scale) = Scale::fit(&panel.y, values, true, (top + height, top)) {
                rows.push((panel, scale, top, height));
                top += height + BETWEEN;
            }
        }
        let xs = self.panels.iter().flat_map(|p| p.series.iter().flat_map(|s| visible(s, &self.x, &p.y))).map(|p| p.0);
        let left = rows.iter().map(|(_, y, _, height)| tick_room(y, targets(*height))).fold(0.0, f64::max);
        let ends = (left + 2.0, width - MARGIN - 2.0);
        let Some(x) = Scale::fit(&self.x, xs, false, ends) else { return empty_drawing(width, all_left_out) };
        let mut inside = Markup::default();
        let lowest = rows.len() - 1;
        for (row, (panel, y, top, height)) in rows.iter().enumerate() {
            let frame = Frame { left, top: *top, width: width - left - MARGIN, height: *height };
            frame.draw_y(&mut inside, &panel.y, y, targets(*height));
            frame.draw_x(&mut inside, &self.x, &x, row == lowest);
            let pen = Pen { x: &x, y, x_axis: &self.x, y_axis: &panel.y, curve: Curve::Straight, titles: false };
            for series in panel.series.iter().rev() {
                let index = names.iter().position(|n| *n == series.name).expect("every name is in the list");
                pen.draw(&mut inside, series, index, looks.get(&series.name), false);
            }
        }
        let bottom = top - BETWEEN;
        inside.void("path", &[("class", &"cross"), ("d", &format_args!("M0 34V{}", Px(bottom)))]);
        let key = |(series, name): (usize, &&str)| {
            let look = looks.get(name);
            Key { name: (*name).to_owned(), series, look, line: true, strong: false }
        };
        let legend = names.iter().enumerate().map(key).collect();
        let (height, left_out) = (bottom + 50.0, all_left_out);
        Drawing { inside, width, height, legend, left_out, cut: Vec::new(), pick: "column" }
    }
}

/// Number of ticks that suit a panel of this height.
fn targets(height: f64) -> usize {
    (height / 35.0) as usize
}
