//! Successive halving: many points are tried briefly, the better half of them longer, until one is left.
//!
//! Karnin, Koren, Somekh, "Almost optimal exploration in multi-armed bandits", ICML 2013; Jamieson and Talwalkar,
//! "Non-stochastic best arm identification and hyperparameter optimization", AISTATS 2016. The points lie around the
//! held one, because most of a whole space is far worse than any reasonable start. Each point differs from it in half
//! of the knobs, and a knob that differs takes every level about equally often. A bracket that found an improvement is
//! followed by another one around that point.

use super::{Verdict, stream};
use crate::space::{Point, Space};
use serde::{Deserialize, Serialize};

/// A point and the results of its trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Arm {
    point: Point,
    /// Sum of the logarithms of its values: values are ratios, so their mean is geometric.
    sum: f64,
    trials: u32,
}

impl Arm {
    fn mean(&self) -> f64 {
        self.sum / f64::from(self.trials.max(1))
    }
}

/// The state of the halving.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Halving {
    seed: u64,
    /// Points of a bracket.
    width: usize,
    bracket: u64,
    /// Centre of the bracket, and the newest point that was adopted.
    centre: Point,
    adopted: Point,
    arms: Vec<Arm>,
    /// Trials of every arm by the end of this rung, earlier rungs included.
    rung: u32,
    next: usize,
}

impl Halving {
    /// A search that begins with this many points, at least 2.
    pub fn new(space: &Space, start: &[usize], width: usize, seed: u64) -> Self {
        let (centre, adopted, arms) = (start.to_vec(), start.to_vec(), Vec::new());
        let mut search = Halving { seed, width: width.max(2), bracket: 0, centre, adopted, arms, rung: 1, next: 0 };
        search.restart(space, start);
        search
    }

    pub(super) fn points(&self) -> impl Iterator<Item = &Point> {
        self.arms.iter().map(|arm| &arm.point).chain([&self.centre, &self.adopted])
    }

    pub(super) fn is_over(&self) -> bool {
        self.arms.len() < 2
    }

    pub(super) fn propose(&mut self) -> Option<Point> {
        if self.is_over() { None } else { Some(self.arms[self.next].point.clone()) }
    }

    pub(super) fn told(&mut self, space: &Space, Verdict { value, adopted }: Verdict) {
        if self.is_over() {
            return;
        }
        let arm = &mut self.arms[self.next];
        if adopted {
            self.adopted.clone_from(&arm.point);
        }
        arm.sum += value.ln();
        arm.trials += 1;
        if arm.trials < self.rung {
            return;
        }
        self.next += 1;
        if self.next == self.arms.len() {
            // Ties go to the earlier arm: the sort is stable.
            self.arms.sort_by(|a, b| b.mean().total_cmp(&a.mean()));
            self.arms.truncate(self.arms.len().div_ceil(2));
            self.rung *= 2;
            self.next = 0;
        }
        if self.is_over() && self.adopted != self.centre {
            self.restart(space, &self.adopted.clone());
        }
    }

    pub(super) fn restart(&mut self, space: &Space, around: &[usize]) {
        self.bracket += 1;
        let mut random = stream(self.seed, self.bracket);
        let mut shuffle = |turns: &mut [usize]| {
            (1..turns.len()).rev().for_each(|i| turns.swap(i, random.below(i as u64 + 1) as usize));
        };
        let mut points: Vec<Point> = vec![around.to_vec(); self.width];
        for knob in 0..around.len() {
            // The first half of the turns changes the knob, each level in turn; the others leave it.
            let mut turns: Vec<usize> = (0..self.width).collect();
            shuffle(&mut turns);
            for (point, turn) in points.iter_mut().zip(turns).filter(|(_, turn)| turn * 2 < self.width) {
                point[knob] = turn * 2 * space.levels(knob) / self.width;
            }
        }
        points.retain(|point| point != around);
        points.sort_unstable();
        points.dedup();
        let mut order: Vec<usize> = (0..points.len()).collect();
        shuffle(&mut order);
        let arm = |at: usize| Arm { point: points[at].clone(), sum: 0.0, trials: 0 };
        self.arms = order.into_iter().map(arm).collect();
        (self.centre, self.adopted) = (around.to_vec(), around.to_vec());
        (self.rung, self.next) = (1, 0);
    }
}
