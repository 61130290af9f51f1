//! Writes the whole working set once, so that later reads find written pages, and the drive has no empty pages.

use super::lab::{Lab, MIB, bandwidth_slices, line};
use crate::experiment::{Cost, Experiment, Setup};
use crate::findings::Findings;
use crate::fit::{Estimate, bootstrap, median};
use crate::target::{Pace, Pattern, Stream, Target, TargetError, Until};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "fill",
    about: "writes the working set once, in order",
    source: "SNIA PTS 2.0.2: workload independent preconditioning",
    after: &[],
    plan,
    run,
};

fn plan(setup: &Setup) -> Cost {
    // A slow disk writes 50 MB/s.
    Cost { written_bytes: setup.working_set_bytes, seconds: setup.working_set_bytes as f64 / 50e6, ..Cost::default() }
}

fn run(target: &mut dyn Target, setup: &Setup, seed: u64) -> Result<Findings, TargetError> {
    let mut lab = Lab::new(EXPERIMENT.name, target, setup, seed);
    lab.fit("capacity_bytes", "B", Estimate::exact(lab.capacity() as f64));
    let slices = fill(&mut lab)?;
    let seed = lab.seed();
    let rates: Vec<f64> = slices.iter().map(|&(_, rate)| rate).collect();
    lab.fit("fill_mb_s", "MB/s", bootstrap(&rates, seed, median));
    lab.curves("Filling the working set", "seconds", "MB/s", vec![line("sequential write", slices)]);
    lab.rest()?;
    Ok(lab.found)
}

/// Writes the working set once and gives its bandwidth over time.
pub(super) fn fill(lab: &mut Lab<'_>) -> Result<Vec<(f64, f64)>, TargetError> {
    let bytes = if lab.bytes().is_multiple_of(MIB) { MIB as u32 } else { lab.granule() };
    let stream = Stream {
        write_share: 1.0,
        pattern: Pattern::Sequential,
        pace: Pace::Closed { depth: 4 },
        until: Until::Count(lab.bytes() / u64::from(bytes)),
        keep_raw: true,
        ..lab.stream(bytes)
    };
    let samples = lab.run_one(stream)?;
    Ok(bandwidth_slices(&samples, bytes, 40))
}
