//! A search whose cost is bounded.
//!
//! A cache has a memory: for a while after a change its speed depends on its old contents, not on its settings. So the
//! first epochs after each change are run and not counted ([`Limits::settle`]). Epochs at the held settings (the
//! *incumbent*) alternate with trials. A trial is judged by its neighbours in time, so a workload that drifts does not
//! look like a better setting. The loss of a trial against the settings at the beginning (the *start*) is paid from a
//! credit. The credit grows by [`Limits::bound`] per epoch; without credit there is no trial. An epoch that has lost
//! [`Limits::stake`] ends early. From time to time, and at once when the incumbent becomes slow, the start itself is
//! run again. If the start is better twice in a row, the tuner returns to it.
//!
//! # Bound on the cost
//! Let the time of each of n epochs at the start be 1, and let the workload change P times, each time to the worst for
//! the tuner. Every setting may be as fast or slow as it likes, up to R times slower than the start, and the start
//! itself may change its speed. Then the loss against the start is at most
//!
//! `bound * n + credit_max + (P + 1) * c`
//!
//! where c, the cost of a change, is at most the loss of the epochs until the start is run again. A change that slows
//! the incumbent down is seen at once: c is a few stakes. A change that speeds up the start alone is seen when the
//! start is next run, after at most [`Limits::gap_max`] epochs: c is that many times R - 1. `tests/bound.rs` plays the
//! adversary.
//!
//! The bound is for a machine whose speed depends on its present settings alone. On a machine with a memory the credit
//! also pays for the damage that a trial does to the contents. That damage is the loss of the start's own epochs after
//! the trial, compared with the epoch before it: the uncounted epochs and the first that counts. Damage that lasts
//! longer is not in the bound, nor is a start that looks slow because of the contents that it finds.

use crate::evidence::{Evidence, Word};
use crate::objective::{Epoch, Objective};
use crate::save::{RestoreError, Saved};
use crate::search::{Search, Verdict};
use crate::space::{Point, Space};
use crate::{Proposal, Role, Tuner};
use serde::{Deserialize, Serialize};

/// Bounds of a search: the loss it may cause, and the evidence that its results need.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Time that may be lost in the long run, as a share of the time at the start.
    pub bound: f64,
    /// Largest credit, and the credit at the beginning, in epochs of the start.
    pub credit_max: f64,
    /// Loss at which an epoch other than one of the start ends early, in epochs of the start.
    pub stake: f64,
    /// Epochs that are not counted after a change of the settings.
    pub settle: u32,
    /// Share by which a trial must be better than the incumbent, twice, and beyond the noise of the incumbent's own
    /// epochs.
    pub margin: f64,
    /// Epochs until the start is run again, at first; doubled each time that the start was not better.
    pub gap_min: u32,
    /// Largest number of epochs until the start is run again.
    pub gap_max: u32,
    /// Lasting change of the score, as a share, at which a search that is over begins anew.
    pub drift: f64,
    /// Epochs after which a search that is over begins anew in any case.
    pub again: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            bound: 0.05,
            credit_max: 2.0,
            stake: 0.25,
            settle: 1,
            margin: 0.02,
            gap_min: 8,
            gap_max: 128,
            drift: 0.3,
            again: 256,
        }
    }
}

/// Factor between a trial's neighbours above which they say more about the workload than about the trial.
const SWING_MAX: f64 = 1.3;
/// Most repeats of such a trial.
const REPEATS_MAX: u32 = 2;
/// Slowdown of the incumbent at which it is compared with the start at once.
const ALARM: f64 = 1.25;
/// Most runs of a trial that is better, but not beyond the noise.
const TRIES_MAX: usize = 4;
/// Largest logarithm of a step between epochs that counts as noise.
const STEP_MAX: f64 = 1.4;
/// Weight of the newest run of the start in the estimate of its pace, where single epochs are noisy.
const START_NEWEST: f64 = 0.4;
/// Weight of the newest epoch in the means that show drift and noise.
const NEWEST: f64 = 0.2;

