//! The loop between a cache and its tuner: epochs, readings and settings, for any driver.

use crate::objective::Epoch;
use crate::save::Saved;
use crate::{Proposal, Role, Tuner};
use entresol_core::{Demand, PARTS};
use serde::{Deserialize, Serialize};

/// Times in an epoch that the tuner is asked whether the epoch may end early.
const BEATS: u64 = 32;

/// Progress of a cache: cumulative counts, which never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Requests so far.
    pub requests: u64,
    /// Time in nanoseconds from an arbitrary origin: virtual or real.
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

/// Record of one epoch: its counts, its settings, and the state of the search at its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochRow {
    /// Requests before the epoch.
    pub at: u64,
    /// Requests in the epoch.
    pub requests: u64,
    /// Length of the epoch in seconds.
    pub seconds: f64,
    /// Pages written in the epoch to the tier that wears.
    pub pages_written: u64,
    /// Role of the epoch.
    pub role: Role,
    /// Settings of the epoch.
    pub values: Vec<f64>,
    /// Settings held at the end of the epoch.
    pub held: Vec<f64>,
    /// True if the search was over at the end of the epoch.
    pub settled: bool,
}

/// Divides the run of a cache into epochs: asks the tuner for the settings of each, and reports the results to the
/// tuner.
///
/// Like the tuner, `Epochs` reads no clock and knows no cache. Its driver passes in [`Reading`]s and gives the cache
/// the [`values`](Epochs::values). So a simulator and an engine with the same readings do the same.
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
    /// Requests at which [`look`](Epochs::look) is to be called next.
    due: u64,
}

impl<T: Tuner> Epochs<T> {
    /// Begins the first epoch. `epoch_requests` is the length of an epoch that does not end early; 0 is taken as 1.
    pub fn new(mut tuner: T, epoch_requests: u64, now: Reading) -> Self {
        let proposal = tuner.propose();
        let mut epochs = Epochs { tuner, epoch_requests: epoch_requests.max(1), begun: now, proposal, due: 0 };
        epochs.wait(0);
        epochs
    }

    /// Settings to run with now.
    pub fn values(&self) -> &[f64] {
        &self.proposal.values
    }

    /// Number of requests after which, and before the next one, [`look`](Epochs::look) is to be called.
    #[inline(always)]
    pub fn due(&self) -> u64 {
        self.due
    }

    /// Ends the epoch if it is full or may end early, and begins the next, perhaps with other settings.
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

    /// Ends the current epoch, however short, and returns the tuner.
    pub fn stop(mut self, now: Reading) -> (T, EpochRow) {
        let row = self.end(now.since(&self.begun));
        (self.tuner, row)
    }

    /// Reports a shadow's demands to the tuner; to be called before [`look`](Epochs::look) or [`stop`](Epochs::stop).
    pub fn foretold(&mut self, id: u64, parts: &[Demand; PARTS]) {
        self.tuner.foretold(id, parts);
    }

    /// The tuner.
    pub fn tuner(&self) -> &T {
        &self.tuner
    }

    /// Sets the next call of [`look`](Epochs::look) to the next beat of an epoch with `requests` requests so far.
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

/// Settings that never change: the baseline for a tuner.
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

    /// Ends every epoch after `enough` requests, and records the reports it gets.
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
        // An epoch of full length has 31 beats of ten, and is full at the 32nd.
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
