//! Latency of one I/O at a time. The distribution at 4 KiB (002, section 4.1, figure 3) is measured as the application
//! sees it and, where the target can separate it, as the device gives it. The growth with size separates a command's
//! fixed cost from the rate of its bytes.

use super::lab::{
    KIB, Lab, MIB, PAGE, PATTERNS, cdf, latencies_us, line, of_kind, points, quantile_cell, quantile_us, tries_at,
};
use crate::experiment::{Cost, Experiment, Setup};
use crate::findings::Findings;
use crate::fit::{Estimate, bootstrap, bootstrap_groups, line_through, median};
use crate::target::{Stream, Target, TargetError, Until};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "latency",
    about: "latency of I/Os one at a time, overall and raw, and its growth with size",
    source: "002, section 4.1, figure 3",
    after: &["fill"],
    plan,
    run,
};

/// Sizes of the line through latency and size, in KiB.
const SIZES_KIB: [u32; 6] = [4, 8, 16, 32, 64, 128];

/// Bytes that are moved for one size: few enough for a write buffer to take.
const BYTES_PER_SIZE: u64 = 8 * MIB;

/// Largest share by which a line may miss a median; a line that misses by more is refused.
const STRAIGHT: f64 = 0.08;

/// Share by which a median differs from that of the smallest size at most where latency does not grow.
const GROWS: f64 = 0.01;

/// Largest share on a side of a slope's interval; a slope with a wider one is refused.
const CERTAIN: f64 = 0.2;

fn plan(setup: &Setup) -> Cost {
    let sizes = SIZES_KIB.len() as u64;
    let tried: u64 = SIZES_KIB.iter().map(|kib| u64::from(*kib) * KIB * tries_at(1)).sum();
    let bytes = sizes * BYTES_PER_SIZE + tried;
    let lines = Cost { read_bytes: bytes, written_bytes: bytes, seconds: points(setup, 2 * sizes, 0, 0.0).seconds };
    points(setup, 2, PAGE, 0.0) + points(setup, 2, PAGE, 1.0) + lines
}

fn run(target: &mut dyn Target, setup: &Setup, seed: u64) -> Result<Findings, TargetError> {
    let mut lab = Lab::new(EXPERIMENT.name, target, setup, seed);
    let software = distribution(&mut lab)?;
    for (name, write_share) in [("read", 0.0), ("write", 1.0)] {
        growth(&mut lab, name, write_share, software)?;
        lab.rest()?;
    }
    Ok(lab.found)
}

/// The four patterns at 4 KiB. Returns the software's share in microseconds, 0 where the target cannot separate it.
fn distribution(lab: &mut Lab<'_>) -> Result<f64, TargetError> {
    let (mut lines, mut rows, mut medians) = (Vec::new(), Vec::new(), Vec::new());
    let mut software = 0.0;
    for (name, pattern, write_share) in PATTERNS {
        let stream = Stream { pattern, write_share, keep_raw: true, ..lab.stream(PAGE) };
        let samples = lab.measure(stream)?;
        let overall = of_kind(&samples);
        let mut row = vec![name.into(), (overall.mean() / 1e3).into()];
        row.extend([0.5, 0.99, 0.999, 0.9999].map(|q| quantile_cell(overall, q)));
        rows.push(row);
        lines.push(line(format!("{name}, overall"), cdf(overall)));
        if samples.raw_device.count() > 0 {
            lines.push(line(format!("{name}, raw"), cdf(&samples.raw_device)));
        }
        let seed = lab.seed();
        let typical = bootstrap(&latencies_us(&samples), seed, median);
        lab.fit(&format!("{}_us", name.replace(' ', "_")), "us", typical);
        if name == "random read" {
            if samples.raw_device.count() > 0 {
                software = (overall.mean() - samples.raw_device.mean()) / 1e3;
                lab.fit("software_us", "us", Estimate::exact(software));
            }
            for (share, q) in [("99", 0.99), ("995", 0.995), ("999", 0.999), ("9999", 0.9999)] {
                if let Some(tail) = quantile_us(overall, q) {
                    lab.fit(&format!("random_read_p{share}_us"), "us", Estimate::exact(tail));
                }
            }
        }
        medians.push(typical.value);
        lab.rest()?;
    }
    // 002 finds a factor of 10 on a drive that reads ahead and none on one that does not.
    let reads_ahead = medians[0] < 0.5 * medians[1];
    lab.fit("reads_ahead", "", Estimate::exact(f64::from(u8::from(reads_ahead))));
    lab.curves("Latency of 4-KiB I/Os, one at a time", "us", "share of I/Os", lines);
    let columns =
        [("pattern", ""), ("mean", "us"), ("50 %", "us"), ("99 %", "us"), ("99.9 %", "us"), ("99.99 %", "us")];
    lab.table("Latency of 4-KiB I/Os, one at a time", &columns, rows);
    Ok(software)
}

/// A line through the median latency of random I/Os and their size.
fn growth(lab: &mut Lab<'_>, name: &str, write_share: f64, software: f64) -> Result<(), TargetError> {
    let mut groups = Vec::new();
    for kib in SIZES_KIB {
        let bytes = kib * KIB as u32;
        let base = Stream { write_share, keep_raw: true, ..lab.stream(bytes) };
        let until = Until::Count(lab.count_of(&base, BYTES_PER_SIZE)?);
        groups.push(latencies_us(&lab.run_one(Stream { until, ..base })?));
        lab.rest()?;
    }
    let fit = |groups: &[Vec<f64>]| {
        let medians: Vec<(f64, f64)> =
            SIZES_KIB.iter().zip(groups).map(|(kib, group)| (f64::from(*kib), median(group))).collect();
        (line_through(&medians), medians)
    };
    let ((fixed, per_kib), medians) = fit(&groups);
    lab.curves(
        &format!("Median latency of random {name}s by size, one at a time"),
        "KiB",
        "us",
        vec![line(name, medians.clone())],
    );
    let seeds = [lab.seed(), lab.seed()];
    let rate = bootstrap_groups(&groups, seeds[0], |groups| KIB as f64 / 1e3 / fit(groups).0.1);
    if medians.iter().all(|&(_, us)| (us / medians[0].1 - 1.0).abs() < GROWS) {
        lab.note(format!("the latency of {name}s does not grow with their size, which tells no rate of bytes"));
        lab.fit(&format!("{name}_fixed_us"), "us", Estimate::exact(fixed - software));
        return Ok(());
    }
    let straight = medians.iter().all(|&(kib, us)| ((fixed + per_kib * kib) / us - 1.0).abs() < STRAIGHT);
    if !straight || rate.low < rate.value * (1.0 - CERTAIN) || rate.high > rate.value * (1.0 + CERTAIN) {
        lab.note(format!("the latency of {name}s is no straight line in their size, so no fixed cost is told from it"));
        return Ok(());
    }
    lab.fit(&format!("{name}_gb_per_s"), "GB/s", rate);
    let fixed = bootstrap_groups(&groups, seeds[1], |groups| fit(groups).0.0 - software);
    lab.fit(&format!("{name}_fixed_us"), "us", fixed);
    Ok(())
}
