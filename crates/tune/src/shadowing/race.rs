//! The race: the settings that are shadowed, and the results of each.

use super::forecast::{Judge, Parts, sum};
use crate::search::stream;
use crate::space::{Point, Space};
use entresol_core::{Demand, PARTS, Shadow};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Limits of the race: the number of shadows, and their times in epochs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RaceLimits {
    /// Shadows at a time.
    pub width: usize,
    /// Epochs that do not count for a shadow that begins with the contents of another.
    pub settle: u32,
    /// Epochs that are counted before a shadow is judged.
    pub judged_after: usize,
    /// Most epochs that a shadow looks back: the workload before may be over.
    pub memory: usize,
    /// Epochs after which one shadow is replaced by a new one.
    pub turn: u64,
    /// Epochs after which a point that was left is tried again, because the workload may have changed.
    pub again: u64,
}

impl Default for RaceLimits {
    fn default() -> Self {
        RaceLimits { width: 8, settle: 2, judged_after: 4, memory: 48, turn: 4, again: 192 }
    }
}

const NOTHING: Parts = [Demand { requests: 0.0, waits: 0.0, busy: [0.0; 3], written: 0.0 }; PARTS];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Candidate {
    pub id: u64,
    pub point: Point,
    /// Id of the candidate whose contents the shadow began with; `None` if it began empty.
    from: Option<u64>,
    /// Epochs that are still not to be counted.
    unsettled: u32,
    /// Demands of each counted epoch, the newest last. They are lost with the shadow's contents.
    #[serde(skip)]
    epochs: VecDeque<Parts>,
    #[serde(skip, default = "nothing")]
    now: Parts,
}

fn nothing() -> Parts {
    NOTHING
}

impl Candidate {
    /// Sums over the last `epochs` epochs.
    fn last(&self, epochs: usize) -> Parts {
        let mut all = NOTHING;
        for parts in self.epochs.iter().rev().take(epochs) {
            all.iter_mut().zip(parts).for_each(|(sum, part)| *sum += *part);
        }
        all
    }
}

/// Candidates with a shadow each. The first one is the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Race {
    limits: RaceLimits,
    seed: u64,
    pub candidates: Vec<Candidate>,
    /// Points that were left, and the epochs when they were.
    left: Vec<(Point, u64)>,
    next_id: u64,
    drawn: u64,
    epoch: u64,
}

impl Race {
    pub fn new(space: &Space, start: &Point, limits: RaceLimits, seed: u64) -> Self {
        let mut race = Race { limits, seed, candidates: Vec::new(), left: Vec::new(), next_id: 0, drawn: 0, epoch: 0 };
        race.enter(start.clone(), None);
        // Coarse levels: each knob alone at its ends and in the middle, then several at a time.
        for knob in 0..start.len() {
            for level in coarse(space, knob) {
                let mut point = start.clone();
                point[knob] = level;
                race.enter_if_new(point);
            }
        }
        let mut random = stream(seed, 0);
        for _ in 0..16 * limits.width {
            let mut point = start.clone();
            for (knob, level) in point.iter_mut().enumerate() {
                let levels = coarse(space, knob);
                if random.chance(0.5) {
                    *level = levels[random.below(levels.len() as u64) as usize];
                }
            }
            race.enter_if_new(point);
        }
        race
    }

    fn enter_if_new(&mut self, point: Point) {
        if self.candidates.len() < self.limits.width && !self.is_in(&point) {
            self.enter(point, None);
        }
    }

    fn enter(&mut self, point: Point, from: Option<u64>) {
        let unsettled = if from.is_some() { self.limits.settle } else { 0 };
        let id = self.next_id;
        self.next_id += 1;
        self.candidates.push(Candidate { id, point, from, unsettled, epochs: VecDeque::new(), now: NOTHING });
    }

    fn is_in(&self, point: &Point) -> bool {
        self.place(point).is_some()
    }

    pub fn place(&self, point: &Point) -> Option<usize> {
        self.candidates.iter().position(|candidate| candidate.point == *point)
    }

    pub fn shadows(&self, space: &Space) -> Vec<Shadow> {
        let shadow = |one: &Candidate| Shadow { id: one.id, values: space.values(&one.point), from: one.from };
        self.candidates.iter().map(shadow).collect()
    }

    /// Resets the shadows, which have lost contents and results.
    pub fn forget(&mut self) {
        for candidate in &mut self.candidates {
            (candidate.unsettled, candidate.from) = (0, None);
            candidate.epochs.clear();
            candidate.now = NOTHING;
        }
    }

    pub fn foretold(&mut self, id: u64, parts: &Parts) {
        if let Some(candidate) = self.candidates.iter_mut().find(|candidate| candidate.id == id) {
            candidate.now.iter_mut().zip(parts).for_each(|(sum, part)| *sum += *part);
        }
    }

