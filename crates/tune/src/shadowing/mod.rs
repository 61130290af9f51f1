//! A tuner that observes shadows: miniature simulations of settings, each with its own contents.
//!
//! Settings show their effect only once the cache has the contents that they bring about; a trial of some epochs ends
//! before that. So nothing is tried on the cache. Candidates run in miniature over a sample of the requests for as long
//! as they stay candidates ([`Tuner::shadowed`]). The tuner receives each one's demands on the devices
//! ([`Tuner::foretold`]). The forecast speed of the cache under a candidate follows from these demands (`forecast.rs`).
//! All candidates see the same requests, so the difference between two is not due to the workload. The jackknife over
//! parts of the sample gives the part of it that may be chance.
//!
//! At first candidates are far apart. Then the worst are replaced, one every few epochs, by neighbours of the best,
//! which begin with its contents (`race.rs`). That goes on without end, because the workload may change. A candidate
//! that is better than the held settings, by a margin and beyond chance, is adopted.
//!
//! # Bound on the cost
//! A forecast may be wrong. Adopted settings are run within the bound of [`Guarded`], which measures. The start is run
//! again from time to time, and at once when half an epoch has been lost against it. The tuner returns to the start
//! where that is better beyond the noise of epochs, or where it may be and [`Limits::credit_max`] has been lost
//! (`evidence.rs`). Nothing is adopted without the credit to leave it again, and settings that had to be left are not
//! adopted for a while.
//!
//! The guard gets each epoch without the workload's part: the slowdown that the shadow of the start shows too. The part
//! that this shadow may explain is bounded. After [`TRUST`] epochs' worth of it the start is run to check, the next
//! time after twice as much. So forecasts of any kind cost at most the bound of [`Guarded`], plus a part for each
//! change of the workload. That part is the slowdown wrongly explained until the start is run: [`TRUST_MAX`] epochs'
//! worth, or [`Limits::gap_max`] epochs.

mod forecast;
mod race;

pub use race::RaceLimits;

use crate::guard::{Guarded, Limits};
use crate::objective::{Epoch, Objective};
use crate::save::{RestoreError, Saved};
use crate::search::Search;
use crate::space::{Point, Space};
use crate::{Proposal, Role, Tuner};
use entresol_core::{Demand, PARTS, Shadow};
use forecast::{Correction, Judge, Parts, sum};
use race::Race;
use serde::{Deserialize, Serialize};

/// Conditions for adopting a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Adoption {
    /// Share by which the candidate must be better than the held settings.
    pub margin: f64,
    /// Standard errors by which the candidate must be better.
    pub errors: f64,
    /// Epochs of the short span of comparison.
    pub short: usize,
    /// Epochs between two adoptions.
    pub stay: u64,
    /// Epochs for which settings that had to be left are not adopted; doubled the next time.
    pub refused: u64,
}

impl Default for Adoption {
    fn default() -> Self {
        Adoption { margin: 0.01, errors: 2.0, short: 8, stay: 6, refused: 64 }
    }
}

/// Credit in stakes without which nothing is adopted: the cost of finding out that the adoption was wrong.
const STAKES: f64 = 5.0;
/// Weight of the newest epoch in the ratio of measured to forecast values.
const NEWEST: f64 = 0.1;
/// Largest slowdown of the start by the workload, as far as its shadow is believed.
const EXPLAINED_MAX: f64 = 8.0;
/// Fewest sampled requests that show the workload.
const SAMPLE_MIN: f64 = 64.0;
/// Limit of the slowdown that is put down to the workload before the start is run to check it. In epochs of the start:
/// the first value, and the largest. Each epoch at the start doubles the limit; an adoption resets it.
const TRUST: f64 = 4.0;
const TRUST_MAX: f64 = 64.0;
/// Epochs without an adoption after which the search counts as settled.
const SETTLED: u64 = 32;

/// Options of a tuner with shadows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShadowingOptions {
    /// Bounds of the loss that the tuner may cause.
    pub limits: Limits,
    /// Limits of the race between candidates.
    pub race: RaceLimits,
    /// Conditions for adopting a candidate.
    pub adoption: Adoption,
    /// Requests that the cache serves concurrently.
    pub clients: u32,
    /// Seed for the choice of candidates.
    pub seed: u64,
}

