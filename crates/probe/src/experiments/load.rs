//! Latency by load, open loop: 4-KiB random reads at fixed intended times, from a tenth of the device's rate to nearly
//! all of it. Latency counts from the intended time, so every read that a stall delays shows it.

use super::lab::{Lab, PAGE, iops, line, points_at, quantile_cell, quantile_us};
use crate::experiment::{Cost, Experiment, Setup};
use crate::findings::Findings;
use crate::fit::Estimate;
use crate::target::{Pace, Stream, Target, TargetError, Until};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "load",
    about: "latency of 4-KiB random reads by load, open loop",
    source: "Schroeder, Wierman and Harchol-Balter, NSDI 2006: open versus closed",
    after: &["fill"],
    plan,
    run,
};

/// Loads, as shares of the device's maximum rate.
const LOADS: [f64; 8] = [0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];

/// The share that is kept as a parameter.
const KEPT: f64 = 0.7;

const DEPTH: u32 = 256;

fn plan(setup: &Setup) -> Cost {
    points_at(setup, LOADS.len() as u64 + 1, PAGE, 0.0, DEPTH)
}

fn run(target: &mut dyn Target, setup: &Setup, seed: u64) -> Result<Findings, TargetError> {
    let mut lab = Lab::new(EXPERIMENT.name, target, setup, seed);
    let most = lab.sized(Stream { pace: Pace::Closed { depth: DEPTH }, ..lab.stream(PAGE) })?;
    let rate = iops(&lab.run_one(most)?);
    let (mut means, mut tails, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for load in LOADS {
        let pace = Pace::Open { per_second: load * rate };
        let count = ((load * rate * setup.seconds) as u64).clamp(100, setup.ios.max(100));
        let samples = lab.run_one(Stream { pace, until: Until::Count(count), ..lab.stream(PAGE) })?;
        let (percent, mean) = (100.0 * load, samples.reads.mean() / 1e3);
        means.push((percent, mean));
        tails.extend(quantile_us(&samples.reads, 0.99).map(|us| (percent, us)));
        if load == KEPT {
            lab.fit("open_loop_read_us", "us", Estimate::exact(mean));
        }
        let quantiles = [0.5, 0.99, 0.999].map(|q| quantile_cell(&samples.reads, q));
        rows.push([percent.into(), (load * rate).into(), mean.into()].into_iter().chain(quantiles).collect());
        // A queue that a load above the device's rate has built up must not delay the next point.
        lab.rest()?;
    }
    lab.curves("Latency by load, open loop", "% of the most", "us", vec![line("mean", means), line("99 %", tails)]);
    let columns = [("load", "%"), ("reads", "1/s"), ("mean", "us"), ("50 %", "us"), ("99 %", "us"), ("99.9 %", "us")];
    lab.table("4-KiB random reads by load, open loop", &columns, rows);
    Ok(lab.found)
}
