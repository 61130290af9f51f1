//! The mechanics of a disk, from outside.
//!
//! A sector written again completes one turn later (Worthington, Ganger, Patt and Wilkes, SIGMETRICS 1995). Between
//! two nearby sectors the least time is the command's overhead (Talagala, Arpaci-Dusseau and Patterson, 1999: Skippy).
//! Between two distant sectors the platter's wait is spread evenly over a turn, so the least of n times is the seek
//! and an n-th turn.

use super::buffer::DISK_US;
use super::lab::{KIB, Lab, MIB, PAGE, iops, latencies_us, line};
use crate::experiment::{Cost, Experiment, Setup};
use crate::findings::{Findings, SEEK_CURVE, ZONE_CURVE};
use crate::fit::{Estimate, bootstrap, mean, median};
use crate::target::{Pace, Pattern, Samples, Stream, Target, TargetError, Until};
use entresol_core::Random;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "disk",
    about: "rotation, overheads, seek curve, zones and write settling of a disk",
    source: "Worthington et al. 1995; Talagala et al. 1999 (Skippy)",
    after: &["fill"],
    plan,
    run,
};

/// Range of a disk's turn, in microseconds: 2,400 to 40,000 turns a minute.
const TURNS_US: std::ops::Range<f64> = 1_500.0..25_000.0;

/// Pairs at each distance.
const PAIRS: usize = 160;

/// I/Os of which the least gives an overhead.
const NEARBY: u64 = 500;

/// The part of a track that nearby sectors are in.
const NEARBY_BYTES: u64 = 256 * KIB;

const POSITIONS: u64 = 25;
const ZONE_BYTES: u64 = 16 * MIB;

/// Distances of the seek curve, as powers of 2 of the working set's share.
const DISTANCES: std::ops::Range<i32> = 1..17;

fn plan(_: &Setup) -> Cost {
    let (seeks, page) = ((DISTANCES.len() + 9) as u64 * 2 * PAIRS as u64, u64::from(PAGE));
    let writes = (2 * NEARBY + 3 * 2 * PAIRS as u64) * page;
    let reads = seeks * page + POSITIONS * ZONE_BYTES + 4 * NEARBY * page;
    // A slow disk takes 15 ms for a random I/O.
    let ios = seeks + 4 * NEARBY + 4 * PAIRS as u64 + 1_000;
    Cost { read_bytes: reads, written_bytes: writes, seconds: ios as f64 * 0.015 }
}

fn run(target: &mut dyn Target, setup: &Setup, seed: u64) -> Result<Findings, TargetError> {
    let mut lab = Lab::new(EXPERIMENT.name, target, setup, seed);
    let typical = lab.typical_us(lab.stream(PAGE), 32)?;
    let turn = if typical > DISK_US { turn(&mut lab)? } else { None };
    lab.fit("rotates", "", Estimate::exact(f64::from(u8::from(turn.is_some()))));
    let Some(turn) = turn else {
        lab.note("nothing turns: random reads are fast, or a sector written again is not a turn later");
        return Ok(lab.found);
    };
    lab.fit("rpm", "1/min", turn.map(|us| 60e6 / us));
    let turn = turn.value;
    let overheads = [overhead(&mut lab, "read", 0.0)?, overhead(&mut lab, "write", 1.0)?];
    let outer_mb_s = zones(&mut lab)?;
    seeks(&mut lab, turn, overheads, outer_mb_s)?;
    queue(&mut lab)?;
    Ok(lab.found)
}

/// Time of a turn in microseconds: between completions of a sector that is written durably again and again.
fn turn(lab: &mut Lab<'_>) -> Result<Option<Estimate>, TargetError> {
    let stream = Stream {
        write_share: 1.0,
        pattern: Pattern::Same,
        flush_every: Some(1),
        until: Until::Count(200),
        keep_raw: true,
        ..lab.stream(PAGE)
    };
    let samples = lab.run_one(stream)?;
    let gaps: Vec<f64> = samples.raw.windows(2).map(|pair| (pair[1].0 - pair[0].0) as f64 / 1e3).collect();
    let seed = lab.seed();
    let turn = bootstrap(&gaps, seed, median);
    Ok(TURNS_US.contains(&turn.value).then_some(turn))
}

