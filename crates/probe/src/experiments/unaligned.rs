//! Cost of write sizes that are no multiple of a page (002, section 4.4, figure 6): sequential writes of 1 to 64 KiB,
//! one at a time. A flash drive merges pages; 002's Optane drive has three layers that meet at 50 KiB.

use super::lab::{KIB, Lab, MIB, latencies_us, line, points, tries_at};
use crate::experiment::{Cost, Experiment, Setup};
use crate::findings::Findings;
use crate::fit::{Estimate, bootstrap_groups, line_through, mean, median};
use crate::target::{Pattern, Stream, Target, TargetError, Until};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "unaligned",
    about: "sequential writes of 1 to 64 KiB, aligned or not",
    source: "002, section 4.4, figure 6",
    after: &["fill"],
    plan,
    run,
};

const MOST_KIB: usize = 64;

/// Most writes of one size.
const WRITES: u64 = 256;

/// Length of the stretch that writes of one size go to, to spare a flash drive cleaning.
const STRETCH: u64 = 16 * MIB;

/// Extra latency of a size over its neighbours, as a share, from which it counts as unaligned.
const VISIBLE: f64 = 0.02;

/// Page sizes that are tried, in KiB.
const PAGES_KIB: [usize; 5] = [16, 8, 4, 2, 1];

fn plan(setup: &Setup) -> Cost {
    let sizes = (MOST_KIB * (MOST_KIB + 1) / 2) as u64 * KIB;
    let written_bytes = (setup.ios.min(WRITES) + tries_at(1)) * sizes;
    Cost { written_bytes, seconds: points(setup, MOST_KIB as u64, 0, 1.0).seconds, ..Cost::default() }
}

fn run(target: &mut dyn Target, setup: &Setup, seed: u64) -> Result<Findings, TargetError> {
    let mut lab = Lab::new(EXPERIMENT.name, target, setup, seed);
    // The group of each size in KiB; where the target takes no such size, it is empty.
    let mut groups: Vec<Vec<f64>> = vec![Vec::new()];
    let stretch = STRETCH.min(lab.bytes());
    for kib in 1..=MOST_KIB {
        let bytes = (kib as u64 * KIB) as u32;
        if !bytes.is_multiple_of(lab.granule()) {
            groups.push(Vec::new());
            continue;
        }
        let stream = Stream {
            write_share: 1.0,
            pattern: Pattern::Sequential,
            range: 0..stretch,
            keep_raw: true,
            ..lab.stream(bytes)
        };
        let until = Until::Count(lab.count_of(&stream, WRITES * u64::from(bytes))?);
        groups.push(latencies_us(&lab.run_one(Stream { until, ..stream })?));
        lab.rest()?;
    }
    let means = means(&groups);
    let curve = (1..=MOST_KIB).filter(|&kib| means[kib].is_finite()).map(|kib| (kib as f64, means[kib])).collect();
    lab.curves("Mean latency of sequential writes by size, one at a time", "KiB", "us", vec![line("write", curve)]);

    // On a busy host some sizes are slow by chance, so the excess must persist when the I/Os are resampled.
    let seed = lab.seed();
    let sure = |page| bootstrap_groups(&groups, seed, |groups| excess(&self::means(groups), page)).low > 0.0;
    let page = PAGES_KIB.into_iter().find(|&page| excess(&means, page) > VISIBLE && sure(page));
    let Some(page) = page else {
        lab.note("no size costs more than its neighbours: nothing needs to be aligned, or what it costs does not show");
        lab.fit("page_bytes", "B", Estimate::exact(f64::from(lab.granule())));
        return Ok(lab.found);
    };
    lab.fit("page_bytes", "B", Estimate::exact((page as u64 * KIB) as f64));
    layers(&mut lab, &groups, page);
    Ok(lab.found)
}

fn means(groups: &[Vec<f64>]) -> Vec<f64> {
    groups.iter().map(|group| mean(group)).collect()
}

