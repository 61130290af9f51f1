//! Latency of one 4-KiB I/O at a time, as a distribution (002, section 4.1, figure 3): as the application sees it and,
//! where the target can tell, as the device gives it.

use super::lab::{Lab, PAGE, PATTERNS, cdf, latencies_us, line, of_kind, points, quantile_cell};
use crate::experiment::{Cost, Experiment, Setup};
use crate::findings::Findings;
use crate::fit::{Estimate, bootstrap, median};
use crate::target::{Stream, Target, TargetError};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "latency",
    about: "latency of 4-KiB I/Os, one at a time, overall and raw",
    source: "002, section 4.1, figure 3",
    after: &["fill"],
    plan,
    run,
};

fn plan(setup: &Setup) -> Cost {
    points(setup, 2, PAGE.into(), 0.0) + points(setup, 2, PAGE.into(), 1.0)
}

fn run(target: &mut dyn Target, setup: &Setup, seed: u64) -> Result<Findings, TargetError> {
    let mut lab = Lab::new(EXPERIMENT.name, target, setup, seed);
    let (mut lines, mut rows, mut medians) = (Vec::new(), Vec::new(), Vec::new());
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
            let software = (overall.mean() - samples.raw_device.mean()) / 1e3;
            if name == "random read" {
                lab.fit("software_us", "us", Estimate::exact(software));
            }
        }
        let seed = lab.seed();
        let typical = bootstrap(&latencies_us(&samples), seed, median);
        lab.fit(&format!("{}_us", name.replace(' ', "_")), "us", typical);
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
    Ok(lab.found)
}
