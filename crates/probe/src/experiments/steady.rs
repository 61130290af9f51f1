//! Random 4-KiB writes until their rate no longer changes (SNIA PTS): five rounds whose range is at most 20 % of their
//! mean and whose best line rises or falls by at most 10 % of it, within 25 rounds. Before them the working set is
//! discarded and written once, which gives the rate of the fresh device too.

use super::fill::fill;
use super::lab::{Lab, MIB, PAGE, iops, line, points_at};
use crate::experiment::{Cost, Experiment, Setup};
use crate::findings::{Cell, Findings};
use crate::fit::{Estimate, bootstrap, line_through, mean, median};
use crate::target::{Pace, Pattern, Stream, Target, TargetError, Until};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "steady",
    about: "random 4-KiB writes until their rate is steady",
    source: "SNIA PTS 2.0.2: steady state of 5 rounds, 20 % range, 10 % slope",
    after: &["fill"],
    plan,
    run,
};

const ROUNDS: usize = 25;
const WINDOW: usize = 5;
const DEPTH: u32 = 32;

/// Rounds in which the whole of [`Setup::overwrites`] is written.
const ROUNDS_OF_ALL: f64 = 20.0;

/// Share of the rate in order from which random writes count as equally fast.
const NO_CLEANING: f64 = 0.8;

fn round_bytes(setup: &Setup) -> f64 {
    setup.working_set_bytes as f64 * setup.overwrites / ROUNDS_OF_ALL
}

fn plan(setup: &Setup) -> Cost {
    let few = points_at(setup, 1, PAGE, 1.0, DEPTH).written_bytes as f64 + 64.0 * f64::from(PAGE);
    let rounds = ROUNDS as f64 * round_bytes(setup).max(100.0 * f64::from(PAGE));
    let written = setup.working_set_bytes as f64 + few + rounds;
    // A steady SATA drive writes 50 MB/s; a disk ends a round after five points' time.
    let seconds = written / 50e6 + ROUNDS as f64 * 5.0 * setup.seconds;
    Cost { written_bytes: written as u64, seconds, ..Cost::default() }
}

fn run(target: &mut dyn Target, setup: &Setup, seed: u64) -> Result<Findings, TargetError> {
    let mut lab = Lab::new(EXPERIMENT.name, target, setup, seed);
    lab.discard()?;
    let fresh: Vec<f64> = fill(&mut lab)?.iter().map(|slice| slice.1).collect();
    lab.rest()?;
    let seed = lab.seed();
    let fresh = bootstrap(&fresh, seed, median);

    let stream = Stream { write_share: 1.0, pace: Pace::Closed { depth: DEPTH }, ..lab.stream(PAGE) };
    let in_order = in_order(&mut lab, &stream)?;
    let pilot = lab.run_one(Stream { until: Until::Count(64), ..stream.clone() })?;
    let in_time = (iops(&pilot) * 5.0 * setup.seconds.max(1.0)) as u64;
    let in_bytes = (round_bytes(setup) / f64::from(PAGE)) as u64;
    let count = in_bytes.min(in_time).max(100);
    let (mut rates, mut steady) = (Vec::new(), false);
    while rates.len() < ROUNDS && !steady {
        rates.push(iops(&lab.run_one(Stream { until: Until::Count(count), ..stream.clone() })?));
        steady = rates.len() >= WINDOW && is_steady(&rates[rates.len() - WINDOW..]);
    }
    let overwritten = rates.len() as f64 * (count * u64::from(PAGE)) as f64 / lab.bytes() as f64;
    if !steady {
        lab.note(format!("not steady after {ROUNDS} rounds"));
    }
    if overwritten < 1.0 {
        lab.note(format!(
            "only {:.0} % of the working set was overwritten: cleaning may not have begun",
            100.0 * overwritten
        ));
    }
    let last = &rates[rates.len().saturating_sub(WINDOW)..];
    let seed = lab.seed();
    let rate = bootstrap(last, seed, mean);
    let page_mb = f64::from(PAGE) / 1e6;
    lab.fit("fresh_write_mb_s", "MB/s", fresh);
    lab.fit("steady", "", Estimate::exact(f64::from(u8::from(steady))));
    lab.fit("steady_write_iops", "1/s", rate);
    lab.fit("steady_write_mb_s", "MB/s", rate.map(|iops| iops * page_mb));
    // Where pages in order are no faster either, the limit is the host or the controller, not cleaning.
    let reference = if rate.value > NO_CLEANING * in_order { in_order * page_mb } else { fresh.value };
    let slowdown = rate.map(|iops| (reference / (iops * page_mb)).max(1.0));
    lab.fit("random_write_slowdown", "", slowdown);
    let points = rates.iter().enumerate().map(|(i, rate)| (i as f64 + 1.0, *rate)).collect();
    lab.curves("Random 4-KiB writes to steady state", "round", "I/Os a second", vec![line("random write", points)]);
    let rows: Vec<Vec<Cell>> = vec![vec![
        (rates.len() as f64).into(),
        ((count * u64::from(PAGE)) as f64 / MIB as f64).into(),
        (if steady { "yes" } else { "no" }).into(),
        rate.value.into(),
    ]];
    let columns = [("rounds", ""), ("bytes a round", "MiB"), ("steady", ""), ("random writes", "1/s")];
    lab.table("Steady state", &columns, rows);
    lab.rest()?;
    Ok(lab.found)
}

/// I/Os a second of the same writes in order, which need no cleaning.
fn in_order(lab: &mut Lab<'_>, stream: &Stream) -> Result<f64, TargetError> {
    let stream = lab.sized(Stream { pattern: Pattern::Sequential, ..stream.clone() })?;
    let rate = iops(&lab.run_one(stream)?);
    lab.rest()?;
    Ok(rate)
}

fn is_steady(window: &[f64]) -> bool {
    let average = mean(window);
    let (least, most) = window.iter().fold((f64::MAX, 0.0f64), |(a, b), rate| (a.min(*rate), b.max(*rate)));
    let points: Vec<(f64, f64)> = window.iter().enumerate().map(|(i, rate)| (i as f64, *rate)).collect();
    let rise = line_through(&points).1 * (window.len() - 1) as f64;
    most - least <= 0.2 * average && rise.abs() <= 0.1 * average
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_is_within_a_fifth_and_level_within_a_tenth() {
        assert!(is_steady(&[100.0, 105.0, 95.0, 104.0, 99.0]));
        assert!(!is_steady(&[100.0, 121.0, 100.0, 99.0, 100.0]), "a range of 21 %");
        assert!(!is_steady(&[100.0, 103.0, 106.0, 109.0, 112.0]), "a rise of 11 %");
        assert!(is_steady(&[112.0, 109.0, 107.0, 105.0, 102.0]), "a fall of 9 %");
    }
}
