//! Tails of 4-KiB random reads (002, section 4.7, table 1): alone, beside reads, beside overwriting, and within a
//! range that is read again and again. A percentile with fewer than ten samples beyond it is refused.

use super::lab::{Lab, MIB, PAGE, mb_s, points, points_at, quantile_cell};
use super::pressure::{beside, beside_bytes, front};
use crate::experiment::{Cost, Experiment, Setup};
use crate::findings::{Cell, Findings};
use crate::target::{Pace, Samples, Stream, Target, TargetError, Until};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "tail",
    about: "percentiles of random reads alone and beside other work",
    source: "002, section 4.7, table 1; 000, table 2.1",
    after: &["fill"],
    plan,
    run,
};

/// The percentiles of the table; its column "90" is the 99th, as its text says.
const SHARES: [f64; 6] = [0.5, 0.99, 0.995, 0.999, 0.9995, 0.9999];

/// The paper's 200, 400 and 800 MB/s, as shares of its drive's 2,500.
const PRESSURES: [f64; 3] = [0.08, 0.16, 0.32];

/// 002 reads 20 MB again and again.
const REREAD_BYTES: u64 = 20 * MIB;

fn plan(setup: &Setup) -> Cost {
    let beside = |share: f64| beside_bytes(setup, share);
    let background = Cost {
        read_bytes: PRESSURES.into_iter().map(beside).sum(),
        // One write of 4 KiB at a time: 10 us each on a fast drive.
        written_bytes: beside(0.2),
        seconds: 0.0,
    };
    points(setup, 11, PAGE, 0.0) + points_at(setup, 1, 4 * PAGE, 0.0, 32) + background
}

fn run(target: &mut dyn Target, setup: &Setup, seed: u64) -> Result<Findings, TargetError> {
    let mut lab = Lab::new(EXPERIMENT.name, target, setup, seed);
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let mut keep = |name: String, samples: &Samples| {
        let quantiles = SHARES.map(|q| quantile_cell(&samples.reads, q));
        rows.push([Cell::from(name)].into_iter().chain(quantiles).collect());
    };
    let stream = lab.stream(PAGE);
    let (front, alone) = front(&mut lab, stream)?;
    keep("baseline".into(), &alone);
    let most = mb_s(&lab.measure(Stream { pace: Pace::Closed { depth: 32 }, ..lab.stream(4 * PAGE) })?);
    for share in PRESSURES {
        let rate = share * most;
        keep(format!("{rate:.1} MB/s of reads"), &beside(&mut lab, &front, 0.0, rate)?[0]);
    }
    let reread = Stream { range: 0..REREAD_BYTES.min(lab.bytes()), ..front.clone() };
    keep("20 MiB again and again".into(), &lab.run_one(reread)?);
    let overwrite = Stream { write_share: 1.0, until: Until::First, ..lab.stream(PAGE) };
    keep("overwriting one at a time".into(), &lab.run(&[front, overwrite])?[0]);
    lab.rest()?;
    let columns = [
        ("scenario", ""),
        ("50 %", "us"),
        ("99 %", "us"),
        ("99.5 %", "us"),
        ("99.9 %", "us"),
        ("99.95 %", "us"),
        ("99.99 %", "us"),
    ];
    lab.table("Tails of 4-KiB random reads", &columns, rows);
    Ok(lab.found)
}
