//! The rectangle a chart is drawn in, with its grid, ticks and axis labels.

use super::scale::Scale;
use super::{Axis, text_width};
use crate::markup::{Markup, Px};

/// Text size of ticks and labels in user units.
pub(super) const TEXT: f64 = 12.0;

/// Room right of a frame for half of the last tick's label.
pub(super) const MARGIN: f64 = 30.0;

/// The plotting area.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Frame {
    pub(super) fn right(&self) -> f64 {
        self.left + self.width
    }

    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// Starts an inner `svg` element that shows only what lies within the plotting area, in the same coordinates.
    pub(super) fn open_window(&self, m: &mut Markup) {
        let (x, y, width, height) = (Px(self.left), Px(self.top), Px(self.width), Px(self.height));
        let view = format!("{x} {y} {width} {height}");
        m.open("svg", &[("x", &x), ("y", &y), ("width", &width), ("height", &height), ("viewBox", &view)]);
    }

    /// Horizontal grid lines with labels at their left, and the axis label above the corner.
    pub(super) fn draw_y(&self, m: &mut Markup, axis: &Axis, scale: &Scale, target: usize) {
        for (value, label) in scale.labelled_ticks(target) {
            let y = Px(scale.at(value));
            m.void("path", &[("class", &"grid"), ("d", &format_args!("M{} {y}H{}", Px(self.left), Px(self.right())))]);
            m.leaf("text", &[("class", &"tick y"), ("x", &Px(self.left - 7.0)), ("y", &y), ("dy", &".35em")], label);
        }
        m.leaf("text", &[("class", &"label"), ("x", &2), ("y", &Px(self.top - 13.0))], &axis.label);
    }

    /// Draws the base line with ticks below it, and the axis label below the middle. `labelled` is false for all but
    /// the lowest of several panels.
    pub(super) fn draw_x(&self, m: &mut Markup, axis: &Axis, scale: &Scale, labelled: bool) {
        let bottom = Px(self.bottom());
        m.void("path", &[("class", &"base"), ("d", &format_args!("M{} {bottom}H{}", Px(self.left), Px(self.right())))]);
        let mut free_from = f64::NEG_INFINITY;
        for (value, label) in scale.labelled_ticks((self.width / 75.0) as usize + 1) {
            let x = scale.at(value);
            m.void("path", &[("class", &"base"), ("d", &format_args!("M{} {bottom}v4", Px(x)))]);
            let half = text_width(&label, TEXT) / 2.0;
            // A label that would touch its neighbour is left out; its tick stays.
            if labelled && x - half >= free_from {
                let y = Px(self.bottom() + 18.0);
                m.leaf("text", &[("class", &"tick"), ("x", &Px(x)), ("y", &y)], label);
                free_from = x + half + 8.0;
            }
        }
        if labelled {
            let (x, y) = (Px(self.left + self.width / 2.0), Px(self.bottom() + 38.0));
            m.leaf("text", &[("class", &"label"), ("x", &x), ("y", &y), ("text-anchor", &"middle")], &axis.label);
        }
    }
}

/// The width that the tick labels of a scale need at the left of a frame.
pub(super) fn tick_room(scale: &Scale, target: usize) -> f64 {
    let widest = scale.labelled_ticks(target).iter().map(|(_, l)| text_width(l, TEXT)).fold(0.0, f64::max);
    widest + 14.0
}