/// Median extra latency of sizes that are a multiple of half a page and not of a page, as a share of the latency of
/// the whole pages on both sides. Only sizes up to 32 KiB count, which come before 002's layers meet.
fn excess(means: &[f64], page: usize) -> f64 {
    if page == 1 {
        return 0.0;
    }
    let shares: Vec<f64> = (1..)
        .map(|i| i * page + page / 2)
        .take_while(|&kib| kib <= 32)
        .map(|kib| {
            let whole = (means[kib - page / 2] + means[kib + page / 2]) / 2.0;
            means[kib] / whole - 1.0
        })
        .filter(|share| share.is_finite())
        .collect();
    if shares.is_empty() { 0.0 } else { median(&shares) }
}

/// Fits the cost of unaligned sizes: layers that fall with size and meet, or else one cost that stays.
fn layers(lab: &mut Lab<'_>, groups: &[Vec<f64>], page: usize) {
    let seeds: [u64; 3] = std::array::from_fn(|_| lab.seed());
    let fit = |which: usize| bootstrap_groups(groups, seeds[which], |groups| layer_lines(&means(groups), page)[which]);
    let [half, odd, meet] = [fit(0), fit(1), fit(2)];
    if meet.value.is_finite() && meet.high < 1.5 * MOST_KIB as f64 {
        lab.fit("half_page_penalty_us", "us", half);
        lab.fit("odd_penalty_us", "us", odd);
        lab.fit("layers_meet_kib", "KiB", meet);
    } else {
        let found = bootstrap_groups(groups, seeds[0], |groups| penalty(&means(groups), page));
        if found.low > 0.0 {
            lab.note(format!("unaligned sizes cost more up to {MOST_KIB} KiB and beyond"));
            lab.fit("unaligned_penalty_us", "us", found);
        } else {
            lab.note("half pages cost more, other unaligned sizes not for certain");
        }
    }
}

/// The median of what sizes between whole pages cost more than the line between these, up to 32 KiB.
fn penalty(means: &[f64], page: usize) -> f64 {
    let extra = |kib: usize| {
        let (below, along) = (kib / page * page, (kib % page) as f64 / page as f64);
        means[kib] - means[below] * (1.0 - along) - means[below + page] * along
    };
    let extras: Vec<f64> =
        (page + 1..32).filter(|kib| !kib.is_multiple_of(page)).map(extra).filter(|us| us.is_finite()).collect();
    median(&extras)
}

/// Fits lines to the extra latency of half pages and of other unaligned sizes, in microseconds. Returns both
/// extrapolated to size 0, and the size in KiB where both end (NaN where they do not fall with size).
fn layer_lines(means: &[f64], page: usize) -> [f64; 3] {
    let whole: Vec<(f64, f64)> = (1..=MOST_KIB)
        .filter(|kib| kib.is_multiple_of(page) && means[*kib].is_finite())
        .map(|kib| (kib as f64, means[kib]))
        .collect();
    let (base, slope) = line_through(&whole);
    // Sizes below a page move a page; those near the end no longer lie on the line.
    let layer = |is_half: bool, end: f64| -> (f64, f64) {
        let points: Vec<(f64, f64)> = (page + 1..=MOST_KIB)
            .filter(|kib| !kib.is_multiple_of(page) && kib.is_multiple_of((page / 2).max(1)) == is_half)
            .filter(|kib| means[*kib].is_finite() && (*kib as f64) < end)
            .map(|kib| (kib as f64, means[kib] - base - slope * kib as f64))
            .collect();
        line_through(&points)
    };
    let ends = |(penalty, fall): (f64, f64)| if fall < 0.0 { -penalty / fall } else { f64::NAN };
    // The first estimate of the end is from the smaller sizes, the second from what lies before it.
    let has_odd = page > 2;
    let first = ends(layer(!has_odd, 32.0));
    let end = if first.is_finite() { first * 0.95 } else { MOST_KIB as f64 + 1.0 };
    let (half, odd) = (layer(true, end), layer(false, end));
    [half.0, odd.0, ends(if has_odd { odd } else { half })]
}