    /// Demands of a candidate in the current epoch so far.
    pub fn now(&self, at: usize) -> Demand {
        sum(&self.candidates[at].now)
    }

    /// Demands of a candidate in its last counted epoch, if there is one.
    pub fn newest(&self, at: usize) -> Option<&Parts> {
        self.candidates[at].epochs.back()
    }

    pub fn epoch_ends(&mut self) {
        self.epoch += 1;
        for candidate in &mut self.candidates {
            let parts = std::mem::replace(&mut candidate.now, NOTHING);
            if candidate.unsettled > 0 {
                candidate.unsettled -= 1;
                continue;
            }
            if candidate.epochs.len() == self.limits.memory {
                candidate.epochs.pop_front();
            }
            candidate.epochs.push_back(parts);
        }
    }

    /// Demands of two candidates over the last epochs that count for both, `epochs` of them at most. `None` with too
    /// few for a verdict ([`RaceLimits::judged_after`]).
    pub fn common(&self, at: usize, base: usize, epochs: usize) -> Option<[Parts; 2]> {
        let pair = [at, base].map(|at| &self.candidates[at]);
        let common = pair.map(|one| one.epochs.len()).into_iter().fold(epochs, usize::min);
        (common >= self.limits.judged_after).then(|| pair.map(|one| one.last(common)))
    }

    /// Gains against the held candidate of all that can be judged, the least first.
    fn standings(&self, judge: &Judge, held: usize) -> Vec<(f64, usize)> {
        let others = (0..self.candidates.len()).filter(|&at| at != held);
        let gain = |at: usize| {
            let [these, base] = self.common(at, held, usize::MAX)?;
            Some((judge.gain(&sum(&these), &sum(&base))?, at))
        };
        let mut standings: Vec<(f64, usize)> = others.filter_map(gain).collect();
        standings.sort_by(|a, b| a.0.total_cmp(&b.0));
        standings
    }

    /// Replaces the worst candidate by a neighbour of the best, from time to time.
    pub fn turn(&mut self, space: &Space, judge: &Judge, held: &Point) {
        let Some(held) = self.place(held) else { return };
        if !self.epoch.is_multiple_of(self.limits.turn) {
            return;
        }
        let standings = self.standings(judge, held);
        let best = standings.last().filter(|best| best.0 > 0.0).map_or(held, |best| best.1);
        let parent = self.candidates[best].clone();
        // The start, the held candidate and the best stay.
        let mut others = standings.iter().map(|standing| standing.1).filter(|&at| at != 0 && at != best);
        let full = self.candidates.len() >= self.limits.width;
        let leaving = if full { others.next().map(|at| self.candidates[at].id) } else { None };
        if full && leaving.is_none() {
            return;
        }
        let Some(point) = self.neighbour(space, &parent.point) else { return };
        if let Some(id) = leaving {
            self.leave(id);
        }
        self.enter(point, Some(parent.id));
    }

    fn leave(&mut self, id: u64) {
        if let Some(at) = self.candidates.iter().position(|one| one.id == id) {
            let gone = self.candidates.remove(at);
            self.left.push((gone.point, self.epoch));
        }
    }

    /// A neighbour of this point that is not shadowed and was not lately: one level away if one is left, else a point
    /// that differs in at most two knobs.
    fn neighbour(&mut self, space: &Space, point: &Point) -> Option<Point> {
        let (epoch, again) = (self.epoch, self.limits.again);
        self.left.retain(|&(_, when)| epoch - when < again);
        self.drawn += 1;
        let mut random = stream(self.seed, self.drawn);
        let is_new = |point: &Point| !self.is_in(point) && !self.left.iter().any(|(left, _)| left == point);
        let steps = (0..point.len()).flat_map(|knob| [false, true].map(|up| space.step(point, knob, up)));
        let steps: Vec<Point> = steps.flatten().filter(is_new).collect();
        if !steps.is_empty() && !self.drawn.is_multiple_of(3) {
            return Some(steps[random.below(steps.len() as u64) as usize].clone());
        }
        let mut jump = || {
            let mut jump = point.clone();
            for _ in 0..2 {
                let knob = random.below(jump.len() as u64) as usize;
                jump[knob] = random.below(space.levels(knob) as u64) as usize;
            }
            jump
        };
        (0..32).map(|_| jump()).find(is_new).or_else(|| steps.into_iter().next())
    }
}

/// The lowest, middle and highest levels of a knob.
fn coarse(space: &Space, knob: usize) -> Vec<usize> {
    let last = space.levels(knob) - 1;
    let mut levels = vec![0, last.div_ceil(2), last];
    levels.dedup();
    levels
}
