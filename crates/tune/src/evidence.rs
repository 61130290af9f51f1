//! Evidence for or against the incumbent (the settings that are held), compared with the start.
//!
//! Made for epochs so noisy that two of the same settings differ far more than the settings do. Two sums are kept since
//! the incumbent was adopted. The first is a weighted mean of comparisons with runs of the start, in which newer runs
//! count for more. The second is the loss against the start: gains make up for losses, but are not saved up (Page,
//! "Continuous inspection schemes", 1954). The mean decides when it exceeds the noise; the loss bounds the cost of
//! doubt.

use serde::{Deserialize, Serialize};

/// Factor on the weight of a run of the start when a newer one comes.
const KEPT: f64 = 0.8;
/// Loss beyond which the start is run at once, in epochs of the start.
const ALARMING: f64 = 0.5;

/// Comparisons of the incumbent with the start, and the loss against the start, since the incumbent was adopted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Evidence {
    /// Weighted sum of the logarithms of the incumbent's score over the start's, and the sum of the weights.
    sum: f64,
    weight: f64,
    runs: u32,
    lost: f64,
}

/// Verdict on the incumbent after a run of the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Word {
    /// The incumbent is not worse than the start.
    Better,
    /// The incumbent may be worse. `again` is true if one more run of the start could decide: that run comes at once.
    Unsure {
        again: bool,
    },
    Worse,
}

impl Evidence {
    /// Records how much longer an epoch of the incumbent took than the start would have, in epochs of the start.
    pub fn lost(&mut self, epochs: f64) {
        self.lost = (self.lost + epochs).max(0.0);
    }

    /// True if the loss is large enough to run the start at once.
    pub fn is_alarming(&self) -> bool {
        self.lost > ALARMING
    }

    /// Records a run of the start beside the incumbent. `lead` is the logarithm of the incumbent's score over the
    /// start's.
    ///
    /// `noise` is the mean square of the difference of two epochs. `lost_max` is the loss beyond which a single run
    /// decides.
    pub fn start_was_run(&mut self, lead: f64, margin: f64, noise: f64, lost_max: f64) -> Word {
        self.sum = KEPT * self.sum + lead;
        self.weight = KEPT * self.weight + 1.0;
        self.runs += 1;
        if lead >= -margin {
            self.lost = 0.0;
        }
        let mean = self.sum / self.weight;
        if mean >= -margin {
            return Word::Better;
        }
        let beyond = mean < -margin - (noise / self.weight).sqrt();
        if self.runs > 1 && beyond || self.lost > lost_max {
            return Word::Worse;
        }
        Word::Unsure { again: beyond }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARGIN: f64 = 0.02;

    #[test]
    fn without_noise_two_runs_tell() {
        let mut evidence = Evidence::default();
        assert_eq!(evidence.start_was_run(-0.1, MARGIN, 0.0, 2.0), Word::Unsure { again: true });
        assert_eq!(evidence.start_was_run(-0.1, MARGIN, 0.0, 2.0), Word::Worse);
        let mut evidence = Evidence::default();
        assert_eq!(evidence.start_was_run(-MARGIN, MARGIN, 0.0, 2.0), Word::Better);
    }

    #[test]
    fn what_noise_explains_is_not_believed_until_it_has_cost_too_much() {
        let mut evidence = Evidence::default();
        for _ in 0..20 {
            evidence.lost(0.05);
            assert_eq!(evidence.start_was_run(-0.1, MARGIN, 0.25, 2.0), Word::Unsure { again: false });
        }
        assert!(evidence.is_alarming());
        (0..21).for_each(|_| evidence.lost(0.05));
        assert_eq!(evidence.start_was_run(-0.1, MARGIN, 0.25, 2.0), Word::Worse);
    }

    #[test]
    fn gains_make_up_for_losses_and_are_not_saved_up() {
        let mut evidence = Evidence::default();
        evidence.lost(0.4);
        evidence.lost(-10.0);
        evidence.lost(0.4);
        assert!(!evidence.is_alarming());
        evidence.lost(0.2);
        assert!(evidence.is_alarming());
        assert_eq!(evidence.start_was_run(0.1, MARGIN, 0.25, 2.0), Word::Better);
        assert!(!evidence.is_alarming(), "the start is no better: the workload has changed");
    }
}
