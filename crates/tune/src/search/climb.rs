//! Coordinate hill climbing: one knob after the other, up or down as long as the score improves.
//!
//! The climb ends after at most two tries per knob without an improvement, so it is over soon. On a surface with
//! several local optima it ends at the first.

use super::Verdict;
use crate::space::{Point, Space};
use serde::{Deserialize, Serialize};

/// The state of the climb.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Climb {
    base: Point,
    knob: usize,
    up: bool,
    /// Directions in a row, round the knobs, without an improvement.
    in_vain: usize,
    /// True if the last step was uphill: the point behind it is known and need not be tried.
    climbing: bool,
}

impl Climb {
    /// A climb that begins at a point.
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

    /// Turns to the other direction, or to the next knob, after a try without improvement.
    fn turn(&mut self) {
        self.in_vain += 1;
        if self.climbing {
            // The other direction is known to be worse.
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
