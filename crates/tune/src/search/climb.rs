//! Coordinate hill climbing: one knob after the other, up or down as long as that is better.
//!
//! It tries at most two points per knob from where nothing is better, and so is over soon; but it ends at the first local
//! optimum of a surface that has several.

use super::Verdict;
use crate::space::{Point, Space};
use serde::{Deserialize, Serialize};

/// The state of the climb.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Climb {
    base: Point,
    knob: usize,
    up: bool,
    /// Directions in a row, round the knobs, in which nothing was better.
    in_vain: usize,
    /// The last step was one up hill: behind it lies where it came from, which need not be tried.
    climbing: bool,
}

impl Climb {
    /// A climb from a point.
    pub fn new(start: &[usize]) -> Self {
        Climb { base: start.to_vec(), knob: 0, up: false, in_vain: 0, climbing: false }
    }

    pub(super) fn points(&self) -> impl Iterator<Item = &Point> {
        [&self.base].into_iter()
    }

    pub(super) fn is_over(&self) -> bool {
        self.in_vain >= 2 * self.base.len()
    }

    pub(super) fn propose(&mut self, space: &Space) -> Option<Point> {
        while !self.is_over() {
            if let Some(point) = space.step(&self.base, self.knob, self.up) {
                return Some(point);
            }
            self.turn();
        }
        None
    }

    /// Nothing better this way: the other way, or the next knob.
    fn turn(&mut self) {
        self.in_vain += 1;
        if self.climbing {
            // The other way is known to be worse.
            self.in_vain += 1;
            self.next_knob();
        } else if self.up {
            self.next_knob();
        } else {
            self.up = true;
        }
        self.climbing = false;
    }

    fn next_knob(&mut self) {
        self.knob = (self.knob + 1) % self.base.len();
        self.up = false;
    }

    pub(super) fn told(&mut self, space: &Space, Verdict { adopted, .. }: Verdict) {
        match space.step(&self.base, self.knob, self.up) {
            Some(point) if adopted => {
                self.base = point;
                self.in_vain = 0;
                self.climbing = true;
            }
            _ => self.turn(),
        }
    }

    pub(super) fn restart(&mut self, from: &[usize]) {
        *self = Climb::new(from);
    }
}
