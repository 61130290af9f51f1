//! Cost of durability: writes that are each, or every few, followed by a flush.

use super::lab::{Lab, PAGE, cdf, line, points, quantile_cell};
use crate::experiment::{Cost, Experiment, Setup};
use crate::findings::Findings;
use crate::fit::Estimate;
use crate::target::{Stream, Target, TargetError};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "fsync",
    about: "4-KiB writes made durable one by one or in groups",
    source: "the commit path of a database: a log record and a flush",
    after: &["fill"],
    plan,
    run,
};

const EVERY: [u32; 5] = [1, 2, 4, 8, 32];

fn plan(setup: &Setup) -> Cost {
    points(setup, EVERY.len() as u64 + 1, PAGE, 1.0)
}

fn run(target: &mut dyn Target, setup: &Setup, seed: u64) -> Result<Findings, TargetError> {
    let mut lab = Lab::new(EXPERIMENT.name, target, setup, seed);
    let stream = Stream { write_share: 1.0, ..lab.stream(PAGE) };
    let plain = lab.measure(stream.clone())?.writes.mean() / 1e3;
    lab.rest()?;
    let (mut lines, mut rows) = (Vec::new(), Vec::new());
    for every in EVERY {
        let samples = lab.measure(Stream { flush_every: Some(every), ..stream.clone() })?;
        let writes = &samples.writes;
        if every == 1 {
            lab.fit("durable_write_us", "us", Estimate::exact(writes.mean() / 1e3));
            lab.fit("flush_us", "us", Estimate::exact((writes.mean() / 1e3 - plain).max(0.0)));
        }
        lines.push(line(format!("every {every}"), cdf(writes)));
        rows.push(vec![
            f64::from(every).into(),
            (writes.mean() / 1e3).into(),
            quantile_cell(writes, 0.5),
            quantile_cell(writes, 0.99),
            quantile_cell(writes, 0.999),
        ]);
        lab.rest()?;
    }
    lab.curves("4-KiB writes with a flush after every few", "us", "share of writes", lines);
    let columns = [("writes a flush", ""), ("mean", "us"), ("50 %", "us"), ("99 %", "us"), ("99.9 %", "us")];
    lab.table("Durable 4-KiB writes", &columns, rows);
    Ok(lab.found)
}