impl Default for ShadowingOptions {
    fn default() -> Self {
        ShadowingOptions {
            limits: Limits::default(),
            race: RaceLimits::default(),
            adoption: Adoption::default(),
            clients: 1,
            seed: 42,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Refusal {
    point: Point,
    until: u64,
    times: u32,
}

/// A tuner that adopts the settings whose shadows forecast an improvement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shadowing {
    guard: Guarded,
    race: Race,
    adoption: Adoption,
    clients: u32,
    epoch: u64,
    adopted_at: u64,
    refused: Vec<Refusal>,
    /// Logarithms of measured over forecast values, of the pace and of the pages written.
    #[serde(skip)]
    ratio: Option<[f64; 2]>,
    /// Logarithm of the usual forecast pace of the start.
    #[serde(skip)]
    usual: Option<f64>,
    /// Slowdown put down to the workload since the start was last run, in epochs of the start; then its limit
    /// (`trust`).
    explained: f64,
    trust: f64,
}

impl Shadowing {
    /// A tuner that begins at a point of a space. `epoch_requests` is the length of an epoch that does not end early.
    pub fn new(
        space: Space,
        start: Point,
        objective: Objective,
        options: &ShadowingOptions,
        epoch_requests: u64,
    ) -> Self {
        let ShadowingOptions { limits, race, adoption, clients, seed } = *options;
        let race = Race::new(&space, &start, race, seed);
        let guard = Guarded::new(space, start, Search::External, objective, limits, epoch_requests);
        Shadowing {
            guard: guard.patient(),
            race,
            adoption,
            clients,
            epoch: 0,
            adopted_at: 0,
            refused: Vec::new(),
            ratio: None,
            usual: None,
            explained: 0.0,
            trust: TRUST,
        }
    }

    /// Restores a saved state; the knobs must be those it was saved with. The held settings and the candidates are
    /// kept, but not the contents and figures of their shadows.
    ///
    /// # Errors
    /// When the text is no state of this kind, or one of other knobs.
    pub fn restore(saved: &Saved, space: &Space) -> Result<Self, RestoreError> {
        let mut tuner: Shadowing = saved.read()?;
        let points = tuner.race.candidates.iter().map(|candidate| &candidate.point);
        saved.check(&tuner.guard.space, space, points.chain(tuner.refused.iter().map(|refusal| &refusal.point)))?;
        tuner.guard = tuner.guard.restored(saved, space)?;
        tuner.race.forget();
        Ok(tuner)
    }

    /// Credit: the time that may be lost now, in epochs of the start.
    pub fn credit(&self) -> f64 {
        self.guard.credit()
    }

    fn judge(&self) -> Judge {
        let correction = self
            .ratio
            .map_or(Correction::NONE, |[pace, written]| Correction { pace: pace.exp(), written: written.exp() });
        Judge { correction, ..self.uncorrected() }
    }

    fn uncorrected(&self) -> Judge {
        Judge { objective: self.guard.objective(), clients: self.clients, correction: Correction::NONE }
    }

    /// Compares measured with forecast values of the same epoch.
    fn learn(&mut self, epoch: &Epoch) {
        let uncorrected = self.uncorrected();
        let forecast = self.race.place(self.guard.incumbent()).and_then(|held| self.race.newest(held)).map(sum);
        let Some(forecast) = forecast.filter(|demand| demand.requests >= 1.0) else { return };
        let forecast = uncorrected.epoch(&forecast);
        let written = |epoch: &Epoch| (epoch.pages_written.max(1)) as f64 / epoch.requests.max(1) as f64;
        let new = [(epoch.pace() / forecast.pace()).ln(), (written(epoch) / written(&forecast)).ln()];
        let old = self.ratio.unwrap_or(new);
        self.ratio = Some([0, 1].map(|at| old[at] + NEWEST * (new[at] - old[at])));
    }

    /// Slowdown of the start against its usual pace by its shadow, within [`EXPLAINED_MAX`] either way. `None` with too
    /// few sampled requests, or before a usual pace is known.
    fn workload(&self, start: &Demand) -> Option<f64> {
        let usual = self.usual.filter(|_| start.requests >= SAMPLE_MIN)?;
        Some((self.uncorrected().epoch(start).pace().ln() - usual).exp().clamp(1.0 / EXPLAINED_MAX, EXPLAINED_MAX))
    }

    /// Reports an epoch to the guard without the workload's part: the slowdown of the start's shadow.
    fn tell(&mut self, epoch: &Epoch, role: Role) {
        let start = self.race.newest(0).map(sum).filter(|start| start.requests >= SAMPLE_MIN);
        let workload = start.and_then(|start| self.workload(&start)).unwrap_or(1.0);
        self.guard.told(&without(epoch, workload));
        if let Some(start) = start {
            let pace = self.uncorrected().epoch(&start).pace().ln();
            let usual = self.usual.unwrap_or(pace);
            self.usual = Some(usual + NEWEST * (pace - usual));
        }
        match role {
            Role::Start => {
                // The forecast held, or the guard has returned to the start.
                self.trust = (self.trust * 2.0).min(TRUST_MAX);
                self.explained = 0.0;
            }
            _ => {
                self.explained += (workload - 1.0).max(0.0) * epoch.requests as f64 / self.guard.epoch_requests() as f64
            }
        }
        if self.explained > self.trust {
            self.guard.check();
        }
    }

    fn is_refused(&self, point: &Point) -> bool {
        self.refused.iter().any(|refusal| refusal.point == *point && self.epoch < refusal.until)
    }

    /// The candidate to adopt, if one is better beyond doubt, over the short span or over all that is remembered, and
    /// not worse in either.
    fn better(&self, judge: &Judge) -> Option<Point> {
        let held = self.race.place(self.guard.incumbent())?;
        let Adoption { margin, errors, short, .. } = self.adoption;
        let worth = (0..self.race.candidates.len()).filter(|&at| at != held).filter_map(|at| {
            let spans = [self.race.common(at, held, short)?, self.race.common(at, held, usize::MAX)?];
            let gain = |[these, others]: &[Parts; 2]| judge.gain(&sum(these), &sum(others));
            let gains = [gain(&spans[0])?, gain(&spans[1])?];
            // Without a gain its certainty need not be computed.
            let least = gains[0].min(gains[1]);
            let mut both = gains.into_iter().zip(&spans);
            let better = least > 0.0
                && both
                    .any(|(gain, [these, others])| gain > margin.ln_1p() && gain > errors * judge.error(these, others));
            (better && !self.is_refused(&self.race.candidates[at].point)).then_some((at, least))
        });
        let best = worth.max_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(self.race.candidates[best.0].point.clone())
    }

    fn refuse(&mut self, point: Point) {
        let (refused_for, epoch) = (self.adoption.refused, self.epoch);
        match self.refused.iter_mut().find(|refusal| refusal.point == point) {
            Some(refusal) => {
                refusal.times = (refusal.times + 1).min(8);
                refusal.until = epoch + (refused_for << refusal.times);
            }
            None => self.refused.push(Refusal { point, until: epoch + refused_for, times: 0 }),
        }
    }
}

/// The epoch without a slowdown by the factor `workload`.
fn without(epoch: &Epoch, workload: f64) -> Epoch {
    let pages_written = (epoch.pages_written as f64 / workload) as u64;
    Epoch { requests: epoch.requests, seconds: epoch.seconds / workload, pages_written }
}

impl Tuner for Shadowing {
    fn propose(&mut self) -> Proposal {
        self.guard.propose()
    }

    fn enough(&self, so_far: &Epoch) -> bool {
        let start = self.race.now(0);
        let workload = self.workload(&start).unwrap_or(1.0).max(1.0);
        self.guard.enough(&without(so_far, workload))
    }

    fn told(&mut self, epoch: &Epoch) {
        if epoch.requests == 0 {
            return;
        }
        self.epoch += 1;
        let (held, role) = (self.guard.incumbent().clone(), self.guard.role());
        self.race.epoch_ends();
        self.tell(epoch, role);
        if role == Role::Hold {
            self.learn(epoch);
        }
        if *self.guard.incumbent() != held {
            self.refuse(held);
            self.adopted_at = self.epoch;
            return;
        }
        let judge = self.judge();
        let stakes = STAKES * self.guard.stake();
        if role == Role::Hold
            && self.epoch >= self.adopted_at + self.adoption.stay
            && self.guard.credit() >= stakes.min(self.guard.credit_max())
            && self.guard.is_at_rest()
            && let Some(point) = self.better(&judge)
        {
            self.guard.adopt(point);
            (self.explained, self.trust) = (0.0, TRUST);
            self.adopted_at = self.epoch;
        }
        let held = self.guard.incumbent().clone();
        self.race.turn(&self.guard.space, &judge, &held);
    }

    fn held(&self) -> Vec<f64> {
        self.guard.held()
    }

    fn settled(&self) -> bool {
        self.epoch > self.adopted_at + SETTLED
    }

    fn save(&self) -> Saved {
        Saved::write(self)
    }

    fn shadowed(&self) -> Vec<Shadow> {
        self.race.shadows(&self.guard.space)
    }

    fn foretold(&mut self, id: u64, parts: &[Demand; PARTS]) {
        self.race.foretold(id, parts);
    }
}