/// A measurement of some settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Measured {
    /// Seconds per request.
    pace: f64,
    score: f64,
}

/// A point on trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Trial {
    point: Point,
    /// Logarithms of the point's score over the incumbent's, one for each run that could be judged.
    worth: Vec<f64>,
    pace: f64,
    /// Result of a run that is to be judged after the next epoch of the incumbent.
    run: Option<Measured>,
    repeats: u32,
}

/// Ratios of the incumbent to the start: of the speed (`pace`), and of the score.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Lead {
    pace: f64,
    score: f64,
}

const NO_LEAD: Lead = Lead { pace: 1.0, score: 1.0 };

/// Counts of the epochs in which a cache regains its contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Recovery {
    requests: u64,
    seconds: f64,
}

/// The score when the search ended, to see drift.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Settled {
    score: f64,
    recent: f64,
    epochs: u32,
}

/// A tuner that searches within limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Guarded {
    pub(crate) space: Space,
    objective: Objective,
    limits: Limits,
    epoch_requests: u64,
    search: Search,
    start: Point,
    incumbent: Point,
    lead: Lead,
    /// The incumbent's last epoch; none when the next one is to be the incumbent's.
    reference: Option<Measured>,
    /// Seconds per request at the start, by the newest estimate.
    start_pace: Option<f64>,
    /// Score of an epoch of the start, by the newest estimate.
    #[serde(default)]
    start_score: Option<f64>,
    /// Evidence on the incumbent, for epochs that are reported without the workload's part and are too noisy singly.
    /// The start's pace is then the one measured when the start was run. A slower incumbent alone is no reason to run
    /// the start at once. The tuner returns to the start only for the evidence of all its runs.
    #[serde(default)]
    patient: Option<Evidence>,
    credit: f64,
    trial: Option<Trial>,
    role: Role,
    /// The values of the last epoch, and the epochs that are still not to be counted after they changed.
    last: Vec<f64>,
    unsettled: u32,
    /// Mean square of the logarithm of the ratio of scores of two successive epochs of the incumbent.
    noise: f64,
    /// Epochs of the start since a trial, up to the first that counts. The trial is charged for their excess over the
    /// usual time.
    recovery: Option<Recovery>,
    /// Epochs since the start was last run, and their largest number.
    since_start: u32,
    gap: u32,
    check_now: bool,
    strikes: u32,
    settled: Option<Settled>,
}

impl Guarded {
    /// A tuner that begins at a point of a space. `epoch_requests` is the length of an epoch that does not end early.
    pub fn new(
        space: Space,
        start: Point,
        search: Search,
        objective: Objective,
        limits: Limits,
        epoch_requests: u64,
    ) -> Self {
        Guarded {
            space,
            objective,
            limits,
            epoch_requests: epoch_requests.max(1),
            search,
            incumbent: start.clone(),
            start,
            lead: NO_LEAD,
            reference: None,
            start_pace: None,
            start_score: None,
            patient: None,
            credit: limits.credit_max,
            trial: None,
            role: Role::Hold,
            last: Vec::new(),
            unsettled: 0,
            noise: 0.0,
            recovery: None,
            since_start: 0,
            gap: limits.gap_min,
            check_now: false,
            strikes: 0,
            settled: None,
        }
    }

    /// Restores a saved state; the knobs must be those it was saved with. Earlier measurements are dropped, because the
    /// machine may be another; the settings found are kept.
    ///
    /// # Errors
    /// When the text is no state of this kind, or one of other knobs.
    pub fn restore(saved: &Saved, space: &Space) -> Result<Self, RestoreError> {
        saved.read::<Guarded>()?.restored(saved, space)
    }

    /// Restores a state that was read as a part of another one.
    pub(crate) fn restored(self, saved: &Saved, space: &Space) -> Result<Self, RestoreError> {
        let mut tuner = self;
        let trial = tuner.trial.as_ref().map(|trial| &trial.point);
        let points = [&tuner.start, &tuner.incumbent].into_iter().chain(trial).chain(tuner.search.points());
        saved.check(&tuner.space, space, points)?;
        tuner.reference = None;
        tuner.start_pace = None;
        tuner.start_score = None;
        tuner.last.clear();
        tuner.recovery = None;
        tuner.check_now = tuner.incumbent != tuner.start;
        tuner.trial = tuner.trial.map(|trial| Trial { run: None, ..trial });
        Ok(tuner)
    }

