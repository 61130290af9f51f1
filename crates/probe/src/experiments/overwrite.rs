//! Overwriting a full device in random order, twice in the same one (002, section 4.5, figure 7): garbage collection
//! shows as a drop. Both passes count. On a drive without other data the second pass finds its blocks falling empty in
//! the order in which the first filled them, and needs little cleaning.

use super::lab::{KIB, Lab, bandwidth_slices, line, tries_at};
use crate::experiment::{Cost, Experiment, Setup};
use crate::findings::Findings;
use crate::fit::{Estimate, percentile};
use crate::target::{Pace, Pattern, Stream, Target, TargetError, Until};
use entresol_core::Random;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "overwrite",
    about: "writes the working set in random order, then again in the same order",
    source: "002, section 4.5, figure 7",
    after: &["fill"],
    plan,
    run,
};

const BYTES: u32 = 16 * KIB as u32;
const DEPTH: u32 = 256;

/// Points of the curve.
const SLICES: usize = 60;

fn plan(setup: &Setup) -> Cost {
    let written_bytes = 2 * setup.working_set_bytes + tries_at(DEPTH) * u64::from(BYTES);
    Cost { written_bytes, seconds: written_bytes as f64 / 100e6, ..Cost::default() }
}

fn run(target: &mut dyn Target, setup: &Setup, seed: u64) -> Result<Findings, TargetError> {
    let mut lab = Lab::new(EXPERIMENT.name, target, setup, seed);
    let mut order: Vec<u64> = (0..lab.bytes() / u64::from(BYTES)).map(|page| page * u64::from(BYTES)).collect();
    let mut random = Random::new(lab.seed());
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    let pilot = Stream { write_share: 1.0, pace: Pace::Closed { depth: DEPTH }, ..lab.stream(BYTES) };
    // A disk would take a day, so the order is cut to the I/Os that forty points have time for.
    let rate = {
        let samples = lab.run_one(Stream { until: Until::Count(u64::from(2 * DEPTH)), ..pilot.clone() })?;
        samples.completions as f64 * 1e9 / samples.elapsed.max(1) as f64
    };
    let fits = (rate * 40.0 * setup.seconds.max(1.0)) as usize;
    if fits < order.len() {
        lab.note(format!("time for {} % of the working set only", 100 * fits / order.len().max(1)));
        order.truncate(fits.max(SLICES));
    }
    let count = Until::Count(order.len() as u64);
    let stream = Stream { pattern: Pattern::List(order), until: count, keep_raw: true, ..pilot };
    let (mut lines, mut rates) = (Vec::new(), Vec::new());
    for name in ["first pass", "second pass"] {
        let samples = lab.run_one(stream.clone())?;
        let slices = bandwidth_slices(&samples, BYTES, SLICES);
        rates.extend(slices.iter().skip(2).map(|slice| slice.1));
        lines.push(line(name, slices));
    }
    // The few slices that a write buffer or the end of the queue makes extreme are left out.
    let (most, least) = (percentile(&rates, 0.95), percentile(&rates, 0.05));
    lab.fit("overwrite_mb_s", "MB/s", Estimate { value: percentile(&rates, 0.5), low: least, high: most });
    lab.fit("overwrite_drop_percent", "%", Estimate::exact(100.0 * (1.0 - least / most)));
    lab.curves("Bandwidth while the working set is overwritten", "seconds", "MB/s", lines);
    lab.rest()?;
    Ok(lab.found)
}
