//! A tuner at work: what is done between a cache and its tuner, by whoever drives both.

use crate::objective::Epoch;
use crate::save::Saved;
use crate::{Proposal, Role, Tuner};
use entresol_core::{Demand, PARTS};
use serde::{Deserialize, Serialize};

/// The tuner is asked this many times in an epoch whether it has seen enough.
const BEATS: u64 = 32;

/// Progress of a cache: cumulative counts, which never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Requests so far.
    pub requests: u64,
    /// Time, in nanoseconds from any beginning: virtual or real.
    pub now_ns: u64,
    /// Pages written so far to the tier that wears.
    pub pages_written: u64,
}

impl Reading {
    /// Returns the differences between an earlier reading and this one, as an epoch.
    fn since(&self, begun: &Reading) -> Epoch {
        Epoch {
            requests: self.requests - begun.requests,
            seconds: (self.now_ns - begun.now_ns) as f64 / 1e9,
            pages_written: self.pages_written - begun.pages_written,
        }
    }
}

/// Record of one epoch: its counts, its settings and the state of the search at its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochRow {
    /// Requests before it.
    pub at: u64,
    /// Requests in it.
    pub requests: u64,
    /// Time that it took, in seconds.
    pub seconds: f64,
    /// Pages written in it to the tier that wears.
    pub pages_written: u64,
    /// Role of the epoch.
    pub role: Role,
    /// The settings that it was run with.
    pub values: Vec<f64>,
    /// The settings that were held at its end.
    pub held: Vec<f64>,
    /// The search was over at its end.
    pub settled: bool,
}

/// Divides the life of a cache into epochs: asks the tuner for the settings of each and tells it what came of them.
///
/// Like the tuner it reads no clock and knows no cache. Its driver hands it [`Reading`]s and gives the cache the
/// [`values`](Epochs::values), so that a simulator and an engine with the same readings do the same.
///
/// ```
/// use entresol_tune::{Epochs, Fixed, Reading};
///
/// let mut epochs = Epochs::new(Fixed(vec![0.5]), 100, Reading::default());
/// assert_eq!(epochs.values(), [0.5]);
/// let mut ended = Vec::new();
/// for requests in 1..=250 {
///     if requests >= epochs.due() {
///         ended.extend(epochs.look(Reading { requests, now_ns: 10 * requests, pages_written: 0 }));
///         // Here the cache is given `epochs.values()`, when an epoch has ended.
///     }
/// }
/// assert_eq!(ended.len(), 2);
/// assert_eq!(ended[1].requests, 100);
/// ```
#[derive(Clone, Debug)]
pub struct Epochs<T> {
    tuner: T,
    epoch_requests: u64,
    begun: Reading,
    proposal: Proposal,
    /// Requests at which the tuner is to be asked next.
    due: u64,
}

impl<T: Tuner> Epochs<T> {
    /// Begins the first epoch. `epoch_requests` are those of one that is not ended early; 0 is taken as 1.
    pub fn new(mut tuner: T, epoch_requests: u64, now: Reading) -> Self {
        let proposal = tuner.propose();
        let mut epochs = Epochs { tuner, epoch_requests: epoch_requests.max(1), begun: now, proposal, due: 0 };
        epochs.wait(0);
        epochs
    }

    /// The settings to run with now.
    pub fn values(&self) -> &[f64] {
        &self.proposal.values
    }

    /// After so many requests [`look`](Epochs::look) is to be called, before the next one.
    #[inline(always)]
    pub fn due(&self) -> u64 {
        self.due
    }

    /// Ends the epoch if it is full, or has shown enough, and begins the next: the settings may then be others.
    pub fn look(&mut self, now: Reading) -> Option<EpochRow> {
        let so_far = now.since(&self.begun);
        let ends = so_far.requests >= self.epoch_requests || so_far.requests > 0 && self.tuner.enough(&so_far);
        if !ends {
            self.wait(so_far.requests);
            return None;
        }
        let row = self.end(so_far);
        self.proposal = self.tuner.propose();
        self.begun = now;
        self.wait(0);
        Some(row)
    }

    /// Ends the epoch under way, however short, and gives the tuner back.
    pub fn stop(mut self, now: Reading) -> (T, EpochRow) {
        let row = self.end(now.since(&self.begun));
        (self.tuner, row)
    }

    /// Tells the tuner of a shadow, before [`look`](Epochs::look) or [`stop`](Epochs::stop).
    pub fn foretold(&mut self, id: u64, parts: &[Demand; PARTS]) {
        self.tuner.foretold(id, parts);
    }

