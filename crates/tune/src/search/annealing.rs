//! Simulated annealing: 003, algorithm 1.
//!
//! Readings. The text calls `Cost(T, W) = T + lambda / W` a cost and maximises it; so does this module. A worse
//! neighbour is accepted with probability `exp(delta / temperature)`, delta below 0. The energy is that of the current
//! configuration, which the printed loop never updates. A neighbour is one level up or down at one knob; the paper does
//! not say.
//!
//! The printed numbers have no unit. Energy is counted in thousandths of the start's score. So T0 = 800 accepts nearly
//! every neighbour, as an initial temperature should, and Tmin = 0.00008 accepts none that is worse.
//!
//! From 800 to 0.00008 by factors of 0.9 are 153 temperatures, of 10 accepted neighbours each: at least 1,530 steps. The
//! run that section 6.6 reports has 100 (100 M operations in steps of 1 M), at the end of which the temperature is still
//! 800 * 0.9^10 = 279 at least. [`Schedule::FAST`] cools down within such a run.

use super::{Verdict, stream};
use crate::space::{Point, Space};
use serde::{Deserialize, Serialize};

/// Cooling schedule: the temperatures and the steps at each of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Factor from one temperature to the next, above 0 and below 1.
    pub alpha: f64,
    /// Accepted neighbours at each temperature, above 0.
    pub gamma: u32,
    /// First temperature, above 0, in thousandths of the start's score.
    pub hottest: f64,
    /// The search ends below this temperature, above 0.
    pub coldest: f64,
}

impl Schedule {
    /// As printed (003, section 6.6).
    pub const PAPER: Schedule = Schedule { alpha: 0.9, gamma: 10, hottest: 800.0, coldest: 0.00008 };
    /// Ends after some 40 accepted neighbours. The first temperature stands for changes by a fifth: at higher ones all
    /// steps are alike. The last stands for half a per cent: measurements cannot tell less.
    pub const FAST: Schedule = Schedule { alpha: 0.7, gamma: 4, hottest: 200.0, coldest: 5.0 };
}

/// Tries per accepted neighbour, in multiples of gamma, after which the next temperature begins. At a low temperature
/// few neighbours are accepted, and the loop as printed would not end.
const TRIES_PER_ACCEPTED_MAX: u32 = 3;

/// The state of the annealing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Annealing {
    schedule: Schedule,
    seed: u64,
    current: Point,
    energy: f64,
    temperature: f64,
    accepted: u32,
    tries: u32,
    /// Proposals so far.
    drawn: u64,
    proposed: Option<Point>,
}

impl Annealing {
    /// A search that begins at a point.
    pub fn new(schedule: Schedule, start: &[usize], seed: u64) -> Self {
        Annealing {
            schedule,
            seed,
            current: start.to_vec(),
            energy: 1000.0,
            temperature: schedule.hottest,
            accepted: 0,
            tries: 0,
            drawn: 0,
            proposed: None,
        }
    }

    /// The temperature.
    pub fn temperature(&self) -> f64 {
        self.temperature
    }

    pub(super) fn points(&self) -> impl Iterator<Item = &Point> {
        [&self.current].into_iter().chain(&self.proposed)
    }

    pub(super) fn is_over(&self) -> bool {
        self.temperature < self.schedule.coldest
    }

    pub(super) fn propose(&mut self, space: &Space) -> Option<Point> {
        if self.is_over() {
            return None;
        }
        if self.proposed.is_none() {
            self.drawn += 1;
            let mut random = stream(self.seed, self.drawn);
            let neighbour = std::iter::repeat_with(|| {
                let knob = random.below(self.current.len() as u64) as usize;
                space.step(&self.current, knob, random.chance(0.5))
            });
            // Every knob has two levels or more, so one direction of each is open.
            self.proposed = neighbour.flatten().next();
        }
        self.proposed.clone()
    }

    pub(super) fn told(&mut self, Verdict { value, .. }: Verdict) {
        let Some(proposed) = self.proposed.take() else { return };
        let energy = value * 1000.0;
        let acceptance = ((energy - self.energy) / self.temperature).exp();
        // The acceptance has a stream of its own, because the proposal's has been drawn from an unknown number of
        // times.
        if acceptance >= 1.0 || stream(!self.seed, self.drawn).chance(acceptance) {
            self.current = proposed;
            self.energy = energy;
            self.accepted += 1;
        }
        self.tries += 1;
        if self.accepted >= self.schedule.gamma || self.tries >= self.schedule.gamma * TRIES_PER_ACCEPTED_MAX {
            self.temperature *= self.schedule.alpha;
            (self.accepted, self.tries) = (0, 0);
        }
    }

    pub(super) fn restart(&mut self, from: &[usize], value: f64) {
        let drawn = self.drawn;
        *self = Annealing { energy: value * 1000.0, drawn, ..Annealing::new(self.schedule, from, self.seed) };
    }
}
