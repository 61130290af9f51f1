//! Random reads and writes together, by share and queue depth: most devices slow down by more than the mean of both.

use super::lab::{Lab, PAGE, iops, line, points_at};
use crate::experiment::{Cost, Experiment, Setup};
use crate::findings::{Cell, Findings};
use crate::target::{Pace, Stream, Target, TargetError};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "mixed",
    about: "4-KiB random I/Os by share of reads and queue depth",
    source: "SNIA PTS 2.0.2: IOPS test",
    after: &["fill"],
    plan,
    run,
};

const READ_PERCENT: [u32; 7] = [0, 5, 35, 50, 65, 95, 100];
const DEPTHS: [u32; 4] = [1, 4, 16, 64];

fn plan(setup: &Setup) -> Cost {
    let most = *DEPTHS.last().expect("there are depths");
    points_at(setup, (READ_PERCENT.len() * DEPTHS.len()) as u64, PAGE, 0.5, most)
}

fn run(target: &mut dyn Target, setup: &Setup, seed: u64) -> Result<Findings, TargetError> {
    let mut lab = Lab::new(EXPERIMENT.name, target, setup, seed);
    let (mut lines, mut rows) = (Vec::new(), Vec::new());
    for depth in DEPTHS {
        let mut points = Vec::new();
        for percent in READ_PERCENT {
            let write_share = 1.0 - f64::from(percent) / 100.0;
            let stream = Stream { write_share, pace: Pace::Closed { depth }, ..lab.stream(PAGE) };
            let samples = lab.measure(stream)?;
            points.push((f64::from(percent), iops(&samples)));
            let mean = |count: u64, mean: f64| if count == 0 { Cell::from("none") } else { (mean / 1e3).into() };
            rows.push(vec![
                f64::from(depth).into(),
                f64::from(percent).into(),
                iops(&samples).into(),
                mean(samples.reads.count(), samples.reads.mean()),
                mean(samples.writes.count(), samples.writes.mean()),
            ]);
            lab.rest()?;
        }
        lines.push(line(format!("depth {depth}"), points));
    }
    lab.curves("4-KiB random I/Os by share of reads", "% reads", "I/Os a second", lines);
    let columns = [("depth", ""), ("reads", "%"), ("I/Os", "1/s"), ("mean read", "us"), ("mean write", "us")];
    lab.table("4-KiB random reads and writes together", &columns, rows);
    Ok(lab.found)
}