    /// Credit: the time that may be lost now, in epochs of the start.
    pub fn credit(&self) -> f64 {
        self.credit
    }

    pub(crate) fn credit_max(&self) -> f64 {
        self.limits.credit_max
    }

    pub(crate) fn epoch_requests(&self) -> u64 {
        self.epoch_requests
    }

    pub(crate) fn stake(&self) -> f64 {
        self.limits.stake
    }

    pub(crate) fn objective(&self) -> Objective {
        self.objective
    }

    pub(crate) fn incumbent(&self) -> &Point {
        &self.incumbent
    }

    /// A tuner for epochs that are reported without the workload's part.
    pub(crate) fn patient(self) -> Self {
        Guarded { patient: Some(Evidence::default()), ..self }
    }

    /// Requests a run of the start as soon as possible.
    pub(crate) fn check(&mut self) {
        self.check_now = self.is_changed();
    }

    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// True if no change is settling and nothing is suspected.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.unsettled == 0 && !self.check_now && self.strikes == 0
    }

    /// Adopts a point that is believed to be better, untried. The measured lead stays until the start is run again.
    pub(crate) fn adopt(&mut self, point: Point) {
        self.lead = if point == self.start { NO_LEAD } else { self.lead };
        self.incumbent = point;
        self.reference = None;
        self.recovery = None;
        self.gap = self.limits.gap_min;
        self.patient = self.patient.map(|_| Evidence::default());
    }

    fn is_changed(&self) -> bool {
        self.incumbent != self.start
    }

    /// Chooses the role of the next epoch. For a trial, the point to try is in `self.trial` afterwards.
    fn next_role(&mut self) -> Role {
        let to_judge = self.trial.as_ref().is_some_and(|trial| trial.run.is_some());
        if self.reference.is_none() || to_judge {
            return Role::Hold;
        }
        if self.is_changed() && (self.check_now || self.since_start >= self.gap) {
            return Role::Start;
        }
        if self.credit < self.limits.stake {
            return Role::Hold;
        }
        if self.trial.is_none() {
            let point = self.search.propose(&self.space);
            self.trial = point.map(|point| Trial { point, worth: Vec::new(), pace: 0.0, run: None, repeats: 0 });
        }
        if self.trial.is_some() { Role::Trial } else { Role::Hold }
    }

    /// True if this epoch is run with other settings than the start's.
    fn may_lose(&self) -> bool {
        self.role == Role::Trial || self.role == Role::Hold && self.is_changed()
    }

    /// Time lost against the start, in epochs of the start. Settings adopted untried for a lifetime that was asked for
    /// lose nothing by being slower.
    fn lost(&self, epoch: &Epoch) -> f64 {
        let Some(start_pace) = self.start_pace else { return 0.0 };
        let lost = (epoch.seconds / start_pace - epoch.requests as f64) / self.epoch_requests as f64;
        let wanted =
            self.patient.is_some() && self.start_score.is_some_and(|start| self.objective.score(epoch) >= start);
        if wanted { lost.min(0.0) } else { lost }
    }

    /// Records an epoch with the start's settings; after a trial it counts towards the recovery from the trial.
    fn recovers(&mut self, epoch: &Epoch) {
        if let Some(recovery) = &mut self.recovery {
            recovery.requests += epoch.requests;
            recovery.seconds += epoch.seconds;
        }
    }

    /// Charges the loss of the epochs since a trial against the pace before it. If the workload has changed, the pace
    /// now is taken.
    fn charge_recovery(&mut self, before: Measured, after: Measured) {
        let Some(Recovery { requests, seconds }) = self.recovery.take() else { return };
        let changed = (after.pace / before.pace).ln().abs() > SWING_MAX.ln();
        let usual = if changed { after.pace } else { before.pace };
        self.credit -= ((seconds / usual - requests as f64) / self.epoch_requests as f64).max(0.0);
    }

    fn hold_was_run(&mut self, measured: Measured) {
        self.since_start += 1;
        let by_lead = measured.pace * self.lead.pace;
        let slowed_down = self.is_changed() && self.start_pace.is_some_and(|pace| by_lead > pace * ALARM);
        if slowed_down {
            // Only a run of the start can tell the workload's part from the settings'. Until then the estimate of its
            // pace stays.
            self.check_now |= self.patient.is_none_or(|evidence| evidence.is_alarming());
        } else if self.patient.is_none() || !self.is_changed() {
            self.start_is(Measured { pace: by_lead, score: measured.score / self.lead.score });
        }
        let before = self.reference.replace(measured);
        if let Some(before) = before {
            self.charge_recovery(before, measured);
            let step = (measured.score / before.score).ln();
            // A change of the workload is no noise, unless epochs are reported without it.
            if step.abs() < SWING_MAX.ln() || self.patient.is_some() {
                let step = step.clamp(-STEP_MAX, STEP_MAX);
                self.noise += NEWEST * (step * step - self.noise);
            }
            if let Some(trial) = self.trial.take() {
                self.judge(trial, before, measured);
            }
        } else if let Some(trial) = &mut self.trial {
            // Without a neighbour before it, the run cannot be judged.
            trial.run = None;
        }
        self.look_for_drift(measured);
    }

    /// Judges a trial by the epochs of the incumbent before and after it.
    fn judge(&mut self, mut trial: Trial, before: Measured, after: Measured) {
        let Some(run) = trial.run.take() else {
            self.trial = Some(trial);
            return;
        };
        let swing = (after.score / before.score).ln().abs();
        if swing > SWING_MAX.ln() && trial.repeats < REPEATS_MAX {
            trial.repeats += 1;
            self.trial = Some(trial);
            return;
        }
        trial.worth.push((run.score / (before.score * after.score).sqrt()).ln());
        trial.pace = run.pace / (before.pace * after.pace).sqrt();
        let worth = trial.worth.iter().sum::<f64>() / trial.worth.len() as f64;
        let over = worth - self.limits.margin.ln_1p();
        // An epoch has half the variance of a step, the mean of its two neighbours a quarter.
        let beyond_noise = over > (0.75 * self.noise / trial.worth.len() as f64).sqrt();
        if over > 0.0 && (trial.worth.len() == 1 || !beyond_noise && trial.worth.len() < TRIES_MAX) {
            self.trial = Some(trial);
            return;
        }
        let better = over > 0.0 && beyond_noise;
        let value = self.lead.score * worth.exp();
        if better {
            self.lead = Lead { pace: self.lead.pace / trial.pace, score: value };
            self.incumbent = trial.point;
            self.reference = None;
            self.recovery = None;
            self.gap = self.limits.gap_min;
        }
        self.search.told(&self.space, Verdict { value, adopted: better });
    }

    /// Updates the estimate of the start. Where single epochs are noisy, a value within the noise changes the pace only
    /// in part.
    fn start_is(&mut self, Measured { pace, score }: Measured) {
        self.start_score = Some(score);
        let before = self.start_pace.filter(|_| self.patient.is_some());
        let step = before.map_or(0.0, |before| (pace / before).ln());
        let doubtful = before.is_some() && step.powi(2) < 4.0 * self.noise;
        self.start_pace = Some(if doubtful { pace * ((START_NEWEST - 1.0) * step).exp() } else { pace });
    }

    fn start_was_run(&mut self, measured: Measured) {
        self.since_start = 0;
        self.start_is(measured);
        let Some(held) = self.reference.take() else { return };
        let lead = Lead { pace: measured.pace / held.pace, score: held.score / measured.score };
        if let Some(evidence) = &mut self.patient {
            let margin = self.limits.margin.ln_1p();
            match evidence.start_was_run(lead.score.ln(), margin, self.noise, self.limits.credit_max) {
                Word::Better => {
                    self.lead = lead;
                    self.gap = (self.gap * 2).min(self.limits.gap_max);
                }
                Word::Unsure { again } => {
                    self.check_now = again;
                    return;
                }
                Word::Worse => return self.return_to_start(measured),
            }
            self.check_now = false;
            return;
        }
        if lead.score < 1.0 / (1.0 + self.limits.margin) {
            self.strikes += 1;
            self.check_now = true;
            if self.strikes == 2 {
                self.return_to_start(measured);
            }
            return;
        }
        // A settled search is over no longer when the lead has moved.
        let moved = (lead.score / self.lead.score).ln().abs() > self.limits.drift.ln_1p();
        self.lead = lead;
        self.strikes = 0;
        self.check_now = false;
        self.gap = (self.gap * 2).min(self.limits.gap_max);
        if moved && self.settled.is_some() {
            self.search_again();
        }
    }

    fn return_to_start(&mut self, measured: Measured) {
        self.incumbent = self.start.clone();
        self.lead = NO_LEAD;
        self.reference = Some(measured);
        self.strikes = 0;
        self.check_now = false;
        self.gap = self.limits.gap_min;
        self.trial = None;
        self.search_again();
    }

    fn search_again(&mut self) {
        self.settled = None;
        self.search.restart(&self.space, &self.incumbent, self.lead.score);
    }

    fn look_for_drift(&mut self, measured: Measured) {
        if !self.search.is_over() {
            self.settled = None;
            return;
        }
        let first = Settled { score: measured.score, recent: measured.score, epochs: 0 };
        let settled = self.settled.get_or_insert(first);
        settled.recent += NEWEST * (measured.score - settled.recent);
        settled.epochs += 1;
        let drifted = (settled.recent / settled.score).ln().abs() > self.limits.drift.ln_1p();
        if drifted || settled.epochs >= self.limits.again {
            self.search_again();
        }
    }
}

