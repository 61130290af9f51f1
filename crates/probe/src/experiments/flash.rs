//! Costs of a flash drive's media, measured from outside.
//!
//! A page in the drive's buffer costs everything but the media. The difference to a page outside the buffer, for one
//! and for two pages of a program, gives the time to sense and the rate of a channel. A die that programs makes reads
//! wait: beside a few writes the waits of reads that meet a program are spread evenly over 0 to its time. The rate of
//! settled sequential writes times that time is the amount that all dies program together.

use super::buffer::{DISK_US, FASTER, hit_and_miss};
use super::lab::{KIB, Lab, MIB, PAGE, latencies_us, points, settled_mb_s, tries_at};
use crate::experiment::{Cost, Experiment, Setup};
use crate::findings::Findings;
use crate::fit::{Estimate, bootstrap, bootstrap_groups, median, percentile};
use crate::target::{Pace, Pattern, Stream, Target, TargetError, Until};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "flash",
    about: "time to sense and to program a page, channel rate, how much is programmed at once",
    source: "after Chen, Lee and Zhang (HPCA 2011): internals from latencies",
    after: &["fill"],
    plan,
    run,
};

/// Writes beside reads: a rate at which a die seldom has two programs to do.
const WRITES_A_SECOND: f64 = 1_000.0;
const WRITE: u32 = 16 * KIB as u32;

/// Reads measured beside writes, where time suffices.
const READS_BESIDE_WRITES: u64 = 20_000;

/// Time that these reads would take alone, in seconds.
const BESIDE_WRITES_S: f64 = 4.0;

/// Sequential writes that fill any buffer, so that the rate behind it shows.
const SETTLING_BYTES: u64 = 64 * MIB;

fn plan(setup: &Setup) -> Cost {
    let few = Cost { read_bytes: 1_024 * u64::from(PAGE), written_bytes: SETTLING_BYTES, seconds: 4.0 };
    points(setup, 1, PAGE, 0.0) + points(setup, 1, 2 * PAGE, 0.0) + few + program_cost(setup)
}

fn run(target: &mut dyn Target, setup: &Setup, seed: u64) -> Result<Findings, TargetError> {
    let mut lab = Lab::new(EXPERIMENT.name, target, setup, seed);
    let (hit, miss) = hit_and_miss(&mut lab)?;
    if hit > FASTER * miss {
        lab.note("a page read again is not faster: no buffer, so media and the rest cannot be told apart");
        return Ok(lab.found);
    }
    if miss > DISK_US {
        lab.note("random reads take more than 1 ms: no flash");
        return Ok(lab.found);
    }
    sense(&mut lab)?;
    match program_busy(&mut lab)? {
        Some(busy) => {
            lab.fit("program_busy_us", "us", busy);
            let stream = Stream {
                write_share: 1.0,
                pattern: Pattern::Sequential,
                pace: Pace::Closed { depth: 8 },
                until: Until::Count(SETTLING_BYTES / (256 * KIB)),
                keep_raw: true,
                ..lab.stream(256 * KIB as u32)
            };
            let samples = lab.run_one(stream)?;
            let seed = lab.seed();
            let rate = settled_mb_s(&samples, 256 * KIB as u32, seed);
            // MB/s times us is bytes.
            let at_once = |rate: f64, busy: f64| rate * busy / KIB as f64;
            lab.fit(
                "program_parallel_kib",
                "KiB",
                Estimate {
                    value: at_once(rate.value, busy.value),
                    low: at_once(rate.low, busy.low),
                    high: at_once(rate.high, busy.high),
                },
            );
        }
        None => lab.note("too few reads met a program to tell how long one takes"),
    }
    lab.rest()?;
    Ok(lab.found)
}

/// Time to sense and rate of a channel.
fn sense(lab: &mut Lab<'_>) -> Result<(), TargetError> {
    let mut groups = Vec::new();
    for bytes in [PAGE, 2 * PAGE] {
        let again = Stream { pattern: Pattern::Same, keep_raw: true, until: Until::Count(200), ..lab.stream(bytes) };
        // The first read of the page brings it into the buffer.
        groups.push(latencies_us(&lab.run_one(again)?).split_off(1));
        let anywhere = Stream { align: 2 * PAGE, keep_raw: true, ..lab.stream(bytes) };
        groups.push(latencies_us(&lab.measure(anywhere)?));
    }
    let extra =
        |groups: &[Vec<f64>]| (median(&groups[1]) - median(&groups[0]), median(&groups[3]) - median(&groups[2]));
    let seeds = [lab.seed(), lab.seed()];
    let sense = bootstrap_groups(&groups, seeds[0], |groups| {
        let (one, two) = extra(groups);
        2.0 * one - two
    });
    lab.fit("sense_us", "us", sense);
    let (one, two) = extra(&groups);
    if two - one > 0.01 * one {
        let channel = bootstrap_groups(&groups, seeds[1], |groups| {
            let (one, two) = extra(groups);
            f64::from(PAGE) / (two - one)
        });
        lab.fit("channel_mb_s", "MB/s", channel);
    } else {
        lab.note("two pages of a program take no longer than one: the rate of a channel does not show");
    }
    Ok(())
}

/// The cost of [`program_busy`]: beside writes, reads take up to half as long again.
pub(super) fn program_cost(setup: &Setup) -> Cost {
    let seconds = 1.5 * BESIDE_WRITES_S;
    let reads = setup.ios.max(READS_BESIDE_WRITES) + 1_000 + tries_at(1);
    Cost {
        read_bytes: reads * u64::from(PAGE),
        written_bytes: (WRITES_A_SECOND * seconds * f64::from(WRITE)) as u64,
        seconds: seconds + 2.0,
    }
}

/// Time that a program keeps its die busy; `None` where too few reads met one.
pub(super) fn program_busy(lab: &mut Lab<'_>) -> Result<Option<Estimate>, TargetError> {
    let end = lab.bytes();
    let apart = end / 4 * 3 / MIB * MIB;
    let reads = lab.sized(Stream { range: 0..apart.max(u64::from(PAGE)), keep_raw: true, ..lab.stream(PAGE) })?;
    let idle = latencies_us(&lab.run_one(Stream { until: Until::Count(1_000), ..reads.clone() })?);
    let writes = Stream {
        write_share: 1.0,
        range: apart..end,
        pattern: Pattern::Sequential,
        pace: Pace::Open { per_second: WRITES_A_SECOND },
        until: Until::First,
        ..lab.stream(WRITE)
    };
    let ordinary = median(&idle);
    // A few in a hundred reads meet a program, and some hundred have to.
    let most = lab.setup.ios.max(READS_BESIDE_WRITES) as f64;
    let reads = Stream { until: Until::Count(most.min(BESIDE_WRITES_S * 1e6 / ordinary) as u64), ..reads };
    let beside = latencies_us(&lab.run(&[reads, writes])?.swap_remove(0));
    lab.rest()?;
    let quiet = percentile(&idle, 0.99) - ordinary + 5.0;
    let waits: Vec<f64> = beside.iter().map(|us| us - ordinary).filter(|wait| *wait > quiet).collect();
    if waits.len() < 50 {
        return Ok(None);
    }
    // A tenth of a first guess keeps short waits for channels out of the sample.
    let least = (0.1 * percentile(&waits, 0.95)).max(quiet);
    let waits: Vec<f64> = waits.into_iter().filter(|wait| *wait > least).collect();
    let seed = lab.seed();
    let longest = |waits: &[f64]| least + (percentile(waits, 0.9) - least) / 0.9;
    Ok((waits.len() >= 30).then(|| bootstrap(&waits, seed, longest)))
}
