//! Slow-down of 4-KiB I/Os by other work (002, section 4.3, figure 5): background reads or writes at a rate, open
//! loop, beside one I/O at a time.

use super::lab::{KIB, Lab, MIB, PAGE, PATTERNS, line, mb_s, of_kind, points, quantile_cell, tries_at};
use crate::experiment::{Cost, Experiment, Setup};
use crate::findings::Findings;
use crate::fit::Estimate;
use crate::target::{Pace, Samples, Stream, Target, TargetError, Until};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "pressure",
    about: "latency of 4-KiB I/Os beside background reads and writes at a rate",
    source: "002, section 4.3, figure 5",
    after: &["fill"],
    plan,
    run,
};

/// Rates of the background, as shares of the rate that it reaches alone.
const SHARES: [f64; 6] = [0.0, 0.1, 0.2, 0.4, 0.6, 0.8];

/// The share at which the slow-down is kept as a parameter.
const KEPT: f64 = 0.6;

/// Bytes of the run that determines that rate.
const MOST_BYTES: u64 = 64 * MIB;

/// Size of the background's I/Os.
const BACKGROUND: u32 = 16 * KIB as u32;

fn plan(setup: &Setup) -> Cost {
    let beside: u64 = SHARES.iter().map(|share| beside_bytes(setup, *share)).sum::<u64>() * PATTERNS.len() as u64;
    let most = tries_at(32) * u64::from(BACKGROUND) + MOST_BYTES;
    // A stream beside another may take as long as two alone.
    let fronts = points(setup, 2 * (SHARES.len() * PATTERNS.len()) as u64, PAGE, 0.5);
    // The time includes waiting for the background's queue to empty.
    let all = Cost { seconds: 1.5 * fronts.seconds, ..fronts };
    all + all + Cost { read_bytes: beside + most, written_bytes: beside + most, seconds: 2.0 * setup.seconds + 1.0 }
}

fn run(target: &mut dyn Target, setup: &Setup, seed: u64) -> Result<Findings, TargetError> {
    let mut lab = Lab::new(EXPERIMENT.name, target, setup, seed);
    for (background, share) in [("reads", 0.0), ("writes", 1.0)] {
        let most = Stream { write_share: share, pace: Pace::Closed { depth: 32 }, ..lab.stream(BACKGROUND) };
        let until = Until::Count(lab.count_of(&most, MOST_BYTES)?);
        let most = mb_s(&lab.run_one(Stream { until, ..most })?);
        lab.rest()?;
        let (mut lines, mut rows) = (Vec::new(), Vec::new());
        for (name, pattern, write_share) in PATTERNS {
            let stream = Stream { pattern, write_share, ..lab.stream(PAGE) };
            let (front, alone) = front(&mut lab, stream)?;
            let mut means = Vec::new();
            for part in SHARES {
                let rate = part * most;
                let (samples, given) = if part == 0.0 {
                    (alone.clone(), 0.0)
                } else {
                    let mut both = beside(&mut lab, &front, share, rate)?;
                    let given = mb_s(&both.remove(1));
                    (both.remove(0), given)
                };
                let histogram = of_kind(&samples);
                means.push((rate, histogram.mean() / 1e3));
                rows.push(vec![
                    name.into(),
                    rate.into(),
                    given.into(),
                    (histogram.mean() / 1e3).into(),
                    quantile_cell(histogram, 0.5),
                    quantile_cell(histogram, 0.99),
                ]);
            }
            let kept = SHARES.iter().position(|&part| part == KEPT).expect("the share that is kept is measured");
            let slower = Estimate::exact(means[kept].1 / means[0].1);
            lab.fit(&format!("{}_beside_{background}_factor", name.replace(' ', "_")), "", slower);
            lines.push(line(name, means));
        }
        lab.curves(&format!("Mean latency beside random {background}"), "MB/s in the background", "us", lines);
        let columns =
            [("pattern", ""), ("asked", "MB/s"), ("given", "MB/s"), ("mean", "us"), ("50 %", "us"), ("99 %", "us")];
        lab.table(&format!("4-KiB I/Os beside random {background}"), &columns, rows);
    }
    Ok(lab.found)
}

/// Bytes that a background moves at this share of a fast device's 2.7 GB/s during its foreground.
pub(super) fn beside_bytes(setup: &Setup, share: f64) -> u64 {
    (share * 2.7e9 * (1.3 * setup.seconds + 0.1)) as u64
}

/// Measures a stream alone, and returns it as one that ends after a time instead of a count. With a background above
/// the device's rate each I/O waits longer than the one before, and a count would never be reached.
pub(super) fn front(lab: &mut Lab<'_>, stream: Stream) -> Result<(Stream, Samples), TargetError> {
    let alone = lab.measure(stream.clone())?;
    let most = (lab.setup.seconds * 1e9) as u64;
    let until = Until::Elapsed((2 * alone.elapsed).clamp(1, most.max(1)));
    Ok((Stream { until, ..stream }, alone))
}

/// Runs a stream with a background of `mb_s` MB/s beside it.
pub(super) fn beside(
    lab: &mut Lab<'_>,
    front: &Stream,
    write_share: f64,
    mb_s: f64,
) -> Result<Vec<Samples>, TargetError> {
    let per_second = mb_s * 1e6 / f64::from(BACKGROUND);
    let background =
        Stream { write_share, pace: Pace::Open { per_second }, until: Until::First, ..lab.stream(BACKGROUND) };
    let samples = lab.run(&[front.clone(), background])?;
    lab.rest()?;
    Ok(samples)
}
