//! Objectives: the score of an epoch from its counts.

use serde::{Deserialize, Serialize};

/// Counts of an epoch, or of its part so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// Requests that were answered.
    pub requests: u64,
    /// Time that these requests took, in seconds.
    pub seconds: f64,
    /// Pages written in that time to the tier that wears: NVM or flash.
    pub pages_written: u64,
}

/// Quantity that the tuner maximises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// Requests per second.
    #[default]
    Throughput,
    /// `T + lambda / W` of 003, section 4: T in requests per second, W the pages written to NVM in a million requests, the
    /// length of a tuning step there (section 6.6). The paper gives lambda neither a value nor a unit.
    Weighted {
        /// The weight, in requests per second times pages per million requests.
        lambda: f64,
    },
    /// Requests per second, within a limit on pages written per second: the endurance of the tier over its planned
    /// years.
    Lifetime {
        /// Pages per second.
        pages_per_second_max: f64,
    },
}

/// Power of the penalty beyond the lifetime. An excess of 10 % about halves the score, writing twice the limit divides
/// it by 256. So settings that wear the device out are preferred only if they are many times faster.
const EXCESS_POWER: i32 = 8;
/// Smallest factor of the penalty: the score stays above 0, and of two hopeless settings one is better.
const SHARE_MIN: f64 = 1e-200;
/// Shortest time of an epoch, for one too short to measure.
const SECONDS_MIN: f64 = 1e-9;

impl Epoch {
    /// Seconds per request.
    pub(crate) fn pace(&self) -> f64 {
        self.seconds.max(SECONDS_MIN) / self.requests.max(1) as f64
    }
}

impl Objective {
    /// Score of an epoch: higher is better, and always above 0.
    pub fn score(&self, epoch: &Epoch) -> f64 {
        let throughput = 1.0 / epoch.pace();
        match *self {
            Objective::Throughput => throughput,
            Objective::Weighted { lambda } => {
                let written = epoch.pages_written.max(1) as f64 * 1e6 / epoch.requests.max(1) as f64;
                throughput + lambda / written
            }
            Objective::Lifetime { pages_per_second_max } => {
                let rate = epoch.pages_written as f64 / epoch.seconds.max(SECONDS_MIN);
                let share = if rate > pages_per_second_max { pages_per_second_max / rate } else { 1.0 };
                throughput * share.powi(EXCESS_POWER).max(SHARE_MIN)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Epoch = Epoch { requests: 1000, seconds: 0.5, pages_written: 100 };

    #[test]
    fn throughput_and_the_papers_sum() {
        assert_eq!(Objective::Throughput.score(&EPOCH), 2000.0);
        // 100 in 1,000 are 100,000 in a million.
        assert_eq!(Objective::Weighted { lambda: 5e6 }.score(&EPOCH), 2000.0 + 50.0);
        let half = Epoch { requests: 500, seconds: 0.25, pages_written: 50 };
        assert_eq!(Objective::Weighted { lambda: 5e6 }.score(&half), 2050.0, "an epoch cut short is worth the same");
    }

    #[test]
    fn a_lifetime_counts_only_when_it_is_not_reached() {
        assert_eq!(Objective::Lifetime { pages_per_second_max: 200.0 }.score(&EPOCH), 2000.0);
        assert_eq!(Objective::Lifetime { pages_per_second_max: 100.0 }.score(&EPOCH), 2000.0 / 256.0);
    }

    #[test]
    fn of_two_that_wear_out_much_too_soon_the_better_one_is_worth_more() {
        let objective = Objective::Lifetime { pages_per_second_max: 0.001 };
        let half = Epoch { pages_written: 50, ..EPOCH };
        assert!(objective.score(&half) > 200.0 * objective.score(&EPOCH));
    }

    #[test]
    fn nothing_at_all_is_still_a_number_above_zero() {
        let none = Epoch::default();
        for objective in [
            Objective::Throughput,
            Objective::Weighted { lambda: 1.0 },
            Objective::Lifetime { pages_per_second_max: 0.0 },
        ] {
            for epoch in [none, EPOCH, Epoch { pages_written: u64::MAX, ..EPOCH }] {
                let score = objective.score(&epoch);
                assert!(score.is_finite() && score > 0.0, "{objective:?} {epoch:?}: {score}");
            }
        }
    }
}