/// Time that a command costs before the medium, in microseconds: fits it as `NAME_overhead_us` and returns it.
fn overhead(lab: &mut Lab<'_>, name: &str, write_share: f64) -> Result<f64, TargetError> {
    let bytes = lab.granule();
    let range = 0..NEARBY_BYTES.min(lab.bytes());
    let stream = Stream { write_share, range, until: Until::Count(NEARBY), keep_raw: true, ..lab.stream(bytes) };
    // The first I/O comes from elsewhere.
    let found = least(&latencies_us(&lab.run_one(stream)?)[1..]);
    lab.fit(&format!("{name}_overhead_us"), "us", found);
    Ok(found.value)
}

/// The lower end of values that are spread evenly above it.
fn least(values: &[f64]) -> Estimate {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    // The gaps between the smallest few values are as wide as the one below the smallest.
    let gap = (sorted[4] - sorted[0]) / 4.0;
    Estimate { value: (sorted[0] - gap).max(0.0), low: (sorted[0] - 3.7 * gap).max(0.0), high: sorted[0] }
}

/// Bandwidth by position; gives the outer edge's in MB/s.
fn zones(lab: &mut Lab<'_>) -> Result<f64, TargetError> {
    let mut rates = Vec::new();
    for i in 0..POSITIONS {
        let start = (lab.bytes() - ZONE_BYTES.min(lab.bytes())) / MIB * i / (POSITIONS - 1) * MIB;
        let stream = Stream {
            pattern: Pattern::Sequential,
            range: start..start + ZONE_BYTES.min(lab.bytes()),
            pace: Pace::Closed { depth: 2 },
            until: Until::Count(ZONE_BYTES.min(lab.bytes()) / (256 * KIB)),
            keep_raw: true,
            ..lab.stream(256 * KIB as u32)
        };
        rates.push((start as f64, rate_behind_first(&lab.run_one(stream)?)));
    }
    let (outer, inner) = (rates[0].1, rates[rates.len() - 1].1);
    // Each position has one run: a turn more or less in 16 MiB is 3 %.
    let within = |rate: f64| Estimate { value: rate, low: rate * 0.97, high: rate * 1.03 };
    lab.fit("outer_mb_s", "MB/s", within(outer));
    lab.fit("inner_mb_s", "MB/s", within(inner));
    lab.curves(ZONE_CURVE, "bytes from the outer edge", "MB/s", vec![line("sequential read", rates)]);
    Ok(outer)
}

/// MB/s of a run of equal I/Os from the first completion on: the seek to the first is no part of it.
fn rate_behind_first(samples: &Samples) -> f64 {
    let (first, last) = (samples.raw[0].0, samples.raw[samples.raw.len() - 1].0);
    samples.bytes as f64 * (1.0 - 1.0 / samples.raw.len() as f64) * 1e3 / (last - first).max(1) as f64
}

