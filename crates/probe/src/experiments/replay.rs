//! Replay of a trace, one I/O at a time in its order (002, section 4.8, figure 11). Without a trace the replay takes a
//! mix like the paper's `prn_1` (table 2): three reads for each write, nine in ten of them in a tenth of the range.

use super::lab::{Lab, PAGE, cdf, line, points, quantile_cell};
use crate::experiment::{Cost, Experiment, Replayed, Setup};
use crate::findings::{Cell, Findings};
use crate::target::{Pattern, Stream, Target, TargetError, Until};
use entresol_core::Random;
use entresol_device::load::Histogram;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "replay",
    about: "a trace, or a mix like one, as the device answers it",
    source: "002, section 4.8, figure 11, table 2",
    after: &["fill"],
    plan,
    run,
};

fn plan(setup: &Setup) -> Cost {
    match &setup.trace {
        None => points(setup, 1, PAGE, 0.25) + points(setup, 1, PAGE, 0.0),
        Some(trace) => {
            let moved =
                |writes| -> u64 { trace.iter().filter(|io| io.is_write == writes).map(|io| u64::from(io.bytes)).sum() };
            let slow = trace.len() as f64 * 0.01;
            Cost { read_bytes: moved(false), written_bytes: moved(true), seconds: slow }
        }
    }
}

fn run(target: &mut dyn Target, setup: &Setup, seed: u64) -> Result<Findings, TargetError> {
    let mut lab = Lab::new(EXPERIMENT.name, target, setup, seed);
    let synthetic;
    let trace = match &setup.trace {
        Some(trace) => trace,
        None => {
            lab.note("no trace was given: three reads for each write, nine in ten in a tenth of the range");
            let count = match lab.sized(lab.stream(PAGE))?.until {
                Until::Count(count) => count,
                _ => setup.ios,
            };
            synthetic = mix(count, lab.bytes(), lab.seed());
            &synthetic
        }
    };
    let all = [Histogram::default(), Histogram::default()];
    let [mut reads, mut writes] = all;
    // Consecutive I/Os of one kind and size form one stream.
    for run in trace.chunk_by(|a, b| (a.is_write, a.bytes) == (b.is_write, b.bytes)) {
        let stream = Stream {
            write_share: f64::from(u8::from(run[0].is_write)),
            pattern: Pattern::List(run.iter().map(|io| io.offset).collect()),
            until: Until::Count(run.len() as u64),
            keep_raw: true,
            ..lab.stream(run[0].bytes)
        };
        let samples = lab.run_one(stream)?;
        let into = if run[0].is_write { &mut writes } else { &mut reads };
        samples.raw.iter().for_each(|raw| into.record(raw.1));
    }
    let row = |name: &str, histogram: &Histogram| -> Vec<Cell> {
        let quantiles = [0.5, 0.99, 0.999, 0.9999].map(|q| quantile_cell(histogram, q));
        [name.into(), (histogram.count() as f64).into(), (histogram.mean() / 1e3).into()]
            .into_iter()
            .chain(quantiles)
            .collect()
    };
    let rows = vec![row("reads", &reads), row("writes", &writes)];
    lab.curves("Replayed I/Os", "us", "share of I/Os", vec![line("reads", cdf(&reads)), line("writes", cdf(&writes))]);
    let columns = [
        ("kind", ""),
        ("I/Os", ""),
        ("mean", "us"),
        ("50 %", "us"),
        ("99 %", "us"),
        ("99.9 %", "us"),
        ("99.99 %", "us"),
    ];
    lab.table("Replayed I/Os", &columns, rows);
    Ok(lab.found)
}

fn mix(count: u64, bytes: u64, seed: u64) -> Vec<Replayed> {
    let mut random = Random::new(seed);
    let pages = bytes / u64::from(PAGE);
    let hot = (pages / 10).max(1);
    let io = |random: &mut Random| {
        let within = if random.chance(0.9) { hot } else { pages };
        let offset = random.below(within) * u64::from(PAGE);
        Replayed { offset, bytes: PAGE, is_write: random.chance(0.25) }
    };
    (0..count).map(|_| io(&mut random)).collect()
}
