//! Forecast of the time of requests from their demands.
//!
//! The devices and a number of clients, each with one request at a time, form a closed network of queues. Its
//! throughput follows from the demands by approximate mean value analysis (Schweitzer, "Approximate analysis of
//! multiclass closed networks of queues", 1979; Lazowska, Zahorjan, Graham, Sevcik, "Quantitative system performance",
//! 1984, chapter 6). I/O that no request waits for occupies the devices as well, and is counted.

use crate::objective::{Epoch, Objective};
use entresol_core::{Demand, PARTS, STATIONS};

/// Rounds of the iteration, after which queues differ by less than one in a hundred.
const ROUNDS: usize = 24;
/// Largest utilisation of a device in the computation of its queue.
const BUSY_MAX: f64 = 0.98;
/// Requests of a forecast epoch: so many that rounding to whole pages does not matter.
const REQUESTS: u64 = 1 << 30;

/// Demands of a sample, part by part.
pub(super) type Parts = [Demand; PARTS];

/// Seconds per request with this many clients.
fn pace(demand: &Demand, clients: u32) -> f64 {
    let clients = f64::from(clients.max(1));
    let others = (clients - 1.0) / clients;
    let waits = demand.waits / demand.requests;
    let busy = demand.busy.map(|busy| busy / demand.requests);
    let busiest = busy.iter().copied().fold(0.0, f64::max);
    let mut queues = [0.0; STATIONS];
    let mut response = waits;
    let rounds = if clients > 1.0 { ROUNDS } else { 0 };
    for _ in 0..rounds {
        let rate = (clients / response.max(f64::MIN_POSITIVE)).min(BUSY_MAX / busiest.max(f64::MIN_POSITIVE));
        for (queue, busy) in queues.iter_mut().zip(busy) {
            *queue = (rate * busy * (1.0 + *queue * others)).min(clients);
        }
        response = waits + busy.iter().zip(queues).map(|(busy, queue)| busy * queue * others).sum::<f64>();
    }
    (response / clients).max(busiest)
}

/// Factors from forecast to measured values, because the model is not the machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Correction {
    /// Measured seconds over forecast seconds.
    pub pace: f64,
    /// Measured pages written over forecast pages written.
    pub written: f64,
}

impl Correction {
    pub const NONE: Correction = Correction { pace: 1.0, written: 1.0 };
}

/// Judge of settings: turns demands into a forecast epoch and compares scores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judge {
    pub objective: Objective,
    pub clients: u32,
    pub correction: Correction,
}

impl Judge {
    /// Forecast of a long epoch.
    pub fn epoch(&self, demand: &Demand) -> Epoch {
        let written = demand.written / demand.requests * self.correction.written;
        Epoch {
            requests: REQUESTS,
            seconds: pace(demand, self.clients) * self.correction.pace * REQUESTS as f64,
            pages_written: (written * REQUESTS as f64) as u64,
        }
    }

    fn log_score(&self, demand: &Demand) -> f64 {
        self.objective.score(&self.epoch(demand)).ln()
    }

    /// Gain of settings with these demands over others for the same requests, as a logarithm of the score.
    pub fn gain(&self, these: &Demand, others: &Demand) -> Option<f64> {
        let enough = these.requests >= 1.0 && others.requests >= 1.0;
        enough.then(|| self.log_score(these) - self.log_score(others))
    }

    /// Standard error of the gain: the jackknife over the parts, because the score is no sum.
    pub fn error(&self, these: &Parts, others: &Parts) -> f64 {
        let (all, base) = (sum(these), sum(others));
        let without = these.iter().zip(others).filter_map(|(part, other)| self.gain(&(all - *part), &(base - *other)));
        let without: Vec<f64> = without.collect();
        let count = without.len().max(1) as f64;
        let mean = without.iter().sum::<f64>() / count;
        let squares: f64 = without.iter().map(|value| (value - mean).powi(2)).sum();
        (squares * (count - 1.0) / count).sqrt()
    }
}

pub(super) fn sum(parts: &Parts) -> Demand {
    parts.iter().fold(Demand::default(), |mut all, part| {
        all += *part;
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(waits: f64, busy: [f64; STATIONS]) -> Demand {
        Demand { requests: 10.0, waits: 10.0 * waits, busy: busy.map(|busy| 10.0 * busy), written: 5.0 }
    }

    #[test]
    fn one_client_waits_and_many_are_held_up_by_the_busiest_device() {
        let demand = demand(1e-5, [1e-7, 2e-6, 1e-6]);
        assert_eq!(pace(&demand, 1), 1e-5);
        let eight = pace(&demand, 8);
        assert!(eight > 2e-6 && eight < 3e-6, "{eight}");
        let many = pace(&demand, 1000);
        assert!((2e-6..2.1e-6).contains(&many), "{many}");
        let idle = pace(&self::demand(1e-5, [0.0; STATIONS]), 8);
        assert!((idle - 1e-5 / 8.0).abs() < 1e-12, "{idle}");
    }

    #[test]
    fn parts_that_agree_leave_no_doubt() {
        let judge = Judge { objective: Objective::Throughput, clients: 1, correction: Correction::NONE };
        let fast = [demand(1e-6, [0.0; STATIONS]); PARTS];
        let mut slow = [demand(2e-6, [0.0; STATIONS]); PARTS];
        let gain = judge.gain(&sum(&fast), &sum(&slow)).expect("requests");
        assert!((gain - 2f64.ln()).abs() < 1e-9 && judge.error(&fast, &slow) < 1e-9, "{gain}");
        slow[3].waits *= 5.0;
        assert!(judge.error(&fast, &slow) > 0.1);
        assert_eq!(judge.gain(&Demand::default(), &sum(&slow)), None);
    }
}