    /// The tuner at work.
    pub fn tuner(&self) -> &T {
        &self.tuner
    }

    /// Asks again at the next beat of an epoch that has had so many requests.
    fn wait(&mut self, requests: u64) {
        let beat = (self.epoch_requests / BEATS).max(1);
        self.due = self.begun.requests + ((requests / beat + 1) * beat).min(self.epoch_requests);
    }

    fn end(&mut self, epoch: Epoch) -> EpochRow {
        self.tuner.told(&epoch);
        EpochRow {
            at: self.begun.requests,
            requests: epoch.requests,
            seconds: epoch.seconds,
            pages_written: epoch.pages_written,
            role: self.proposal.role,
            values: self.proposal.values.clone(),
            held: self.tuner.held(),
            settled: self.tuner.settled(),
        }
    }
}

/// Settings that never change: what a tuner is compared with.
#[derive(Clone, Debug, PartialEq)]
pub struct Fixed(pub Vec<f64>);

impl Tuner for Fixed {
    fn propose(&mut self) -> Proposal {
        Proposal { values: self.0.clone(), role: Role::Hold }
    }

    fn enough(&self, _so_far: &Epoch) -> bool {
        false
    }

    fn told(&mut self, _epoch: &Epoch) {}

    fn held(&self) -> Vec<f64> {
        self.0.clone()
    }

    fn settled(&self) -> bool {
        true
    }

    fn save(&self) -> Saved {
        Saved::from_text(format!("{:?}", self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends every epoch after so many requests, and notes what it is told.
    #[derive(Clone, Debug, Default)]
    struct Impatient {
        enough: u64,
        asked_at: std::cell::RefCell<Vec<u64>>,
        told: Vec<Epoch>,
    }

    impl Tuner for Impatient {
        fn propose(&mut self) -> Proposal {
            Proposal { values: vec![self.told.len() as f64], role: Role::Trial }
        }

        fn enough(&self, so_far: &Epoch) -> bool {
            self.asked_at.borrow_mut().push(so_far.requests);
            so_far.requests >= self.enough
        }

        fn told(&mut self, epoch: &Epoch) {
            self.told.push(*epoch);
        }

        fn held(&self) -> Vec<f64> {
            vec![]
        }

        fn settled(&self) -> bool {
            false
        }

        fn save(&self) -> Saved {
            Saved::from_text("")
        }
    }

    fn at(requests: u64) -> Reading {
        Reading { requests, now_ns: 1000 * requests, pages_written: requests / 10 }
    }

    fn run(tuner: Impatient, epoch_requests: u64, first: u64, last: u64) -> (Impatient, Vec<EpochRow>) {
        let mut epochs = Epochs::new(tuner, epoch_requests, at(first));
        let mut rows = Vec::new();
        for requests in first..last {
            if requests >= epochs.due() {
                rows.extend(epochs.look(at(requests)));
                assert_eq!(epochs.values(), [rows.len() as f64]);
            }
        }
        let (tuner, row) = epochs.stop(at(last));
        rows.push(row);
        (tuner, rows)
    }

    #[test]
    fn epochs_follow_each_other_without_gap_and_the_last_is_cut_short() {
        let (tuner, rows) = run(Impatient { enough: u64::MAX, ..Impatient::default() }, 320, 50, 1000);
        assert_eq!(
            rows.iter().map(|row| (row.at, row.requests)).collect::<Vec<_>>(),
            [(50, 320), (370, 320), (690, 310)]
        );
        assert_eq!(rows[0].seconds, 320_000.0 / 1e9);
        assert_eq!(rows.iter().map(|row| row.pages_written).sum::<u64>(), 95);
        // 31 beats of ten in a whole epoch, at the 32nd of which it is full.
        let asked = tuner.asked_at.borrow();
        assert_eq!(asked[..4], [10, 20, 30, 40]);
        assert_eq!(asked.len(), 31 + 31 + 30);
        assert_eq!(tuner.told.iter().map(|epoch| epoch.requests).collect::<Vec<_>>(), [320, 320, 310]);
    }

    #[test]
    fn what_has_shown_enough_ends_at_the_next_beat() {
        let (_, rows) = run(Impatient { enough: 35, ..Impatient::default() }, 320, 0, 100);
        assert_eq!(rows.iter().map(|row| row.requests).collect::<Vec<_>>(), [40, 40, 20]);
        // An epoch too short for beats is asked after every request.
        let (_, rows) = run(Impatient { enough: 3, ..Impatient::default() }, 5, 0, 10);
        assert_eq!(rows.iter().map(|row| row.requests).collect::<Vec<_>>(), [3, 3, 3, 1]);
    }
}
