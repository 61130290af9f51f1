//! Refresh of pages that were read too often (002, section 4.6, figures 9 and 10). Where the device has no buffer, one
//! page is read again and again. Where it has one, algorithm 1 of 002 applies: 24 MiB of other reads between two of
//! the page.

use super::buffer::{DISK_US, FASTER, hit_and_miss};
use super::lab::{KIB, Lab, MIB, PAGE, latencies_us, line, points};
use crate::experiment::{Cost, Experiment, Setup};
use crate::findings::Findings;
use crate::fit::{Estimate, bootstrap, mean, median};
use crate::target::{Pace, Pattern, Stream, Target, TargetError, Until};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "disturb",
    about: "whether a page is refreshed after a number of reads, and what that costs",
    source: "002, section 4.6, algorithm 1, figures 9 and 10",
    after: &["fill"],
    plan,
    run,
};

/// Bytes read between two reads of the page, to have it leave the device's buffer. 002 reads 20 MB at random, where
/// the buffer is 10 MB.
const EVICTING_BYTES: u64 = 24 * MIB;
const EVICTING_IO: u32 = 256 * KIB as u32;

/// Most reads of the page where each needs an eviction.
const EVICTED_READS: u64 = 400;

/// Pause before the page is read again, in nanoseconds, in which the drive finishes the writes that the other reads
/// caused.
const SETTLING: u64 = 10_000_000;

/// Periods that are tried.
const PERIODS: std::ops::RangeInclusive<usize> = 2..=250;

/// Standard errors by which a period must stand out; hundreds of periods and phases are tried.
const CERTAIN: f64 = 8.0;

fn plan(setup: &Setup) -> Cost {
    let evicted = (setup.ios / 50).clamp(100, EVICTED_READS);
    let read_bytes = evicted * (EVICTING_BYTES + u64::from(PAGE));
    points(setup, 1, PAGE, 0.0) + Cost { read_bytes, seconds: evicted as f64 * 0.1, ..Cost::default() }
}

fn run(target: &mut dyn Target, setup: &Setup, seed: u64) -> Result<Findings, TargetError> {
    let mut lab = Lab::new(EXPERIMENT.name, target, setup, seed);
    let (hit, miss) = hit_and_miss(&mut lab)?;
    if miss > DISK_US {
        lab.note("random reads take more than 1 ms: a disk's pages are not disturbed");
        return Ok(lab.found);
    }
    let latencies = if hit > FASTER * miss {
        let stream = Stream { pattern: Pattern::Same, keep_raw: true, ..lab.stream(PAGE) };
        let samples = lab.measure(stream)?;
        latencies_us(&samples)
    } else {
        evicted_reads(&mut lab)?
    };
    let points = latencies.iter().take(400).enumerate().map(|(i, us)| (i as f64, *us)).collect();
    lab.curves("Reads of one page", "read", "us", vec![line("read", points)]);
    let Some((period, phase)) = period_of(&latencies) else {
        lab.note("no period stands out");
        lab.fit("refresh_reads", "", Estimate::exact(0.0));
        return Ok(lab.found);
    };
    let (at, others) = split(&latencies, period, phase);
    let ordinary = median(&others);
    let seed = lab.seed();
    let cost = bootstrap(&at, seed, |at| median(at) - ordinary);
    // A few reads that the host delayed may fall on one phase; a refresh delays most reads of it.
    if cost.low <= 0.0 {
        lab.note("some reads are slow, but not at a period");
        lab.fit("refresh_reads", "", Estimate::exact(0.0));
        return Ok(lab.found);
    }
    lab.fit("refresh_reads", "", Estimate::exact(period as f64));
    lab.fit("refresh_us", "us", cost);
    Ok(lab.found)
}

/// Latencies of one page with other reads between.
fn evicted_reads(lab: &mut Lab<'_>) -> Result<Vec<f64>, TargetError> {
    let reads = (lab.setup.ios / 50).clamp(100, EVICTED_READS);
    let first = Stream { pattern: Pattern::Same, until: Until::Count(1), keep_raw: true, ..lab.stream(PAGE) };
    let others = Stream {
        // The range excludes the page itself and each part is read once: a buffer in order of use then no longer holds
        // the page.
        range: MIB..MIB + EVICTING_BYTES,
        pattern: Pattern::Sequential,
        pace: Pace::Closed { depth: 4 },
        until: Until::Count(EVICTING_BYTES / u64::from(EVICTING_IO)),
        ..lab.stream(EVICTING_IO)
    };
    if others.range.end > lab.bytes() {
        lab.note("the working set is too small to evict a page from the device's buffer");
        return Ok(Vec::new());
    }
    let mut latencies = Vec::new();
    for _ in 0..reads {
        latencies.extend(latencies_us(&lab.run_one(first.clone())?));
        // The other reads are the same each time. Those pages are refreshed too, and the drive's writes for new ones
        // would carry the page along, which would stay in the write buffer.
        lab.run_one(others.clone())?;
        lab.wait(SETTLING)?;
    }
    Ok(latencies)
}

fn split(latencies: &[f64], period: usize, phase: usize) -> (Vec<f64>, Vec<f64>) {
    let (mut at, mut others) = (Vec::new(), Vec::new());
    for (i, us) in latencies.iter().enumerate() {
        if i % period == phase { &mut at } else { &mut others }.push(*us);
    }
    (at, others)
}

/// The period and phase whose reads are slower than the others by the most standard errors, where that is certain. A
/// multiple of the true period has fewer slow reads, and a divisor mixes them with fast ones.
fn period_of(latencies: &[f64]) -> Option<(usize, usize)> {
    let n = latencies.len() as f64;
    let middle = mean(latencies);
    let spread = (latencies.iter().map(|us| (us - middle) * (us - middle)).sum::<f64>() / n).sqrt();
    let mut best: Option<(f64, usize, usize)> = None;
    // A pattern needs six refreshes.
    for period in PERIODS.filter(|period| latencies.len() >= 6 * period) {
        let mut sums = vec![(0.0, 0.0f64); period];
        for (i, us) in latencies.iter().enumerate() {
            let (sum, count) = &mut sums[i % period];
            *sum += us - middle;
            *count += 1.0;
        }
        for (phase, (sum, count)) in sums.into_iter().enumerate() {
            let score = sum / count.sqrt() / spread.max(1e-9);
            if score > best.map_or(CERTAIN, |best| best.0) {
                best = Some((score, period, phase));
            }
        }
    }
    best.map(|(_, period, phase)| (period, phase))
}

#[cfg(test)]
mod tests {
    use super::*;
    use entresol_core::Random;

    #[test]
    fn a_period_is_found_under_noise_and_none_in_noise() {
        let seed = 3;
        let mut random = Random::new(seed);
        let mut noise = |n: usize| -> Vec<f64> {
            // One read in fifty is slower than a refresh.
            (0..n).map(|_| 10.0 + random.next_f64() + if random.chance(0.02) { 60.0 } else { 0.0 }).collect()
        };
        assert_eq!(period_of(&noise(20_000)), None, "seed {seed}");
        for (period, phase) in [(2, 1), (30, 29), (50, 7), (113, 60)] {
            let mut latencies = noise(20_000);
            latencies.iter_mut().skip(phase).step_by(period).for_each(|us| *us += 20.0);
            assert_eq!(period_of(&latencies), Some((period, phase)), "seed {seed}");
        }
    }
}