/// Seek times by distance, the mean seek, and the extra settling time of a write.
fn seeks(lab: &mut Lab<'_>, turn: f64, overheads: [f64; 2], outer_mb_s: f64) -> Result<(), TargetError> {
    // MB/s times us is bytes. Skew between tracks makes a track longer than this product.
    let track = outer_mb_s * turn;
    let transfer = f64::from(lab.granule()) / outer_mb_s;
    let own = |write_share: f64| transfer + if write_share > 0.0 { overheads[1] } else { overheads[0] };
    let seek = |lab: &mut Lab<'_>, distance: u64, write_share: f64, count: usize| -> Result<Estimate, TargetError> {
        // A bit more than a track of jitter has every angle between the two equally likely.
        let times = pairs(lab, distance, (1.3 * track) as u64, write_share, count)?;
        let shortest = times.iter().copied().fold(f64::MAX, f64::min);
        let seek = shortest - turn / (times.len() + 1) as f64 - own(write_share);
        // The least of n waits is exponential with the mean of an n-th turn.
        let gap = turn / times.len() as f64;
        Ok(Estimate { value: seek.max(0.0), low: (seek - 2.7 * gap).max(0.0), high: seek + gap })
    };
    let next_track = (1.25 * track) as u64 / KIB * KIB;
    let first = seek(lab, next_track, 0.0, PAIRS)?;
    lab.fit("track_to_track_us", "us", first);
    let mut curve = vec![(next_track as f64, first.value)];
    for power in DISTANCES.rev() {
        let distance = (lab.bytes() as f64 * 0.96 / 2f64.powi(power - 1)) as u64 / KIB * KIB;
        if distance > 2 * next_track {
            let found = seek(lab, distance, 0.0, PAIRS)?;
            // Tracks go back and forth over the surfaces: far sectors may happen to be on one cylinder. A longer seek
            // takes no less than a shorter one.
            let before = curve[curve.len() - 1].1;
            curve.push((distance as f64, found.value.max(before)));
            if power == 1 {
                lab.fit("full_stroke_us", "us", found);
            }
        }
    }
    lab.curves(SEEK_CURVE, "bytes", "us", vec![line("seek", curve)]);

    let stream = Stream { keep_raw: true, until: Until::Count(1_000), ..lab.stream(lab.granule()) };
    let random = latencies_us(&lab.run_one(stream)?);
    let seed = lab.seed();
    lab.fit("average_seek_us", "us", bootstrap(&random, seed, |us| mean(us) - turn / 2.0 - own(0.0)));

    let middle = lab.bytes() / 8 / KIB * KIB;
    let (read, write) = (seek(lab, middle, 0.0, 3 * PAIRS)?, seek(lab, middle, 1.0, 3 * PAIRS)?);
    let settle = Estimate {
        value: (write.value - read.value).max(0.0),
        low: (write.low - read.high).max(0.0),
        high: (write.high - read.low).max(0.0),
    };
    lab.fit("write_settle_us", "us", settle);
    Ok(())
}

/// Times of I/Os at a distance from the one before, from near the outer edge inwards.
fn pairs(
    lab: &mut Lab<'_>,
    distance: u64,
    jitter: u64,
    write_share: f64,
    count: usize,
) -> Result<Vec<f64>, TargetError> {
    let granule = u64::from(lab.granule());
    let most = lab.bytes().saturating_sub(distance + jitter + granule);
    let near = (lab.bytes() / 50).min(most);
    let mut random = Random::new(lab.seed());
    let offsets: Vec<u64> = (0..count)
        .flat_map(|_| {
            let from = random.below(near / granule + 1) * granule;
            let to = from + (distance + random.below(jitter + 1)) / granule * granule;
            [from, to]
        })
        .collect();
    let until = Until::Count(offsets.len() as u64);
    let stream =
        Stream { write_share, pattern: Pattern::List(offsets), until, keep_raw: true, ..lab.stream(granule as u32) };
    Ok(latencies_us(&lab.run_one(stream)?).into_iter().skip(1).step_by(2).collect())
}

/// Gain of a queue: a drive may choose among waiting commands. Fits `queue_gain`, the I/Os a second at depth 32
/// over those at depth 1.
fn queue(lab: &mut Lab<'_>) -> Result<(), TargetError> {
    let mut rates = Vec::new();
    for depth in [1, 4, 16, 32] {
        let stream = Stream { pace: Pace::Closed { depth }, until: Until::Count(1_000), ..lab.stream(PAGE) };
        rates.push((f64::from(depth), iops(&lab.run_one(stream)?)));
    }
    lab.fit("queue_gain", "", Estimate::exact(rates[3].1 / rates[0].1));
    lab.curves(
        "Random reads of a disk by queue depth",
        "queue depth",
        "I/Os a second",
        vec![line("random read", rates)],
    );
    Ok(())
}