impl Tuner for Guarded {
    fn propose(&mut self) -> Proposal {
        // A settling change keeps its role.
        if self.unsettled == 0 {
            self.role = self.next_role();
        }
        let point = match (self.role, &self.trial) {
            (Role::Start, _) => &self.start,
            (Role::Trial, Some(trial)) => &trial.point,
            _ => &self.incumbent,
        };
        let values = self.space.values(point);
        if values != self.last {
            // The first epoch follows no change.
            self.unsettled = if self.last.is_empty() { 0 } else { self.limits.settle };
            self.last.clone_from(&values);
        }
        Proposal { values, role: self.role }
    }

    fn enough(&self, so_far: &Epoch) -> bool {
        self.may_lose() && so_far.requests > 0 && self.lost(so_far) > self.limits.stake
    }

    fn told(&mut self, epoch: &Epoch) {
        if epoch.requests == 0 {
            return;
        }
        let measured = Measured { pace: epoch.pace(), score: self.objective.score(epoch) };
        self.credit = (self.credit + self.limits.bound).min(self.limits.credit_max);
        if self.may_lose() {
            let lost = self.lost(epoch);
            self.credit -= lost.max(0.0);
            if let Some(evidence) = &mut self.patient {
                evidence.lost(lost);
            }
        }
        match self.role {
            Role::Trial if !self.is_changed() => self.recovery = Some(Recovery::default()),
            Role::Hold => self.recovers(epoch),
            _ => {}
        }
        // A setting that has lost its stake already will not make up for it.
        if self.unsettled > 0 && !self.enough(epoch) {
            self.unsettled -= 1;
            return;
        }
        self.unsettled = 0;
        match self.role {
            Role::Hold => self.hold_was_run(measured),
            Role::Start => self.start_was_run(measured),
            Role::Trial => {
                self.since_start += 1;
                if let Some(trial) = &mut self.trial {
                    trial.run = Some(measured);
                }
            }
        }
    }

    fn held(&self) -> Vec<f64> {
        self.space.values(&self.incumbent)
    }

    fn settled(&self) -> bool {
        self.search.is_over()
    }

    fn save(&self) -> Saved {
        Saved::write(self)
    }
}
