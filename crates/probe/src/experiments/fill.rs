//! Writes the whole working set once, so that what is read later was written, and the drive has no empty pages.

use super::lab::{Lab, MIB, line, of_kind};
use crate::experiment::{Cost, Experiment, Setup};
use crate::findings::Findings;
use crate::fit::{bootstrap, median};
use crate::target::{Pace, Pattern, Samples, Stream, Target, TargetError, Until};

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
    let bytes = if lab.bytes() % MIB == 0 { MIB as u32 } else { lab.granule() };
    let stream = Stream {
        write_share: 1.0,
        pattern: Pattern::Sequential,
        pace: Pace::Closed { depth: 4 },
        until: Until::Count(lab.bytes() / u64::from(bytes)),
        keep_raw: true,
        ..lab.stream(bytes)
    };
    let samples = lab.run_one(stream)?;
    let slices = bandwidth_slices(&samples, bytes, 40);
    let seed = lab.seed();
    let rates: Vec<f64> = slices.iter().map(|&(_, rate)| rate).collect();
    lab.fit("fill_mb_s", "MB/s", bootstrap(&rates, seed, median));
    lab.curves("Filling the working set", "seconds", "MB/s", vec![line("sequential write", slices)]);
    debug_assert_eq!(of_kind(&samples).count(), samples.completions);
    lab.rest()?;
    Ok(lab.found)
}

/// Bandwidth over time: (seconds, MB/s) of slices with equally many completions.
pub(super) fn bandwidth_slices(samples: &Samples, bytes: u32, slices: usize) -> Vec<(f64, f64)> {
    let per_slice = samples.raw.len().div_ceil(slices).max(1);
    let mut begin = 0;
    let mut rates = Vec::with_capacity(slices);
    for slice in samples.raw.chunks(per_slice) {
        let end = slice[slice.len() - 1].0;
        if end > begin && slice.len() == per_slice {
            let moved = (slice.len() as u64 * u64::from(bytes)) as f64;
            rates.push((end as f64 / 1e9, moved * 1e3 / (end - begin) as f64));
        }
        begin = end;
    }
    rates
}
