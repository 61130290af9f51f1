//! A search as the paper runs it: every epoch is a trial, at an unbounded cost.

use crate::objective::{Epoch, Objective};
use crate::save::{RestoreError, Saved};
use crate::search::{Search, Verdict};
use crate::space::{Point, Space};
use crate::{Proposal, Role, Tuner};
use serde::{Deserialize, Serialize};

/// A tuner that only searches, and holds the best settings found once the search is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plain {
    pub(crate) space: Space,
    objective: Objective,
    search: Search,
    best: Point,
    /// Score of the best settings over that of the start.
    best_value: f64,
    /// The score of the first epoch, at the start.
    unit: Option<f64>,
    trial: Option<Point>,
}

impl Plain {
    /// A tuner that begins at a point of a space.
    pub fn new(space: Space, start: Point, search: Search, objective: Objective) -> Self {
        Plain { space, objective, search, best: start, best_value: 1.0, unit: None, trial: None }
    }

    /// Restores a saved state; the knobs must be those it was saved with.
    ///
    /// # Errors
    /// When the text is no state of this kind, or one of other knobs.
    pub fn restore(saved: &Saved, space: &Space) -> Result<Self, RestoreError> {
        let tuner: Plain = saved.read()?;
        let points = [&tuner.best].into_iter().chain(&tuner.trial).chain(tuner.search.points());
        saved.check(&tuner.space, space, points)?;
        Ok(tuner)
    }
}

impl Tuner for Plain {
    fn propose(&mut self) -> Proposal {
        // The first epoch gives the unit of the energy.
        self.trial = if self.unit.is_some() { self.search.propose(&self.space) } else { None };
        let role = if self.trial.is_some() { Role::Trial } else { Role::Hold };
        Proposal { values: self.space.values(self.trial.as_ref().unwrap_or(&self.best)), role }
    }

    fn enough(&self, _so_far: &Epoch) -> bool {
        false
    }

    fn told(&mut self, epoch: &Epoch) {
        if epoch.requests == 0 {
            return;
        }
        let score = self.objective.score(epoch);
        let unit = *self.unit.get_or_insert(score);
        let Some(point) = self.trial.take() else { return };
        let value = score / unit;
        let adopted = value > self.best_value;
        if adopted {
            (self.best, self.best_value) = (point, value);
        }
        self.search.told(&self.space, Verdict { value, adopted });
    }

    fn held(&self) -> Vec<f64> {
        self.space.values(&self.best)
    }

    fn settled(&self) -> bool {
        self.search.is_over()
    }

    fn save(&self) -> Saved {
        Saved::write(self)
    }
}
