//! The size of the device's own read buffer (002, section 4.6, figure 8). A set of pages is read again and again, and
//! while it fits, part of the reads are fast. The probe reads at random from a set larger than a buffer in order of
//! use. The share of hits is then the buffer over the set, which gives its size more exactly than the paper's jump of
//! the 30 % level.

use super::lab::{Lab, MIB, PAGE, latencies_us, line};
use crate::experiment::{Cost, Experiment, Setup};
use crate::findings::Findings;
use crate::fit::{Estimate, bootstrap_groups, mean, percentile};
use crate::target::{Pattern, Stream, Target, TargetError, Until};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "buffer",
    about: "whether reads are buffered in the device, and how much",
    source: "002, section 4.6, figure 8",
    after: &["fill"],
    plan,
    run,
};

/// Sizes of the set that is read, in MiB.
const SETS_MIB: [u64; 12] = [1, 2, 4, 6, 8, 10, 12, 16, 24, 32, 48, 64];

/// Reads of each set that are counted, at most.
const COUNTED: u64 = 4_000;

/// A random read that takes longer than this comes from a disk.
pub(super) const DISK_US: f64 = 1_000.0;

/// A read of a page just read that takes more than this share of a read of any page was not buffered.
pub(super) const FASTER: f64 = 0.75;

fn plan(setup: &Setup) -> Cost {
    let sets = SETS_MIB.iter().sum::<u64>() * MIB * 2 + SETS_MIB.len() as u64 * COUNTED * u64::from(PAGE);
    let read_bytes = sets + 128 * u64::from(PAGE);
    Cost { read_bytes, seconds: SETS_MIB.len() as f64 * 6.0 * setup.seconds + 2.0, ..Cost::default() }
}

fn run(target: &mut dyn Target, setup: &Setup, seed: u64) -> Result<Findings, TargetError> {
    let mut lab = Lab::new(EXPERIMENT.name, target, setup, seed);
    let (hit, miss) = hit_and_miss(&mut lab)?;
    if miss > DISK_US {
        lab.note("random reads take more than 1 ms: a disk's buffer does not show beside its mechanics");
        return Ok(lab.found);
    }
    // A set is read twice, then counted; a device too slow for that in the time of four points gets a smaller set.
    let affordable = (4e6 * setup.seconds / miss) as u64 * u64::from(PAGE) / 2;
    let (mut groups, mut sets) = (Vec::new(), Vec::new());
    for set in SETS_MIB.map(|mib| mib * MIB) {
        if set > lab.bytes() || set > affordable {
            lab.note(format!("no sets of {} MiB and more: no room or no time", set / MIB));
            break;
        }
        let base = Stream { range: 0..set, ..lab.stream(PAGE) };
        // Two passes in random order miss some pages; two passes in order miss none.
        let pages = set / u64::from(PAGE);
        let warm = Stream { pattern: Pattern::List(scattered(pages)), until: Until::Count(2 * pages), ..base.clone() };
        lab.run_one(warm)?;
        let counted = Stream { until: Until::Count(COUNTED.min(4 * pages)), keep_raw: true, ..base };
        groups.push(latencies_us(&lab.run_one(counted)?));
        sets.push(set as f64 / MIB as f64);
    }
    let levels = |f: &dyn Fn(&[f64]) -> f64| sets.iter().zip(&groups).map(|(set, group)| (*set, f(group))).collect();
    let lines = vec![
        line("mean", levels(&mean)),
        line("30 % level", levels(&|group| percentile(group, 0.3))),
        line("40 % level", levels(&|group| percentile(group, 0.4))),
    ];
    lab.curves("4-KiB reads of a set that is read again and again", "MiB", "us", lines);
    let present = hit < FASTER * miss;
    lab.fit("read_buffer", "", Estimate::exact(f64::from(u8::from(present))));
    let mut size = Estimate::exact(0.0);
    if present {
        let threshold = (hit * miss).sqrt();
        let share = |group: &[f64]| group.iter().filter(|us| **us < threshold).count() as f64 / group.len() as f64;
        let overflow: Vec<usize> = (0..groups.len()).filter(|&i| (0.02..0.9).contains(&share(&groups[i]))).collect();
        let chosen: Vec<Vec<f64>> = overflow.iter().map(|&i| groups[i].clone()).collect();
        let seed = lab.seed();
        size = bootstrap_groups(&chosen, seed, |chosen| {
            let sizes: Vec<f64> = overflow.iter().zip(chosen).map(|(&i, group)| share(group) * sets[i]).collect();
            mean(&sizes)
        });
    }
    lab.fit("read_buffer_mib", "MiB", size);
    Ok(lab.found)
}

/// All of `pages` pages, each once, far from their neighbours so that no read-ahead covers them.
fn scattered(pages: u64) -> Vec<u64> {
    // An odd stride visits every page of a power of two, and of any count with which it shares no divisor.
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let stride = (pages * 5 / 13..).find(|stride| gcd(*stride, pages) == 1).unwrap_or(1);
    (0..pages).map(|i| i * stride % pages * u64::from(PAGE)).collect()
}

/// Median latencies in microseconds of reads of one page again and again, and of any page.
pub(super) fn hit_and_miss(lab: &mut Lab<'_>) -> Result<(f64, f64), TargetError> {
    let hit = lab.typical_us(Stream { pattern: Pattern::Same, ..lab.stream(PAGE) }, 64)?;
    let miss = lab.typical_us(lab.stream(PAGE), 64)?;
    Ok((hit, miss))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattered_pages_are_all_pages_once() {
        for pages in [1, 2, 256, 1536, 2560, 16_384] {
            let mut offsets = scattered(pages);
            offsets.sort_unstable();
            let expected: Vec<u64> = (0..pages).map(|page| page * u64::from(PAGE)).collect();
            assert_eq!(offsets, expected, "{pages} pages");
        }
    }
}
